"""These tests compare means and tests with formulas and enumeration."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from experiments import summary


def _enumerate(differences):
  """Returns (statistic, two-sided p) by enumerating all sign vectors."""
  ranks = stats.rankdata(np.abs(differences))
  observed = min(ranks[np.array(differences) > 0].sum(),
                 ranks[np.array(differences) < 0].sum())
  sums = [ranks[np.array(signs)].sum() for signs
          in itertools.product([False, True], repeat=len(ranks))]
  as_small = sum(min(total, ranks.sum() - total) <= observed + 1e-9
                 for total in sums)
  return observed, as_small / len(sums)


def test_summary_by_hand():
  summarised = summary.summarise([1., 2., 6.])
  # Squared deviations are 4, 1 and 9: variance 14 / 2 with ddof=1.
  assert summarised.mean == 3.
  assert summarised.median == 2.
  assert summarised.count == 3
  assert summarised.standard_error == pytest.approx(math.sqrt(7 / 3), rel=1e-12)


def test_one_value_has_no_standard_error():
  summarised = summary.summarise([2.])
  assert summarised.mean == 2. and math.isnan(summarised.standard_error)
  with pytest.raises(ValueError, match='at least one'):
    summary.summarise([])


def test_groups_by_columns_and_seed(make_row):
  rows = [make_row(seed=seed, method=method, value=seed + shift)
          for seed in (1, 0) for method, shift in (('b', 10.), ('a', 0.))]
  rows.append(make_row(metric='loss', value=99.))
  groups = summary.group(rows, ('dataset', 'method'), metric='accuracy')
  assert list(groups) == [('adult', 'a'), ('adult', 'b')]
  assert groups['adult', 'a'] == {0: 0., 1: 1.}
  assert list(groups['adult', 'b'].items()) == [(0, 10.), (1, 11.)]
  means = summary.over_seeds(rows, ('method',), metric='accuracy')
  assert {key: value.mean for key, value in means.items()} == {
      ('a',): .5, ('b',): 10.5}


def test_costs_are_the_worst_epsilon_and_the_mean_time(make_row):
  rows = [make_row(seed=seed, epsilon=epsilon, wall_s=seconds)
          for seed, epsilon, seconds in ((0, .9, 1.), (1, .95, 4.))]
  rows.append(make_row(metric='loss', epsilon=math.inf, wall_s=99.))
  assert summary.costs(rows, ('dataset',), metric='accuracy') == {
      ('adult',): summary.Cost(epsilon=.95, seconds=2.5)}


def test_a_mean_over_different_settings_is_refused(make_row):
  rows = [make_row(method='a'), make_row(method='b')]
  with pytest.raises(ValueError, match='seed 0 of accuracy occurs twice'):
    summary.over_seeds(rows, ('dataset',), metric='accuracy')


def test_an_unknown_column_is_named(make_row):
  with pytest.raises(ValueError, match='no column colour; there are exper'):
    summary.group([make_row()], ('colour',), metric='accuracy')


def test_differences_pair_seeds():
  assert summary.differences({2: 5., 0: 1., 7: 9.}, {0: .5, 2: 1.}) == [
      .5, 4.]


def test_wilcoxon_of_one_sided_differences():
  """Ten one-sided differences give the least p, .00195 (STAT-01)."""
  test = summary.wilcoxon(range(1, 11))
  assert test == summary.SignedRank(0., .001953125, 10)
  assert summary.wilcoxon(-np.arange(1, 11)) == test


def _of_ten(statistic):
  """Returns the test of 1..10 with negative signs on ranks of this sum."""
  left, signs = statistic, np.ones(10)
  for rank in range(10, 0, -1):
    if rank <= left:
      left -= rank
      signs[rank - 1] = -1
  return summary.wilcoxon(signs * np.arange(1, 11))


def test_wilcoxon_of_ten_rejects_up_to_eight():
  """Ten differences reject at 5 % if and only if W <= 8 (STAT-01)."""
  for statistic in range(0, 28):
    test = _of_ten(statistic)
    assert test.statistic == statistic
    assert (test.p_value <= .05) == (statistic <= 8)


@pytest.mark.parametrize('statistic, as_small, printed', [
    (0, 1, '.0020'), (8, 25, '.0488'), (9, 33, '.0645')])
def test_wilcoxon_of_ten_golden_values(statistic, as_small, printed):
  """The p-value counts sign vectors of 1024 with as small a sum (STAT-01)."""
  p_value = _of_ten(statistic).p_value
  assert p_value == 2 * as_small / 1024
  assert f'{p_value:.4f}'.lstrip('0') == printed


@pytest.mark.parametrize('seed', range(5))
def test_wilcoxon_equals_scipy_and_enumeration(seed):
  draws = np.random.default_rng(seed).normal(.5, 1., size=10)
  test = summary.wilcoxon(draws)
  theirs = stats.wilcoxon(draws, method='exact')
  assert test.statistic == theirs.statistic
  assert test.p_value == pytest.approx(theirs.pvalue, rel=1e-12)
  assert (test.statistic, test.p_value) == _enumerate(draws)


@pytest.mark.parametrize('values', [
    [1., 1., -1., 2., 3., 3., 3., -4.], [1., 1.], [2., -2., 2., -2., 5.]])
def test_wilcoxon_is_exact_with_ties(values):
  test = summary.wilcoxon(values)
  assert (test.statistic, test.p_value) == _enumerate(values)


def test_wilcoxon_ties_what_rounding_parts():
  parted = [.9 - .8, .8 - .7, -(.7 - .6), .35]
  assert len(set(np.abs(parted[:3]))) > 1
  assert summary.wilcoxon(parted) == summary.wilcoxon([.1, .1, -.1, .35])


def test_wilcoxon_drops_zeros():
  assert summary.wilcoxon([0., 1., 2., 0., -3.]) == summary.wilcoxon(
      [1., 2., -3.])
  assert summary.wilcoxon([0., 0.]) == summary.SignedRank(0., 1., 0)


def test_wilcoxon_is_monotone_and_never_above_one():
  assert summary.wilcoxon([1., -1.]).p_value == 1.
  assert summary.wilcoxon([1., 2., -3.]).p_value == 1.


def test_wilcoxon_refuses_nan():
  with pytest.raises(ValueError, match='finite'):
    summary.wilcoxon([1., math.nan])


def test_holm_of_seven_data_sets():
  """One of seven data sets can be significant with ten seeds (STAT-01)."""
  least = _of_ten(0).p_value
  adjusted = summary.holm([least] + [_of_ten(8).p_value] * 6)
  assert adjusted[0] == 7 * least < .05
  assert min(adjusted[1:]) > .05


def test_holm_by_hand():
  # Holm sorts .01 .02 .03 .04, multiplies by 4 3 2 1 and keeps the largest.
  assert summary.holm([.04, .01, .03, .02]) == pytest.approx(
      [.06, .04, .06, .06])
  assert summary.holm([.5, .6]) == [1., 1.]
  assert summary.holm([.2]) == [.2]
  assert summary.holm([]) == []


@pytest.mark.every(1)
@pytest.mark.parametrize('p_values', [
    (.04, .01, .03, .02), (.9, .9), (.5, .5, .5), (0., 1., .2), (.3, .001, .3),
    (.2, .15, .04, .9, .04)])
def test_holm_is_the_closed_test_of_bonferroni(p_values):
  """Holm's test equals the closed test by Bonferroni."""
  wanted = [max(min(1., len(some) * min(p_values[j] for j in some))
                for size in range(1, len(p_values) + 1)
                for some in itertools.combinations(range(len(p_values)), size)
                if i in some) for i in range(len(p_values))]
  assert summary.holm(p_values) == pytest.approx(wanted, rel=1e-12)


def test_holm_refuses_what_is_no_p_value():
  for value in (-.1, 1.1, math.nan):
    with pytest.raises(ValueError, match='must lie in'):
      summary.holm([.5, value])


def test_disjoint_spreads_of_three_are_a_test_of_level_seven_percent():
  # MIA-11: with equal spreads, t is sqrt(6) with 4 degrees of freedom.
  assert 2 * stats.t.sf(math.sqrt(6), 4) == pytest.approx(.070, abs=5e-4)
  three = np.array([-1., 0., 1.])
  assert not summary.spreads_are_disjoint(three, three + 1.99)
  assert summary.spreads_are_disjoint(three, three + 2.01)
  assert summary.spreads_are_disjoint(three + 2.01, three)
  assert stats.ttest_ind(three, three + 2).statistic == pytest.approx(
      -math.sqrt(6))
