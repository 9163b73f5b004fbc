"""How well an attack tells members: brute force, exact laws, ceilings."""

import itertools
import math

import jax
import numpy as np
import pytest
from scipy import stats

from dpjax.audit import bounds
from dpjax.audit import membership
from dpjax.audit import one_run
from dpjax.privacy import accounting
from dpjax.privacy import divergences
from dpjax.privacy.adjacency import Adjacency

# Scores with ties, within a kind and between kinds.
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
  found = membership.measures(SCORES, MEMBERS, threshold=0., levels=[level])
  assert found[f'tpr_at_{level:g}'] == np.mean(
      SCORES[MEMBERS] > min(allowed))


def test_threshold_at_a_rate_never_looks_at_members():
  moved = np.where(MEMBERS, SCORES[::-1] * 7 + .05, SCORES)
  for level in (.1, .2, .5):
    assert membership.threshold_at_fpr(
        membership.roc(SCORES, MEMBERS), level) == (
            membership.threshold_at_fpr(membership.roc(moved, MEMBERS), level))


def test_rates_and_measures_by_hand():
  # Above .4: members .9 .9 3., others .7; 6 members, 5 others.
  rates = membership.rates(SCORES, MEMBERS, .4)
  assert (rates.tpr.value, rates.fpr.value) == (3 / 6, 1 / 5)
  assert rates.accuracy.value == (3 + 4) / 11
  assert rates.balanced_accuracy == pytest.approx((.5 + .8) / 2)
  assert rates.defence == pytest.approx(200 - 2 * 65)
  assert rates.accuracy.low < rates.accuracy.value < rates.accuracy.high
  found = membership.measures(SCORES, MEMBERS, threshold=.4)
  # The best is above .1: members all six but none at .1, others .4 and .7.
  curve = membership.roc(SCORES, MEMBERS)
  best = membership.best_threshold(curve)
  assert best == pytest.approx(.1)
  assert found['best_attack_accuracy'] == pytest.approx((1 + 3 / 5) / 2)
  assert found['best_attack_accuracy'] == membership.best_accuracy(curve)
  assert found['best_defence'] == pytest.approx(40)
  assert found['attack_accuracy'] == rates.balanced_accuracy
  assert found['auc'] == membership.area(curve)
  assert set(found) >= {'tpr_at_0.001', 'tpr_at_0.01', 'defence'}


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
  # Of 100 uniform scores the third largest is passed with a probability of
  # law Beta(3, 98); its limits lie inside of those of 2 in 100.
  level, size = .02, 100
  rng = np.random.default_rng(1)
  passed = []
  for _ in range(400):
    scores = rng.random(2 * size)
    members = np.arange(2 * size) < size
    curve = membership.roc(scores, members)
    passed.append(1 - membership.threshold_at_fpr(curve, level))
  law = stats.beta(3, 98)
  assert stats.kstest(passed, law.cdf).pvalue > 1e-4
  limits = membership.proportion(2, size)
  assert law.cdf(limits.high) - law.cdf(limits.low) >= .95


def test_a_threshold_of_these_records_is_optimistic_and_of_others_is_not():
  # Scores of pure noise: the best accuracy is above 1/2, that of a threshold
  # of a shadow network is not; mean of 200, each of s.d. .035.
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
  # A statistic that is no mean: the pooled share above 1.
  share = lambda draw: float(np.mean(values[draw] > .5))
  value, low, high = membership.bootstrap(jax.random.key(0), share, 60)
  spread = math.sqrt(value * (1 - value) / 60)
  assert value == share(np.arange(60))
  assert (high - low) == pytest.approx(2 * 1.96 * spread, rel=.15)
  assert low < value < high
  again = membership.bootstrap(jax.random.key(0), share, 60)
  assert again == (value, low, high)


def _laws(rng, data_sets, num_outcomes):
  """A random mechanism: a law of outcomes for each data set, none sharp."""
  return dict(zip(data_sets, rng.dirichlet(
      np.full(num_outcomes, .7), len(data_sets)) * .9 + .1 / num_outcomes,
      strict=True))


def _replacements(data_sets):
  return [(one, other) for one, other in itertools.permutations(data_sets, 2)
          if len(one) == len(other) and len(one - other) == 1]


