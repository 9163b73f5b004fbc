"""The bounds of a mean are the smallest and the largest record.

Where all records are equal the range is 0 and so is the noise. The twin has the
public bounds 0 and 1 and, with n public, the sensitivity 1 / n.
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
_REPLACE = Adjacency.REPLACE_ONE


def _mean(key: PRNGKey, data: Array, lower: Array | float,
          upper: Array | float) -> Array:
  """Returns the noisy mean of records clipped to bounds."""
  scale = (upper - lower) / (data.shape[0] * EPSILON)
  return jnp.mean(jnp.clip(data, lower, upper)) + (
      scale * jax.random.laplace(key))


BUG = bug.Bug(
    name='bounds_from_data',
    title='The bounds that scale the noise are the extremes of the private '
          'data.',
    source='diffprivlib, PrivacyLeakWarning: bounds are computed on the data '
           'if none are given (Holohan et al. 2019), '
           'https://arxiv.org/abs/1907.02444',
    claim=claims.Claim(epsilon=EPSILON, delta=0.0, adjacency=_REPLACE),
    true_epsilon=math.inf,
    faulty=lambda key, data: _mean(key, data, jnp.min(data), jnp.max(data)),
    fixed=lambda key, data: _mean(key, data, 0.0, 1.0),
    space=spaces.Records(adjacency=_REPLACE, bounds=(0.0, 1.0)),
    worst=Pair(arrays.float32([0, 0, 0, 1]), arrays.float32([0, 0, 0, 0]),
               'noise or none'))
