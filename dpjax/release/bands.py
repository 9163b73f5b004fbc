"""Simultaneous bands for exact counts, from noisy counts at all thresholds.

Widths come from simulated noise, whose distribution is public. Take the largest
standardised error over all thresholds, for the real noise and for R simulated
ones: these R + 1 numbers are exchangeable. So the real one is at most the k-th
smallest simulated one with probability at least k / (R + 1), whatever the
distribution is. Bands of counts hold with their level for this reason. So do
bands of proportions, which increase in one count and decrease in another.
"""

from collections.abc import Callable, Mapping
import functools
import math
from typing import Any, NamedTuple

import numpy as np

from dpjax.release.query import Query
from dpjax.release.trees import Tree

SEED = 0
"""Seed of simulations with public inputs; no released noise comes from it."""

_LEAST_MISS = 1e-3


def check_confidence(query: Query) -> None:
  """Raises ValueError for a confidence that needs too many simulations."""
  if query.miss < _LEAST_MISS * (1 - 1e-9):
    raise ValueError(f'confidence must be at most {1 - _LEAST_MISS} for '
                     f'{query.statistic}, got {float(query.confidence)}')


def num_runs(miss: float) -> int:
  """Returns the number R of simulations for a band of level 1 - miss."""
  # The level holds for every R. With 20 or more errors beyond the band its
  # width varies little with the seed.
  return max(1_000, math.ceil(20 / miss)) - 1


class Bands(NamedTuple):
  """Ranges of numbers of records, for C classes at N thresholds.

  Attributes:
    lower: [2, C, N] least numbers of records at or below each threshold, and
      above it.
    upper: [2, C, N] largest numbers likewise.
  """
  lower: np.ndarray
  upper: np.ndarray

  def shares(self) -> tuple[np.ndarray, np.ndarray]:
    """Returns lower and upper ends [C, N] of proportions up to thresholds."""
    proportions = []
    # u / (u + a) rises in u and falls in a, so opposite ends are paired.
    for upto, above, empty in ((self.lower[0], self.upper[1], 0.0),
                               (self.upper[0], self.lower[1], 1.0)):
      both = upto + above
      proportions.append(np.divide(upto, both, where=both > 0,
                                   out=np.full(both.shape, empty)))
    return proportions[0], proportions[1]


def widths(tree: Tree, numbers: Callable[[np.ndarray], np.ndarray],
           *misses: float) -> list[np.ndarray]:
  """Returns half-widths of simultaneous bands, one for each miss.

  Args:
    tree: tree of the release.
    numbers: linear map of counts [C, N] to the numbers that the band covers.
    *misses: probabilities that the bands may miss, in (0, 1).
  """
  generator = np.random.default_rng(SEED)
  # Any scales give a valid band; these make it equally tight everywhere.
  deviations = np.sqrt(np.mean([
      numbers(error)**2 for error in tree.normal_errors(200, generator)], 0))
  # Known numbers have rounding errors only: their band has width 0.
  deviations *= deviations > 1e-9 * np.max(deviations)
  scales = np.where(deviations > 0, deviations, math.inf)
  runs = num_runs(min(misses))
  largest = np.sort([np.max(np.abs(numbers(error)) / scales)
                     for error in tree.errors(runs, generator)])
  # The least k with k / (R + 1) >= 1 - miss; 1e-9 is for rounding.
  return [deviations * largest[math.ceil((1 - miss) * (runs + 1) - 1e-9) - 1]
          for miss in misses]


class Fit:
  """Estimates of the exact counts from the released nodes of a tree.

  Attributes:
    tree: the tree that was released.
    total: n if it is public, else None.
    nodes: noisy counts of the nodes of each level.
    linear: [C, N] counts by least squares.
    counts: [C, N] nonnegative counts by least squares.
  """

  def __init__(self, tree: Tree, released: Mapping[str, Any]):
    self.tree = tree
    self.total = released.get('num_records')
    # A null is a node without bins; the solvers give it no weight.
    self.nodes = [np.array([count or 0 for count in level], np.float64)
                  for level in released['noisy_counts']]
    self.linear = tree.linear(self.nodes, self.total)
    self.counts = tree.nonnegative(self.nodes, self.total)

  @functools.cached_property
  def ranks(self) -> np.ndarray:
    """Returns estimated numbers [C, N] of records up to each threshold."""
    return np.cumsum(self.counts, -1)

  def shares(self) -> np.ndarray:
    """Returns proportions [C, N] of each class; 0 for a nearly empty class."""
    return self.ranks / np.maximum(self.ranks[:, -1:], 1.0)

  def bands(self, *misses: float) -> list[Bands]:
    """Returns simultaneous ranges of the file's counts, one for each miss."""
    return [self._band(width) for width in widths(self.tree, _both, *misses)]

  def _band(self, width: np.ndarray) -> Bands:
    """Returns monotone ranges of whole numbers within these half-widths."""
    estimates = _both(self.linear)
    most = math.inf if self.total is None else self.total
    # Counts are whole, so ends move inwards; 1e-6 keeps rounding from cutting.
    lower = np.clip(np.ceil(estimates - width - 1e-6), 0, most)
    upper = np.clip(np.floor(estimates + width + 1e-6), 0, most)
    # Ranks rise, so a lower end holds at all later thresholds, too, and an
    # upper end at all earlier ones; numbers above a threshold fall.
    for side, step in ((0, 1), (1, -1)):
      lower[side] = np.maximum.accumulate(
          lower[side][:, ::step], -1)[:, ::step]
      upper[side] = np.minimum.accumulate(
          upper[side][:, ::-step], -1)[:, ::-step]
    # Widened, if need be, to hold the nonnegative curve that is released.
    released = _both(self.counts)
    return Bands(np.minimum(lower, released), np.maximum(upper, released))


def _both(counts: np.ndarray) -> np.ndarray:
  """Returns sums [2, C, N] of counts [C, N]: up to each threshold, and above.
  """
  ranks = np.cumsum(counts, -1)
  return np.stack([ranks, ranks[:, -1:] - ranks])
