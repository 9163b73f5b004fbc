"""An interval for a probability p, from noisy counts of both outcomes.

Statement. Of n records a are positive, where a is binomial (n, p) and n is
private. A = a + z and B = n - a + y are released, with independent noise z and
y. The interval contains p with probability at least 1 - miss, for every n and
p: nothing is asymptotic.

The interval is that of a test of T(p) = A - p (A + B), whose expectation is 0
whatever n is. The proof is in docs/theory/two_counts.md. A step in this module
is one of its steps: the range of n (1), the test (2), blocks of n (3), brackets
of p (4) and the search (5).
"""

import dataclasses
import functools
import math

import numpy as np
from scipy import stats

from dpjax.release.combinations import Combination
from dpjax.release.combinations import Grid
from dpjax.release.noise import Noise

# Share of `miss` for the range of n; share of alpha for tau; and eta.
_SIZE_MISS = 0.1
_TAU = 1e-3
_ETA = 0.03
# Blocks of n: largest d in standard deviations of T, unless there would be more
# blocks than this.
_SHIFT = 0.03
_BLOCKS = 160
# Half-width, in standard deviations, of the binomial counts that are summed.
_HALF_RANGE = 12.0
# Largest number of cells of this sum, so that a cell has at most 0.006 of the
# standard deviation of the counts, or this fraction of that of T.
_CELLS = 4000
_CELL = 0.003
# An end is computed to this fraction of its distance from the estimate.
_CLOSE = 2e-3


