"""A column without declared bounds gets no noise.

The sensitivity of its sum is unknown, and unknown was read as none. The twin
clips the column to [0, 1], with 0 for NaN, and gives half of epsilon to the sum
and half to the count.
"""

import math

import jax
import jax.numpy as jnp

from dpjax.audit import claims
from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import arrays
from experiments.audit_zoo import bug

EPSILON = 1.0
_ADD_OR_REMOVE = Adjacency.ADD_OR_REMOVE_ONE


def _released(key: PRNGKey, data: Array,
              bounds: tuple[float, float] | None) -> Array:
  """Returns a noisy count and sum; a column without bounds is unlimited."""
  sensitivity = 0.0
  if bounds is not None:
    data = jnp.clip(jnp.where(jnp.isnan(data), bounds[0], data), *bounds)
    sensitivity = max(map(abs, bounds))
  exact = jnp.array([data.shape[0], jnp.sum(data)])
  scales = 2 / EPSILON * jnp.array([1.0, sensitivity])
  return exact + scales * jax.random.laplace(key, (2,))


BUG = bug.Bug(
    name='column_without_bounds',
    title='The sum of a column without declared bounds is released without '
          'noise.',
    source='smartnoise-sdk, issue 317, '
           'https://github.com/opendp/smartnoise-sdk/issues/317',
    claim=claims.Claim(epsilon=EPSILON, delta=0.0, adjacency=_ADD_OR_REMOVE),
    true_epsilon=math.inf,
    faulty=lambda key, data: _released(key, data, None),
    fixed=lambda key, data: _released(key, data, (0.0, 1.0)),
    space=spaces.Records(adjacency=_ADD_OR_REMOVE),
    worst=Pair(arrays.float32([0, 1]), arrays.float32([0]), 'sum 1 or sum 0'))
