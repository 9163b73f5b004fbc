"""Tests pure guarantees in both accountants against enumerated responses."""

import math

from dp_accounting import dp_event as dp_events
import numpy as np
import pytest

from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from tests.privacy.spending import ADD
from tests.privacy.spending import INTERVAL
from tests.privacy.spending import poisson
from tests.privacy.spending import random_response
from tests.privacy.spending import REPLACE
from tests.privacy.spending import spend


@pytest.mark.every(2)
def test_uses_of_randomized_response_are_counted():
  once = spend(random_response(), REPLACE)
  assert spend(dp_events.SelfComposedDpEvent(random_response(), 10), REPLACE,
               delta=1e-6) == pytest.approx(10 * math.log(3), abs=2e-2)
  assert once == pytest.approx(math.log(3), abs=INTERVAL)
  nested = dp_events.SelfComposedDpEvent(
      dp_events.ComposedDpEvent([
          dp_events.SelfComposedDpEvent(random_response(), 2),
          dp_events.GaussianDpEvent(3.)]), 3)
  flat = dp_events.ComposedDpEvent(
      [random_response()] * 6 + [dp_events.GaussianDpEvent(3.)] * 3)
  assert spend(nested, REPLACE) == pytest.approx(spend(flat, REPLACE),
                                                 abs=10 * INTERVAL)


def responses_delta(one, num_uses, epsilon):
  """Returns the exact delta of K uses of randomised response."""
  truth = 1 / (1 + math.exp(-one))
  return math.fsum(
      math.comb(num_uses, k) * max(0., (
          truth**k * (1 - truth)**(num_uses - k) - math.exp(epsilon) *
          truth**(num_uses - k) * (1 - truth)**k))
      for k in range(num_uses + 1))


@pytest.mark.parametrize('adjacency', Adjacency)
@pytest.mark.parametrize('one, uses', [(.05, 100), (.5, 12), (2., 3), (.8, 1)])
def test_pure_releases_cost_what_randomised_responses_do(adjacency, one, uses):
  event = accounting.repeated_event(
      accounting.pure_event(epsilon=one, adjacency=adjacency), uses)
  for delta in (1e-6, 1e-2):
    spent = spend(event, adjacency, delta=delta)
    assert responses_delta(one, uses, spent) <= delta * (1 + 1e-6)
    assert responses_delta(one, uses, max(0, spent - 3e-3)) > delta * .99
    by_rdp = spend(event, adjacency, 'rdp', delta)
    assert spent - INTERVAL <= by_rdp
    assert responses_delta(one, uses, by_rdp) <= delta


def test_pure_guarantees_under_the_other_relation():
  add = accounting.pure_event(epsilon=.3, adjacency=ADD)
  replace = accounting.pure_event(epsilon=.3, adjacency=REPLACE)
  for by in accounting.ACCOUNTANTS:
    # Replacing is removing and adding, so it costs twice the epsilon.
    assert spend(add, REPLACE, by) == pytest.approx(spend(
        accounting.pure_event(epsilon=.6, adjacency=REPLACE), REPLACE, by))
    # A guarantee for data sets of one size does not cover other sizes.
    for event in (replace, accounting.composed_event([add, replace]),
                  accounting.poisson_event(replace, sampling_prob=.1,
                                           num_steps=3)):
      with pytest.raises(ValueError, match=f'^the {by} accountant does not '):
        spend(event, ADD, by)


@pytest.mark.every(2)
@pytest.mark.parametrize('accountant', accounting.ACCOUNTANTS)
@pytest.mark.parametrize('adjacency', Adjacency)
def test_pure_and_gaussian_releases_compose(adjacency, accountant):
  pure = accounting.pure_event(epsilon=.2, adjacency=adjacency)
  gaussian = accounting.gaussian_event(noise_multiplier=4.)
  both = spend(accounting.composed_event([pure, gaussian]), adjacency,
               accountant)
  alone = spend(gaussian, adjacency, accountant)
  assert alone < both <= alone + .2 + INTERVAL
  # Sampled steps are covered under fewer adjacencies by each accountant.
  sampled = accounting.composed_event([pure, poisson(.1, 4., 5)])
  if (accountant, adjacency) == ('rdp', REPLACE):
    with pytest.raises(ValueError, match='^the rdp accountant does not cover'):
      spend(sampled, adjacency, accountant)
  else:
    steps = spend(poisson(.1, 4., 5), adjacency, accountant)
    # Renyi orders use the pure part only as zCDP there.
    slack = INTERVAL if accountant == 'pld' else .5
    assert steps < spend(sampled, adjacency, accountant) <= steps + .2 + slack


