r"""An interval for a probability p, from noisy counts of both outcomes.

a of n records are positive, a is binomial (n, p), and n is private. Released
are A = a + z and B = n - a + y, with independent noise z and y. The interval
holds p with probability 1 - miss at least, for every n and p: nothing is
asymptotic.

A probability p is tested by T(p) = (1 - p) A - p B = A - p (A + B), whose
expectation is 0 whatever n is: that n is not known exactly changes the variance
of T alone, where a count A by itself would move with n.

1. Range of n. With N = A + B, n is within w of N but with probability `size
   miss`, where w is the width of z + y (`Combination.half_width`).

2. Test. For A0, B0 that were seen, N0 = A0 + B0 and fresh a, z, y let
     g(p, n) = P_{p, n}(a + z - A0 >= p M_n), with M_n = n + z + y - N0,
   which is the probability that T(p) is as large as it was seen. It is at most
   alpha with probability alpha at most, if p and n are the true ones. So p is
   below the interval if g(p, n') <= alpha for all n' in the range of step 1,
   and this is wrong with probability `size miss` + alpha at most, the first
   part being shared with the upper end. With a share of `miss` for n and half
   of the rest for alpha, both ends are right with probability 1 - miss.

3. Blocks of n. For n <= m in one block, a_m = a_n + r with r binomial
   (m - n, p), and a_m - p M_m = a_n - p M_n + r - p (m - n). By Hoeffding's
   inequality r - p (m - n) >= -d with probability 1 - eta at least, where
   d = sqrt((m - n) ln(1 / eta) / 2); r is independent of the rest. So
     g(p, n) <= P(a_m + z - A0 >= p M_m - d) / (1 - eta):
   one evaluation, at the largest n of the block, serves all of it.

4. Brackets of p. For p in [p1, p2] a binomial (m, p) is at most a binomial
   (m, p2) in a coupling, and p M >= p1 M - (p2 - p1) max(0, -M). With h the
   width of z + y for a probability tau, -M_m <= c = max(0, N0 - m + h) but with
   probability tau. So for all p in the bracket
     P(a_m + z - A0 >= p M_m - d)
       <= P(a_m' + z - A0 >= p1 M_m - (p2 - p1) c - d) + tau,
   a_m' binomial (m, p2). What stands there on the right is the tail of a
   binomial number plus (1 - p1) z - p1 y, and is summed, with the noise rounded
   up to a grid (`Combination.grid`).

5. Search. Brackets are refused one after the other from 0 on, and the lower end
   is where the refused ones end: every p below it is refused, without any
   assumption that g rises. The upper end is one less the lower end for B and A.
"""

import dataclasses
import functools
import math

import numpy as np
from scipy import stats

from dpjax.release.combinations import Combination, Grid
from dpjax.release.noise import Noise

# Of what may go wrong: that n is outside its range; of a side, that z + y is
# beyond h; and eta.
_SIZE_MISS = 0.1
_TAU = 1e-3
_ETA = 0.03
# Largest d, in standard deviations of T, and most blocks; the first gives way.
_SHIFT = 0.03
_BLOCKS = 160
# Standard deviations of a binomial law on either side that are summed.
_REACH = 12.0
# Most cells in which they are summed; one is 0.006 of their standard deviations
# at most, or this share of that of T.
_CELLS = 4000
_CELL = 0.003
# An end is found to this share of its distance from the estimate.
_CLOSE = 2e-3


