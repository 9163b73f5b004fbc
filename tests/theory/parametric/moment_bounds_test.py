"""Tests means with a bounded moment: lower bounds and printed ones."""

import math

import numpy as np
import pytest
from scipy import optimize
from scipy import stats

from dpjax.privacy.notions import ApproxDP
from dpjax.privacy.notions import KullbackLeiblerPrivacy
from dpjax.privacy.notions import PureDP
from dpjax.privacy.notions import TotalVariationPrivacy
from dpjax.privacy.notions import ZCDP
from dpjax.theory.minimax import two_points
from dpjax.theory.parametric import moment_bounds
from dpjax.theory.parametric import truncated_means
from experiments.methods.theory import printed_moments

STUDY = truncated_means.STUDY


def _counts(num_examples):
  """Returns the numbers of records at -y and y; the others are at 0."""
  return [(i, j) for i in range(num_examples + 1)
          for j in range(num_examples + 1 - i)]


def _programme(weight, num_examples, epsilon, cells=16):
  """Returns the Bayes risk of two distributions, in squared half-distances.

  It is over all epsilon-DP estimates with values in a grid of [-1, 1], by the
  counts of three symbols.
  """
  states = _counts(num_examples)
  values = np.linspace(-1, 1, cells + 1)
  probs = np.array([[stats.binom.pmf(i + j, num_examples, weight) * (absent == 0)
                     for i, j in states for absent in ((i, j)[state],)]
                    for state in (0, 1)])
  costs = [
      sum(probs[state, k] * (values - sign)**2 / 2
          for state, sign in ((1, -1), (0, 1)))
      for k in range(len(states))
  ]
  # A replacement changes one of the three counts for another.
  pairs = [(a, b) for a, (i, j) in enumerate(states)
           for b, (k, m) in enumerate(states) if a != b
           and abs(i - k) <= 1 and abs(j - m) <= 1 and abs(i + j - k - m) <= 1]
  width = len(values)
  rows = np.zeros((len(pairs) * width, len(states) * width))
  for line, (a, b) in enumerate(pairs):
    for v in range(width):
      rows[line * width + v, a * width + v] = 1
      rows[line * width + v, b * width + v] = -math.exp(epsilon)
  return optimize.linprog(
      np.ravel(costs), rows, np.zeros(len(rows)),
      np.kron(np.eye(len(states)), np.ones(width)), np.ones(len(states)),
      method='highs').fun


@pytest.mark.parametrize('num_examples, epsilon, weight', [
    (1, 0.5, 1.0), (2, 1.0, 0.7), (3, 0.4, 0.9), (3, 1.5, 0.4)])
def test_no_private_estimate_has_less_at_two_points(num_examples, epsilon,
                                                    weight):
  least = _programme(weight, num_examples, epsilon)
  bound = two_points.product_risk(
      weight, num_examples=num_examples, guarantee=PureDP(epsilon=epsilon))
  # The grid of values costs little, and so does the coupling.
  assert bound <= least + 1e-9
  assert bound > 0.8 * least


def test_two_points_take_the_best_weight():
  known = dict(num_examples=3, guarantee=PureDP(epsilon=1.5))
  for moment in (2, 4, math.inf):
    weights = np.linspace(0.01, 1, 400)
    wanted = np.max(weights**(2 - 2 / moment) * two_points.product_risk(
        weights, **known))
    bound = moment_bounds.pair(**known, moment=moment, radius=3.0)
    assert bound == pytest.approx(9 * wanted, rel=1e-3)


def test_without_privacy_the_risk_is_that_of_two_signs():
  # This is the Bayes risk of a Beta prior on the share of r among +-r.
  for n in (1, 2, 30):
    a, k = math.sqrt(n) / 2, np.arange(n + 1)
    weights = stats.betabinom.pmf(k, n, a, a)
    variance = stats.beta.var(a + k, a + n - k)
    assert moment_bounds.non_private(num_examples=n, radius=2.0
                                     ) == pytest.approx(
                                         4 * 2.0**2 * weights @ variance)


@pytest.mark.parametrize('dimension, num_examples, epsilon, moment, values', [
    (4, 1000, 0.5, 2, (9.38e-5, 2.34e-5, 1.24e-4)),
    (10, 1000, 0.5, 4, (2.67e-5, 6.67e-6, 4.80e-5)),
    (50, 10_000, 0.2, 2, (3.87e-4, 9.69e-5, 8.69e-4))])
def test_golden_bounds_are_reproduced_and_beaten(dimension, num_examples,
                                                 epsilon, moment, values):
  known = dict(num_examples=num_examples, dimension=dimension, moment=moment,
               radius=1.0)
  bounds = [printed_moments.printed_proposition_4(
      **known, epsilon=epsilon, corrected=corrected)
            for corrected in (False, True)]
  assert bounds == pytest.approx(values[:2], rel=2e-3)
  best = moment_bounds.sphere(**known, guarantee=PureDP(epsilon=epsilon))
  assert best > 5 * values[2]


@pytest.mark.every(2)
@pytest.mark.parametrize('moment, num_examples, epsilon, value', [
    (2, 200, 1.0, 2.21e-3), (2, 2000, 0.1, 1.88e-3), (4, 1000, 0.5, 6.13e-5)])
