"""A bounded sum of integers overflows, and wraps around.

With records up to U = 2^30 the claimed sensitivity is U. The sum of two of them
is 2^31, which wraps to -2^31: three U away from the sum of one.

The twin stops at the largest integer: a sum cut off from above moves by no more
than the record (Casacuberta et al. 2022, saturating sums).
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

EPSILON, BOUND = 1.0, 2**30
_LARGEST = 2**31 - 1
_ADD_OR_REMOVE = Adjacency.ADD_OR_REMOVE_ONE


def _released(key: PRNGKey, total: Array) -> Array:
  """Returns an integer sum with noise for the sensitivity BOUND."""
  return (total.astype(jnp.float32) +
          BOUND / EPSILON * jax.random.laplace(key))


def saturating_sum(data: Array) -> Array:
  """Returns min(sum, 2^31 - 1) of non-negative int32, without overflow."""
  def add(total: Array, record: Array) -> tuple[Array, None]:
    # `_LARGEST - record` cannot overflow, as records are not negative.
    return jnp.where(total > _LARGEST - record, _LARGEST, total + record), None
  return jax.lax.scan(add, jnp.int32(0), data)[0]


BUG = bug.Bug(
    name='int32_sum_wraps',
    title='The sum of bounded integers overflows its 32 bits and wraps around.',
    source='Casacuberta et al. (2022, overflow), '
           'https://arxiv.org/abs/2207.10635',
    claim=claims.Claim(epsilon=EPSILON, delta=0.0, adjacency=_ADD_OR_REMOVE),
    true_epsilon=3 * EPSILON,
    faulty=lambda key, data: _released(key, jnp.sum(data)),
    fixed=lambda key, data: _released(key, saturating_sum(data)),
    space=spaces.Records(adjacency=_ADD_OR_REMOVE, bounds=(0, BOUND),
                         dtype=np.int32),
    worst=Pair(np.int32([BOUND, BOUND]), np.int32([BOUND]),
               'a sum of 2^31 or 2^30'))
