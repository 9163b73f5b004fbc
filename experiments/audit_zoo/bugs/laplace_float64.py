"""A sum with Laplace noise in double precision, as textbooks write it."""

import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import claims
from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.privacy import additive
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import bug

_ADJACENCY = Adjacency.ADD_OR_REMOVE_ONE


def faulty(key: PRNGKey, data: Array) -> Array:
  """Adds noise of 53 bits to a sum of 53 bits."""
  # Double precision hides the leak from a look at the first digits only.
  return jnp.sum(data) + jax.random.laplace(key, dtype=jnp.float64)


def fixed(key: PRNGKey, data: Array) -> Array:
  """Rounds the noisy sum to a public grid, far coarser than the last bits."""
  return additive.on_grid(faulty(key, data), 1.0)


BUG = bug.Bug(
    name='laplace_float64',
    title='Laplace noise is added in float64, so that the last bits of the '
    'answer depend on the data.',
    source='Mironov (2012), https://doi.org/10.1145/2382196.2382264',
    claim=claims.Claim(epsilon=1.0, delta=0.0, adjacency=_ADJACENCY),
    true_epsilon=math.inf, faulty=faulty, fixed=fixed,
    space=spaces.Records(adjacency=_ADJACENCY, bounds=(0.0, 1.0),
                         dtype=np.float64),
    worst=Pair(np.ones([1]), np.zeros([0]), 'a sum of 1 or of 0'),
    floating_point=True, double_precision=True)
