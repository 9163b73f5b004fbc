"""These tests compare small parts of audits with counts and closed forms."""

import itertools
import types

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from dpjax.audit import bounds
from dpjax.audit import canary
from dpjax.audit import claims
from dpjax.audit import curves
from dpjax.audit import one_run
from dpjax.audit import wrapping
from dpjax.lipschitz import losses
from dpjax.models.model import Model
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.notions import ApproxDP
from dpjax.sampling import PoissonSampler
from dpjax.train import methods
from dpjax.train.plan import TrainingPlan
from dpjax.typing import Batch

_AR, _RO = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE


def test_least_alarms_are_the_inverse_of_the_trade_off():
  curve = curves.of_guarantee(ApproxDP(epsilon=1.0, delta=.1))
  for power in (.05, .1, .4, .9, 1.0):
    wanted = max(0, (power - .1) / np.e, 1 - .1 - np.e * (1 - power))
    alarm = curves.least_alarm(curve, power)
    assert alarm == pytest.approx(wanted)
    excess = curves.excesses(curve, [power], [alarm])[0]
    assert excess == pytest.approx(0) if alarm else excess <= 1e-12
  assert curves.least_alarm(curves.NOTHING, .9) == 0
  # The inverse of a Gaussian's curve of shift 1 is near it, from below.
  curve = curves.of_event(accounting.gaussian_event(noise_multiplier=1.0),
                          adjacency=_AR)
  for power in (.2, .5, .9):
    exact = stats.norm.cdf(stats.norm.ppf(power) - 1)
    assert .9 * exact < curves.least_alarm(curve, power) <= exact + 1e-6


@pytest.mark.every(2)
def test_events_that_are_no_keys_have_a_curve():
  event = accounting.gaussian_event(noise_multiplier=1.0)
  wanted = curves.at(event, delta=1e-3, adjacency=_AR)

  class Unhashable(type(event)):
    """An event of this class cannot be hashed, so it cannot be a cache key."""
    __hash__ = None

  other = Unhashable(1.0)
  with pytest.raises(TypeError):
    hash(other)
  assert curves.at(other, delta=1e-3, adjacency=_AR) == wanted


def test_the_largest_bound_of_a_grid_is_that_of_right_guesses():
  delta = 1e-6
  largest = one_run.grid_largest_bound(num_canaries=60, delta=delta)
  scores = np.arange(60.)
  perfect = one_run.grid_lower_bound(scores, scores >= 30, delta=delta)
  assert largest == pytest.approx(perfect) and largest > 1
  wrong = one_run.grid_lower_bound(scores, scores % 3 == 0, delta=delta)
  assert wrong < .5 * largest
  with pytest.raises(ValueError, match='num_guesses must be an integer >= 1'):
    one_run.epsilon_lower_bound(num_canaries=5, num_guesses=0, num_correct=0,
                                delta=0.0)


@pytest.mark.parametrize('name, order', [
  ('l2_sensitivity', 2), ('l1_sensitivity', 1)])
def test_sums_are_at_the_stated_distance(name, order):
  for pair in wrapping.space_of(type('M', (), {name: 3.0}), _RO).pairs():
    difference = np.asarray(pair.data, float) - np.asarray(
        pair.neighbour, float)
    assert np.linalg.norm(difference, order) == pytest.approx(3.0, rel=1e-4)


def test_record_norms_have_the_order_of_the_noise():
  for given, order in (({'stddev': 1.0}, 2), ({}, 1), ({'order': 2}, 2)):
    mechanism = type('M', (), {'record_norm': 1.5, **given})
    for adjacency, factor in ((_AR, 1), (_RO, 2)):
      for pair in wrapping.space_of(mechanism, adjacency).pairs():
        difference = np.asarray(pair.data, float) - np.asarray(pair.neighbour,
                                                               float)
        assert np.linalg.norm(difference, order) == pytest.approx(
            1.5 * factor, rel=1e-4)
  stated = wrapping.of_mechanism(
      type('M', (), {'pairs': ((1, 2, 'stated'),), 'release': None}),
      claim=claims.Claim(epsilon=1.0, delta=0.0, adjacency=_AR),
      sample=lambda key, data, n: data)
  assert stated.space is None and [pair[:3] for pair in stated.pairs] == [
      (1, 2, 'stated')]


