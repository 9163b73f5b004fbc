r"""Intervals for the mean of a population on [0, 1], from noisy sums alone.

Records t_1, ..., t_n are independent draws from any distribution on [0, 1] with
mean mu and variance v. Noisy sums of t, of 1 - t and of t (1 - t) are released;
n may be private, too. The interval holds mu with probability 1 - miss at least,
at every n, for every distribution: nothing is asymptotic.

A mean m is tested as follows. S(m) = sum (t - m) and Q(m) = sum (t - m)^2 are
linear in the three sums, since

  (t - m)^2 = (1 - m)^2 t + m^2 (1 - t) - t (1 - t),

so each is released with noise that is a known combination of the noise drawn.

1. Variance (`variance_bound`). At m = mu, with b = max(m, 1 - m), (t - m)^2 is
   in [0, b^2] and has mean v. Its exponential is convex, so for a > 0
     E e^(-a (t - m)^2) <= 1 - (v / b^2) (1 - e^(-a b^2))
                        <= exp(-(v / b^2) (1 - e^(-a b^2))).
   With independent noise z and by Markov's inequality
     P(Q + z <= q) <= exp(a q + ln E e^(a z) - n v (1 - e^(-a b^2)) / b^2). So
     n v <= min_a b^2 (a q + ln E e^(a z) + ln(1 / miss)) / (1 - e^(-a b^2))
   but with probability `miss`; the least over a is allowed, since a value of
   n v is outside if the noisy Q is below the quantile that the best a for this
   n v promises, and that does not depend on the data.

2. Tail (`upper_tail`). Let X = t - mu <= b now, with b = 1 - mu, and let e be b
   with probability p = v / (v + b^2), else -v / b; both have mean 0 and
   variance v. For f(x) = (x - s)_+^2 it holds that E f(X) <= E f(e):
     s >= b: both are 0. s <= -v / b: f(x) <= (x - s)^2, which is f on the two
     points of e, and has the same mean v + s^2 under both. Else the parabola
     g(x) = (b - s)^2 ((x + v / b) / (b + v / b))^2 is f on the two points of e,
     and above f for all x <= b: its root, (b - s) |x + v / b| / (b + v / b), is
     above (x - s)_+, as both are b - s at b and -v / b <= s. So
     E f(X) <= E g(X) = (b - s)^2 p = E f(e).
   The same holds if the variance of X is below v. f(. + y) is of the same kind,
   so records may be replaced one after the other while the others and the noise
   z are fixed; a further independent summand of mean 0 only adds (Jensen). With
   N >= n independent e_i,
     P(S + z >= x) <= inf_s E (e_1 + ... + e_N + z - s)_+^2 / (x - s)^2.
   That is Theorem 1.1 of Bentkus (2004) with noise. It is at most the bound of
   Chernoff's method for the same e_i, and a normal tail times e^2 / 2 at most.

3. Large samples (`upper_tail`). By the theorem of Berry and Esseen with the
   constants of Shevtsova (2011) and E |X|^3 <= c v, c = max(mu, 1 - mu),
     P(S + z >= x) <= P(N(0, n v) + z >= x) + .33554 d
   with d = c / sqrt(n v) + .415 / sqrt(n).
   It falls with v in one term and rises in the other: for v <= w / 2 step 2 is
   used, and this for w / 2 <= v <= w. The smaller of it and step 2 at w holds.

4. Interval. Of `miss`, a share is for the variance at mu, one for n if it is
   private, and half of what is left for each side: mu is outside if its S is
   in the upper tail that w allows, for the w of step 1, or in the lower one.
   The lower tail of t is the upper one of 1 - t.

Where a mean is refused, those beyond it are refused, too, in all that was ever
looked at; `combinations.farthest` looks from outside, so it does not assume so.
"""

import dataclasses
import functools
import math

import numpy as np
from scipy import stats

from dpjax.release import combinations
from dpjax.release.combinations import Combination, Grid
from dpjax.release.noise import Noise

# Of what may go wrong, that the variance is above its bound, and n outside.
_VARIANCE_MISS = .06
_SIZE_MISS = .05
_RATES = np.geomspace(1e-6, 100, 400)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisyMoments:
  """Noisy sums over records t in [0, 1], and the noise that is in them.

  Attributes:
    values: noisy sums of t, of 1 - t, and of t (1 - t).
    weights: [3][k] coefficients of k independent draws of noise, which were
      added to them.
    law: distribution of every draw.
  """
  values: tuple[float, float, float]
  weights: tuple[tuple[float, ...], ...]
  law: Noise

  def combined(self, *factors: float) -> tuple[float, Combination]:
    """A linear combination of the three sums, and the noise in it."""
    value = sum(a * b for a, b in zip(factors, self.values, strict=True))
    return value, Combination(law=self.law, coefficients=tuple(
        np.asarray(factors) @ np.asarray(self.weights)))

  def reflected(self) -> 'NoisyMoments':
    """The same of 1 - t."""
    return dataclasses.replace(
        self, values=(self.values[1], self.values[0], self.values[2]),
        weights=(self.weights[1], self.weights[0], self.weights[2]))

  @property
  def size(self) -> float:
    """The noisy number of records, 1 at least."""
    return max(1.0, self.values[0] + self.values[1])

  @property
  def mean(self) -> float:
    """Returns the noisy mean of t, clipped to [0, 1]."""
    return min(max(self.values[0] / self.size, 0.0), 1.0)

  @property
  def variance(self) -> float:
    """The mean squared distance from the mean."""
    most = self.mean * (1 - self.mean)
    return min(max(most - self.values[2] / self.size, 0.0), most)


