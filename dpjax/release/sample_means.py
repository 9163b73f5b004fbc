r"""Confidence intervals for a population mean on [0, 1], from noisy sums alone.

Statement. Records t_1, ..., t_n are independent draws from any distribution on
[0, 1], with mean mu and variance v. Noisy sums of t, of 1 - t and of t (1 - t)
are released; n may be private. The interval contains mu with probability at
least 1 - miss, at every n and for every distribution.

Each mean m is tested, and the interval contains those that are not rejected.
S(m) = sum (t - m) and Q(m) = sum (t - m)^2 are linear in the three sums, so the
noise in each is a known combination of the noise that was drawn. The proof is
in docs/theory/sample_means.md: a bound on n v (step 1), the tail of S by the
two-point distribution of Bentkus (2004, Theorem 1.1) with noise (step 2), or by
the Berry-Esseen theorem for large samples (step 3), and the interval (step 4).
"""

import dataclasses
import functools
import math

import numpy as np
from scipy import stats

from dpjax.release import combinations
from dpjax.release.combinations import Combination
from dpjax.release.combinations import Grid
from dpjax.release.noise import Noise

# Shares of `miss`: for the bound of the variance, and for the range of n.
_VARIANCE_MISS = .06
_SIZE_MISS = .05
# Every rate gives a valid bound; the best of these is close to the best of all.
_RATES = np.geomspace(1e-6, 100, 400)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisyMoments:
  """Noisy sums over records t in [0, 1], and the noise in them.

  Attributes:
    values: noisy sums of t, of 1 - t, and of t (1 - t).
    weights: [3][k] coefficients of k independent draws of noise in the sums.
    noise: distribution of every draw.
  """
  values: tuple[float, float, float]
  weights: tuple[tuple[float, ...], ...]
  noise: Noise

  def combined(self, *factors: float) -> tuple[float, Combination]:
    """Returns a linear combination of the three sums, and the noise in it."""
    value = sum(a * b for a, b in zip(factors, self.values, strict=True))
    return value, Combination(noise=self.noise, coefficients=tuple(
        np.asarray(factors) @ np.asarray(self.weights)))

  def reflected(self) -> 'NoisyMoments':
    """Returns the noisy sums of the records 1 - t."""
    return dataclasses.replace(
        self, values=(self.values[1], self.values[0], self.values[2]),
        weights=(self.weights[1], self.weights[0], self.weights[2]))

  @property
  def size(self) -> float:
    """Returns the noisy number of records, at least 1."""
    return max(1.0, self.values[0] + self.values[1])

  @property
  def mean(self) -> float:
    """Returns the noisy mean of t, clipped to [0, 1]."""
    return min(max(self.values[0] / self.size, 0.0), 1.0)

  @property
  def variance(self) -> float:
    """Returns the noisy variance of t, clipped to its possible values."""
    most = self.mean * (1 - self.mean)
    return min(max(most - self.values[2] / self.size, 0.0), most)


def file_mean(moments: NoisyMoments, miss: float) -> tuple[float, float]:
  """Returns the interval for the mean of t over the file; noise only."""
  return combinations.ratio_interval(
      lambda m: moments.combined(1 - m, -m, 0), moments.mean, (0.0, 1.0), miss)


def file_variance(moments: NoisyMoments, miss: float) -> tuple[float, float]:
  """Returns the interval for the variance of t over the file; noise only.

  The variance is m (1 - m) minus the mean of t (1 - t). Each has an interval
  with half of `miss`.
  """
  low, high = file_mean(moments, miss / 2)
  products = combinations.ratio_interval(
      lambda r: moments.combined(-r, -r, 1),
      moments.values[2] / moments.size, (0.0, .25), miss / 2)
  # m (1 - m) is largest at the m next to 1/2, and least at an end.
  least, *_, most = sorted(m * (1 - m) for m in (
      low, high, min(max(.5, low), high)))
  return max(0.0, least - products[1]), max(0.0, most - products[0])


def population_mean(moments: NoisyMoments,
                    miss: float) -> tuple[float, float]:
  """Returns the interval for the mean of the population; sampling and noise.

  Args:
    moments: released noisy sums.
    miss: probability of missing the mean, in (0, 1).
  """
  sizes, miss = _sizes(moments, miss)
  if sizes[0] < 1:
    return 0.0, 1.0  # There may be no record: every value is possible.

  # Accepted means may lie beyond a refused one, so the search starts outside.
  def end(side: NoisyMoments) -> float:
    return combinations.farthest(
        lambda mean: not refused(side, mean, sizes, miss), side.mean, 0.0)

  return end(moments), 1 - end(moments.reflected())


