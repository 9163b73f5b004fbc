"""These tests check the accuracy that a guarantee allows an attack."""

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


def _outcome_probs(rng, data_sets, num_outcomes):
  """Returns random outcome probabilities for each data set, none near zero."""
  return dict(zip(data_sets, rng.dirichlet(
      np.full(num_outcomes, .7), len(data_sets)) * .9 + .1 / num_outcomes,
      strict=True))


def _replacements(data_sets):
  return [(one, other) for one, other in itertools.permutations(data_sets, 2)
          if len(one) == len(other) and len(one - other) == 1]


def _additions(data_sets):
  return [(one, other) for one, other in itertools.permutations(data_sets, 2)
          if len(one ^ other) == 1]


def _delta(probs, neighbours, epsilon):
  return max(divergences.hockey_stick(probs[one], probs[other], epsilon=epsilon)
             for one, other in neighbours)


def _joint(probs, record):
  """Returns (members, others): outcome probabilities given membership."""
  return tuple(np.mean([masses for data, masses in probs.items()
                        if (record in data) is inside], axis=0)
               for inside in (True, False))


@pytest.mark.parametrize('split', ['fixed', 'coins'])
def test_no_attack_exceeds_the_ceiling_of_any_mechanism(split):
  """No attack exceeds the ceilings on 30 random mechanisms, by enumeration.

  The best attack guesses each record by its posterior. The best pooled curve
  of expected rates thresholds the likelihood ratio of each record.
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
    probs = _outcome_probs(rng, data_sets, 5)
    pairs = [_joint(probs, record) for record in records]
    accuracy = np.mean([np.maximum(*pair).sum() / 2 for pair in pairs])
    inside, outside = (np.concatenate(each) / len(records)
                       for each in zip(*pairs, strict=True))
    ranking = np.argsort(-inside / outside)
    tpr, fpr = np.cumsum(inside[ranking]), np.cumsum(outside[ranking])
    for epsilon in (0., .5, 1.5):
      delta = _delta(probs, neighbours, epsilon)
      allowed = membership.ceiling(epsilon=epsilon, delta=delta)
      assert accuracy <= allowed.accuracy + 1e-12
      assert membership.defence(accuracy) >= allowed.defence - 1e-9
      assert (tpr <= membership.tpr_ceiling(
          np.minimum(fpr, 1), epsilon=epsilon, delta=delta) + 1e-12).all()


def test_no_order_of_records_exceeds_the_ceiling_in_a_fixed_split():
  """With a fixed split, no expected area within a network exceeds the ceiling.

  The test enumerates splits and outcomes and ranks by posterior scores.
  """
  rng = np.random.default_rng(5)
  data_sets = [frozenset(each) for each in itertools.combinations(range(4), 2)]
  neighbours = _replacements(data_sets)
  for _ in range(20):
    probs = _outcome_probs(rng, data_sets, 5)
    ratios = np.array([np.divide(*_joint(probs, record))
                       for record in range(4)])
    areas = [masses[outcome] / len(data_sets) * membership.area(membership.roc(
        ratios[:, outcome], np.isin(range(4), list(data))))
        for data, masses in probs.items() for outcome in range(5)]
    for epsilon in (0., 1.):
      assert sum(areas) <= membership.ceiling(
          epsilon=epsilon, delta=_delta(probs, neighbours, epsilon)).accuracy


@pytest.mark.parametrize('epsilon, delta', [(1., 0.), (.3, .1), (0., .25)])
def test_leaky_randomised_response_attains_the_ceiling(epsilon, delta):
  # One of two records is a member. With probability delta the truth is
  # released, else randomised response. Outcomes 0 and 1 are sure; 2 and 3 are
  # noisy.
  truth = math.exp(epsilon) / (1 + math.exp(epsilon))
  noisy = (1 - delta) * truth, (1 - delta) * (1 - truth)
  probs = {frozenset([0]): np.array([delta, 0, *noisy]),
           frozenset([1]): np.array([0, delta, *noisy[::-1]])}
  assert _delta(probs, _replacements(list(probs)), epsilon) == (
      pytest.approx(delta))
  accuracy = np.mean([np.maximum(*_joint(probs, record)).sum() / 2
                      for record in (0, 1)])
  allowed = membership.ceiling(epsilon=epsilon, delta=delta)
  assert accuracy == pytest.approx(allowed.accuracy)
  assert accuracy == pytest.approx((math.exp(epsilon) + delta) /
                                   (1 + math.exp(epsilon)))
  # The whole curve is attained too, at its corners.
  inside, outside = _joint(probs, 0)
  ranking = np.argsort(-inside / np.maximum(outside, 1e-300))
  np.testing.assert_allclose(
      np.cumsum(inside[ranking]), membership.tpr_ceiling(
          np.minimum(np.cumsum(outside[ranking]), 1), epsilon=epsilon,
          delta=delta), atol=1e-12)


def test_randomised_response_to_each_coin_attains_the_ceiling():
  # Three records are included by fair coins, and each membership is released.
  epsilon, records = 1.2, range(3)
  truth = math.exp(epsilon) / (1 + math.exp(epsilon))
  sets = [frozenset(each) for size in range(4)
          for each in itertools.combinations(records, size)]
  probs = {data: np.array([math.prod(
      truth if (record in data) == (record in output) else 1 - truth
      for record in records) for output in sets]) for data in sets}
  assert _delta(probs, _additions(sets), epsilon) == pytest.approx(0, abs=1e-12)
  for record in records:
    assert np.maximum(*_joint(probs, record)).sum() / 2 == pytest.approx(
        membership.ceiling(epsilon=epsilon, delta=0.).accuracy)


def test_a_guarantee_of_addition_does_not_bound_a_fixed_split():
  # The release is the number of members among records worth +1 and -1, with
  # discrete noise. It costs epsilon for adding one, twice that for a
  # replacement.
  epsilon, outputs = 1., np.arange(-60, 61)
  masses = lambda total: np.exp(-epsilon * abs(outputs - total)) * math.tanh(
      epsilon / 2)
  probs = {frozenset([0]): masses(1), frozenset([1]): masses(-1)}
  accuracy = np.maximum(*_joint(probs, 0)).sum() / 2
  assert accuracy > membership.ceiling(epsilon=epsilon, delta=0.).accuracy + .05
  assert accuracy <= membership.ceiling(epsilon=2 * epsilon, delta=0.).accuracy


@pytest.mark.every(2)
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
  ceilings = membership.tpr_ceiling_of_event(fpr, event, adjacency=adjacency)
  assert (ceilings >= exact).all() and (ceilings < exact * 1.02 + 1e-3).all()
  # The curve is sharper than any one point of it.
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
  # The tests below check item MIA-13.
  for epsilon, accuracy, defence in [(1., .731, 53.8), (math.log(3), .75, 50)]:
    ceiling = membership.ceiling(epsilon=epsilon, delta=0.)
    assert ceiling.accuracy == pytest.approx(accuracy, abs=5e-4)
    assert ceiling.defence == pytest.approx(defence, abs=.05)
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


@pytest.mark.every(2)
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
    partners = (-gaps) % 100
    whom = np.round((100 - partners) % 100)  # the member's number
    assert len(set(whom)) == 5 and set(whom) <= set(inside)
    assert sorted(whom - gaps) == outside.tolist()
    seen.append(whom[np.argsort(whom - gaps)][0])
    ahead.append(coins)
  # With 2000 coins, the partner of one record is any member (chi-square).
  assert abs(np.mean(ahead) - .5) < 4.5 * .5 / math.sqrt(2000)
  assert stats.chisquare(np.bincount(np.int64(seen), minlength=7)).pvalue > 1e-4
  columns = np.corrcoef(np.array(ahead).T) - np.eye(5)
  assert np.abs(columns).max() < 4.5 / math.sqrt(400)


def test_any_of_the_larger_kind_may_be_paired():
  # Surplus records of the larger kind are drawn, whichever kind it is.
  scores = np.array([0., 10., 20., 30., 500.])
  for members, sign in [(scores == 500, 1), (scores != 500, -1)]:
    met = [500 - sign * np.where(coins, differences, -differences)[0]
           for differences, coins in (
               membership.paired(key, scores, members)
               for key in jax.random.split(jax.random.key(4), 80))]
    assert set(met) == {0., 10., 20., 30.}


@pytest.mark.every(5)
def test_one_split_shows_no_more_epsilon_than_there_is():
  """One split shows no more epsilon than there is, at the stated error rate.

  Noise shows 0 in at least 95 % of 500 networks. Then each membership goes
  through randomised response of epsilon / 2, because a replacement changes
  two. Coins decide tied pairs, so the truth is not reached. With 500 audits a
  false alarm has probability below 1e-5 at 10 %.
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
  # If all pairs are guessed at delta 0, Clopper and Pearson limit the accuracy.
  right = one_run.epsilon_lower_bound(num_canaries=200, num_guesses=200,
                                      num_correct=150, delta=0.)
  accuracy = 1 - bounds.rate_upper_bound(50, 200, significance=.05)
  assert right == pytest.approx(membership.epsilon_shown(accuracy, delta=0.),
                                abs=1e-5)
