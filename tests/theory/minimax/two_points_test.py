"""Tests two hypotheses: exact errors on a path, and squares."""

import math

import numpy as np
import pytest
from scipy import stats

from dpjax.privacy.notions import ApproxDP
from dpjax.privacy.notions import KullbackLeiblerPrivacy
from dpjax.privacy.notions import PureDP
from dpjax.privacy.notions import TotalVariationPrivacy
from dpjax.privacy.notions import ZCDP
from dpjax.theory.minimax import two_points
from experiments.methods.theory import testing

_DISTANCES = np.array([0, 1, 2, 3, 4, 7])


def test_errors_on_a_path_are_the_golden_ones():
  pure = two_points.path_error(_DISTANCES, PureDP(epsilon=0.5))
  assert pure == pytest.approx(
      [0.5, .377541, .303265, .228990, .183940, .084241], abs=1e-6)
  approx = two_points.path_error(_DISTANCES, ApproxDP(epsilon=0.5, delta=0.01))
  assert approx == pytest.approx(
      [0.5, .373765, .297200, .220635, .174196, .071423], abs=1e-6)
  assert two_points.path_error(_DISTANCES, None).tolist() == [0.5] + 5 * [0]
  assert two_points.path_error(
      _DISTANCES, TotalVariationPrivacy(level=0.2)) == pytest.approx(
          [0.5, 0.4, 0.3, 0.2, 0.1, 0])


def test_errors_under_zcdp_are_the_golden_ones():
  rhos = (.01, .05, .1, .25, .5, 1, 2, 4)
  wanted = (.46467, .42127, .38913, .32691, .26045, .17604, .08322, .01582)
  errors = [two_points.path_error(1, ZCDP(rho=rho)) for rho in rhos]
  assert errors == pytest.approx(wanted, abs=6e-6)
  # At distance d it is at least that of d^2 rho, as a path helps.
  assert errors[5] < two_points.path_error(10, ZCDP(rho=0.01)) < 0.1896


def test_errors_under_zcdp_are_kept_by_the_gaussian_mechanism():
  # Its errors are Phi(-sqrt(r / 2)), and no bound may exceed them.
  for rho in np.geomspace(1e-6, 40, 30):
    bound = two_points.path_error(1, ZCDP(rho=rho))
    reached = math.erfc(math.sqrt(rho) / 2) / 2
    assert 0.5 * (1 - math.sqrt(2 * rho)) <= bound <= reached


@pytest.mark.parametrize('epsilon', (0.05, 0.5, 3.0))
@pytest.mark.parametrize('distance', (1, 2, 3, 8, 31))
def test_squares_on_a_path_are_those_of_the_geometric_mechanism(epsilon,
                                                                distance):
  q, y = math.exp(-epsilon), np.arange(distance + 1)
  weights = np.where((y == 0) | (y == distance), 1, 1 - q) / (1 + q)
  here, there = weights * q**y, weights * q**(distance - y)
  assert here.sum() == pytest.approx(1)
  wanted = 2 * np.sum(here * there / (here + there))
  square = two_points.path_risk(distance, PureDP(epsilon=epsilon))
  assert square == pytest.approx(wanted, rel=1e-12)
  assert square >= 2 * two_points.path_error(distance, PureDP(epsilon=epsilon))


def test_no_mechanism_on_a_path_has_smaller_squares():
  # The best estimate of random private channels has at least this risk.
  generator, epsilon = np.random.default_rng(0), 0.7
  for _ in range(200):
    # Rows k have log-densities with steps of at most epsilon, normalised by the
    # slack that scaling leaves.
    steps = generator.uniform(-1, 1, (4, 6)) * epsilon / 2
    probs = np.exp(np.cumsum(steps, 0) + generator.normal(0, 2, 6))
    probs /= probs.sum(1, keepdims=True)
    worst = np.max(np.abs(np.diff(np.log(probs), axis=0)))
    share = 2 * np.sum(probs[0] * probs[-1] / (probs[0] + probs[-1]))
    assert share >= two_points.path_risk(3, PureDP(epsilon=worst)) - 1e-12


