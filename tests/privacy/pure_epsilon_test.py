"""Tests pure epsilons of events against accountants and densities."""

import math

import numpy as np
import pytest

from dpjax.privacy import accounting
from dpjax.privacy import restating
from dpjax.privacy.adjacency import Adjacency

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
_EVENTS = {
    'laplace': accounting.laplace_event(noise_multiplier=2.0),
    'discrete_laplace': accounting.discrete_laplace_event(
        noise_parameter=0.3, sensitivity=2),
    'pure': accounting.pure_event(epsilon=0.7, adjacency=ADD),
    'pure_of_replacement': accounting.pure_event(epsilon=0.7,
                                                 adjacency=REPLACE),
    'range': accounting.bounded_range_event(width=0.4, adjacency=ADD),
    'response': accounting.randomized_response_event(
        uniform_prob=0.5, num_categories=4),
    'sampled': accounting.poisson_event(
        accounting.pure_event(epsilon=1.2, adjacency=ADD), sampling_prob=0.3,
        num_steps=1),
    'composed': accounting.composed_event([
        accounting.laplace_event(noise_multiplier=4.0),
        accounting.pure_event(epsilon=0.2, adjacency=ADD)])}


@pytest.mark.sound
@pytest.mark.parametrize('adjacency', [ADD, REPLACE])
@pytest.mark.parametrize('name', _EVENTS)
def test_it_is_the_accountants_epsilon_where_that_is_sharp(name, adjacency):
  """Pure epsilon agrees with the accountant at delta 1e-12 for few releases."""
  event = _EVENTS[name]
  try:
    sharp = accounting.epsilon(event, delta=1e-12, adjacency=adjacency)
  except ValueError:
    sharp = math.inf
  pure = restating.pure_epsilon(event, adjacency)
  assert pure == pytest.approx(sharp, rel=1e-3)
  assert restating.pure_epsilon(accounting.repeated_event(event, 50),
                                adjacency) == pytest.approx(50 * pure)


def test_randomised_response_by_its_probabilities():
  for prob, size in ((0.5, 4), (0.1, 2), (1.0, 3)):
    event = accounting.randomized_response_event(uniform_prob=prob,
                                                 num_categories=size)
    truth, other = 1 - prob + prob / size, prob / size
    assert restating.pure_epsilon(event, REPLACE) == pytest.approx(
        np.log(truth / other))


def test_events_without_a_pure_guarantee_cost_infinity():
  gaussian = accounting.gaussian_event(noise_multiplier=100.0)
  for event in (gaussian, accounting.non_private_event(),
                accounting.composed_event([_EVENTS['laplace'], gaussian]),
                accounting.poisson_gaussian_event(
                    sampling_prob=0.01, noise_multiplier=1.0, num_steps=1)):
    assert restating.pure_epsilon(event, ADD) == math.inf