@functools.lru_cache(maxsize=64)
def interval(positive: int, other: int, noise: Noise,
             miss: float) -> tuple[float, float]:
  """Returns the interval for the probability of a positive record.

  Args:
    positive: noisy count A.
    other: noisy count B of all other records.
    noise: distribution of the noise of each.
    miss: probability of missing p, in (0, 1).
  """
  both = Combination(noise=noise, coefficients=(1.0, 1.0))
  width = math.ceil(both.half_width(_SIZE_MISS * miss))
  number = positive + other
  sizes = max(0, number - width), max(0, number + width)
  if sizes[1] < 1:
    return 0.0, 1.0  # Without records nothing follows.
  alpha = (1 - _SIZE_MISS) * miss / 2
  noise_width = both.half_width(_TAU * alpha)

  def end(first: int, second: int) -> float:
    return LowerEnd(seen=(first, second), sizes=sizes, noise=noise, alpha=alpha,
                    noise_bound=noise_width).search()

  return end(positive, other), 1 - end(other, positive)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LowerEnd:
  """The test of steps 2 to 4, for the lower end of the interval.

  Attributes:
    seen: released values A0 and B0.
    sizes: the least and the largest n.
    noise: distribution of z and of y.
    alpha: level of the test; p is rejected if g <= alpha for all n.
    noise_bound: h of step 4, the half-width of z + y.
  """
  seen: tuple[int, int]
  sizes: tuple[int, int]
  noise: Noise
  alpha: float
  noise_bound: float

  @functools.cached_property
  def estimate(self) -> float:
    """Returns the noisy proportion, clipped to [0, 1]."""
    return min(max(self.seen[0] / max(1, sum(self.seen)), 0.0), 1.0)

  @functools.cached_property
  def deviation(self) -> float:
    """Returns the standard deviation of T, nearly."""
    p = self.estimate
    return math.sqrt(self.sizes[1] * p * (1 - p)
                     + ((1 - p)**2 + p**2) * self.noise.deviation**2)

  @functools.cached_property
  def blocks(self) -> list[tuple[int, int]]:
    """Returns the least and the largest n of each block, largest first."""
    least, most = self.sizes
    shift = _SHIFT * self.deviation
    size = max(1 + math.floor(2 * shift**2 / math.log(1 / _ETA)),
               -(-(most - least + 1) // _BLOCKS))
    return [(max(least, top - size + 1), top)
            for top in range(most, least - 1, -size)]

  def search(self) -> float:
    """Returns nearly the largest p such that all below are rejected: step 5."""
    target = self._first_guess()
    tolerance = _CLOSE * (self.estimate - target)
    low, size = 0.0, target
    # All of [0, low] is rejected. A bracket that is not is halved, as the bound
    # of a shorter one is tighter.
    while size > tolerance and size > 0:
      if self.refused(low, low + size):
        low += size
        size = target - low
      else:
        size /= 2
    return low

  def _first_guess(self) -> float:
    """Returns where g at the likeliest n equals alpha, nearly."""
    # No proof needs it: the search tests all p below, and ends here at the
    # latest. If it is too small, the interval is only longer.
    number = min(max(sum(self.seen), *self.sizes[:1]), self.sizes[1])
    low, high = 0.0, self.estimate
    for _ in range(20):
      middle = (low + high) / 2
      if self.tail(middle, middle, number, number) <= self.alpha:
        low = middle
      else:
        high = middle
    return low

  def refused(self, p1: float, p2: float) -> bool:
    """Returns whether g(p, n) <= alpha for all p in [p1, p2] and all n."""
    return all(self.tail(p1, p2, *block) <= self.alpha
               for block in self.blocks)

  def tail(self, p1: float, p2: float, least: int, most: int) -> float:
    """Returns a bound of g(p, n) for p in [p1, p2] and n in a block."""
    gap = most - least
    shift = math.sqrt(gap * math.log(1 / _ETA) / 2)
    apart = (p2 - p1) * max(0.0, sum(self.seen) - most + self.noise_bound)
    # Step 4, solved for the binomial count plus (1 - p1) z - p1 y.
    above = (self.seen[0] + p1 * (most - sum(self.seen)) - apart - shift)
    middle, spread = most * p2, math.sqrt(most * p2 * (1 - p2))
    # 50 more for a p near 0 or 1, where the binomial is skew.
    half_range = _HALF_RANGE * spread + 50
    counts, probs = _binomial(
        most, p2, max(0, math.floor(middle - half_range)), min(most, math.ceil(
            middle + half_range)), math.floor(_CELL * self.deviation))
    grid, tails = self._noise(p1, spread)
    # 1e-9: a sum that is a grid point up to rounding counts as reached.
    places = np.ceil((above - counts) / grid.step - 1e-9) - grid.first
    above_all = np.where(places >= len(tails), 0.0, tails[
        np.clip(places, 0, len(tails) - 1).astype(int)])
    # 1e-12 is for the counts that are left out, and for rounding.
    prob = float(probs @ above_all) + 1e-12
    return ((prob + (_TAU * self.alpha if p2 > p1 else 0.0))
            / (1 - _ETA if gap else 1.0))

  def _noise(self, p: float, spread: float) -> tuple[Grid, np.ndarray]:
    """Returns the distribution of (1 - p) z - p y and its upper tails."""
    # A power of 2, so that one cached grid serves many brackets.
    return _grid(self.noise, p, 2.0**round(math.log2(max(spread, 1e-3))))


def _binomial(number: int, p: float, first: int, last: int,
              size: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns counts from first to last, and the probability of each.

  Each `size` counts, or more if there are too many, form one cell.
  """
  # All counts of a cell count as its largest, so no upper tail gets smaller.
  size = max(1, size, -(-(last - first + 1) // _CELLS))
  counts = np.arange(first, last + size, size, dtype=np.float64) + (size - 1)
  if size == 1:
    return counts, stats.binom.pmf(counts, number, p)
  upto = stats.binom.cdf(np.append(first - 1, counts), number, p)
  return counts, np.diff(upto)


@functools.lru_cache(maxsize=8)
def _grid(noise: Noise, p: float, spread: float) -> tuple[Grid, np.ndarray]:
  """Returns the distribution of (1 - p) z - p y on a grid, and its tails."""
  combination = Combination(noise=noise, coefficients=(1 - p, -p))
  grid = combination.grid(combination.step(spread) or 1.0)
  return grid, np.cumsum(grid.pmf[::-1])[::-1]
