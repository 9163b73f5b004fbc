"""A sum of bounded numbers is rounded after each addition, in bfloat16.

From 256 on, bfloat16 has steps of 2, and of 1 just below. A sum of 258 loses
every subtraction of 0.9, while a sum of 256 falls by 1 with each. One record
before 50 such records therefore moves the sum by 52, and the claimed
sensitivity is 1.125. Even without them a record of 1.125 moves a sum above 256
by 2.

The twin rounds each record to a multiple of 1/8, once, and adds integers
exactly, so a record moves the sum by 1.125 at most.
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

EPSILON, BOUND = 1.0, 1.125
_STEPS = 8
_ADD_OR_REMOVE = Adjacency.ADD_OR_REMOVE_ONE


def rounded_sum(data: Array) -> Array:
  """Returns the sum of a loop in bfloat16."""
  def add(total: Array, record: Array) -> tuple[Array, None]:
    return total + record, None
  return jax.lax.scan(add, jnp.bfloat16(0), data.astype(jnp.bfloat16))[0]


def exact_sum(data: Array) -> Array:
  """Returns the exact sum of records rounded to multiples of 1/8."""
  return jnp.sum(jnp.round(data * _STEPS).astype(jnp.int32)) / _STEPS


def _released(key: PRNGKey, total: Array) -> Array:
  """Returns a sum with noise for the sensitivity BOUND."""
  return total.astype(jnp.float32) + BOUND / EPSILON * jax.random.laplace(key)


def _worst() -> Pair:
  """Returns sums that reach 258 or 256, before 50 records of -0.9."""
  loss, rise = np.full(50, -0.9, np.float32), np.full(400, BOUND, np.float32)
  # In NumPy, since importing this file must not compile anything.
  total, size = np.zeros((), jnp.bfloat16), 0
  while total < 256:
    total, size = total + rise[size].astype(jnp.bfloat16), size + 1
  return Pair(np.concatenate([rise[:size + 1], loss]),
              np.concatenate([rise[:size], loss]), 'a sum of 258 or 256')


BUG = bug.Bug(
    name='bfloat16_sum_rounds',
    title='A sum is rounded after each addition, so that one record moves it '
          'by more than its bound.',
    source='Casacuberta et al. (2022, repeated rounding), '
           'https://arxiv.org/abs/2207.10635',
    claim=claims.Claim(epsilon=EPSILON, delta=0.0, adjacency=_ADD_OR_REMOVE),
    # 258 after the losses, or 206.
    true_epsilon=EPSILON / BOUND * 52,
    faulty=lambda key, data: _released(key, rounded_sum(data)),
    fixed=lambda key, data: _released(key, exact_sum(data)),
    space=spaces.Records(adjacency=_ADD_OR_REMOVE, bounds=(-BOUND, BOUND),
                         sizes=(8, 300)),
    worst=_worst())