@functools.lru_cache(maxsize=64)
def interval(positive: int, other: int, law: Noise,
             miss: float) -> tuple[float, float]:
  """Returns the interval for the probability of a positive record.

  See the proof above.

  Args:
    positive: noisy count A.
    other: noisy count B of all other records.
    law: distribution of the noise of each.
    miss: in (0, 1), of both ends together.
  """
  both = Combination(law=law, coefficients=(1.0, 1.0))
  width = math.ceil(both.half_width(_SIZE_MISS * miss))
  number = positive + other
  sizes = max(0, number - width), max(0, number + width)
  if sizes[1] < 1:
    return 0.0, 1.0  # Of no record nothing follows.
  alpha = (1 - _SIZE_MISS) * miss / 2
  reach = both.half_width(_TAU * alpha)

  def end(first, second):
    return LowerEnd(seen=(first, second), sizes=sizes, law=law, alpha=alpha,
                    reach=reach).search()

  return end(positive, other), 1 - end(other, positive)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LowerEnd:
  """The test of steps 2 to 4, from the side of small p.

  Attributes:
    seen: A0 and B0.
    sizes: least and largest n.
    law: distribution of z and of y.
    alpha: most that g may be where p is refused.
    reach: h of step 4.
  """
  seen: tuple[int, int]
  sizes: tuple[int, int]
  law: Noise
  alpha: float
  reach: float

  @functools.cached_property
  def estimate(self) -> float:
    """Returns the noisy share, clipped to [0, 1]."""
    return min(max(self.seen[0] / max(1, sum(self.seen)), 0.0), 1.0)

  @functools.cached_property
  def deviation(self) -> float:
    """Returns the standard deviation of T, nearly."""
    p = self.estimate
    return math.sqrt(self.sizes[1] * p * (1 - p)
                     + ((1 - p)**2 + p**2) * self.law.deviation**2)

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
    """Returns the largest p below which all were refused, nearly: step 5."""
    target = self._first_guess()
    close = _CLOSE * (self.estimate - target)
    low, size = 0.0, target
    while size > close and size > 0:
      if self.refused(low, low + size):
        low += size
        size = target - low
      else:
        size /= 2
    return low

  def _first_guess(self) -> float:
    """Where g of the likeliest n falls to alpha; it is checked afterwards."""
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
    """Whether g(p, n) <= alpha for all p in [p1, p2] and all n."""
    return all(self.tail(p1, p2, *block) <= self.alpha
               for block in self.blocks)

  def tail(self, p1: float, p2: float, least: int, most: int) -> float:
    """Returns a bound of g(p, n) for p in [p1, p2] and n in a block."""
    gap = most - least
    shift = math.sqrt(gap * math.log(1 / _ETA) / 2)
    apart = (p2 - p1) * max(0.0, sum(self.seen) - most + self.reach)
    above = (self.seen[0] + p1 * (most - sum(self.seen)) - apart - shift)
    middle, spread = most * p2, math.sqrt(most * p2 * (1 - p2))
    reach = _REACH * spread + 50
    counts, chances = _binomial(
        most, p2, max(0, math.floor(middle - reach)), min(most, math.ceil(
            middle + reach)), math.floor(_CELL * self.deviation))
    grid, tails = self._noise(p1, spread)
    places = np.ceil((above - counts) / grid.step - 1e-9) - grid.first
    above_all = np.where(places >= len(tails), 0.0, tails[
        np.clip(places, 0, len(tails) - 1).astype(int)])
    chance = float(chances @ above_all) + 1e-12
    return ((chance + (_TAU * self.alpha if p2 > p1 else 0.0))
            / (1 - _ETA if gap else 1.0))

  def _noise(self, p: float, spread: float) -> tuple[Grid, np.ndarray]:
    """The distribution of (1 - p) z - p y, and its upper tails."""
    return _grid(self.law, p, 2.0**round(math.log2(max(spread, 1e-3))))


def _binomial(number: int, p: float, first: int, last: int,
              size: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns counts from first to last, and the chance of each.

  So many go together, or more if there are many, and count as the largest.
  """
  size = max(1, size, -(-(last - first + 1) // _CELLS))
  counts = np.arange(first, last + size, size, dtype=np.float64) + (size - 1)
  if size == 1:
    return counts, stats.binom.pmf(counts, number, p)
  upto = stats.binom.cdf(np.append(first - 1, counts), number, p)
  return counts, np.diff(upto)


@functools.lru_cache(maxsize=8)
def _grid(law: Noise, p: float, spread: float) -> tuple[Grid, np.ndarray]:
  combination = Combination(law=law, coefficients=(1 - p, -p))
  grid = combination.grid(combination.step(spread) or 1.0)
  return grid, np.cumsum(grid.pmf[::-1])[::-1]
