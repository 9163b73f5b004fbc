"""Tests that a release draws exactly what it pays for."""

import dataclasses
import fractions
import random

import pytest

from dpjax.privacy.adjacency import Adjacency
from dpjax.release import costs
from dpjax.release import meter as meters
from dpjax.release import noise
from dpjax.release import registry
from dpjax.release.costs import Cost
from dpjax.release.query import Query

Fraction = fractions.Fraction
_ONE = Cost(epsilon=Fraction(1))
_NOISE = noise.LaplaceNoise(scale=Fraction(2))  # It costs 1/2 at sensitivity 1.


def _add(meter, values=(3,), l1=1):
  return meter.noisy(values, _NOISE, l1_sensitivity=l1,
                     l2_sensitivity_squared=l1**2)


def _refusing(limit):
  raise AssertionError('noise was drawn')


def test_noise_that_was_paid_for_is_that_of_the_law():
  meter = meters.Meter(_ONE, random.Random(0).randrange)
  below = random.Random(0).randrange
  assert _add(meter, [3, 4]) + _add(meter, [5]) == [
      value + _NOISE.draw(below) for value in (3, 4, 5)]
  meter.check_spent()


def test_a_draw_beyond_what_is_reserved_is_refused_before_it_is_made():
  meter = meters.Meter(_ONE, _refusing)
  with pytest.raises(meters.CostError, match='exceed'):
    _add(meter, l1=3)
  meter = meters.Meter(_ONE, random.Random(0).randrange)
  _add(meter, l1=2)
  meter.check_spent()
  with pytest.raises(meters.CostError, match='exceed'):
    meter.point([(0, 2)], [0], rate=Fraction(1, 10**9), sensitivity=1)


def test_draws_that_are_cheap_one_by_one_are_refused_together():
  meter = meters.Meter(_ONE, random.Random(0).randrange)
  _add(meter)
  _add(meter)
  meter._below = _refusing
  with pytest.raises(meters.CostError, match='exceed'):
    _add(meter)
  meter.check_spent()


def test_noise_of_another_kind_is_refused():
  meter = meters.Meter(Cost(rho=Fraction(10)), _refusing)
  with pytest.raises(meters.CostError, match='exceed'):
    _add(meter)


def _printed(cost, delta, epsilon, adjacency=Adjacency.REPLACE_ONE):
  return {'epsilon': str(epsilon), 'delta': str(delta),
          'adjacency': adjacency.value, 'event': str(cost.event(adjacency))}


def test_the_printed_epsilon_is_that_of_the_cost_to_the_last_digit():
  tiny, delta = Fraction(1, 10**12), Fraction(1, 10**6)
  for cost in (Cost(rho=Fraction(1, 7)), Cost(choices=(Fraction(1),) * 9)):
    spent = costs.epsilon([cost], delta=delta,
                          adjacency=Adjacency.REPLACE_ONE)
    meters.check_guarantee(_printed(cost, delta, spent), cost)
    with pytest.raises(meters.CostError, match='would be printed'):
      meters.check_guarantee(_printed(cost, delta, spent - tiny), cost)
  # Without delta it is refused, too.
  for epsilon in (1 - tiny, 1 + tiny):
    with pytest.raises(meters.CostError, match='would be printed'):
      meters.check_guarantee(_printed(_ONE, 0, epsilon), _ONE)


def test_costs_that_differ_by_less_than_floats_do_are_refused():
  delta, cost = Fraction(1, 10**6), Cost(rho=Fraction(1, 7))
  other = Cost(rho=Fraction(1, 7) - Fraction(1, 10**40))
  assert cost.event(Adjacency.REPLACE_ONE) == other.event(
      Adjacency.REPLACE_ONE)
  meters.check_guarantee(_printed(cost, delta, 10), cost, cost)
  with pytest.raises(meters.CostError, match='different costs'):
    meters.check_guarantee(_printed(cost, delta, 10), cost, other)


def test_each_part_of_a_cost_is_refused_beyond_what_is_reserved():
  """Choices are compared singly: two small ones do not pay for a large one."""
  reserved = Cost(choices=(Fraction(1, 4),) * 2, rho=Fraction(1, 100),
                  epsilon=Fraction(1, 8))
  meter = meters.Meter(reserved, _refusing)
  for more in (Cost(choices=(Fraction(1, 2),)), Cost(rho=Fraction(1, 99)),
               Cost(choices=(Fraction(1, 4),) * 3), Cost(epsilon=Fraction(1))):
    with pytest.raises(meters.CostError, match='exceed'):
      meter.charged(more)
    assert costs.exceeds([more], reserved)
  gaussian = noise.GaussianNoise(variance=Fraction(49))
  with pytest.raises(meters.CostError, match='exceed'):
    meter.noisy([1], gaussian, l1_sensitivity=1, l2_sensitivity_squared=1)
  assert not costs.exceeds([reserved], reserved)
  meter.charged(reserved)
  meter.check_spent()


def test_what_was_not_drawn_is_noticed():
  for draws in range(2):
    meter = meters.Meter(_ONE, random.Random(0).randrange)
    for _ in range(draws):
      _add(meter)
    with pytest.raises(meters.CostError, match='only'):
      meter.check_spent()


def test_a_statistic_that_spends_double_is_refused():
  """A statistic is refused if its noise costs 2 where its plan says 1."""
  plan = registry.plan(Query(
      statistic='count', epsilon=Fraction(1),
      adjacency=Adjacency.ADD_OR_REMOVE_ONE))
  loose = dataclasses.replace(plan, query=dataclasses.replace(
      plan.query, epsilon=Fraction(2)))
  meter = meters.Meter(plan.cost, _refusing)
  with pytest.raises(meters.CostError, match='exceed'):
    loose.draw([10], meter)


def test_the_printed_event_is_that_of_the_cost():
  delta, cost = Fraction(1, 10**6), Cost(rho=Fraction(1, 7))
  right = _printed(cost, delta, 10)
  meters.check_guarantee(right, cost)
  for event in ('', str(Cost(rho=Fraction(1, 8)).event(
      Adjacency.REPLACE_ONE)), str(_ONE.event(Adjacency.REPLACE_ONE))):
    with pytest.raises(meters.CostError, match='the event of'):
      meters.check_guarantee({**right, 'event': event}, cost)
