"""Tests joint noisy sums against a divided budget, in closed form."""

import decimal
import fractions
import math

import pytest

from dpjax.privacy.adjacency import Adjacency
from dpjax.release import noise
from dpjax.release import registry
from dpjax.release.query import Query

pytestmark = pytest.mark.every(1)

Decimal, Fraction = decimal.Decimal, fractions.Fraction
_AR, _RO = Adjacency


def _plan(adjacency, **fields):
  return registry.plan(Query(adjacency=adjacency, epsilon=Fraction(1),
                             **fields))


def _halves(plan, mean, orders):
  """Returns the variance of a mean or a variance from separate noisy sums.
  Each sum of (t - 1/2)^k, and a private count, has an equal part of the
  budget."""
  orders = orders if plan.query.replacing else (0, *orders)
  share = plan.query.cost().divided(len(orders))
  around, half_variance = mean - .5, mean * (1 - mean) / 2
  factors = ({0: -around, 1: 1.0} if orders[-1] == 1 else
             {0: around**2 - half_variance, 1: -2 * around, 2: 1.0})
  variance = 0.0
  for order in orders:
    # The integers (2 t - 1)^k have the least sensitivity.
    change = (2 if plan.query.replacing and order == 1 else 1) * 1000**order
    distribution = noise.calibrated(share, l1_sensitivity=change,
                                    l2_sensitivity_squared=change**2)
    variance += (factors[order] * distribution.deviation / 2000**order)**2
  return variance


def _joint(plan, mean):
  """Returns the same variance from the sums that are released."""
  released = plan.moments([0] * len(plan.design.parts),
                          0 if plan.query.replacing else None)
  half_variance = mean * (1 - mean) / 2
  factors = ((1 - mean, -mean, 0) if plan.query.statistic == 'mean' else
             ((1 - mean)**2 - half_variance, mean**2 - half_variance, -1))
  return released.combined(*factors)[1].deviation**2


@pytest.mark.parametrize('statistic, adjacency, delta, mean, gain', [
  ('mean', _AR, None, .5, 1.41), ('mean', _AR, None, 1, 1.25),
  ('mean', _AR, Fraction(1, 10**6), .2, .999), ('mean', _RO, None, .3, .999),
  ('mean', _RO, Fraction(1, 10**6), .3, .999),
  ('variance', _AR, None, .5, 1.8), ('variance', _AR, None, .8, 1.8),
  ('variance', _AR, Fraction(1, 10**6), .5, 1.2),
  ('variance', _AR, Fraction(1, 10**6), .8, 1.01),
  ('variance', _RO, None, .2, 1.4), ('variance', _RO, None, .5, 1.12),
  ('variance', _RO, Fraction(1, 10**6), .2, 1.3),
  ('variance', _RO, Fraction(1, 10**6), .5, 1.05)])
def test_errors_of_joint_sums_are_less_than_of_a_divided_budget(
    statistic, adjacency, delta, mean, gain):
  """Joint sums have root mean squared errors of at most a divided budget's,
  to first order in the noise and up to 0.1 %."""
  plan = _plan(adjacency, statistic=statistic, column='x', lower=Decimal(0),
               upper=Decimal(1), delta=delta, granularity=Decimal('0.0005'))
  ratio = math.sqrt(_halves(plan, mean, (1,) if statistic == 'mean' else (
      1, 2)) / _joint(plan, mean))
  assert ratio > gain
