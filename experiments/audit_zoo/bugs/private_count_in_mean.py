"""A mean whose noise is scaled by the exact number of records.

Under addition and removal the number n is private. The noise (u - l) / (n
epsilon) changes with it, and densities of Laplace noise of different scales
have an unbounded ratio in the tails. The same release arises where a noisy sum
is divided by n.

The twin spends half of epsilon on the sum, half on n, and divides the results.
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
from experiments.audit_zoo import means

EPSILON = 1.0
_ADD_OR_REMOVE = Adjacency.ADD_OR_REMOVE_ONE


def faulty(key: PRNGKey, data: Array) -> Array:
  """Returns the mean plus noise for the sensitivity 1 / n."""
  # One array shape has one n, so the division is by a constant when traced.
  size = max(data.shape[0], 1)
  return jnp.sum(data) / size + jax.random.laplace(key) / (size * EPSILON)


BUG = bug.Bug(
    name='private_count_in_mean',
    title='The noise of a mean is divided by the exact number of records, '
          'which is private.',
    source='smartnoise-core, issues 355 and 356, '
           'https://github.com/opendp/smartnoise-core/issues/356; '
           'Cebere et al. (2026, on Synthcity), '
           'https://arxiv.org/abs/2602.17454',
    claim=claims.Claim(epsilon=EPSILON, delta=0.0, adjacency=_ADD_OR_REMOVE),
    true_epsilon=math.inf,
    faulty=faulty,
    fixed=lambda key, data: means.private(key, data, EPSILON),
    space=spaces.Records(adjacency=_ADD_OR_REMOVE, bounds=(0.0, 1.0)),
    worst=Pair(arrays.float32([0, 1]), arrays.float32([0]),
               'one record or two'))
