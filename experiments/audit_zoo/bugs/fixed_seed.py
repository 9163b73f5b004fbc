"""The seed of the noise has a public default.

Whoever knows the default subtracts the noise. The twin uses the key of the
call.
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


def fixed(key: PRNGKey, data: Array) -> Array:
  """Returns the sum of numbers in [0, 1] with Laplace noise."""
  return jnp.sum(data) + jax.random.laplace(key) / EPSILON


BUG = bug.Bug(
    name='fixed_seed',
    title='The seed of the noise has a default that everybody knows.',
    source='DataSynthesizer, pull request 46, '
           'https://github.com/DataResponsibly/DataSynthesizer/pull/46',
    claim=claims.Claim(epsilon=EPSILON, delta=0.0, adjacency=_ADD_OR_REMOVE),
    true_epsilon=math.inf,
    faulty=lambda key, data: fixed(jax.random.key(0), data), fixed=fixed,
    space=spaces.Records(adjacency=_ADD_OR_REMOVE, bounds=(0.0, 1.0)),
    worst=Pair(arrays.float32([0, 1]), arrays.float32([0]),
               'with 1 or without'))
