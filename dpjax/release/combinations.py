"""The distribution of a linear combination of independent draws of one noise.

The error of an estimate from several noisy sums has such a distribution. It is
computed on a grid on which every term is rounded up, so that tails, moments of
increasing functions and interval widths are never too small.
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

# The probability of noise beyond the grid; 1 - 1e-15 is 1 in float64.
_NEVER = 1e-15
# Cells of a grid per standard deviation, and at most on one side of 0.
_FINE = 400
_MOST = 20_000


class Grid(NamedTuple):
  """A distribution on the multiples of a step.

  Attributes:
    first: the least multiple, in steps.
    step: spacing, > 0.
    pmf: [N] probabilities of the multiples first, first + 1, ...
  """
  first: int
  step: float
  pmf: np.ndarray

  def plus(self, other: 'Grid') -> 'Grid':
    """Returns the distribution of an independent sum; steps must be equal."""
    pmf = signal.fftconvolve(self.pmf, other.pmf)
    return Grid(self.first + other.first, self.step, np.maximum(pmf, 0.0))

  @property
  def points(self) -> np.ndarray:
    """Returns the values [N] that have the probabilities `pmf`."""
    return self.step * (self.first + np.arange(len(self.pmf)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Combination:
  """The sum of coefficients times independent draws z_j of one noise.

  Noise is symmetric about 0, so signs of coefficients do not matter.

  Attributes:
    noise: distribution of every z_j.
    coefficients: real coefficients of z_1, z_2, ...
  """
  noise: Noise
  coefficients: tuple[float, ...]

  @functools.cached_property
  def _sizes(self) -> list[float]:
    """Returns the absolute coefficients that matter in float64."""
    sizes = [abs(float(c)) for c in self.coefficients]
    return [size for size in sizes if size > 1e-12 * max(sizes)]

  @property
  def deviation(self) -> float:
    """Returns the standard deviation of the combination."""
    return math.hypot(*self._sizes) * self.noise.deviation

  def log_moment(self, rates: np.ndarray) -> np.ndarray:
    """Returns an upper bound of ln E e^(rate * sum); may be infinite."""
    return sum((self.noise.log_moment(size * rates) for size in self._sizes),
               np.zeros(len(rates)))

  def step(self, other: float = 0.0) -> float:
    """Returns a step that is fine enough for the grid of the sum.

    Args:
      other: standard deviation of a variable that will be added to the sum.
    """
    most = sum(self._sizes) * self.noise.half_width(_NEVER)
    return max(math.hypot(self.deviation, other) / _FINE, most / _MOST)

  def grid(self, step: float) -> Grid:
    """Returns the distribution with terms rounded up to multiples of `step`."""
    total = Grid(0, step, np.ones(1))
    for size in self._sizes:
      last = math.ceil(size * self.noise.half_width(_NEVER) / step) + 1
      edges = np.arange(-last, last + 1)
      # What lies between two edges counts at the upper one: noise rounds up.
      above = self.noise.above(np.floor(edges * (step / size)) + 1)
      above[0], above[-1] = 1.0, 0.0  # The last cell holds the rest of a tail.
      total = total.plus(Grid(1 - last, step, -np.diff(above)))
    return total

  def normal_tail(self, excess: float,
                  deviations: tuple[float, float]) -> float:
    """Returns an upper bound of P(N(0, s^2) + sum >= excess), s in a range.

    Args:
      excess: any number.
      deviations: the least and the largest s; the largest is positive.
    """
    least, most = deviations
    grid = self.grid(self.step(most))
    gaps = grid.points - excess
    # P(N(0, s^2) >= -gap) rises with s for a negative gap, and falls otherwise.
    return float(grid.pmf @ special.ndtr(gaps / np.where(gaps < 0, most, max(
        least, 1e-300))))

  def half_width(self, miss: float) -> float:
    """Returns a w with P(|sum| > w) <= miss; the least w for one term."""
    if not self._sizes or not self.noise.half_width(_NEVER):
      return 0.0
    if len(self._sizes) == 1:
      return self._sizes[0] * self.noise.half_width(miss)
    grid = self.grid(self.step())
    # 1e-12 covers the rounding of the FFT in `plus`.
    tails = np.cumsum(grid.pmf[::-1])[::-1] - grid.pmf + 1e-12
    return float(grid.points[np.argmax(tails <= miss / 2)])


def farthest(accepted: Callable[[float], bool], start: float,
             end: float) -> float:
  """Returns the farthest accepted point on the way from `start` to `end`.

  It tests points from the end inwards, then bisects between the first accepted
  point and the rejected one before it. It returns a rejected point, or `end`:
  the interval from `start` contains every accepted point that was tested.

  Args:
    accepted: returns whether a point is accepted; `start` counts as accepted.
    start: inner end of the search.
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
  """Returns a confidence interval for a ratio of two sums; noise only.

  Statement. The interval covers the exact ratio with probability at least
  1 - miss, without any bound on the denominator (Fieller 1940, for normal
  noise).

  Proof. The exact ratio r of sums A and B solves A - r B = 0. So for this r the
  noisy A - r B is noise alone, of a known distribution. The interval contains
  all r for which it lies within the 1 - miss width of that distribution.

  Args:
    error: maps r to the noisy A - r B and to the combination of its noise.
    estimate: ratio where the search starts.
    ends: the least and the largest possible ratio.
    miss: probability of missing the ratio, in (0, 1).
  """
  def accepted(ratio: float) -> bool:
    value, combination = error(ratio)
    return abs(value) <= combination.half_width(miss) + 1e-12 * abs(value)

  start = min(max(estimate, ends[0]), ends[1])
  return (farthest(accepted, start, ends[0]),
          farthest(accepted, start, ends[1]))