def test_squares_under_zcdp_are_kept_by_the_gaussian_mechanism():
  x = np.linspace(-40, 60, 20_001)
  for rho in (1e-3, 0.03, 0.3, 2.0):
    shift = math.sqrt(2 * rho)
    here, there = (np.exp(-(x - m)**2 / 2) / math.sqrt(2 * math.pi)
                   for m in (0, shift))
    both = here + there
    share = 2 * np.sum(np.divide(here * there, both, where=both > 0,
                                 out=np.zeros_like(x))) * (x[1] - x[0])
    square = two_points.path_risk(1, ZCDP(rho=rho))
    assert 1 - rho <= square <= share


@pytest.mark.parametrize('n, probs, epsilon, program, bound', [
    (10, (.3, .7), .5, .23100, .19497), (20, (.4, .6), .5, .26859, .19920),
    (50, (.5, .6), .1, .40509, .39132), (100, (.5, .55), .2, .37144, .30956),
    (40, (.5, .9), .1, .23232, .22723)])
def test_products_of_pure_privacy_are_the_golden_ones(n, probs, epsilon,
                                                      program, bound):
  error = two_points.product_error(probs[1] - probs[0], num_examples=n,
                                   guarantee=PureDP(epsilon=epsilon))
  assert error == pytest.approx(bound, abs=1e-5)
  assert error <= program
  assert error == pytest.approx(testing.pair_pure(
      probs[1] - probs[0], num_records=n, epsilon=epsilon), rel=1e-9)


@pytest.mark.parametrize('n, variation, rho, reached, bound', [
    (50, .2, .02, .2055, .1000), (100, .1, .005, .3271, .2633),
    (100, .3, .002, .1819, .1015)])
def test_products_of_zcdp_are_the_golden_ones(n, variation, rho, reached,
                                              bound):
  error = two_points.product_error(variation, num_examples=n,
                                   guarantee=ZCDP(rho=rho))
  # The golden values are those of the two ends.
  d = np.arange(n + 1)
  path_errors = np.array([two_points.path_error(1, ZCDP(rho=rho * size**2))
                          for size in d])
  path_errors = stats.binom.pmf(d, n, variation) @ path_errors
  assert path_errors == pytest.approx(bound, abs=1e-4) and path_errors < error
  assert testing.le_cam_zcdp(variation, num_records=n, rho=rho) < error
  assert error < reached


def test_total_variations_of_a_guarantee():
  assert two_points.total_variation(PureDP(epsilon=1.0)) == pytest.approx(
      math.tanh(0.5))
  assert two_points.total_variation(ApproxDP(epsilon=1.0, delta=0.1)
                                    ) == pytest.approx(
      (math.e - 1 + 0.2) / (math.e + 1))
  for level in (1e-4, 0.02, 1.0, 9.0):
    variation = two_points.total_variation(KullbackLeiblerPrivacy(level=level))
    error = (1 - variation) / 2
    assert (1 - 2 * error) * math.log((1 - error) / error) == pytest.approx(
        level)
    assert variation <= min(math.sqrt(level / 2),
                            math.sqrt(-math.expm1(-level)))
  assert two_points.total_variation(None) == 1


@pytest.mark.parametrize('guarantee', (
    PureDP(epsilon=0.3), ApproxDP(epsilon=0.3, delta=1e-3), ZCDP(rho=0.02),
    TotalVariationPrivacy(level=0.05), KullbackLeiblerPrivacy(level=0.01),
    None))
def test_bounds_fall_as_laws_and_budgets_grow(guarantee):
  variations = np.linspace(0, 1, 12)
  squares = two_points.product_risk(variations, num_examples=30,
                                     guarantee=guarantee)
  errors = two_points.product_error(variations, num_examples=30,
                                    guarantee=guarantee)
  assert squares[0] == 1 and errors[0] == 0.5
  assert (np.diff(squares) <= 1e-12).all() and (np.diff(errors) <= 1e-12).all()
  assert (squares >= 2 * errors - 1e-12).all()
  assert (two_points.error(variations, num_examples=30, guarantee=guarantee)
          >= (1 - variations) / 2 - 1e-12).all()


def test_refuses_what_is_no_distance():
  with pytest.raises(ValueError, match='distance must be a whole number'):
    two_points.path_error(np.array([0.5]), None)
  with pytest.raises(ValueError, match='variation must lie'):
    two_points.product_error(1.5, num_examples=3, guarantee=None)
