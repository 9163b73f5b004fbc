"""These tests check statistics of mia_sparsity: intervals, tests, matching."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from experiments.mia_sparsity import inference


def test_student_s_tests_and_limits_are_those_of_scipy():
  values = [1.0, 2.5, 0.5, 3.0]
  theirs = stats.ttest_1samp(values, 0)
  assert inference.p_value(values, one_sided=False) == pytest.approx(
      theirs.pvalue)
  for some in (values, [-value for value in values]):
    assert inference.p_value(some, one_sided=True) == pytest.approx(
        stats.ttest_1samp(some, 0, alternative='greater').pvalue)
  limits = theirs.confidence_interval(0.95)
  assert inference.t_interval(values) == pytest.approx(
      (np.mean(values), limits.low, limits.high))


def test_one_seed_shows_nothing_and_equal_differences_everything():
  assert inference.p_value([5.0], one_sided=True) == 1
  assert math.isnan(inference.t_interval([5.0]).low)
  assert inference.p_value([5.0, 5.0], one_sided=True) == 0
  assert inference.p_value([-5.0, -5.0], one_sided=True) == 1
  assert inference.p_value([0.0, 0.0], one_sided=False) == 1


def test_the_printed_rule_by_hand():
  """Intervals that share an end are not disjoint, checked by hand."""
  dense = [78.0, 79.0, 80.0]
  assert inference.are_disjoint([80.5, 81.5, 82.5], dense)
  assert inference.are_disjoint([75.5, 76.5, 77.5], dense)
  assert not inference.are_disjoint([79.9, 80.9, 81.9], dense)
  assert not inference.are_disjoint([80.0, 81.0, 82.0], dense)
  assert not inference.are_disjoint([99.0], dense)


def test_bootstrap_is_that_of_all_ordered_draws():
  """The bootstrap uses all ordered draws, each equally likely."""
  values = {4: 1.0, 7: 2.0, 9: 6.0}
  mean = lambda drawn: sum(values[seed] for seed in drawn) / len(drawn)
  interval = inference.bootstrap(mean, list(values))
  every = sorted(mean(drawn) for drawn in itertools.product(values, repeat=3))
  assert len(every) == 27
  # Less than 2.5 % of 27 draws are below the least, so the limits are the ends.
  assert interval == pytest.approx((3.0, every[0], every[-1]))
  five = {seed: seed**2 for seed in range(5)}
  square = lambda drawn: sum(five[seed] for seed in drawn) / len(drawn)
  every = np.sort([square(drawn) for drawn
                   in itertools.product(five, repeat=5)])
  interval = inference.bootstrap(square, list(five))
  ends = [np.quantile(every, q, method='inverted_cdf')
          for q in (0.025, 0.975)]
  assert interval == pytest.approx((6.0, *ends))
  with pytest.raises(ValueError, match='at most 8 seeds, got 9'):
    inference.bootstrap(mean, list(range(9)))


def test_slope_goes_through_the_dense_network():
  assert inference.slope([1, 2], [2, 4]) == 2
  assert inference.slope([1, 2], [3, 4]) == pytest.approx(11 / 5)
  assert math.isnan(inference.slope([0.0, 0.0], [1, 2]))


def test_matching_interpolates_and_pairs():
  """Matching interpolates between two accuracies, pair by pair."""
  below, above = {0: 89.0, 1: 91.0}, {0: 81.0, 1: 83.0, 2: 50.0}
  matched = inference.matched(0.82, {0: 90.0, 1: 92.0, 2: 0.0},
                              [(0.88, above), (0.8, below)])
  assert matched.differences == pytest.approx({0: 3.0, 1: 3.0})
  assert matched.gap == pytest.approx(3.0)
  for accuracy in (0.79, 0.89):
    assert inference.matched(accuracy, {0: 1.0}, [(0.88, above),
                                                  (0.8, below)]) is None
  assert inference.matched(0.82, {7: 1.0}, [(0.88, above),
                                            (0.8, below)]) is None
  # The two accuracies are too far apart to interpolate.
  assert inference.matched(0.82, {0: 90.0}, [(0.88, above),
                                             (0.77, below)]) is None


def test_excess_of_networks_that_are_as_bad_as_they_may_be():
  """Networks at the ceiling are rejected in about 5 % of cases."""
  ceiling, pairs, networks = 0.7, 500, 2
  right = np.random.default_rng(1).binomial(
      pairs, ceiling, [2000, networks]) / pairs
  p_values = np.array([inference.excess(list(one), ceiling, 2 * pairs).p_value
                       for one in right])
  allowed = 0.05 + 3 * math.sqrt(0.05 * 0.95 / len(p_values))
  assert 0.015 < np.mean(p_values < 0.05) < allowed
  exact = inference.excess([0.72, 0.72], ceiling, 1000)
  assert exact.standard_error == pytest.approx(math.sqrt(0.21 / 1000))
  assert exact.p_value == pytest.approx(stats.norm.sf(
      0.02 / math.sqrt(0.21 / 1000)))
  # Networks that scatter more than coins get their own scatter.
  wide = inference.excess([0.62, 0.82], ceiling, 1000)
  assert wide.standard_error == pytest.approx(0.1)
