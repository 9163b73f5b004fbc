"""These tests compare measures of attacks with brute force and exact values."""

import math

import jax
import numpy as np
import pytest
from scipy import stats

from dpjax.audit import membership

pytestmark = pytest.mark.every(1)

# These scores have ties within a kind and between kinds.
SCORES = np.array([.1, .4, .4, .9, -2., .4, .9, 3., .1, .7, .2])
MEMBERS = np.array([0, 1, 0, 1, 0, 1, 1, 1, 0, 0, 1], bool)


def test_curve_and_area_by_brute_force():
  curve = membership.roc(SCORES, MEMBERS)
  inside, outside = SCORES[MEMBERS], SCORES[~MEMBERS]
  assert sorted(set(SCORES)) == list(curve.thresholds[-2::-1])
  for threshold, fpr, tpr in zip(*curve, strict=True):
    assert fpr == sum(score > threshold for score in outside) / outside.size
    assert tpr == sum(score > threshold for score in inside) / inside.size
  assert (curve.fpr[0], curve.tpr[0]) == (0, 0)
  assert (curve.fpr[-1], curve.tpr[-1]) == (1, 1)
  wins = [(one > other) + (one == other) / 2
          for one in inside for other in outside]
  assert membership.area(curve) == pytest.approx(np.mean(wins), abs=1e-15)


@pytest.mark.parametrize('level', [.01, .2, .39, .4, .6, 1.])
def test_threshold_at_a_rate_is_the_lowest_allowed(level):
  curve = membership.roc(SCORES, MEMBERS)
  outside = SCORES[~MEMBERS]
  allowed = [threshold for threshold in [*SCORES, -math.inf]
             if np.mean(outside > threshold) <= level]
  assert membership.threshold_at_fpr(curve, level) == min(allowed)
  measures = membership.measures(SCORES, MEMBERS, threshold=0., levels=[level])
  assert measures[f'tpr_at_{level:g}'] == np.mean(
      SCORES[MEMBERS] > min(allowed))


def test_threshold_at_a_rate_never_looks_at_members():
  scores = np.where(MEMBERS, SCORES[::-1] * 7 + .05, SCORES)
  for level in (.1, .2, .5):
    assert membership.threshold_at_fpr(
        membership.roc(SCORES, MEMBERS), level) == (
            membership.threshold_at_fpr(membership.roc(scores, MEMBERS), level))


def test_rates_and_measures_by_hand():
  # Above .4 lie three of 6 members (.9, .9, 3.) and one of 5 others (.7).
  rates = membership.rates(SCORES, MEMBERS, .4)
  assert (rates.tpr.value, rates.fpr.value) == (3 / 6, 1 / 5)
  assert rates.accuracy.value == (3 + 4) / 11
  assert rates.balanced_accuracy == pytest.approx((.5 + .8) / 2)
  assert rates.defence == pytest.approx(200 - 2 * 65)
  assert rates.accuracy.low < rates.accuracy.value < rates.accuracy.high
  measures = membership.measures(SCORES, MEMBERS, threshold=.4)
  # The best is above .1: members all six but none at .1, others .4 and .7.
  curve = membership.roc(SCORES, MEMBERS)
  best = membership.best_threshold(curve)
  assert best == pytest.approx(.1)
  assert measures['best_attack_accuracy'] == pytest.approx((1 + 3 / 5) / 2)
  assert measures['best_attack_accuracy'] == membership.best_accuracy(curve)
  assert measures['best_defence'] == pytest.approx(40)
  assert measures['attack_accuracy'] == rates.balanced_accuracy
  assert measures['auc'] == membership.area(curve)
  assert set(measures) >= {'tpr_at_0.001', 'tpr_at_0.01', 'defence'}


@pytest.mark.parametrize('count, trials', [(0, 12), (3, 12), (12, 12)])
def test_limits_are_those_of_exact_binomial_sums(count, trials):
  value, low, high = membership.proportion(count, trials, confidence=.9)
  assert value == count / trials
  if count:
    assert sum(math.comb(trials, k) * low**k * (1 - low)**(trials - k)
               for k in range(count, trials + 1)) == pytest.approx(.05)
  else:
    assert low == 0
  if count < trials:
    assert sum(math.comb(trials, k) * high**k * (1 - high)**(trials - k)
               for k in range(count + 1)) == pytest.approx(.05)
  else:
    assert high == 1


