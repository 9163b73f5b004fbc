"""These tests check that a plan determines its event and its epsilon."""

import math

import dp_accounting
import pytest

from dpjax.papers import bassily
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import PoissonSampler
from dpjax.train import plan as plans

ADD = Adjacency.ADD_OR_REMOVE_ONE
REPLACE = Adjacency.REPLACE_ONE


def _private(**changes):
  settings = {'num_examples': 500, 'batch_size': 20, 'num_steps': 10,
              'epsilon': 2., 'delta': 1e-5, 'adjacency': ADD,
              'accountant': 'rdp'}
  return plans.private_plan(**{**settings, **changes})


def test_event_is_what_the_sampler_draws():
  """A plan's event counts one release per step, not per epoch (E31)."""
  plan = _private()
  assert isinstance(plan.event, dp_accounting.SelfComposedDpEvent)
  assert plan.event.count == 10
  sampled = plan.event.event
  assert sampled.sampling_probability == plan.sampler.sampling_prob
  assert sampled.event.noise_multiplier == plan.noise_multiplier
  assert plan.event == plan.sampler.event(
    noise_multiplier=plan.noise_multiplier, num_steps=10)
  assert plan.sampler.expected_batch_size == pytest.approx(20, rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize('adjacency, batch_size', [(ADD, 20), (REPLACE, 500)])
def test_calibrated_epsilon_is_at_most_the_target(adjacency, batch_size):
  plan = _private(adjacency=adjacency, batch_size=batch_size, num_steps=3,
                  accountant='pld')
  spent = plan.epsilon(1e-5)
  assert 0.99 * 2 <= spent <= 2
  assert plan.epsilon(1e-5, accountant='rdp') >= 0.999 * spent
  assert spent == accounting.epsilon(plan.event, delta=1e-5,
                                     adjacency=adjacency)


def test_replacing_costs_twice_the_noise_without_subsampling():
  add, replace = (_private(adjacency=adjacency, batch_size=500)
                  for adjacency in (ADD, REPLACE))
  assert replace.noise_multiplier == pytest.approx(2 * add.noise_multiplier,
                                                   rel=1e-3)


def test_training_gets_what_a_release_before_it_left():
  # Sums of all records are Gaussian, so squares of shifts add up.
  before = accounting.composed_event([
      accounting.gaussian_event(noise_multiplier=4.0),
      accounting.gaussian_event(noise_multiplier=4.0)])
  plan = _private(batch_size=500, before=before, accountant='pld')
  shift = accounting.gaussian_shift(epsilon=2.0, delta=1e-5)
  wanted = math.sqrt(10 / (shift**2 - 2 / 4**2))
  assert plan.noise_multiplier == pytest.approx(wanted, rel=2e-3)
  assert plan.event == accounting.composed_event([before, plan.steps_event])
  assert 1.99 < plan.epsilon(1e-5) <= 2
  alone = _private(batch_size=500, accountant='pld')
  assert alone.noise_multiplier < 0.95 * plan.noise_multiplier
  # A budget that is spent leaves nothing for training.
  with pytest.raises(ValueError, match='nothing of epsilon = 2 is left'):
    _private(before=accounting.gaussian_event(noise_multiplier=1.0))


@pytest.mark.every(2)
def test_the_renyi_accountant_is_a_second_opinion_under_replace_one():
  plan = plans.private_plan(num_examples=1000, batch_size=20, num_steps=50,
                            epsilon=1.0, delta=1e-5, adjacency=REPLACE)
  by_renyi = plan.epsilon(1e-5, accountant='rdp')
  assert plan.epsilon(1e-5) <= 1.0 < by_renyi < 3.0


def test_refuses_what_an_accountant_does_not_cover():
  plan = plans.TrainingPlan(
    sampler=PoissonSampler(num_examples=10, batch_size=2), num_steps=1,
    adjacency=REPLACE, noise_multiplier=1., noise_order=1)
  with pytest.raises(ValueError, match='the rdp accountant does not cover'):
    plan.epsilon(1e-5, accountant='rdp')


@pytest.mark.parametrize('make', [
    lambda adjacency: plans.TrainingPlan(
        sampler=PoissonSampler(num_examples=10, batch_size=2), num_steps=1,
        adjacency=adjacency, noise_multiplier=1.),
    lambda adjacency: _private(adjacency=adjacency, batch_size=500),
    lambda adjacency: plans.non_private_plan(
        num_examples=9, batch_size=2, num_steps=1, adjacency=adjacency)])
def test_an_adjacency_may_be_its_value(make):
  plan = make('replace_one')
  assert plan == make(REPLACE) != make('add_or_remove_one')
  assert plan.adjacency is REPLACE
  with pytest.raises(ValueError, match='add_or_remove_one, replace_one; got'):
    make('replace')


def test_max_batch_size_is_no_matter_of_privacy():
  assert _private(max_batch_size=7).noise_multiplier == (
    _private().noise_multiplier)
  # Every plan divides its batches into parts of max_batch_size.
  common = {'num_examples': 1000, 'batch_size': 1, 'num_steps': 1000,
            'adjacency': ADD, 'max_batch_size': 7}
  for plan in (_private(max_batch_size=7), plans.non_private_plan(**common),
               bassily.bassily_plan(epsilon=1., delta=1e-4, **common)):
    assert plan.sampler.max_batch_size == 7 == plan.sampler.part_size


def test_non_private_is_infinite():
  plan = plans.non_private_plan(num_examples=10, batch_size=2, num_steps=3,
                                adjacency=ADD)
  assert plan.noise_multiplier is None
  for accountant in accounting.ACCOUNTANTS:
    assert plan.epsilon(1e-5, accountant=accountant) == math.inf


@pytest.mark.parametrize('changes, message', [
  ({'num_steps': 0}, 'num_steps must be an integer >= 1, got 0'),
  ({'epsilon': 0.}, 'epsilon must be a positive number, got 0.0'),
  ({'delta': 0.}, r'delta must lie in \[1e-12, 1\), got 0.0'),
  ({'batch_size': 501}, 'batch_size must be at most num_examples = 500'),
  ({'batch_size': 0}, 'batch_size must be a positive number, got 0'),
  ({'num_examples': 0}, 'num_examples must be an integer >= 1, got 0'),
  ({'accountant': 'gdp'}, "must be one of pld, rdp; got 'gdp'")])
def test_errors(changes, message):
  with pytest.raises(ValueError, match=message):
    _private(**changes)


@pytest.mark.parametrize('multiplier', [0., -1., math.inf, math.nan])
def test_refuses_noise_that_is_none(multiplier):
  sampler = PoissonSampler(num_examples=10, batch_size=2)
  with pytest.raises(ValueError, match='noise_multiplier must be a positive'):
    plans.TrainingPlan(sampler=sampler, num_steps=1, adjacency=ADD,
                       noise_multiplier=multiplier)


@pytest.mark.every(2)
@pytest.mark.parametrize('q, z, steps, figure, true', [
  (.01, 4., 10_000, .9263, .9470), (.01, 1., 1000, 1.1994, 1.8282)])
def test_the_rule_for_tuning_is_no_guarantee(q, z, steps, figure, true):
  """The heuristic rho for tuning states less epsilon than is spent (OPT-07)."""
  rho = plans.heuristic_rho(sampling_prob=q, noise_multiplier=z,
                            num_steps=steps)
  said = dp_accounting.get_epsilon_gaussian((2 * rho)**-.5, 1e-5)
  spent = accounting.epsilon(accounting.poisson_gaussian_event(
      sampling_prob=q, noise_multiplier=z, num_steps=steps), delta=1e-5,
      adjacency=ADD)
  assert said == pytest.approx(figure, abs=1e-4)
  assert said < spent == pytest.approx(true, abs=1e-3)


@pytest.mark.every(1)
@pytest.mark.parametrize('num_steps', [1, 3])
@pytest.mark.parametrize('order', [1, math.inf])
def test_k_norm_plans_cost_amplified_pure_steps(order, num_steps):
  """T K-norm steps cost at most T ln(1 + q
  (e^(1/z) - 1)); one costs just that."""
  sampler = PoissonSampler(num_examples=40, batch_size=10)
  plan = plans.TrainingPlan(
    sampler=sampler, num_steps=num_steps, adjacency=ADD,
    noise_multiplier=.8, noise_order=order)
  pure = math.log1p(.25 * math.expm1(1 / .8))
  epsilon = plan.epsilon(1e-12)
  assert epsilon <= num_steps * pure + 1e-3
  assert epsilon >= (.999 if num_steps == 1 else .9) * num_steps * pure