def test_golden_bounds_of_tests_are_reproduced_and_beaten(
    moment, num_examples, epsilon, value):
  known = dict(num_examples=num_examples, guarantee=PureDP(epsilon=epsilon))
  weights = np.geomspace(1e-5, 1, 2000)
  tests = np.max(weights**(2 - 2 / moment) * two_points.product_error(
      weights, **known))
  assert tests == pytest.approx(value, rel=3e-3)
  assert moment_bounds.pair(**known, moment=moment, radius=1.0) > 2 * value


def test_printed_values_do_not_exceed_true_bounds_where_they_hold():
  """Printed proposition 4 stays below true bounds;
  theorem 3 is false (E-07)."""
  generator = np.random.default_rng(0)
  for _ in range(30):
    dimension = int(generator.integers(2, 60))
    n = int(10**generator.uniform(0, 5))
    epsilon = 10**generator.uniform(-3, math.log10(min(4, dimension / 2)))
    delta = generator.choice([0.0, 1e-9]) * epsilon
    known = dict(num_examples=n, dimension=dimension,
                 moment=generator.choice([2, 3, 8, math.inf]), radius=1.0)
    printed = printed_moments.printed_proposition_4(
        **known, epsilon=epsilon, delta=delta)
    assert printed <= STUDY.best_lower(
        guarantee=ApproxDP(epsilon=epsilon, delta=delta), **known).value


def test_printed_bounds_for_total_variation_are_loose_and_then_absurd():
  known = dict(num_examples=1000, moment=4, radius=2.0)
  printed = printed_moments.printed_proposition_2(**known, level=0.01)
  corrected = printed_moments.printed_proposition_2(**known, level=0.01,
                                                    corrected=True)
  # E-06: r^2 / (4 c^(2 - 2/k)) (n level)^-(2 - 2/k), with c = 4 or 2.
  assert printed == pytest.approx(4 / 4 * 40**-1.5)
  assert corrected / printed == pytest.approx(2**1.5)
  best = moment_bounds.pair(
      num_examples=1000, guarantee=TotalVariationPrivacy(level=0.01), moment=4,
      radius=2.0)
  assert printed < corrected <= best
  # E-11: it exceeds the trivial risk as the level tends to 0.
  assert printed_moments.printed_proposition_2(**known, level=1e-8) > 1e4
  assert printed_moments.printed_proposition_2(
      **known, level=1e-8, corrected=True) <= 4 / 2


def _guarantee(generator):
  size = 10**generator.uniform(-6, 1)
  return [PureDP(epsilon=size), ApproxDP(epsilon=size, delta=1e-6 * size),
          ZCDP(rho=size), KullbackLeiblerPrivacy(level=size),
          TotalVariationPrivacy(level=min(1, size)), None,
          PureDP(epsilon=0.0), ZCDP(rho=0.0), TotalVariationPrivacy(level=0.0)][
              generator.integers(9)]


@pytest.mark.slow
def test_lower_bounds_stay_below_upper_ones_and_the_trivial_risk():
  generator = np.random.default_rng(1)
  for _ in range(14):
    known = dict(num_examples=int(10**generator.uniform(0, 5)),
                 guarantee=_guarantee(generator),
                 dimension=int(10**generator.uniform(0, 2)),
                 moment=generator.choice([2, 2.5, 4, math.inf]),
                 radius=10**generator.uniform(-2, 2))
    trivial = known['radius']**2
    for bound in STUDY.lower(**known):
      assert 0 <= bound.value <= trivial * (1 + 1e-9), (bound, known)
    best = STUDY.best_lower(**known).value
    assert best <= STUDY.best_upper(**known).value * (1 + 1e-9), known


def test_bounds_scale_with_the_square_of_the_radius():
  known = dict(num_examples=300, dimension=3, moment=3)
  for guarantee in (PureDP(epsilon=0.1), ZCDP(rho=0.01)):
    one, three = (np.array([bound.value for bound in moment_bounds.lower(
        **known, guarantee=guarantee, radius=radius)]) for radius in (1, 3))
    assert three == pytest.approx(9 * one)


def test_thresholds_of_sizes():
  known = dict(epsilon=0.1, dimension=20)
  assert printed_moments.records_needed(**known, moment=2) == math.inf
  assert printed_moments.records_needed(
      **known, moment=math.inf) == pytest.approx(200**2)
  assert printed_moments.records_needed(
      **known, delta=1e-6, moment=4) == pytest.approx(
          (math.log(1e6) / 0.1)**3)
  # There the two terms of the rate (15) are equal.
  n = printed_moments.records_needed(**known, moment=4)
  assert (20**2 / (n * 0.1)**2)**0.75 == pytest.approx(1 / n)


@pytest.mark.parametrize('change, text', [
    (dict(moment=1.5), 'moment must'), (dict(radius=0.0), 'radius must'),
    (dict(num_examples=0), 'num_examples must'),
    (dict(dimension=1.5), 'dimension must')])
def test_bad_input_is_refused(change, text):
  known = dict(num_examples=10, guarantee=PureDP(epsilon=1.0), dimension=2,
               moment=2, radius=1.0) | change
  with pytest.raises(ValueError, match=text):
    STUDY.lower(**known)


def test_printed_bounds_refuse_what_they_do_not_cover():
  known = dict(num_examples=10, moment=2, radius=1.0)
  with pytest.raises(ValueError, match='dimension'):
    printed_moments.printed_proposition_4(**known, epsilon=0.1, dimension=1)
  for change in (dict(epsilon=1.0), dict(epsilon=0.5, delta=0.1)):
    with pytest.raises(ValueError, match='epsilon must be below'):
      printed_moments.printed_proposition_4(**known, dimension=2, **change)
