"""A mean of an exact sum over a noisy count, with a floor of the noise scale.

With a positive noisy count this is a noisy sum over a noisy count, which is
private. With a negative one the scale is cut off at 1e-12, and the sum is
divided by a number that does not hide it: a sum of 0 gives 0. The mechanism is
the one that dp_auditorium calls private. `means.private` is the twin.
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
_LEAST_SCALE = 1e-12
_ADD_OR_REMOVE = Adjacency.ADD_OR_REMOVE_ONE


def faulty(key: PRNGKey, data: Array) -> Array:
  """Returns the sum over a noisy count, plus noise over the noisy count."""
  count_key, noise_key = jax.random.split(key)
  count = data.shape[0] + 2 / EPSILON * jax.random.laplace(count_key)
  scale = jnp.maximum(2 / (EPSILON * count), _LEAST_SCALE)
  return jnp.sum(data) / count + scale * jax.random.laplace(noise_key)


BUG = bug.Bug(
    name='mean_of_floored_scale',
    title='The noise of a mean is floored at almost nothing where the noisy '
          'count is negative.',
    source='dp_auditorium, mechanism private_mean (Kong et al. 2024), '
           'https://github.com/google/differential-privacy/blob/main/python/'
           'dp_auditorium/dp_auditorium/mechanisms/mean.py',
    claim=claims.Claim(epsilon=EPSILON, delta=0.0, adjacency=_ADD_OR_REMOVE),
    true_epsilon=math.inf,
    faulty=faulty,
    fixed=lambda key, data: means.private(key, data, EPSILON),
    space=spaces.Records(adjacency=_ADD_OR_REMOVE, bounds=(0.0, 1.0)),
    worst=Pair(arrays.float32([0, 1]), arrays.float32([0]), 'sum 1 or sum 0'))