def _additions(data_sets):
  return [(one, other) for one, other in itertools.permutations(data_sets, 2)
          if len(one ^ other) == 1]


def _delta(laws, neighbours, epsilon):
  return max(divergences.hockey_stick(laws[one], laws[other], epsilon=epsilon)
             for one, other in neighbours)


def _joint(laws, record):
  """(members, others) [outcomes]: laws of the release by one membership."""
  return tuple(np.mean([law for data, law in laws.items()
                        if (record in data) is inside], axis=0)
               for inside in (True, False))


@pytest.mark.parametrize('split', ['fixed', 'coins'])
def test_no_attack_exceeds_the_ceiling_of_any_mechanism(split):
  """All attacks on 30 random mechanisms, by enumeration of their outcomes.

  The best attack guesses each record by its posterior; the pooled curve of
  expected rates is that of thresholds on the likelihood ratio of the record,
  which is the largest at each false positive rate.
  """
  rng = np.random.default_rng(4)
  records = range(4)
  if split == 'fixed':
    data_sets = [frozenset(each) for each in itertools.combinations(records, 2)]
    neighbours = _replacements(data_sets)
  else:
    data_sets = [frozenset(each) for size in range(5)
                 for each in itertools.combinations(records, size)]
    neighbours = _additions(data_sets)
  for _ in range(30):
    laws = _laws(rng, data_sets, 5)
    pairs = [_joint(laws, record) for record in records]
    accuracy = np.mean([np.maximum(*pair).sum() / 2 for pair in pairs])
    inside, outside = (np.concatenate(each) / len(records)
                       for each in zip(*pairs, strict=True))
    order = np.argsort(-inside / outside)
    tpr, fpr = np.cumsum(inside[order]), np.cumsum(outside[order])
    for epsilon in (0., .5, 1.5):
      delta = _delta(laws, neighbours, epsilon)
      allowed = membership.ceiling(epsilon=epsilon, delta=delta)
      assert accuracy <= allowed.accuracy + 1e-12
      assert membership.defence(accuracy) >= allowed.defence - 1e-9
      assert (tpr <= membership.tpr_ceiling(
          np.minimum(fpr, 1), epsilon=epsilon, delta=delta) + 1e-12).all()


def test_no_order_of_records_exceeds_the_ceiling_in_a_fixed_split():
  """Expected area within a network: all splits, outcomes, posterior scores."""
  rng = np.random.default_rng(5)
  data_sets = [frozenset(each) for each in itertools.combinations(range(4), 2)]
  neighbours = _replacements(data_sets)
  for _ in range(20):
    laws = _laws(rng, data_sets, 5)
    ratios = np.array([np.divide(*_joint(laws, record))
                       for record in range(4)])
    areas = [law[outcome] / len(data_sets) * membership.area(membership.roc(
        ratios[:, outcome], np.isin(range(4), list(data))))
        for data, law in laws.items() for outcome in range(5)]
    for epsilon in (0., 1.):
      assert sum(areas) <= membership.ceiling(
          epsilon=epsilon, delta=_delta(laws, neighbours, epsilon)).accuracy


@pytest.mark.parametrize('epsilon, delta', [(1., 0.), (.3, .1), (0., .25)])
def test_leaky_randomised_response_attains_the_ceiling(epsilon, delta):
  # Of two records one is a member: the truth is told with delta, else which
  # one by randomised response. Told outcomes: 0, 1 sure; 2, 3 noisy.
  truth = math.exp(epsilon) / (1 + math.exp(epsilon))
  noisy = (1 - delta) * truth, (1 - delta) * (1 - truth)
  laws = {frozenset([0]): np.array([delta, 0, *noisy]),
          frozenset([1]): np.array([0, delta, *noisy[::-1]])}
  assert _delta(laws, _replacements(list(laws)), epsilon) == (
      pytest.approx(delta))
  accuracy = np.mean([np.maximum(*_joint(laws, record)).sum() / 2
                      for record in (0, 1)])
  allowed = membership.ceiling(epsilon=epsilon, delta=delta)
  assert accuracy == pytest.approx(allowed.accuracy)
  assert accuracy == pytest.approx((math.exp(epsilon) + delta) /
                                   (1 + math.exp(epsilon)))
  # The whole curve is attained too, at its corners.
  inside, outside = _joint(laws, 0)
  order = np.argsort(-inside / np.maximum(outside, 1e-300))
  np.testing.assert_allclose(
      np.cumsum(inside[order]), membership.tpr_ceiling(
          np.minimum(np.cumsum(outside[order]), 1), epsilon=epsilon,
          delta=delta), atol=1e-12)


