"""A sum with Laplace noise in single precision, as textbooks write it."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import claims
from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.privacy import laplace
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import bug

_ADJACENCY = Adjacency.ADD_OR_REMOVE_ONE
_MECHANISM = laplace.LaplaceMechanism(record_norm=1.0, epsilon=1.0,
                                      adjacency=_ADJACENCY)


def faulty(key: PRNGKey, data: Array) -> Array:
  """Adds floating-point noise to a floating-point sum."""
  # The sum decides how finely the result is spaced, and so which numbers can
  # be released at all.
  return jnp.sum(data) + jax.random.laplace(key)


def fixed(key: PRNGKey, data: Array) -> Array:
  """Rounds the noisy sum to a public grid."""
  return _MECHANISM.release(key, jnp.sum(data))


BUG = bug.Bug(
    name='laplace_float32',
    title='Laplace noise is added in float32, so that the set of numbers that '
    'can be released depends on the data.',
    source='Mironov (2012), https://doi.org/10.1145/2382196.2382264',
    claim=claims.Claim(epsilon=1.0, delta=0.0, adjacency=_ADJACENCY),
    true_epsilon=math.inf, faulty=faulty, fixed=fixed,
    space=spaces.Records(adjacency=_ADJACENCY, bounds=(0.0, 1.0)),
    worst=Pair(np.ones([1], np.float32), np.zeros([0], np.float32),
               'a sum of 1 or of 0'),
    floating_point=True)
