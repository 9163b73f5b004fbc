"""These tests check which samplers and noises a run has, and what it says."""

import dataclasses

import pytest

from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.runs import configuration
from dpjax.runs import options
from dpjax.runs import run_sampling
from dpjax.runs import training
from dpjax.runs import training_methods
from dpjax.runs.options import TrainingConfig
from dpjax.sampling import AllocationSampler
from dpjax.sampling import FixedSizeSampler
from dpjax.train.plan import private_plan

_SMALL = TrainingConfig(dataset='breast_cancer', method='dp_sgd', num_steps=12,
                        num_examples=240, epsilon=2.0)
_REPLACE = dict(adjacency='replace_one')


def resolved(**changes):
  return configuration.resolve(dataclasses.replace(_SMALL, **changes),
                               num_available=455)


def correlated(name='square_root', **changes):
  return dict(sampler='cyclic', correlation=name, **changes)


def _gaussian(steps):
  return lambda noise: accounting.repeated_event(
      accounting.gaussian_event(noise_multiplier=noise), steps)


@pytest.mark.parametrize('changes, message', [
    (dict(sampler='fixed_size'), 'sampler = fixed_size needs adjacency = '
     'replace_one, got add_or_remove_one'),
    (dict(sampler='random_allocation', **_REPLACE), 'needs adjacency = '
     'add_or_remove_one'),
    (dict(sampler='random_allocation', accountant='rdp'), 'needs accountant = '
     'pld, got rdp'),
    (dict(sampler_groups=4), 'sampler_groups needs sampler = cyclic'),
    (dict(bands=4), 'bands needs a correlation of square_root, '),
    (correlated('tree', bands=4), 'bands needs a correlation of square_root, '),
    (dict(correlation='tree'), 'correlation = tree needs sampler = cyclic, '),
    (correlated(sampler_groups=0), 'sampler_groups must be'),
    (correlated(noise='lattice_gaussian'), 'needs noise = gaussian, got '),
    (correlated(optimizer='noise_corrected_adam'), 'does not go with '),
    (dict(sampler='shuffled'), 'sampler must be one of'),
    (correlated('white'), 'correlation must be one of'),
    *[(dict(sampler='cyclic', method=method, allow_unsound=True),
       'method with another sampler or correlation must be one of dp_sgd,')
      for method in ('sgd', 'bassily', 'lip_k_norm', 'lip_printed')]])
def test_options_that_do_not_go_together_are_refused_in_one_line(
    changes, message):
  with pytest.raises(ValueError, match=message) as error:
    configuration.check(dataclasses.replace(_SMALL, **changes))
  assert '\n' not in str(error.value)


@pytest.mark.parametrize('changes, message', [
    (dict(sampler='random_allocation', batch_size=50.0), 'whole number of '),
    (dict(sampler='cyclic', batch_size=60.0, sampler_groups=5), 'exceeds the '),
    (correlated('tree', batch_size=50.0), 'groups that take part as a whole'),
    (correlated(batch_size=50.0, bands=5), 'columns of the strategy reach 5')])
def test_plans_that_do_not_hold_are_refused(changes, message):
  config = resolved(**changes)
  with pytest.raises(ValueError, match=message) as error:
    training.make_plan(config)
  assert '\n' not in str(error.value)


def test_samplers_with_one_adjacency_are_those_of_the_library():
  made = {'fixed_size': FixedSizeSampler, 'random_allocation':
          AllocationSampler}
  assert {name: [each.value for each in make(
      num_examples=4, batch_size=2).adjacencies]
          for name, make in made.items()} == {
              name: [value] for name, value in run_sampling.ADJACENCIES.items()}


def test_methods_with_any_sampler_have_gaussian_noise_and_a_valid_claim():
  any_sampler = set(training_methods.having('any_sampler'))
  assert any_sampler == (
      set(training_methods.having('gaussian')) &
      set(training_methods.having('epsilon_valid')) - {'bassily'})


def test_a_default_run_is_as_before():
  config = resolved()
  assert (config.sampler_groups, config.bands, config.batch_size) == (
      None, None, 240.0)
  plan = private_plan(
      num_examples=240, batch_size=240.0, num_steps=12, epsilon=2.0,
      delta=config.delta, adjacency=Adjacency.ADD_OR_REMOVE_ONE)
  assert training.make_plan(config) == plan
  assert configuration.release_noise(config) == 'lattice_gaussian'


@pytest.mark.parametrize('changes, batch_size, groups, bands', [
    (dict(sampler='cyclic'), 120.0, 2, None),
    (dict(sampler='cyclic', num_canaries=1), 120.5, 2, None),
    (dict(sampler='cyclic', batch_size=50.0), 50.0, 4, None),
    (dict(sampler='cyclic', sampler_groups=7), 240 / 7, 7, None),
    (dict(sampler='random_allocation', num_examples=455), 227.5, None, None),
    (correlated(sampler_groups=20), 12.0, 20, 12),
    (correlated(sampler_groups=4, bands=3), 60.0, 4, 3),
    (correlated('tree', sampler_groups=4), 60.0, 4, None)])