def _sizes(moments: NoisyMoments,
           miss: float) -> tuple[tuple[int, int], float]:
  """Returns the least and the largest n, and what is left of `miss`."""
  value, combination = moments.combined(1, 1, 0)
  if not any(combination.coefficients):
    return (round(value),) * 2, miss
  width = combination.half_width(_SIZE_MISS * miss)
  # 1e-6 keeps float rounding from cutting off a whole number.
  return (max(0, math.ceil(value - width - 1e-6)),
          max(1, math.floor(value + width + 1e-6))), (1 - _SIZE_MISS) * miss


def refused(moments: NoisyMoments, mean: float, sizes: tuple[int, int],
            miss: float) -> bool:
  """Returns whether a test rejects this mean, as the sum of t is too large.

  Args:
    moments: released noisy sums.
    mean: m in [0, 1].
    sizes: the least and the largest number of records.
    miss: level of this test and of that of 1 - t together.
  """
  value, combination = moments.combined(1 - mean, -mean, 0)
  variance = min(mean * (1 - mean), variance_bound(
      moments, mean, _VARIANCE_MISS * miss) / sizes[0])
  return upper_tail(value, mean, variance, sizes, combination) <= (
      1 - _VARIANCE_MISS) * miss / 2


def variance_bound(moments: NoisyMoments, mean: float, miss: float) -> float:
  """Returns a bound of n times the variance if `mean` is the mean: step 1.

  Args:
    moments: released noisy sums.
    mean: m in [0, 1].
    miss: probability that the bound is too small.
  """
  value, combination = moments.combined((1 - mean)**2, mean**2, -1)
  most = max(mean, 1 - mean)**2
  rates = _RATES / most
  bounds = (rates * value + combination.log_moment(rates)
            - math.log(miss)) / -np.expm1(-rates * most)
  return max(0.0, most * float(np.min(bounds)))


def upper_tail(excess: float, mean: float, variance: float,
               sizes: tuple[int, int], combination: Combination) -> float:
  """Returns a bound of P(sum (t - mean) + noise >= excess): steps 2 and 3.

  Args:
    excess: the released value of the sum.
    mean: mean of t, in [0, 1].
    variance: upper bound of the variance of t.
    sizes: the least and the largest number of records.
    combination: the noise in the sum.
  """
  if excess <= 0:
    return 1.0
  least, most = sizes
  moment = functools.partial(_moment_tail, excess, 1 - mean, number=most,
                             combination=combination)
  bound = moment(variance)
  distance = .33554 * (max(mean, 1 - mean) * math.sqrt(2 / max(
      1e-300, least * variance)) + .415 / math.sqrt(least))
  # The normal bound is at least `distance`, so it would not help.
  if distance >= bound:
    return bound
  normal = distance + combination.normal_tail(
      excess, (math.sqrt(least * variance / 2), math.sqrt(most * variance)))
  # `normal` is for variances above half of the bound; below, step 2 is used.
  return min(bound, max(normal, moment(variance / 2)))


def _moment_tail(excess: float, most: float, variance: float, *, number: int,
                 combination: Combination) -> float:
  """Returns the bound of step 2; `most` is b, the largest t - mean."""
  step = combination.step(math.sqrt(number * variance)) or excess
  total = combination.grid(step)
  if variance:
    total = total.plus(_two_points(most, variance, number, step))
  # E (k - j)_+^2 for every j in two passes of cumulative sums over the tails.
  tails = np.cumsum(total.pmf[::-1])[::-1]
  firsts = np.cumsum(tails[::-1])[::-1] - tails  # E (k - j)_+
  seconds = 2 * np.cumsum(firsts[::-1])[::-1] - firsts
  gaps = excess / step - (total.first + np.arange(len(tails)))
  before = gaps > 0
  # The sum cannot reach the excess, except by what the grid leaves out.
  if before.all():
    return 1e-12
  return float(min(1.0, 1e-12 + np.min(
      seconds[before] / gaps[before]**2, initial=1.0)))


def _two_points(most: float, variance: float, number: int,
                step: float) -> Grid:
  """Returns the sum of `number` draws of e, rounded up to multiples of step."""
  p = variance / (variance + most**2)
  half_range = 12 * math.sqrt(number * p * (1 - p)) + 50
  successes = np.arange(max(0, math.floor(number * p - half_range)),
                        min(number, math.ceil(number * p + half_range)) + 1)
  points = successes * (most + variance / most) - number * variance / most
  places = np.ceil(points / step).astype(int)
  return Grid(int(places[0]), step, np.bincount(
      places - places[0], weights=stats.binom.pmf(successes, number, p)))
