"""What a release draws is what it pays: no more, and no less."""

import dataclasses
import fractions
import random

import pytest

from dpjax.privacy.adjacency import Adjacency
from dpjax.release import meter as meters
from dpjax.release import noise
from dpjax.release import registry
from dpjax.release.costs import Cost
from dpjax.release.query import Query

Fraction = fractions.Fraction
_ONE = Cost(epsilon=Fraction(1))
_LAW = noise.LaplaceNoise(scale=Fraction(2))  # 1/2 at sensitivity 1.


def _add(meter, values=(3,), l1=1):
  return meter.noisy(values, _LAW, l1_sensitivity=l1,
                     l2_sensitivity_squared=l1**2)


def _refusing(limit):
  raise AssertionError('noise was drawn')


def test_noise_that_was_paid_for_is_that_of_the_law():
  meter = meters.Meter(_ONE, random.Random(0).randrange)
  below = random.Random(0).randrange
  assert _add(meter, [3, 4]) + _add(meter, [5]) == [
      value + _LAW.draw(below) for value in (3, 4, 5)]
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


def test_noise_of_another_kind_is_refused():
  meter = meters.Meter(Cost(rho=Fraction(10)), _refusing)
  with pytest.raises(meters.CostError, match='exceed'):
    _add(meter)


def test_what_was_not_drawn_is_noticed():
  for draws in range(2):
    meter = meters.Meter(_ONE, random.Random(0).randrange)
    for _ in range(draws):
      _add(meter)
    with pytest.raises(meters.CostError, match='only'):
      meter.check_spent()


def test_a_statistic_that_spends_double_is_refused():
  """The plan says 1; its noise is that of 2."""
  plan = registry.plan(Query(
      statistic='count', epsilon=Fraction(1),
      adjacency=Adjacency.ADD_OR_REMOVE_ONE))
  loose = dataclasses.replace(plan, query=dataclasses.replace(
      plan.query, epsilon=Fraction(2)))
  meter = meters.Meter(plan.cost, _refusing)
  with pytest.raises(meters.CostError, match='exceed'):
    loose.draw([10], meter)
