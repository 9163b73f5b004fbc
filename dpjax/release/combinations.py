"""The distribution of a linear combination of independent draws of one noise.

An estimate from several noisy sums has such an error. Its distribution is
computed on a grid on which every term is rounded up, so that tails, moments of
increasing functions and widths are never too small.
"""

from collections.abc import Callable
import dataclasses
import functools
import math
from typing import NamedTuple

import numpy as np
from scipy import signal
from scipy import special

from dpjax.release.noise import Noise

# Noise goes farther with a probability that float64 does not see beside 1.
_NEVER = 1e-15
# Cells of a grid: of one standard deviation, and of one side of all.
_FINE = 400
_MOST = 20_000


class Grid(NamedTuple):
  """A distribution on the multiples of a step.

  Attributes:
    first: the least multiple.
    step: > 0.
    pmf: probabilities of the multiples from `first` on.
  """
  first: int
  step: float
  pmf: np.ndarray

  def plus(self, other: 'Grid') -> 'Grid':
    """The distribution of an independent sum; both have the same step."""
    pmf = signal.fftconvolve(self.pmf, other.pmf)
    return Grid(self.first + other.first, self.step, np.maximum(pmf, 0.0))

  @property
  def points(self) -> np.ndarray:
    """Returns the values that have the probabilities `pmf`."""
    return self.step * (self.first + np.arange(len(self.pmf)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Combination:
  """The sum of coefficients times independent draws z_j of one noise.

  Noise is symmetric about 0, so only sizes of coefficients matter.

  Attributes:
    law: of every z_j.
    coefficients: of z_1, z_2, ...; real.
  """
  law: Noise
  coefficients: tuple[float, ...]

  @functools.cached_property
  def _sizes(self) -> list[float]:
    """Sizes of the coefficients that matter in float64."""
    sizes = [abs(float(c)) for c in self.coefficients]
    return [size for size in sizes if size > 1e-12 * max(sizes)]

  @property
  def deviation(self) -> float:
    """Returns the standard deviation of the combination."""
    return math.hypot(*self._sizes) * self.law.deviation

  def log_moment(self, rates: np.ndarray) -> np.ndarray:
    """ln E e^(rate * sum), at most; infinite where it may be."""
    return sum((self.law.log_moment(size * rates) for size in self._sizes),
               np.zeros(len(rates)))

  def step(self, other: float = 0.0) -> float:
    """A step that is fine enough for the grid of the sum.

    Args:
      other: standard deviation of what will be added to the sum.
    """
    reach = sum(self._sizes) * self.law.half_width(_NEVER)
    return max(math.hypot(self.deviation, other) / _FINE, reach / _MOST)

  def grid(self, step: float) -> Grid:
    """The distribution, with every term rounded up to a multiple of `step`."""
    total = Grid(0, step, np.ones(1))
    for size in self._sizes:
      reach = math.ceil(size * self.law.half_width(_NEVER) / step) + 1
      edges = np.arange(-reach, reach + 1)
      above = self.law.above(np.floor(edges * (step / size)) + 1)
      above[0], above[-1] = 1.0, 0.0  # what is beyond goes to the last cell
      total = total.plus(Grid(1 - reach, step, -np.diff(above)))
    return total

  def normal_tail(self, excess: float,
                  deviations: tuple[float, float]) -> float:
    """P(N(0, s^2) + sum >= excess), at most, for all s in a range.

    Args:
      excess: any number.
      deviations: the least s and the largest one, > 0.
    """
    least, most = deviations
    grid = self.grid(self.step(most))
    gaps = grid.points - excess
    return float(grid.pmf @ special.ndtr(gaps / np.where(gaps < 0, most, max(
        least, 1e-300))))

  def half_width(self, miss: float) -> float:
    """A width w with P(|sum| > w) <= miss; the least one for one term."""
    if not self._sizes or not self.law.half_width(_NEVER):
      return 0.0
    if len(self._sizes) == 1:
      return self._sizes[0] * self.law.half_width(miss)
    grid = self.grid(self.step())
    beyond = np.cumsum(grid.pmf[::-1])[::-1] - grid.pmf + 1e-12
    return float(grid.points[np.argmax(beyond <= miss / 2)])


def farthest(accepted: Callable[[float], bool], start: float,
             end: float) -> float:
  """Returns the farthest accepted point on the way from `start` to `end`.

  It looks from the end inwards at points that become closer towards the start,
  and halves the step between the first accepted point and the one beyond it.
  The returned point is the rejected one of the last two, so that an interval
  that ends there holds every accepted point, as far as the points tell.

  Args:
    accepted: whether a point is accepted; `start` counts as accepted.
    start: inner end.
    end: outer end, on either side of the start.
  """
  if accepted(end):
    return end
  outer, inner = end, start
  for share in np.geomspace(1, 1e-6, 25)[1:]:
    point = start + share * (end - start)
    if accepted(point):
      inner = point
      break
    outer = point
  for _ in range(30):
    middle = (inner + outer) / 2
    if abs(outer - inner) <= 1e-3 * abs(outer - start):
      break
    inner, outer = (middle, outer) if accepted(middle) else (inner, middle)
  return outer


def ratio_interval(
    error: Callable[[float], tuple[float, Combination]], estimate: float,
    ends: tuple[float, float], miss: float) -> tuple[float, float]:
  """Returns an interval for a ratio of two sums, whose noise is not too far.

  Statement. A ratio r of exact sums solves A - r B = 0. If noisy sums stand for
  A and B, then A - r B is a combination of the noise alone, whose distribution
  is known for every r. The interval holds all r for which it lies within its
  1 - miss width, so it covers the exact ratio with probability 1 - miss at
  least, with no bound of the denominator (Fieller 1940 for normal noise).

  Args:
    error: r -> the noisy A - r B, and the combination that it then is.
    estimate: where the search starts.
    ends: the least and the largest ratio that is possible.
    miss: in (0, 1).
  """
  def accepted(ratio):
    value, combination = error(ratio)
    return abs(value) <= combination.half_width(miss) + 1e-12 * abs(value)

  start = min(max(estimate, ends[0]), ends[1])
  return (farthest(accepted, start, ends[0]),
          farthest(accepted, start, ends[1]))
