"""Tests intervals for a probability from two noisy counts by exact sums."""

import fractions
import itertools
import math

import numpy as np
import pytest
from scipy import stats

from dpjax.release import noise
from dpjax.release import two_counts

pytestmark = pytest.mark.every(1)

Fraction = fractions.Fraction
_WIDE = noise.LaplaceNoise(scale=Fraction(10))
_NARROW = noise.LaplaceNoise(scale=Fraction(1, 2))
_GAUSSIAN = noise.GaussianNoise(variance=Fraction(9))


def _noise(distribution, bound):
  """Returns probabilities of -bound, ..., bound by the noise's definition."""
  z = np.arange(-bound, bound + 1)
  if hasattr(distribution, 'scale'):
    weights = np.exp(-np.abs(z) / float(distribution.scale))
  else:
    weights = np.exp(-z**2 / (2 * float(distribution.variance)))
  return z, weights / weights.sum()


def _exact(seen, p, number, distribution, bound=150):
  """Returns g(p, n), summed over every count and both noises."""
  z, chances = _noise(distribution, bound)
  counts = np.arange(number + 1)
  # This is (1 - p) (a + z) - p (n - a + y) >= (1 - p) A0 - p B0, as stated.
  left = ((1 - p) * (counts[:, None, None] + z[:, None])
          - p * (number - counts[:, None, None] + z))
  right = (1 - p) * seen[0] - p * seen[1]
  hit = (left >= right - 1e-9) * chances[:, None] * chances
  return float(stats.binom.pmf(counts, number, p) @ hit.sum((1, 2)))


def _end(seen, sizes, distribution, alpha=.02):
  bound = two_counts.Combination(noise=distribution,
                                 coefficients=(1., 1.)).half_width(1e-3 * alpha)
  return two_counts.LowerEnd(seen=seen, sizes=sizes, noise=distribution,
                             alpha=alpha, noise_bound=bound)


@pytest.mark.parametrize('distribution', [_NARROW, _GAUSSIAN])
@pytest.mark.parametrize('seen', [(9, 11), (3, 30), (-2, 25), (25, -1)])
def test_one_evaluation_bounds_a_bracket_and_a_block(distribution, seen):
  """One evaluation bounds all p and n of a bracket, closely (steps 3 and 4)."""
  least, most = 18, 22
  end = _end(seen, (least, most), distribution)
  for p1, p2 in ((0.0, .05), (.2, .23), (.37, .37), (.5, .52), (.9, 1.0)):
    tail_bound = end.tail(p1, p2, least, most)
    worst = max(_exact(seen, p, number, distribution, bound=60)
                for p in np.linspace(p1, p2, 4) for number in (18, 20, 22))
    assert tail_bound >= worst
    alone = end.tail(p2, p2, most, most)
    exact = _exact(seen, p2, most, distribution, bound=60)
    assert exact - 1e-6 <= alone <= exact + .01  # Distant noise is cut off.


def test_blocks_and_brackets_leave_nothing_out(monkeypatch):
  end = _end((400, 600), (700, 1300), _WIDE)
  assert len(end.blocks) <= two_counts._BLOCKS
  sizes = [n for least, most in end.blocks for n in range(least, most + 1)]
  assert sorted(sizes) == list(range(700, 1301))
  asked, honest = [], two_counts.LowerEnd.refused

  def refused(self, p1, p2):
    answer = honest(self, p1, p2)
    asked.append((p1, p2, answer))
    return answer

  monkeypatch.setattr(two_counts.LowerEnd, 'refused', refused)
  low = end.search()
  edge = 0.0
  for p1, p2, answer in asked:
    assert p1 == edge
    edge = p2 if answer else edge
  assert low == edge and 0 < low < end.estimate


def _covered(number, p, distribution, miss, least):
  """Returns the chance that the interval holds p, and of all tried outcomes."""
  bound = 3 + math.ceil(8 * distribution.deviation)
  z, chances = _noise(distribution, bound)
  outcomes = {}
  binomial = stats.binom.pmf(np.arange(number + 1), number, p)
  for (a, q), (x, r), (y, s) in itertools.product(
      enumerate(binomial), *[list(zip(z, chances, strict=True))] * 2):
    if q * r * s > least / 100:
      key = a + int(x), number - a + int(y)
      outcomes[key] = outcomes.get(key, 0.0) + q * r * s
  inside = seen = 0.0
  for key, chance in outcomes.items():
    if chance > least:
      seen += chance
      low, high = two_counts.interval(*key, distribution, miss)
      inside += chance * (low <= p <= high)
  return inside, seen


@pytest.mark.parametrize('number, p, distribution, least', [
    (1, .5, _NARROW, 4e-3), (4, .5, _NARROW, 4e-3),
    pytest.param(6, .5, _NARROW, 1e-4, marks=pytest.mark.slow),
    pytest.param(6, .03, _NARROW, 1e-4, marks=pytest.mark.slow),
    pytest.param(20, .5, _NARROW, 1e-4, marks=pytest.mark.slow),
    pytest.param(20, 1 / 3, _NARROW, 1e-4, marks=pytest.mark.slow),
    pytest.param(12, .7, noise.GaussianNoise(variance=Fraction(2)), 2e-4,
                 marks=pytest.mark.slow),
    pytest.param(0, .4, _NARROW, 1e-4, marks=pytest.mark.slow)])
def test_intervals_cover_exactly(number, p, distribution, least):
  """Intervals cover exactly, summed over outcomes; rare
  ones count as missed."""
  miss = .2
  inside, seen = _covered(number, p, distribution, miss, least)
  assert seen > .9 and inside >= 1 - miss
  # The distribution of T has its largest atoms at 1/2 and 1/3.
  assert number <= 1 or inside < 1


@pytest.mark.parametrize('positive, other, distribution, wanted', [
    (500, 500, _WIDE, .0736), (1000, 9000, _WIDE, .0128),
    (50, 50, noise.LaplaceNoise(scale=Fraction(1)), .2005)])
def test_intervals_are_nearly_those_of_a_known_variance(positive, other,
                                                        distribution, wanted):
  """Intervals are within 6 % of the width for a known n.

  An earlier bound, which moved the count by the range of n and not by its
  variance, was 2.8, 1.2 and 1.7 times as wide.
  """
  low, high = two_counts.interval(positive, other, distribution, .05)
  assert wanted <= high - low < 1.06 * wanted
  assert low < positive / (positive + other) < high


@pytest.mark.parametrize('counts', [
    (0, 0), (-5, 3), (-400, -400), (3, -5), (10**9, -10**8)])
@pytest.mark.parametrize('distribution', [
    _NARROW, noise.LaplaceNoise(scale=Fraction(10**12)),
    noise.LaplaceNoise(scale=Fraction(1, 10**9)),
    noise.GaussianNoise(variance=Fraction(10**20))])
def test_all_counts_have_an_interval(counts, distribution):
  low, high = two_counts.interval(*counts, distribution, .05)
  assert 0 <= low <= high <= 1
