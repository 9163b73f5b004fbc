"""Orders of quantiles, the ranks they aim at, and how far answers miss.

Three conventions for the rank of order p among n records live in one chapter
of the thesis (item QF-01, erratum QE-20); they differ by less than one rank.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.typing import Array

RANK_CONVENTIONS = ('floor', 'ceil', 'real')
# 100 * 0.29 is more than 29, and 100 * 0.57 is less than 57.
_SLACK = 1e-9


def check_orders(probs: Sequence[float]) -> np.ndarray:
  """Returns orders [m] as float64: increasing, strictly between 0 and 1."""
  found = np.asarray(probs, np.float64)
  if found.ndim != 1 or not found.size:
    raise ValueError('probs must be a sequence of one order or more, got an '
                     f'array of shape {found.shape}')
  for order in found:
    errors.check_open_unit('probs', float(order))
  if np.any(np.diff(found) <= 0):
    raise ValueError(f'probs must increase, got {found.tolist()}')
  return found


def floor_rank(share: Array) -> Array:
  """E(x), the floor, of products like n p that should be integers."""
  return jnp.floor(share + _SLACK)


def ceil_rank(share: Array) -> Array:
  """The ceiling, likewise."""
  return jnp.ceil(share - _SLACK)


def target(probs: Array, count: Array, convention: str) -> Array:
  """Rank [m] that orders [m] aim at among `count` records, float64.

  Args:
    probs: orders.
    count: n, an integer scalar.
    convention: 'floor', as QExp and RecExp are printed, 'ceil', the generalised
      inverse of the empirical distribution function, or 'real', n p itself.
  """
  errors.check_choice('convention', convention, RANK_CONVENTIONS)
  share = jnp.asarray(probs, jnp.float64) * jnp.asarray(count, jnp.float64)
  if convention == 'real':
    return share
  return floor_rank(share) if convention == 'floor' else ceil_rank(share)


def gaps(probs: Sequence[float]) -> np.ndarray:
  """Shares [m + 1] of records that orders [m] leave between them; on the host.
  """
  return np.diff(check_orders(probs), prepend=0.0, append=1.0)


def halvings(num_orders: int) -> list[np.ndarray]:
  """The balanced tree of m orders: of each level its nodes [nodes, 3].

  A node (low, middle, high) chooses order `middle` between the orders, or
  bounds, `low` and `high`, counted from 1; 0 and m + 1 are the bounds.
  """
  errors.check_at_least('num_orders', num_orders, 1)
  found, spans = [], [(0, num_orders + 1)]
  while spans:
    nodes = [(low, (low + high) // 2, high) for low, high in spans]
    found.append(np.array(nodes, np.int32))
    spans = [span for low, middle, high in nodes
             for span in ((low, middle), (middle, high))
             if span[1] - span[0] > 1]
  return found


def relative(probs: Sequence[float]) -> np.ndarray:
  """Orders [m] among the records of their own nodes of `halvings`."""
  known = np.concatenate([[0.0], check_orders(probs), [1.0]])
  low, middle, high = np.concatenate(halvings(len(known) - 2)).T
  shares = np.empty([len(known)])
  shares[middle] = (known[middle] - known[low]) / (known[high] - known[low])
  return shares[1:-1]


def value_sup(found: Array, quantiles: Array) -> Array:
  """max_j |q_j - F^-1(p_j)| of [..., m]: against the law's quantiles."""
  return jnp.max(jnp.abs(found - quantiles), -1)


def rank_errors(found: Array, ordered: Array, probs: Array,
                count: Array) -> Array:
  """|#{X <= q_j} - n p_j| [m], of sorted records [capacity].

  Args:
    found: answers [m].
    ordered: records, sorted; those from `count` on do not count.
    probs: orders [m].
    count: n.
  """
  below = jnp.minimum(jnp.searchsorted(ordered, found, side='right'), count)
  return jnp.abs(below.astype(jnp.float64)
                 - target(probs, count, 'real'))
