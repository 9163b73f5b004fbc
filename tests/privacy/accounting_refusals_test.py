"""Tests what the accountant refuses instead of guessing."""

import math

from dp_accounting import dp_event as dp_events
import pytest

from dpjax.privacy import accounting
from dpjax.privacy import restating
from dpjax.privacy import sampled_events
from tests.privacy.spending import ADD
from tests.privacy.spending import INTERVAL
from tests.privacy.spending import poisson
from tests.privacy.spending import random_response
from tests.privacy.spending import REPLACE
from tests.privacy.spending import spend

ACCEPTED = {
  'gaussian': dp_events.GaussianDpEvent(6.),
  'laplace': dp_events.LaplaceDpEvent(4.),
  'discrete_laplace': dp_events.DiscreteLaplaceDpEvent(.2, 1),
  'mixture_of_gaussians': dp_events.MixtureOfGaussiansDpEvent(
      150., [0., 1.], [.5, .5]),
  'poisson_gaussian': dp_events.PoissonSampledDpEvent(
      .1, dp_events.GaussianDpEvent(3.)),
  'poisson_laplace': dp_events.PoissonSampledDpEvent(
      .1, dp_events.LaplaceDpEvent(2.)),
  'randomized_response': random_response(),
  'truncated': dp_events.TruncatedSubsampledGaussianDpEvent(
      10, .2, 5, 12.),
  'zcdp': dp_events.ZCDpEvent(.01),
  'without_replacement': dp_events.SampledWithoutReplacementDpEvent(
      50, 5, dp_events.GaussianDpEvent(4.)),
  'with_replacement': dp_events.SampledWithReplacementDpEvent(
      100, 10, dp_events.GaussianDpEvent(2.)),
  'random_allocation': sampled_events.allocation_event(
      noise_multiplier=2., num_steps=10),
}
# Each accountant covers these under each adjacency; all others are refused.
COVERED = {
  ('pld', ADD): {'gaussian', 'laplace', 'discrete_laplace', 'truncated',
                 'mixture_of_gaussians', 'poisson_gaussian',
                 'poisson_laplace', 'random_allocation'},
  ('pld', REPLACE): {'gaussian', 'laplace', 'discrete_laplace',
                     'poisson_gaussian', 'randomized_response', 'truncated',
                     'without_replacement'},
  ('rdp', ADD): {'gaussian', 'laplace', 'poisson_gaussian', 'zcdp'},
  ('rdp', REPLACE): {'gaussian', 'laplace', 'poisson_gaussian',
                     'randomized_response', 'zcdp', 'without_replacement'},
}


@pytest.mark.every(8)
@pytest.mark.parametrize('name', ACCEPTED)
@pytest.mark.parametrize('accountant, adjacency', COVERED)
def test_repetition_counts_or_the_event_is_refused(name, accountant,
                                                   adjacency):
  event = ACCEPTED[name]
  if name not in COVERED[accountant, adjacency]:
    with pytest.raises(ValueError) as error:
      spend(event, adjacency, accountant)
    assert str(error.value).startswith(
        f'the {accountant} accountant does not cover {type(event).__name__}')
    assert '\n' not in str(error.value)
    return
  repeated = spend(dp_events.SelfComposedDpEvent(event, 4), adjacency,
                   accountant)
  written_out = spend(accounting.composed_event([event] * 4), adjacency,
                      accountant)
  # The two differ by how often a loss is rounded to the grid.
  tolerance = 1e-6 if accountant == 'rdp' else 4 * INTERVAL
  assert repeated == pytest.approx(written_out, abs=tolerance)
  assert repeated > 1.2 * spend(event, adjacency, accountant)


@pytest.mark.parametrize('accountant', accounting.ACCOUNTANTS)
def test_a_hole_inside_a_composition_is_refused(accountant):
  event = accounting.composed_event(
      [dp_events.GaussianDpEvent(1.), ACCEPTED['with_replacement']])
  with pytest.raises(ValueError, match=f'^the {accountant} accountant does'):
    spend(event, accountant=accountant)


@pytest.mark.parametrize('delta', [
  0., -1e-5, 9.9e-13, 1e-15, 1., 2., math.nan])
def test_delta_outside_the_floor_is_refused(delta):
  message = r'^delta must lie in \[1e-12, 1\), got [-+.0-9a-z]+$'
  with pytest.raises(ValueError, match=message):
    spend(poisson(.01, 1., 10), delta=delta)
  with pytest.raises(ValueError, match=message):
    accounting.calibrate_noise_multiplier(
        target_epsilon=1., target_delta=delta, sampling_prob=.1, num_steps=1,
        adjacency=ADD)


