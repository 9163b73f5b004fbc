"""Tests distributions of noise combinations by plain sums."""

import fractions
import itertools

import numpy as np
import pytest
from scipy import stats

from dpjax.release import combinations
from dpjax.release import noise

pytestmark = pytest.mark.every(1)

Fraction = fractions.Fraction
_NOISES = [noise.LaplaceNoise(scale=Fraction(2)),
           noise.GaussianNoise(variance=Fraction(5)),
           noise.LaplaceNoise(scale=Fraction(1, 20))]
_COEFFICIENTS = [(1.0,), (.7, -.3), (-.25, 1.5, .5), (1.0, 1e-15), (2.0, 0.0)]


def _combination(distribution, coefficients):
  return combinations.Combination(noise=distribution, coefficients=coefficients)


def _values(distribution, coefficients):
  """Returns all values of the sum, increasing, and their probabilities."""
  z = np.arange(-28, 29)
  chances = distribution.above(z) - distribution.above(z + 1)
  values, probs = np.zeros(1), np.ones(1)
  for c in coefficients:
    if abs(c) > 1e-9:
      values = np.add.outer(values, c * z).ravel()
      probs = np.multiply.outer(probs, chances).ravel()
  order = np.argsort(values)
  return values[order], probs[order]


@pytest.mark.parametrize('distribution', _NOISES)
@pytest.mark.parametrize('coefficients', _COEFFICIENTS)
def test_moments_are_those_of_the_sum(distribution, coefficients):
  values, probs = _values(distribution, coefficients)
  combination = _combination(distribution, coefficients)
  assert combination.deviation**2 == pytest.approx(probs @ values**2, rel=1e-3)
  rates = np.array([.01, .1])
  np.testing.assert_allclose(
      combination.log_moment(rates),
      np.log(np.exp(np.multiply.outer(rates, values)) @ probs), rtol=1e-2,
      atol=1e-12)


@pytest.mark.parametrize('distribution', _NOISES)
@pytest.mark.parametrize('coefficients', _COEFFICIENTS)
def test_grids_are_above_the_sum_by_little(distribution, coefficients):
  values, probs = _values(distribution, coefficients)
  combination = _combination(distribution, coefficients)
  step = combination.step()
  grid = combination.grid(step)
  assert grid.pmf.sum() == pytest.approx(1, abs=1e-9)
  for at in combination.deviation * np.array([-2.03, -.5, .01, 1.07, 2.9]):
    exact = probs[values > at].sum()
    tail_bound = grid.pmf[grid.points > at].sum()
    nearby = probs[values > at - (len(coefficients) + 1) * step].sum()
    assert exact - 1e-12 <= tail_bound <= nearby + 5e-6


@pytest.mark.parametrize('distribution', _NOISES)
@pytest.mark.parametrize('coefficients', _COEFFICIENTS)
@pytest.mark.parametrize('miss', [.5, .05, .003])
def test_widths_are_missed_as_seldom_as_said(distribution, coefficients, miss):
  values, probs = _values(distribution, coefficients)
  combination = _combination(distribution, coefficients)
  width = combination.half_width(miss)
  assert probs[np.abs(values) > width + 1e-9].sum() <= miss
  smaller = width - (len(coefficients) + 1) * combination.step()
  assert width == 0 or probs[np.abs(values) >= smaller - 1e-9].sum() > miss - (
      1e-4)


@pytest.mark.parametrize('distribution', _NOISES)
@pytest.mark.parametrize('deviation', [.3, 4.0])
def test_tails_with_a_normal_part(distribution, deviation):
  coefficients = (.7, -.3)
  values, probs = _values(distribution, coefficients)
  combination = _combination(distribution, coefficients)
  for excess in (.5, 2.0, 7.0):
    exact = probs @ stats.norm.sf((excess - values) / deviation)
    tail_bound = combination.normal_tail(excess, (deviation, deviation))
    assert exact - 1e-12 <= tail_bound < 1.03 * exact + 1e-5
    for other in (.8, .9, 1.0):  # any deviation in the given range
      assert probs @ stats.norm.sf((excess - values) / (
          other * deviation)) <= combination.normal_tail(
              excess, (.8 * deviation, deviation)) + 1e-12


def test_no_noise_has_no_width():
  assert _combination(_NOISES[0], (0.0, 0.0)).half_width(.1) == 0


@pytest.mark.parametrize('start, end, last', [(.3, 1.0, .62), (.3, 0.0, .2999),
                                              (.5, 9.0, 9.0), (.5, 0.0, .01)])
def test_the_farthest_accepted_point_is_inside(start, end, last):
  def accepted(x):
    return abs(x - start) <= abs(last - start)

  farthest = combinations.farthest(accepted, start, end)
  assert abs(farthest - start) >= abs(last - start)
  assert farthest == pytest.approx(last, abs=2e-3 * abs(last - start) + 1e-6)


def test_an_accepted_island_is_inside():
  assert combinations.farthest(
      lambda x: x < .1 or .4 < x < .7, 0.0, 1.0) == pytest.approx(.7, abs=1e-2)


@pytest.mark.parametrize('top, bottom', [(4, 10), (0, 3), (3, 3)])
def test_ratios_are_covered_exactly(top, bottom):
  """Ratio intervals cover exactly over all draws, also for small bottoms."""
  distribution, miss = noise.LaplaceNoise(scale=Fraction(1, 2)), .2
  z = np.arange(-13, 14)
  chances = distribution.above(z) - distribution.above(z + 1)
  truth, covered, widths = top / bottom, 0.0, []
  for (x, p), (y, q) in itertools.product(zip(z, chances, strict=True),
                                          repeat=2):
    if p * q < 4e-3:
      continue

    def error(ratio, x=x, y=y):
      return (top + x) - ratio * (bottom + y), _combination(
          distribution, (1, -ratio))

    low, high = combinations.ratio_interval(
        error, (top + x) / max(1, bottom + y), (0.0, 1.0), miss)
    covered += p * q * (low <= truth <= high)
    widths.append(high - low)
  assert covered >= 1 - miss
  assert top not in (0, 4) or min(widths) < .5
