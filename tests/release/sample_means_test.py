"""Tests population mean intervals: tails, bounds and coverage, exactly."""

import fractions
import itertools

import numpy as np
import pytest
from scipy import stats

from dpjax.release import combinations
from dpjax.release import noise
from dpjax.release import sample_means

pytestmark = pytest.mark.every(1)

Fraction = fractions.Fraction
_NOISES = [noise.LaplaceNoise(scale=Fraction(3)),
           noise.GaussianNoise(variance=Fraction(9)),
           noise.LaplaceNoise(scale=Fraction(1, 3))]
# Probabilities of t = 0, 1/4, 1/2, 3/4, 1: skewed, rare, atomic and even.
_POPULATIONS = [(.9, 0, 0, 0, .1), (.1, 0, 0, 0, .9), (.5, 0, 0, 0, .5),
                (0, .97, 0, 0, .03), (.02, 0, .96, 0, .02), (.2,) * 5,
                (.999, 0, 0, 0, .001), (0, 0, .5, .5, 0)]
_POINTS = np.arange(5) / 4


def _pmf(distribution):
  z = np.arange(-150, 151)
  if hasattr(distribution, 'scale'):
    weights = np.exp(-np.abs(z) / float(distribution.scale))
  else:
    weights = np.exp(-z**2.0 / (2 * float(distribution.variance)))
  return z, weights / weights.sum()


def _sum_law(probs, number):
  """Returns the distribution of a sum of draws from 0, 1, ..., by squaring."""
  total, power = np.ones(1), np.asarray(probs, float)
  while number:
    total = np.convolve(total, power) if number % 2 else total
    power, number = np.convolve(power, power), number // 2
  return total


def _tail(probs, number, distribution, weights, excess):
  """Returns P(sum (t - mean) + weighted noise >= excess), exactly."""
  pmf = _sum_law(probs, number)
  values = np.arange(len(pmf)) / 4 - number * (_POINTS @ probs)
  z, chances = _pmf(distribution)
  prob = 0.0
  reached = np.append(np.cumsum(pmf[::-1])[::-1], 0)
  for draws in itertools.product(range(len(z)), repeat=len(weights)):
    at = excess - sum(w * z[k] for w, k in zip(weights, draws, strict=True))
    prob += np.prod(chances[list(draws)]) * reached[
        np.searchsorted(values, at - 1e-12)]
  return prob


def _moments(probs):
  mean = float(_POINTS @ probs)
  return mean, float((_POINTS - mean)**2 @ probs)


@pytest.mark.parametrize('distribution', _NOISES)
@pytest.mark.parametrize('number', [1, 7, 120])
@pytest.mark.parametrize('probs', _POPULATIONS)
def test_tails_are_never_above_their_bound(probs, number, distribution):
  mean, variance = _moments(probs)
  weights = (.3,)
  combination = combinations.Combination(noise=distribution,
                                         coefficients=weights)
  deviation = np.hypot(combination.deviation, np.sqrt(number * variance))
  for excess in deviation * np.array([.4, 1, 2, 3, 5]):
    exact = _tail(probs, number, distribution, weights, excess)
    bound = sample_means.upper_tail(excess, mean, variance, (number, number),
                                    combination)
    assert exact <= bound
    # Fewer records, or a smaller variance, are covered as well.
    assert exact <= sample_means.upper_tail(
        excess, mean, 1.1 * variance, (max(1, number - 2), number + 2),
        combination)


@pytest.mark.parametrize('excess', [9.0, 13.0, 16.0])
def test_tails_of_the_worst_population_are_near_their_bound(excess):
  """The bound is within e^2 / 2 of the worst population's tail."""
  probs, number = (.9, 0, 0, 0, .1), 120
  mean, variance = _moments(probs)
  distribution = noise.LaplaceNoise(scale=Fraction(1, 3))
  combination = combinations.Combination(noise=distribution, coefficients=(.3,))
  bound = sample_means.upper_tail(excess, mean, variance, (number, number),
                                  combination)
  assert bound < 1.01 * np.exp(2) / 2 * _tail(probs, number, distribution,
                                              (.3,), excess - 1)


def test_large_samples_have_nearly_normal_tails():
  distribution = noise.LaplaceNoise(scale=Fraction(3))
  combination = combinations.Combination(noise=distribution,
                                         coefficients=(1.0,))
  number = 10**5
  excess = 2.2 * np.sqrt(number / 4)
  bound = sample_means.upper_tail(excess, .5, .25, (number, number),
                                  combination)
  exact = stats.binom.sf(np.ceil(excess - 9 + number / 2) - 1, number, .5)
  assert stats.binom.sf(excess + number / 2, number, .5) < bound < .02
  assert sample_means._moment_tail(excess, .5, .25, number=number,
                                   combination=combination) > 1.5 * bound
  assert exact < 2 * bound