@pytest.mark.parametrize('arguments, message', [
  ({'sampling_prob': 0.}, r'sampling_prob must lie in \(0, 1\], got 0.0'),
  ({'sampling_prob': 1.1}, r'sampling_prob must lie in \(0, 1\], got 1.1'),
  ({'sampling_prob': math.nan}, r'sampling_prob must lie in .*, got nan'),
  ({'noise_multiplier': 0.}, 'noise_multiplier must be a positive .*, got 0.0'),
  ({'noise_multiplier': -1.}, 'noise_multiplier must be a positive .*, got -1'),
  ({'noise_multiplier': math.inf}, 'noise_multiplier must be .*, got inf'),
  ({'num_steps': -1}, 'num_steps must be an integer >= 0, got -1'),
  ({'num_steps': 1.5}, 'num_steps must be an integer >= 0, got 1.5'),
])
def test_events_refuse_bad_arguments(arguments, message):
  good = {'sampling_prob': .1, 'noise_multiplier': 1., 'num_steps': 1}
  with pytest.raises(ValueError, match=f'^{message}[^\n]*$'):
    accounting.poisson_gaussian_event(**{**good, **arguments})


def test_no_noise_multiplier_is_made_up():
  """Calibration refuses targets that no multiplier, or almost any, meets."""
  with pytest.raises(ValueError, match=r'^no noise multiplier below 2\^40 meets'):
    accounting._bracket(lambda multiplier: 5.0, 1.0, 2.0)
  with pytest.raises(ValueError, match='^epsilon 2.0 needs hardly any noise'):
    accounting._bracket(lambda multiplier: 1.0, 1.0, 2.0)
  for seen, steps in ((.1, 1), (.19, 2)):
    with pytest.raises(ValueError, match=f'^delta = {seen:g} is not below '
                       f'{seen:g}, the probability that a record is used'):
      accounting.calibrate_noise_multiplier(
          target_epsilon=1., target_delta=seen + 1e-12, sampling_prob=.1,
          num_steps=steps, adjacency=ADD)


@pytest.mark.parametrize('guess', [1e-2, 1., 30.])
@pytest.mark.sound
def test_brackets_hold_the_target(guess):
  for target in (.1, 1., 20.):
    bracket = accounting._bracket(lambda m: 3 / m, guess, target)
    assert 3 / bracket.endpoint_2 <= target < 3 / bracket.endpoint_1


@pytest.mark.parametrize('arguments, message', [
  ({'target_epsilon': 0.}, 'epsilon must be a positive number, got 0.0'),
  ({'target_epsilon': math.inf}, 'epsilon must be a positive number, got inf'),
  ({'num_steps': 0}, 'num_steps must be an integer >= 1, got 0'),
  ({'sampling_prob': 2.}, r'sampling_prob must lie in \(0, 1\], got 2.0'),
  ({'accountant': 'moments'}, "accountant must be one of .*; got 'moments'"),
  pytest.param({'target_epsilon': 1e9}, 'epsilon .* needs hardly any noise: '
               'lower it', marks=pytest.mark.slow),
])
def test_calibration_refuses_bad_arguments(arguments, message):
  good = {'target_epsilon': 1., 'target_delta': 1e-5, 'sampling_prob': .1,
          'num_steps': 1, 'adjacency': ADD}
  with pytest.raises(ValueError, match=f'^{message}[^\n]*$'):
    accounting.calibrate_noise_multiplier(**{**good, **arguments})


def test_queries_refuse_bad_arguments():
  event = poisson(.1, 1., 1)
  with pytest.raises(ValueError, match="^accountant must be one of pld, rdp; "
                     "got 'gdp'; did you mean 'rdp'"):
    spend(event, accountant='gdp')
  with pytest.raises(ValueError, match='^target_epsilon must be a number >= 0'):
    accounting.delta_for(event, target_epsilon=-1., adjacency=ADD)


def test_the_largest_sample_decides_which_orders_are_tried():
  """Fractional orders are tried for small samples only;
  their series can fail."""
  small, large, whole = (accounting.poisson_gaussian_event(
      sampling_prob=q, noise_multiplier=1., num_steps=2) for q in (.01, .3, 1.))
  for events, most in (([small], .01), ([small, large], .3),
                       ([large, whole, small], .3), ([whole], 0.)):
    event = accounting.composed_event(events)
    assert restating.largest_sampling_prob(event) == most
    orders = restating.renyi_orders(event)
    assert any(order % 1 for order in orders) == (most <= .02)
    assert orders == sorted(orders) and orders[-1] == 1024
