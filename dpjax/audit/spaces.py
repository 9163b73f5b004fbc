"""Spaces of legal data sets, from which an audit draws neighbours.

A space lists structured pairs of neighbours, most promising first, and changes
a pair at random into another legal pair. All pairs respect the adjacency and
every declared bound. Without bounds every number is a legal record, even a huge
one, infinity or NaN.
"""

import dataclasses
from typing import Any

import numpy as np

from dpjax import errors
from dpjax.audit import records
from dpjax.audit import target
from dpjax.audit.target import Pair
from dpjax.privacy.adjacency import Adjacency

Space = target.Space
Records = records.Records

# Bases, far from zero, of sums: float32 is still much finer than the noise.
_FAR = 64.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sums:
  """Sums [width] whose distance between neighbours is a sensitivity.

  Attributes:
    adjacency: which data sets are neighbours.
    sensitivity: largest distance of the sums of neighbours.
    order: order of the norm of that distance: 1, 2 or infinity.
    width: number of coordinates.
    dtype: dtype of the sums. Integers differ in one coordinate only, because
      shifts of several coordinates are fractions.
  """
  adjacency: Adjacency
  sensitivity: float
  order: float = 2
  width: int = 3
  dtype: Any = np.float32

  def __post_init__(self) -> None:
    errors.check_positive('sensitivity', self.sensitivity)

  def pairs(self) -> tuple[Pair, ...]:
    """Lists pairs that differ along one axis or in all coordinates.

    Pairs near zero and far from it reveal noise that grows with the data.
    Where the coordinates are answered in turn, a far one may end that.
    """
    width = self.width
    shifts = [np.eye(width)[place] for place in sorted({0, width - 1})]
    if width > 1 and np.dtype(self.dtype).kind not in 'iu':
      signs = np.where(np.arange(width) % 2, -1.0, 1.0)
      # All in one direction too: minima and maxima hardly feel the others.
      shifts += [each / np.linalg.norm(each, self.order)
                 for each in (signs, np.ones(width))]
    ends = np.eye(width)[[0, -1]] if width > 1 else np.zeros((0, width))
    bases = [part * self.sensitivity for part in (
        np.zeros(width), np.full(width, _FAR), *ends, *(_FAR * ends))]
    return tuple(self._pair(base, self.sensitivity * shift)
                 for base in bases for shift in shifts)

  def mutated(self, rng: np.random.Generator, pair: Pair) -> Pair:
    """Returns a pair with another base, or with another shift."""
    base: np.ndarray = np.asarray(pair.neighbour, np.float64)
    shift: np.ndarray = np.asarray(pair.data, np.float64) - base
    if rng.random() < 0.5:
      base = self.sensitivity * rng.choice([0.5, 1.0, 8.0, _FAR]) * (
          rng.standard_normal(self.width))
    elif np.dtype(self.dtype).kind in 'iu':
      shift = self.sensitivity * rng.permutation(np.eye(self.width)[0])
    else:
      direction = rng.standard_normal(self.width)
      if rng.random() < 0.5:  # a corner, where all coordinates move as far
        direction = np.sign(direction)
      shift = self.sensitivity * direction / np.linalg.norm(direction,
                                                            self.order)
    if np.dtype(self.dtype).kind in 'iu':
      # Rounded without a sign, as sums of unsigned integers are.
      base = np.floor(np.abs(base))
    return self._pair(base, shift)

  def _pair(self, base: np.ndarray, shift: np.ndarray) -> Pair:
    """Returns the pair of sums `base + shift` and `base`."""
    return Pair((base + shift).astype(self.dtype), base.astype(self.dtype),
                f'{records.text(shift)} from {records.text(base)}')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scores:
  """Scores [width] of candidates, each changed by the sensitivity at most.

  Attributes:
    adjacency: which data sets are neighbours.
    sensitivity: largest change of a score.
    monotone: True if all scores change in the same direction.
    width: number of candidates.
  """
  adjacency: Adjacency
  sensitivity: float
  monotone: bool = False
  width: int = 3

  def __post_init__(self) -> None:
    errors.check_positive('sensitivity', self.sensitivity)

  def pairs(self) -> tuple[Pair, ...]:
    """Lists pairs in which one score rises and the others fall, or stay."""
    width = self.width
    shift = np.full(width, 0.0 if self.monotone else -1.0)
    shift[0] = 1.0
    # Equal scores, then increasing and decreasing ones.
    tilt = np.linspace(0.0, 2.0, width) * self.sensitivity
    changes = ((shift, 'one up, others down'),
               (shift[::-1], 'the last up, others down'),
               (np.eye(width)[0], 'one up'), (np.ones(width), 'all up'))
    return tuple(self._pair(base, self.sensitivity * change, what)
                 for base in (np.zeros(width), tilt, -tilt)
                 for change, what in changes)

  def mutated(self, rng: np.random.Generator, pair: Pair) -> Pair:
    """Returns a pair with other scores, or with another change."""
    base = np.asarray(pair.neighbour, np.float64)
    shift = np.asarray(pair.data, np.float64) - base
    if rng.random() < 0.5:
      base = self.sensitivity * rng.choice([0.5, 2.0, 8.0]) * (
          rng.standard_normal(self.width))
    else:  # a corner of the legal changes
      shift = self.sensitivity * rng.choice(
          [0.0, 1.0] if self.monotone else [-1.0, 1.0], self.width)
    what = f'{records.text(shift)} from {records.text(base)}'
    return self._pair(base, shift, what)

  def _pair(self, base: np.ndarray, shift: np.ndarray, what: str) -> Pair:
    """Returns the pair of scores `base + shift` and `base`, in float32."""
    return Pair(np.float32(base + shift), np.float32(base), what)
