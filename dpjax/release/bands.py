"""What released counts say of the exact ones, for all thresholds at once.

Widths come from simulated noise, whose law is public. Of R + 1 draws, one of
them real, the largest standardised errors are exchangeable: the real one is at
most the k-th of the R others with probability k / (R + 1) or more, whatever the
law. So bands of numbers hold with the level that they say, and those of shares,
which grow with one number and fall with another, with them.
"""

from collections.abc import Callable, Mapping
import functools
import math
from typing import NamedTuple

import numpy as np

from dpjax.release.query import Query
from dpjax.release.trees import Tree

SEED = 0
"""Of simulations of what is public; no noise of a release comes from it."""

_LEAST_MISS = 1e-3


def check_confidence(query: Query) -> None:
  """Refuses a level that would need too many simulations."""
  if query.miss < _LEAST_MISS * (1 - 1e-9):
    raise ValueError(f'confidence must be at most {1 - _LEAST_MISS} for '
                     f'{query.statistic}, got {float(query.confidence)}')


def num_runs(miss: float) -> int:
  """R, of simulations of a band that is missed so often."""
  return max(1_000, math.ceil(20 / miss)) - 1


class Bands(NamedTuple):
  """Ranges of numbers of records, of C classes at N thresholds.

  Attributes:
    lower: [2, C, N], of those up to each threshold, and of those above it.
    upper: [2, C, N] likewise.
  """
  lower: np.ndarray
  upper: np.ndarray

  def shares(self) -> tuple[np.ndarray, np.ndarray]:
    """Ends [C, N] of shares up to each threshold, a / (a + b) of the two."""
    ends = []
    for up, above, empty in ((self.lower[0], self.upper[1], 0.0),
                             (self.upper[0], self.lower[1], 1.0)):
      both = up + above
      ends.append(np.divide(up, both, where=both > 0,
                            out=np.full(both.shape, empty)))
    return ends[0], ends[1]


def widths(tree: Tree, numbers: Callable[[np.ndarray], np.ndarray],
           *misses: float) -> list[np.ndarray]:
  """How far numbers may be off, all at once, but with each probability.

  Args:
    tree: of the release.
    numbers: what is asked of counts [C, N], linear in them.
    *misses: in (0, 1).
  """
  generator = np.random.default_rng(SEED)
  deviations = np.sqrt(np.mean([
      numbers(error)**2 for error in tree.normal_errors(200, generator)], 0))
  # What is known errs by rounding.
  deviations *= deviations > 1e-9 * np.max(deviations)
  scales = np.where(deviations > 0, deviations, math.inf)
  runs = num_runs(min(misses))
  largest = np.sort([np.max(np.abs(numbers(error)) / scales)
                     for error in tree.errors(runs, generator)])
  return [deviations * largest[math.ceil((1 - miss) * (runs + 1) - 1e-9) - 1]
          for miss in misses]


class Fit:
  """What released nodes say of the counts.

  Attributes:
    tree: that was released.
    total: n, where it is public, else None.
    nodes: noisy counts, by level.
    linear: [C, N] counts by least squares.
    counts: [C, N] the same, made nonnegative.
  """

  def __init__(self, tree: Tree, released: Mapping[str, object]):
    self.tree = tree
    self.total = released.get('num_records')
    # Nodes without bins weigh nothing; a null is no number.
    self.nodes = [np.array([count or 0 for count in level], np.float64)
                  for level in released['noisy_counts']]
    self.linear = tree.linear(self.nodes, self.total)
    self.counts = tree.nonnegative(self.nodes, self.total)

  @functools.cached_property
  def ranks(self) -> np.ndarray:
    """[C, N] numbers at or below thresholds, never falling."""
    return np.cumsum(self.counts, -1)

  def shares(self) -> np.ndarray:
    """[C, N] of the records of each class; 0 where hardly any are left."""
    return self.ranks / np.maximum(self.ranks[:, -1:], 1.0)

  def bands(self, *misses: float) -> list[Bands]:
    """Ranges of the numbers of the file, all at once but for each miss."""
    return [self._band(width) for width in widths(self.tree, _both, *misses)]

  def _band(self, width: np.ndarray) -> Bands:
    """Whole numbers within widths, that rise or fall as they must."""
    found = _both(self.linear)
    most = math.inf if self.total is None else self.total
    lower = np.clip(np.ceil(found - width - 1e-6), 0, most)
    upper = np.clip(np.floor(found + width + 1e-6), 0, most)
    for side, step in ((0, 1), (1, -1)):
      lower[side] = np.maximum.accumulate(
          lower[side][:, ::step], -1)[:, ::step]
      upper[side] = np.minimum.accumulate(
          upper[side][:, ::-step], -1)[:, ::-step]
    # The curve that is released is in its band, if it had to leave it or not.
    released = _both(self.counts)
    return Bands(np.minimum(lower, released), np.maximum(upper, released))


def _both(counts: np.ndarray) -> np.ndarray:
  """[2, C, N] sums of counts [C, N] up to each threshold, and above it."""
  ranks = np.cumsum(counts, -1)
  return np.stack([ranks, ranks[:, -1:] - ranks])