def test_counts_of_a_threshold_are_of_the_second_half():
  generator = np.random.default_rng(0)
  inside, outside = generator.normal(2, 1, 4000), generator.normal(0, 1, 4000)
  for epsilon, refuted in ((.5, True), (9., False)):
    plan = types.SimpleNamespace(epsilon=lambda delta, e=epsilon: e)
    lower, findings = canary._count_findings(plan, inside, outside)
    cut = np.quantile(outside[:2000], .98)
    wanted = bounds.epsilon_lower_bound(
        true_positives=sum(value > cut for value in inside[2000:]),
        false_positives=sum(value > cut for value in outside[2000:]),
        num_in=2000, num_out=2000, delta=1e-5,
        significance=canary.SIGNIFICANCE)
    assert lower == wanted > 1 and bool(findings) == refuted
  # Noise alone refutes nothing.
  plan = types.SimpleNamespace(epsilon=lambda delta: .01)
  lower, findings = canary._count_findings(plan, outside, outside[::-1])
  assert lower == 0 and not findings


@pytest.mark.every(3)
@pytest.mark.parametrize('feature, share', [(20.0, 1.0), (0.5, None)])
def test_the_share_that_a_canary_spends_is_its_norm_over_the_bound(feature,
                                                                   share):
  """The share a canary spends is its gradient norm over the clip norm.

  A clipped canary spends all of it.
  """
  model = Model(init=lambda key: {'w': jnp.zeros((1, 2))}, network=None,
                apply=lambda p, x: x @ p['w'])
  plan = TrainingPlan(sampler=PoissonSampler(num_examples=4, batch_size=2),
                      num_steps=1, noise_multiplier=1.7, adjacency=_AR)
  game = canary.Game(
      model=model, plan=plan, num_runs=1,
      method=methods.dp_sgd(model, losses.cross_entropy(), clip_norm=1.0),
      canary=Batch(jnp.full((1, 1), feature), jnp.zeros(1, jnp.int32)))
  # The gradient of the logits is (-1/2, 1/2).
  wanted = share or feature * np.sqrt(.5)
  assert canary.fraction_spent(game) == pytest.approx(wanted, rel=1e-3)


def test_epsilons_of_shifts_solve_the_curve_of_a_gaussian():
  """Epsilons of shifts solve the Gaussian curve from tiny to large shifts.

  The curve is that of Balle and Wang 2018, Theorem 5.
  """
  last = 0.0
  for shift in (0.0, 1e-7, 1e-3, .02, .09, .5, 2.0, 9.0):
    for delta in (1e-9, 1e-5, .01):
      epsilon = bounds.shift_to_epsilon(shift, delta=delta)
      if epsilon == 0:
        # All that is spent is delta: the total variation is less. No lower
        # bound is lost, because nobody can measure such shifts.
        assert shift <= 1e-6 or 2 * stats.norm.cdf(shift / 2) - 1 <= delta
        continue
      spent = stats.norm.cdf(shift / 2 - epsilon / shift) - np.exp(
          epsilon + stats.norm.logcdf(-shift / 2 - epsilon / shift))
      assert spent == pytest.approx(delta, rel=1e-3)
    assert epsilon >= last
    last = epsilon


@pytest.mark.parametrize('epsilon', [0.0, .3, 1.0, 5.0])
def test_bets_on_guesses_are_a_fair_game(epsilon):
  """Bets on guesses have expectation one at the largest allowed success rate.

  The test enumerates all outcomes of five guesses.
  """
  right = 1 / (1 + np.exp(-epsilon))
  outcomes = np.array(list(itertools.product([False, True], repeat=5)))
  chances = np.where(outcomes, right, 1 - right).prod(1)
  wealth = np.array([one_run.wealth(outcome, epsilon=epsilon)
                     for outcome in outcomes])
  np.testing.assert_allclose(chances @ wealth, np.ones(5))
  assert wealth.min() > 0 and wealth[-1, -1] == wealth.max() > 1