def test_limits_hold_of_a_threshold_set_on_the_same_non_members():
  # The third largest of 100 uniform scores is passed with a probability
  # distributed as Beta(3, 98). Its limits lie inside those of 2 in 100.
  level, size = .02, 100
  rng = np.random.default_rng(1)
  passed = []
  for _ in range(400):
    scores = rng.random(2 * size)
    members = np.arange(2 * size) < size
    curve = membership.roc(scores, members)
    passed.append(1 - membership.threshold_at_fpr(curve, level))
  beta = stats.beta(3, 98)
  assert stats.kstest(passed, beta.cdf).pvalue > 1e-4
  limits = membership.proportion(2, size)
  assert beta.cdf(limits.high) - beta.cdf(limits.low) >= .95


def test_a_threshold_of_these_records_is_optimistic_and_of_others_is_not():
  # With scores of pure noise the best accuracy is above 1/2, that of a shadow's
  # threshold is not. The mean is over 200, each of deviation .035.
  rng = np.random.default_rng(2)
  members = np.arange(200) < 100
  best, fixed = [], []
  for _ in range(200):
    shadow, scores = rng.normal(size=(2, 200))
    best.append(membership.best_accuracy(membership.roc(scores, members)))
    threshold = membership.best_threshold(membership.roc(shadow, members))
    fixed.append(membership.rates(scores, members,
                                  threshold).balanced_accuracy)
  assert np.mean(best) > .54
  assert np.mean(fixed) == pytest.approx(.5, abs=5 * .035 / math.sqrt(200))


def test_t_interval_is_where_the_test_rejects():
  values = [81., 79.5, 84., 80., 78.]
  mean, low, high = membership.t_interval(values, confidence=.9)
  assert mean == pytest.approx(np.mean(values))
  for limit in (low, high):
    assert stats.ttest_1samp(values, limit).pvalue == pytest.approx(.1)
  assert np.isnan(membership.t_interval([3.])[1:]).all()


def test_bootstrap_draws_whole_networks():
  values = np.random.default_rng(3).normal(size=60)
  # This statistic is not a mean: the pooled share of scores above 1.
  share = lambda draw: float(np.mean(values[draw] > .5))
  value, low, high = membership.bootstrap(jax.random.key(0), share, 60)
  standard_error = math.sqrt(value * (1 - value) / 60)
  assert value == share(np.arange(60))
  assert (high - low) == pytest.approx(2 * 1.96 * standard_error, rel=.15)
  assert low < value < high
  again = membership.bootstrap(jax.random.key(0), share, 60)
  assert again == (value, low, high)


def test_bootstrap_draws_are_of_all_networks_with_replacement():
  draws = []
  membership.bootstrap(jax.random.key(2), lambda draw: draws.append(draw) or 0.,
                       7, num_draws=900)
  *draws, every = draws
  assert every.tolist() == list(range(7)) and np.shape(draws) == (900, 7)
  counts = np.bincount(np.ravel(draws), minlength=7)
  assert counts.size == 7 and stats.chisquare(counts).pvalue > 1e-5
  # One draw has all seven values with probability 7! / 7^7 = .6 percent.
  assert sum(len(set(draw)) == 7 for draw in draws) < 25


@pytest.mark.parametrize('scores, members, message', [
    (SCORES[:-1], MEMBERS, 'one membership for each score'),
    (SCORES, MEMBERS.astype(int), 'members must be bool'),
    (np.where(SCORES == 3, np.nan, SCORES), MEMBERS, 'scores must be finite'),
    (SCORES, np.ones(11, bool), 'there must be members and non-members'),
])
def test_refuses_bad_scores(scores, members, message):
  with pytest.raises(ValueError, match=message):
    membership.roc(scores, members)


def test_refuses_bad_numbers():
  with pytest.raises(ValueError, match='accuracy must lie in'):
    membership.epsilon_shown(65., delta=0.)
  with pytest.raises(ValueError, match='level must lie in'):
    membership.threshold_at_fpr(membership.roc(SCORES, MEMBERS), 0.)
  with pytest.raises(ValueError, match='num_networks must be an integer >= 2'):
    membership.bootstrap(jax.random.key(0), np.mean, 1)
