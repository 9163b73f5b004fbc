"""These tests check the best private test of two proportions."""

import math

import numpy as np
import pytest
from scipy import special
from scipy import stats

from dpjax.privacy.notions import PureDP
from dpjax.privacy.notions import ZCDP
from dpjax.theory.minimax import concentrated
from dpjax.theory.minimax import two_points
from experiments.methods.theory import best_channels as oracles
from experiments.methods.theory import proportion_tests


def test_geometric_thresholds_are_the_best_pure_tests():
  generator = np.random.default_rng(0)
  for _ in range(30):
    n = int(generator.integers(1, 50))
    probs = tuple(np.sort(generator.uniform(0, 1, 2)))
    epsilon = float(generator.choice([0.02, 0.1, 0.5, 1.5, 4.0]))
    guarantee = PureDP(epsilon=epsilon)
    best = oracles.testing_error(
        np.array([[1 - p, p] for p in probs]), num_examples=n,
        guarantee=guarantee).value
    error = proportion_tests.best_error(n, probs, epsilon=epsilon)
    assert error == pytest.approx(best, abs=1e-6)
    assert two_points.product_error(
        probs[1] - probs[0], num_examples=n, guarantee=guarantee) <= (
            error + 1e-12)


@pytest.mark.parametrize('accept, slope', [
    (special.ndtr, stats.norm.logpdf),
    (lambda x: special.expit(concentrated.limit_logit(x)), None)])
def test_errors_have_one_minimum_in_the_threshold(accept, slope):
  """The error has one minimum in the threshold.

  Slopes of `accept` are log-concave, so errors fall and then rise.
  """
  grid = np.linspace(-6, 0, 601)  # Slopes are even; 1 - x would round.
  logs = (slope(grid) if slope else
          np.log(accept(grid + 5e-3) - accept(grid - 5e-3)))
  assert np.max(np.diff(logs, 2)) < 0
  counts, excess = proportion_tests._counts(60, (.4, .55))
  scale = 6.0
  errors = [-excess @ accept((counts - c) / scale)
            for c in np.linspace(-10, 70, 161)]
  steps = np.diff(errors)
  assert np.count_nonzero(np.diff(np.sign(steps[np.abs(steps) > 1e-13]))) == 1


def test_without_privacy_the_error_is_le_cams():
  counts = np.arange(41)
  p, q = (stats.binom.pmf(counts, 40, x) for x in (0.5, 0.6))
  error = proportion_tests.best_error(40, (0.5, 0.6))
  assert error == pytest.approx(np.minimum(p, q).sum() / 2, rel=1e-12)
  assert proportion_tests.best_error(40, (0.5, 0.6), epsilon=50.0) == (
      pytest.approx(error, rel=1e-9))


@pytest.mark.parametrize('n, probs, rho, reached', [
    (50, (.4, .6), .02, .2055), (100, (.45, .55), .005, .3271),
    (100, (.35, .65), .002, .1819)])
def test_gaussian_thresholds_are_the_golden_ones(n, probs, rho, reached):
  """Gaussian thresholds err by their golden values (G-15)."""
  error = proportion_tests.gaussian_error(n, probs, rho=rho)
  assert error == pytest.approx(reached, abs=6e-5)
  assert two_points.product_error(probs[1] - probs[0], num_examples=n,
                                  guarantee=ZCDP(rho=rho)) < error
  # Two answers err less than a Gaussian count, and no less than the bound.
  ramp = proportion_tests.ramp_error(n, probs, rho=rho)
  assert two_points.product_error(probs[1] - probs[0], num_examples=n,
                                  guarantee=ZCDP(rho=rho)) < ramp < error
  # The error follows from the densities of the two noisy counts.
  sigma = 1 / math.sqrt(2 * rho)
  grid = np.linspace(-9 * sigma, n + 9 * sigma, 8001)
  noise = stats.norm.pdf(grid[:, None] - np.arange(n + 1), scale=sigma)
  here, there = (noise @ stats.binom.pmf(np.arange(n + 1), n, p)
                 for p in probs)
  assert error == pytest.approx(
      np.minimum(here, there).sum() * (grid[1] - grid[0]) / 2, abs=1e-6)


def test_the_least_number_of_records():
  calls = []

  def error(n):
    calls.append(n)
    return 0.4 / n
  for target in (0.399, 0.1, 0.0031):
    assert proportion_tests.least_records(error, target) == (
        math.ceil(0.4 / target))
  assert len(calls) < 60
  assert proportion_tests.least_records(lambda n: 0.0, 0.1) == 1
  num_records = proportion_tests.least_records(
      lambda n: proportion_tests.best_error(n, (0.5, 0.51)), 0.01)
  assert num_records == 54112


@pytest.mark.every(1)
@pytest.mark.parametrize('call', [
    lambda: proportion_tests.best_error(3, (0.5, 0.5)),
    lambda: proportion_tests.best_error(0, (0.4, 0.5)),
    lambda: proportion_tests.best_error(3, (0.4, 0.5), epsilon=0.0),
    lambda: proportion_tests.gaussian_error(3, (0.4, 0.5), rho=-1.0),
    lambda: proportion_tests.least_records(lambda n: 0.0, 0.5),
    lambda: proportion_tests.least_records(lambda n: 0.4, 0.1, largest=20)])
def test_bad_input_is_named(call):
  with pytest.raises(ValueError):
    call()
