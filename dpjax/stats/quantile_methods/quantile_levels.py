"""Checks quantile levels, and computes their target ranks and rank errors.

A quantile level is p in (0, 1), an "order" in Lalanne (2023, chapter 6), which
uses three conventions for the rank of level p among n records (item QF-01,
erratum QE-20); they differ by less than one rank.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.typing import Array, ArrayLike

RANK_CONVENTIONS = ('floor', 'ceil', 'real')
# Slack for rounding: in floats 100 * 0.29 is below 29 and 100 * 0.57 below 57.
_SLACK = 1e-9


def check_levels(probs: Sequence[float]) -> np.ndarray:
  """Checks quantile levels and returns them as float64 [m].

  Raises:
    ValueError: unless they increase and lie strictly between 0 and 1.
  """
  levels = np.asarray(probs, np.float64)
  if levels.ndim != 1 or not levels.size:
    raise ValueError('probs must be a sequence of at least one level, got an '
                     f'array of shape {levels.shape}')
  for level in levels:
    errors.check_open_unit('probs', float(level))
  if np.any(np.diff(levels) <= 0):
    raise ValueError(f'probs must increase, got {levels.tolist()}')
  return levels


def floor_rank(product: Array | np.ndarray) -> Array:
  """Returns the floor of products like n p, robust to rounding errors."""
  return jnp.floor(product + _SLACK)


def ceil_rank(product: Array | np.ndarray) -> Array:
  """Returns the ceiling of products like n p, robust to rounding errors."""
  return jnp.ceil(product - _SLACK)


def target(probs: ArrayLike, count: ArrayLike, convention: str) -> Array:
  """Returns the target ranks [m] of levels [m] among `count` records, float64.

  Args:
    probs: quantile levels.
    count: n, an integer scalar.
    convention: 'floor', as QExp and RecExp are printed; 'ceil', the generalised
      inverse of the empirical distribution function; or 'real', n p itself.
  """
  errors.check_choice('convention', convention, RANK_CONVENTIONS)
  product = jnp.asarray(probs, jnp.float64) * jnp.asarray(count, jnp.float64)
  if convention == 'real':
    return product
  return floor_rank(product) if convention == 'floor' else ceil_rank(product)


def gaps(probs: Sequence[float]) -> np.ndarray:
  """Returns the fractions [m + 1] of records between the levels; on the host.
  """
  return np.diff(check_levels(probs), prepend=0.0, append=1.0)


def halvings(num_levels: int) -> list[np.ndarray]:
  """Returns the balanced tree of m levels: for each depth its nodes [nodes, 3].

  A node (low, middle, high) chooses level number `middle` between those
  numbered `low` and `high`. Numbers start from 1; 0 and m + 1 are the bounds.
  """
  errors.check_at_least('num_levels', num_levels, 1)
  levels, spans = [], [(0, num_levels + 1)]
  while spans:
    nodes = [(low, (low + high) // 2, high) for low, high in spans]
    levels.append(np.array(nodes, np.int32))
    # A span of two neighbours has no level between them and is a leaf.
    spans = [span for low, middle, high in nodes
             for span in ((low, middle), (middle, high))
             if span[1] - span[0] > 1]
  return levels


def relative(probs: Sequence[float]) -> np.ndarray:
  """Returns each level [m] relative to the records of its node in `halvings`.
  """
  levels = np.concatenate([[0.0], check_levels(probs), [1.0]])
  low, middle, high = np.concatenate(halvings(len(levels) - 2)).T
  fractions = np.empty([len(levels)])
  fractions[middle] = (levels[middle] - levels[low]) / (
      levels[high] - levels[low])
  return fractions[1:-1]


def value_sup(answers: Array, quantiles: Array) -> Array:
  """Returns max_j |q_j - F^-1(p_j)|, the error against true quantiles [..., m].
  """
  return jnp.max(jnp.abs(answers - quantiles), -1)


def rank_errors(answers: Array, ordered: Array, probs: Array,
                count: Array) -> Array:
  """Returns |#{X <= q_j} - n p_j| [m], for sorted records [capacity].

  Args:
    answers: [m].
    ordered: sorted records; entries from `count` on are padding.
    probs: quantile levels [m].
    count: n.
  """
  # Padding lies at the upper bound, so an answer there would count it too.
  below = jnp.minimum(jnp.searchsorted(ordered, answers, side='right'), count)
  return jnp.abs(below.astype(jnp.float64)
                 - target(probs, count, 'real'))