def test_defaults_follow_from_the_number_of_records(changes, batch_size, groups,
                                                    bands):
  config = dataclasses.replace(_SMALL, **changes)
  recipe = dict(batch_size=240.0, num_steps=12)
  slots = config.num_slots
  assert run_sampling.defaults(config, recipe, num_slots=slots) == dict(
      batch_size=batch_size, sampler_groups=groups, bands=bands)


@pytest.mark.sound
@pytest.mark.parametrize('changes, event, words, extra', [
    (dict(sampler='fixed_size', batch_size=60.0, **_REPLACE),
     lambda noise: FixedSizeSampler(num_examples=240, batch_size=60.0).event(
         noise_multiplier=noise, num_steps=12),
     'random subsets of 60 records', ''),
    (dict(sampler='random_allocation', batch_size=60.0),
     lambda noise: AllocationSampler(num_examples=240, batch_size=60.0).event(
         noise_multiplier=noise, num_steps=12),
     'random allocation, each record in one of 4 steps', ''),
    # A group that takes part as a whole is in 3 of 12 steps.
    (dict(sampler='cyclic', sampler_groups=4), _gaussian(3),
     '4 random groups in turns, as a whole', ''),
    (dict(sampler='cyclic', batch_size=30.0, sampler_groups=4, **_REPLACE),
     lambda noise: accounting.poisson_gaussian_event(
         sampling_prob=0.5, noise_multiplier=noise, num_steps=3),
     '4 random groups in turns, at sampling rate 0.5', ''),
    (correlated(batch_size=30.0, sampler_groups=4, bands=3),
     lambda noise: accounting.poisson_gaussian_event(
         sampling_prob=0.5, noise_multiplier=noise, num_steps=3),
     '4 random groups in turns, at sampling rate 0.5',
     ' correlated by square_root of 3 bands'),
    # One step of a record: each strategy has the sensitivity of one column.
    *[(correlated(name, sampler_groups=12), None,
       '12 random groups in turns, as a whole', f' correlated by {name}{bands}')
      for name, bands in (('square_root', ' of 12 bands'),
                          ('inverse_square_root', ' of 12 bands'),
                          ('tree', ''))]])
def test_a_plan_has_the_event_of_its_options(changes, event, words, extra):
  noise = 1.3
  config = resolved(**changes)
  plan = training.plan_of(config, noise)
  assert (plan.strategy is None) == (config.correlation == 'independent')
  assert (run_sampling.batches(plan.sampler),
          run_sampling.correlated_by(config)) == (words, extra)
  assert run_sampling.sampling_prob(plan.sampler) is None
  if event is not None:
    assert repr(event(noise)) == repr(plan.event)
    expected = accounting.epsilon(event(noise), delta=config.delta,
                                  adjacency=plan.adjacency)
  else:
    # A record is in one step, and its column of C is not longer than 1.
    expected = accounting.epsilon(
        accounting.gaussian_event(noise_multiplier=noise), delta=config.delta,
        adjacency=plan.adjacency)
  assert plan.epsilon(config.delta) == pytest.approx(expected, rel=1e-4)


@pytest.mark.every(4)
@pytest.mark.parametrize('changes', [
    dict(sampler='fixed_size', batch_size=60.0, **_REPLACE),
    dict(sampler='random_allocation', batch_size=60.0),
    dict(sampler='cyclic', batch_size=30.0, sampler_groups=4, **_REPLACE),
    correlated(batch_size=30.0, sampler_groups=4, bands=3)])
def test_a_plan_with_its_least_noise_is_the_plan_of_that_noise(changes):
  config = resolved(**changes)
  plan = training.make_plan(config)
  again = training.plan_of(config, plan.noise_multiplier)
  assert again == plan and hash(again) == hash(plan)
  assert 1.99 < plan.epsilon(config.delta) <= 2.0


def test_every_sampler_and_correlation_has_an_object():
  for name in options.SAMPLERS:
    config = resolved(sampler=name, batch_size=60.0, **(
        _REPLACE if name == 'fixed_size' else {}))
    assert run_sampling.sampler(config).num_examples == 240
  for name in options.CORRELATIONS:
    config = resolved(**correlated(name, sampler_groups=12))
    try:
      strategy = run_sampling.strategy(config)
    except ImportError as error:
      assert name.startswith('optimal') and 'dpjax[matrix]' in str(error)
      continue
    assert (strategy is None) == (name == 'independent')


def test_correlated_noise_is_not_on_a_lattice_by_default():
  assert configuration.release_noise(resolved(**correlated())) == 'gaussian'
  assert configuration.release_noise(
      resolved(sampler='cyclic')) == 'lattice_gaussian'