def test_randomised_response_to_each_coin_attains_the_ceiling():
  # Three records, each by a fair coin; each membership told by itself.
  epsilon, records = 1.2, range(3)
  truth = math.exp(epsilon) / (1 + math.exp(epsilon))
  sets = [frozenset(each) for size in range(4)
          for each in itertools.combinations(records, size)]
  laws = {data: np.array([math.prod(
      truth if (record in data) == (record in told) else 1 - truth
      for record in records) for told in sets]) for data in sets}
  assert _delta(laws, _additions(sets), epsilon) == pytest.approx(0, abs=1e-12)
  for record in records:
    assert np.maximum(*_joint(laws, record)).sum() / 2 == pytest.approx(
        membership.ceiling(epsilon=epsilon, delta=0.).accuracy)


def test_a_guarantee_of_addition_does_not_bound_a_fixed_split():
  # The number of members among records worth +1 and -1, with discrete noise:
  # epsilon for adding one, twice that for a replacement.
  epsilon, reach = 1., np.arange(-60, 61)
  law = lambda total: np.exp(-epsilon * abs(reach - total)) * math.tanh(
      epsilon / 2)
  laws = {frozenset([0]): law(1), frozenset([1]): law(-1)}
  accuracy = np.maximum(*_joint(laws, 0)).sum() / 2
  assert accuracy > membership.ceiling(epsilon=epsilon, delta=0.).accuracy + .05
  assert accuracy <= membership.ceiling(epsilon=2 * epsilon, delta=0.).accuracy


@pytest.mark.parametrize('adjacency, shift', [
    (Adjacency.ADD_OR_REMOVE_ONE, .5), (Adjacency.REPLACE_ONE, 1.)])
def test_the_ceiling_of_a_gaussian_is_sharp(adjacency, shift):
  event = accounting.gaussian_event(noise_multiplier=2.)
  allowed = membership.ceiling_of_event(event, adjacency=adjacency)
  exact = stats.norm.cdf(shift / 2)
  assert exact <= allowed.accuracy < exact + 1e-3
  assert allowed.defence == pytest.approx(200 * (1 - allowed.accuracy))
  fpr = np.array([1e-3, 1e-2, .1, .5, .9])
  exact = stats.norm.cdf(stats.norm.ppf(fpr) + shift)
  found = membership.tpr_ceiling_of_event(fpr, event, adjacency=adjacency)
  assert (found >= exact).all() and (found < exact * 1.02 + 1e-3).all()
  # Sharper than any one point of the privacy curve.
  epsilon = accounting.epsilon(event, delta=1e-5, adjacency=adjacency)
  assert allowed.accuracy < membership.ceiling(
      epsilon=epsilon, delta=1e-5).accuracy - .1


def test_without_a_guarantee_everything_is_allowed():
  event = accounting.non_private_event()
  adjacency = Adjacency.REPLACE_ONE
  assert membership.ceiling_of_event(event, adjacency=adjacency) == (1., 0.)
  assert membership.ceiling(epsilon=math.inf, delta=0.) == (1., 0.)
  assert membership.tpr_ceiling_of_event(
      np.array([0., .5]), event, adjacency=adjacency).tolist() == [1., 1.]


def test_figures_of_the_two_axes():
  # MIA-13.
  for epsilon, accuracy, defence in [(1., .731, 53.8), (math.log(3), .75, 50)]:
    found = membership.ceiling(epsilon=epsilon, delta=0.)
    assert found.accuracy == pytest.approx(accuracy, abs=5e-4)
    assert found.defence == pytest.approx(defence, abs=.05)
  for defence, epsilon in [(79, .426), (95, .10)]:
    assert membership.epsilon_shown(1 - defence / 200, delta=0.) == (
        pytest.approx(epsilon, abs=5e-4))
  for epsilon, delta in [(2., .1), (.3, 0.)]:
    accuracy = membership.ceiling(epsilon=epsilon, delta=delta).accuracy
    assert membership.epsilon_shown(accuracy, delta=delta) == (
        pytest.approx(epsilon))
  assert membership.epsilon_shown(.4, delta=0.) == 0
  assert membership.epsilon_shown(.54, delta=.1) == 0
  assert membership.epsilon_shown(1., delta=.1) == math.inf