@pytest.mark.parametrize('distribution', _NOISES[:2])
@pytest.mark.parametrize('number', [20, 120])
@pytest.mark.parametrize('probs', _POPULATIONS)
@pytest.mark.parametrize('miss', [.1, .01])
def test_bounds_of_the_variance_fail_as_seldom_as_said(probs, number,
                                                       distribution, miss):
  """Variance bounds fail as rarely as stated, by 10^5 draws of records; a
  right bound fails this with probability 3e-7."""
  mean, variance = _moments(probs)
  z, chances = _pmf(distribution)
  weight = .05

  def bound(value):
    # With these sums, Q is `value`.
    moments = sample_means.NoisyMoments(values=(0.0, 0.0, -value),
                                        weights=((0.0,), (0.0,), (weight,)),
                                        noise=distribution)
    return sample_means.variance_bound(moments, mean, miss)

  low, high = -20.0, number * 1.0
  for _ in range(50):
    middle = (low + high) / 2
    low, high = (middle, high) if bound(middle) < number * variance else (
        low, middle)
  # Q is a sum of (t - mean)^2, drawn by the counts of points.
  generator = np.random.default_rng(0)
  counts = generator.multinomial(number, probs, 100_000)
  squares = counts @ (_POINTS - mean)**2
  reached = np.sort(squares)
  share = chances @ (np.searchsorted(reached, low - weight * z, 'right')
                     / len(reached))
  assert share <= miss + 5 * np.sqrt(miss / len(reached))


def _released(totals, size, distribution, scale):
  """Returns moments of sums with independent noise and public n."""
  total, products = totals
  return sample_means.NoisyMoments(
      values=(total, size - total, products), noise=distribution,
      weights=((scale, 0.0), (-scale, 0.0), (0.0, scale)))


@pytest.mark.every(4)
@pytest.mark.parametrize('number', [3, 40, 3_000])
@pytest.mark.parametrize('mean, share', [(.02, .5), (.5, .05), (.5, .99),
                                         (.9, .2)])
def test_intervals_hold_all_means_that_are_not_refused(number, mean, share):
  """Means beyond an interval's ends are refused, and those inside are not."""
  distribution = noise.LaplaceNoise(scale=Fraction(2))
  products = number * mean * (1 - mean) * (1 - share)
  moments = _released((number * mean, products), number, distribution, .5)
  low, high = sample_means.population_mean(moments, .05)
  assert 0 <= low < mean < high <= 1
  for side, end in ((moments, low), (moments.reflected(), 1 - high)):
    for m in np.linspace(0, side.mean, 40)[1:-1]:
      refused = sample_means.refused(side, m, (number, number), .05)
      assert refused == (m < end) or abs(m - end) < 2e-3 * side.mean


@pytest.mark.slow
@pytest.mark.parametrize('public', [True, False])
@pytest.mark.parametrize('probs', [(.9, 0, .1), (.5, 0, .5), (.05, .9, .05),
                                   (.98, .01, .01), (0, .9, .1)])
@pytest.mark.parametrize('number', [2, 6])
def test_true_means_are_refused_as_seldom_as_said(number, probs, public):
  """True means are refused as rarely as stated, over all counts of t = 0,
  1/2, 1 and all noise; rare draws count as missed."""
  distribution, miss = noise.LaplaceNoise(scale=Fraction(1, 3)), .2
  mean = float(np.arange(3) / 2 @ probs)
  weights = np.array([(1, 0, 0), (-1, 0, 0), (0, 1, 0)] if public else [
      (1, 0, .5), (0, 1, .5), (0, 0, .5)]) / 4
  draws = np.arange(-2, 3) if public else np.arange(-1, 2)
  above = lambda z: float(distribution.above(np.array(z)))
  chances = {z: above(z) - above(z + 1) for z in draws}
  covered = 0.0
  for ones, twos in itertools.product(range(number + 1), repeat=2):
    chance = stats.multinomial.pmf([number - ones - twos, ones, twos], number,
                                   probs) if ones + twos <= number else 0
    if chance < 1e-4:
      continue
    total = ones / 2 + twos
    for z in itertools.product(draws, draws, [0] if public else draws):
      values = np.array([total, number - total, ones / 4]) + weights @ z
      moments = sample_means.NoisyMoments(values=tuple(values), weights=tuple(
          map(tuple, weights)), noise=distribution)
      sizes, left = sample_means._sizes(moments, miss)
      if not (sample_means.refused(moments, mean, sizes, left)
              or sample_means.refused(moments.reflected(), 1 - mean, sizes,
                                      left)):
        covered += chance * np.prod([chances[k] for k in z[:2 + (not public)]])
  assert covered >= 1 - miss


@pytest.mark.parametrize('number, stddev, ratio', [
  (1_000, .13, 1.85), (10_000, .13, 1.42), (10_000, .05, 1.7),
  (100_000, .13, 1.15)])
def test_widths_are_near_those_of_a_known_variance(number, stddev, ratio):
  """Widths are near those for known variance and noise. Hoeffding's
  inequality gives 2.716 / 1.96 / (2 stddev) times these, 5.3 at .13."""
  distribution = noise.LaplaceNoise(scale=Fraction(2))
  mean = .35
  moments = _released((number * mean, number * (mean * (1 - mean) - stddev**2)),
                      number, distribution, 1.0)
  low, high = sample_means.population_mean(moments, .05)
  ideal = 1.96 * np.sqrt(stddev**2 / number
                         + (distribution.deviation / number)**2)
  assert 1 < (high - low) / 2 / ideal < ratio
