"""A sum and a count are released, each with the whole epsilon.

Both move by 1 for a record of 1, so the cost is 2 epsilon. The twin gives half
of epsilon to each.
"""

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.audit import claims
from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Array, PRNGKey
from experiments.audit_zoo import bug

EPSILON = 1.0
_ADD_OR_REMOVE = Adjacency.ADD_OR_REMOVE_ONE


def _released(key: PRNGKey, data: Array, epsilon: float) -> Array:
  """Returns a noisy sum and a noisy count, each for `epsilon`."""
  exact = jnp.array([jnp.sum(data), data.shape[0]])
  return exact + jax.random.laplace(key, (2,)) / epsilon


BUG = bug.Bug(
    name='budget_spent_twice',
    title='Two queries spend the whole budget each.',
    source='Cebere et al. (2026, on MOSTLY AI), '
           'https://arxiv.org/abs/2602.17454',
    claim=claims.Claim(epsilon=EPSILON, delta=0.0, adjacency=_ADD_OR_REMOVE),
    true_epsilon=2 * EPSILON,
    faulty=lambda key, data: _released(key, data, EPSILON),
    fixed=lambda key, data: _released(key, data, EPSILON / 2),
    space=spaces.Records(adjacency=_ADD_OR_REMOVE, bounds=(0.0, 1.0)),
    worst=Pair(np.float32([0, 1]), np.float32([0]), 'with 1 or without'))