def test_pairs_are_fair_coins_of_a_member_and_another():
  # Scores name the records, so that differences tell who was paired.
  inside, outside = np.arange(7.), 100 * np.arange(1., 6.)
  scores = np.concatenate([inside, outside])
  members = np.arange(12) < 7
  seen, ahead = [], []
  for key in jax.random.split(jax.random.key(1), 400):
    differences, coins = membership.paired(key, scores, members)
    assert differences.shape == coins.shape == (5,)
    gaps = np.where(coins, differences, -differences)  # member minus other
    found = (-gaps) % 100
    whom = np.round((100 - found) % 100)  # the member's number
    assert len(set(whom)) == 5 and set(whom) <= set(inside)
    assert sorted(whom - gaps) == outside.tolist()
    seen.append(whom[np.argsort(whom - gaps)][0])
    ahead.append(coins)
  # 2000 coins; and the partner of one record is any member, chi-square.
  assert abs(np.mean(ahead) - .5) < 4.5 * .5 / math.sqrt(2000)
  assert stats.chisquare(np.bincount(np.int64(seen), minlength=7)).pvalue > 1e-4
  columns = np.corrcoef(np.array(ahead).T) - np.eye(5)
  assert np.abs(columns).max() < 4.5 / math.sqrt(400)


def test_any_of_the_larger_kind_may_be_paired():
  # Of the kind with more records those left over are drawn, whichever it is.
  scores = np.array([0., 10., 20., 30., 500.])
  for members, sign in [(scores == 500, 1), (scores != 500, -1)]:
    met = [500 - sign * np.where(coins, differences, -differences)[0]
           for differences, coins in (
               membership.paired(key, scores, members)
               for key in jax.random.split(jax.random.key(4), 80))]
    assert set(met) == {0., 10., 20., 30.}


def test_one_split_shows_no_more_epsilon_than_there_is():
  """Null: 0 in at least 95 % of 500 networks; and coverage of a known one.

  Each membership is told by randomised response of epsilon / 2: a replacement
  changes two. Pairs of a tie are told by their coin, so the truth is not
  reached; 500 audits, a false alarm below 1e-5 at 10 %.
  """
  members = np.arange(400) < 200
  rng = np.random.default_rng(6)
  keys = jax.random.split(jax.random.key(2), 500)
  shown = [membership.epsilon_shown_by_split(
      key, rng.normal(size=400), members, delta=0.) for key in keys]
  assert np.mean(np.array(shown) > 0) < .05 + 4.5 * math.sqrt(.05 * .95 / 500)
  epsilon = 2.
  lie = 1 / (1 + math.exp(epsilon / 2))
  shown = [membership.epsilon_shown_by_split(
      key, 1. * (members ^ (rng.random(400) < lie)), members, delta=0.)
      for key in keys[:100]]
  assert np.mean(np.array(shown) > epsilon) < .05 + 4.5 * .022
  assert np.median(shown) > .5  # and it has power


def test_perfect_scores_show_what_so_many_guesses_can():
  members = np.arange(400) % 2 == 0
  shown = membership.epsilon_shown_by_split(
      jax.random.key(3), 1. * members, members, delta=0.)
  assert shown == pytest.approx(one_run.largest_bound(
      num_guesses=100, significance=.05 / 9), abs=.5)
  # All pairs guessed, delta 0: Clopper and Pearson's limit of the accuracy.
  right = one_run.epsilon_lower_bound(num_canaries=200, num_guesses=200,
                                      num_correct=150, delta=0.)
  accuracy = 1 - bounds.rate_upper_bound(50, 200, significance=.05)
  assert right == pytest.approx(membership.epsilon_shown(accuracy, delta=0.),
                                abs=1e-5)


@pytest.mark.parametrize('scores, members, message', [
    (SCORES[:-1], MEMBERS, 'one membership for each score'),
    (SCORES, MEMBERS.astype(int), 'members must be bool'),
    (np.where(SCORES == 3, np.nan, SCORES), MEMBERS, 'scores must be finite'),
    (SCORES, np.ones(11, bool), 'there must be members and others'),
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