def outcomes(odds, mass, prob):
  """Returns (1 - q) R + q P on two outcomes, R with `mass` on the first."""
  first = (1 - prob) * mass + prob * mass * odds
  return np.array([first, 1 - first])


@pytest.mark.parametrize('adjacency', Adjacency)
@pytest.mark.parametrize('epsilon, q', [(1., .1), (.2, .7), (3., .02)])
def test_poisson_samples_of_pure_releases(adjacency, epsilon, q):
  """Poisson-sampled pure releases cost the extreme pair's epsilon (DP-17)."""
  without = outcomes(1., 1e-3, q)
  one, other = (outcomes(math.exp(sign * epsilon), 1e-3, q)
                for sign in (1, -1))
  exact = math.log(one[0] / (other if adjacency is REPLACE else without)[0])
  event = accounting.poisson_event(
      accounting.pure_event(epsilon=epsilon, adjacency=ADD), sampling_prob=q,
      num_steps=1)
  spent = spend(event, adjacency, delta=accounting.MIN_DELTA)
  assert exact - 1e-9 <= spent <= exact + 2 * INTERVAL
  assert spent < (2 if adjacency is REPLACE else 1) * epsilon


def test_laplace_under_replace_one_has_half_the_multiplier():
  event = accounting.repeated_event(
      accounting.laplace_event(noise_multiplier=10.), 20)
  halved = accounting.repeated_event(
      accounting.laplace_event(noise_multiplier=5.), 20)
  for by in accounting.ACCOUNTANTS:
    assert spend(event, REPLACE, by) == pytest.approx(spend(halved, ADD, by))


@pytest.mark.parametrize('call, message', [
  (lambda: accounting.pure_event(epsilon=0., adjacency=ADD), 'epsilon must be'),
  (lambda: accounting.pure_event(epsilon=math.inf, adjacency=ADD), 'epsilon mu'),
  (lambda: accounting.laplace_event(noise_multiplier=0.), 'noise_multiplier mu'),
  (lambda: accounting.poisson_event(poisson(1., 1., 1), sampling_prob=0.,
                                    num_steps=1), 'sampling_prob must lie in'),
  (lambda: accounting.repeated_event(poisson(1., 1., 1), -1), 'num_steps must'),
])
def test_pure_events_refuse_bad_arguments(call, message):
  with pytest.raises(ValueError, match=f'^{message}[^\n]*$'):
    call()


@pytest.mark.parametrize('noise_parameter, num_buckets', [
  (.5, 2), (.25, 2), (.5, 4), (.9, 10)])
def test_a_pure_guarantee_is_rounded_up(noise_parameter, num_buckets):
  # The parameter is the probability of answering uniformly, truth included.
  lie = noise_parameter / num_buckets
  exact = math.log((1 - noise_parameter + lie) / lie)
  got = spend(random_response(noise_parameter, num_buckets), REPLACE,
              delta=accounting.MIN_DELTA)
  assert exact - 1e-10 <= got <= exact + INTERVAL
  by_rdp = spend(random_response(noise_parameter, num_buckets), REPLACE,
                 'rdp', 1e-12)
  assert exact - 1e-10 <= by_rdp <= exact + .05


@pytest.mark.parametrize('multiplier', [.5, 1., 3.])
def test_laplace_is_rounded_up(multiplier):
  got = spend(dp_events.LaplaceDpEvent(multiplier), delta=1e-12)
  assert 1 / multiplier - 1e-9 <= got <= 1 / multiplier + INTERVAL