def file_mean(moments: NoisyMoments, miss: float) -> tuple[float, float]:
  """The interval of the mean of t over the records; noise only."""
  return combinations.ratio_interval(
      lambda m: moments.combined(1 - m, -m, 0), moments.mean, (0.0, 1.0), miss)


def file_variance(moments: NoisyMoments, miss: float) -> tuple[float, float]:
  """The interval of the variance of t over the records; noise only.

  It is m (1 - m) less the mean of t (1 - t); each is in its interval, but with
  half of `miss`.
  """
  low, high = file_mean(moments, miss / 2)
  products = combinations.ratio_interval(
      lambda r: moments.combined(-r, -r, 1),
      moments.values[2] / moments.size, (0.0, .25), miss / 2)
  least, *_, most = sorted(m * (1 - m) for m in (
      low, high, min(max(.5, low), high)))
  return max(0.0, least - products[1]), max(0.0, most - products[0])


def population_mean(moments: NoisyMoments,
                    miss: float) -> tuple[float, float]:
  """The interval of the mean of the distribution that records are drawn from.

  See the proof above.

  Args:
    moments: what was released.
    miss: in (0, 1), of both ends together.
  """
  sizes, miss = _sizes(moments, miss)
  if sizes[0] < 1:
    return 0.0, 1.0  # Of no record, which it may be, nothing follows.

  def end(side):
    return combinations.farthest(
        lambda mean: not refused(side, mean, sizes, miss), side.mean, 0.0)

  return end(moments), 1 - end(moments.reflected())


def _sizes(moments: NoisyMoments,
           miss: float) -> tuple[tuple[int, int], float]:
  """A range of n, and what may still go wrong; n itself if it is public."""
  value, combination = moments.combined(1, 1, 0)
  if not any(combination.coefficients):
    return (round(value),) * 2, miss
  width = combination.half_width(_SIZE_MISS * miss)
  return (max(0, math.ceil(value - width - 1e-6)),
          max(1, math.floor(value + width + 1e-6))), (1 - _SIZE_MISS) * miss


def refused(moments: NoisyMoments, mean: float, sizes: tuple[int, int],
            miss: float) -> bool:
  """Whether the sum of t is larger than chance allows if this is the mean.

  Args:
    moments: what was released.
    mean: m in [0, 1].
    sizes: the least and the largest number of records.
    miss: of this and of the reflected test together.
  """
  value, combination = moments.combined(1 - mean, -mean, 0)
  variance = min(mean * (1 - mean), variance_bound(
      moments, mean, _VARIANCE_MISS * miss) / sizes[0])
  return upper_tail(value, mean, variance, sizes, combination) <= (
      1 - _VARIANCE_MISS) * miss / 2


def variance_bound(moments: NoisyMoments, mean: float, miss: float) -> float:
  """A bound of n times the variance, if `mean` is the mean: step 1.

  Args:
    moments: what was released.
    mean: m in [0, 1].
    miss: probability of being too small.
  """
  value, combination = moments.combined((1 - mean)**2, mean**2, -1)
  most = max(mean, 1 - mean)**2
  rates = _RATES / most
  bounds = (rates * value + combination.log_moment(rates)
            - math.log(miss)) / -np.expm1(-rates * most)
  return max(0.0, most * float(np.min(bounds)))


def upper_tail(excess: float, mean: float, variance: float,
               sizes: tuple[int, int], combination: Combination) -> float:
  """P(sum (t - mean) + noise >= excess), at most: steps 2 and 3.

  Args:
    excess: as seen.
    mean: of t, in [0, 1].
    variance: of t, or more.
    sizes: the least and the largest number of records.
    combination: the noise.
  """
  if excess <= 0:
    return 1.0
  least, most = sizes
  moment = functools.partial(_moment_tail, excess, 1 - mean, number=most,
                             combination=combination)
  found = moment(variance)
  distance = .33554 * (max(mean, 1 - mean) * math.sqrt(2 / max(
      1e-300, least * variance)) + .415 / math.sqrt(least))
  if distance >= found:
    return found
  normal = distance + combination.normal_tail(
      excess, (math.sqrt(least * variance / 2), math.sqrt(most * variance)))
  return min(found, max(normal, moment(variance / 2)))


def _moment_tail(excess: float, most: float, variance: float, *, number: int,
                 combination: Combination) -> float:
  """Step 2; `most` is b, the largest t - mean."""
  step = combination.step(math.sqrt(number * variance)) or excess
  total = combination.grid(step)
  if variance:
    total = total.plus(_two_points(most, variance, number, step))
  # Of (k - j)_+^2 for every j, from sums of sums of tails.
  tails = np.cumsum(total.pmf[::-1])[::-1]
  firsts = np.cumsum(tails[::-1])[::-1] - tails  # of (k - j)_+
  seconds = 2 * np.cumsum(firsts[::-1])[::-1] - firsts
  gaps = excess / step - (total.first + np.arange(len(tails)))
  before = gaps > 0
  if before.all():
    return 1e-12
  return float(min(1.0, 1e-12 + np.min(
      seconds[before] / gaps[before]**2, initial=1.0)))


def _two_points(most: float, variance: float, number: int,
                step: float) -> Grid:
  """The sum of `number` draws of e, rounded up to multiples of the step."""
  p = variance / (variance + most**2)
  spread = 12 * math.sqrt(number * p * (1 - p)) + 50
  successes = np.arange(max(0, math.floor(number * p - spread)),
                        min(number, math.ceil(number * p + spread)) + 1)
  points = successes * (most + variance / most) - number * variance / most
  places = np.ceil(points / step).astype(int)
  return Grid(int(places[0]), step, np.bincount(
      places - places[0], weights=stats.binom.pmf(successes, number, p)))
