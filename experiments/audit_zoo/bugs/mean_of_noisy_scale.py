"""A mean over the exact count, with noise scaled by a noisy count.

The noisy count is negative with probability exp(-n epsilon / 2) / 2. Then the
scale is cut off at 1e-12 and the mean is released exactly, even in 64 bits.
`means.private` is the twin.
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
  """Returns the exact mean plus noise of scale 2 / (epsilon noisy count)."""
  count_key, noise_key = jax.random.split(key)
  size = data.shape[0]
  count = size + 2 / EPSILON * jax.random.laplace(count_key)
  scale = jnp.maximum(2 / (EPSILON * count), _LEAST_SCALE)
  return jnp.sum(data.astype(count.dtype)) / max(size, 1) + (
      scale * jax.random.laplace(noise_key))


BUG = bug.Bug(
    name='mean_of_noisy_scale',
    title='The noise of an exact mean is scaled by a noisy count, and vanishes '
          'if that is negative.',
    source='dp_auditorium, mechanism non_private_mean_v2 (Kong et al. 2024), '
           'https://github.com/google/differential-privacy/blob/main/python/'
           'dp_auditorium/dp_auditorium/mechanisms/mean.py',
    claim=claims.Claim(epsilon=EPSILON, delta=0.0, adjacency=_ADD_OR_REMOVE),
    true_epsilon=math.inf,
    faulty=faulty,
    fixed=lambda key, data: means.private(key, data, EPSILON),
    space=spaces.Records(adjacency=_ADD_OR_REMOVE, bounds=(0.0, 1.0)),
    worst=Pair(arrays.float32([1, 0]), arrays.float32([1]),
               'mean 1/2 or mean 1'),
    double_precision=True)
