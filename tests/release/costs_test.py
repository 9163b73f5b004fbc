"""Tests costs of several releases, for fixed costs and adaptive analysts."""

import fractions
import math

import numpy as np
import pytest

from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.release import costs
from dpjax.release.costs import Cost

pytestmark = pytest.mark.every(1)

Fraction = fractions.Fraction
_RO = Adjacency.REPLACE_ONE
_DELTA = Fraction(1, 10**6)


def _epsilon(parts, delta=_DELTA):
  return float(costs.epsilon(parts, delta=delta, adjacency=_RO))


def _charged(parts, budget, delta=_DELTA):
  return float(costs.charged(parts, budget=Fraction(budget), delta=delta,
                             adjacency=_RO))


def _gaussian(epsilon):
  return costs.concentrated(epsilon=Fraction(epsilon), delta=_DELTA,
                            adjacency=_RO)


def test_mixed_budgets_cost_what_they_are():
  mixed = [Cost(epsilon=Fraction(10)), _gaussian(1)]
  assert 10.99 < _epsilon(mixed) <= 11
  assert _epsilon(mixed[::-1]) == _epsilon(mixed)
  # An analyst who adapts pays little more, whatever the budget is.
  for budget in (11, 12, 20, 40):
    for order in (1, -1):
      assert 11 < _charged(mixed[::order], budget) < 11.25
  assert _charged(mixed[:1], 10) == pytest.approx(10, abs=1e-4)


def test_many_choices_cost_what_they_are():
  fifth = Fraction(1, 5)
  many = [Cost(choices=(fifth,))] * 50
  assert 3.4 < _epsilon(many) < 3.55
  assert _epsilon(many) < _charged(many, 4) < 3.6
  assert 7.2 < _epsilon([Cost(epsilon=fifth)] * 50) < 7.3
  # It is at least the exact composition of choices with the
  # losses t and t - 1/5.
  worst = 0.0
  for t in np.linspace(.01, .19, 19):
    worst = max(worst, _two_losses(t, t - .2, 50))
  assert 3 < worst <= _epsilon(many)


def _two_losses(high, low, count):
  """Returns epsilon at delta of `count` pairs with two losses each."""
  # P(high) under the first distribution makes E e^-loss = 1.
  prob = (1 - math.exp(-low)) / (math.exp(-high) - math.exp(-low))
  ways = np.arange(count + 1)
  logs = np.array([math.lgamma(count + 1) - math.lgamma(k + 1)
                   - math.lgamma(count - k + 1) for k in ways])
  masses = np.exp(logs + ways * math.log(prob)
                  + (count - ways) * math.log1p(-prob))
  losses = ways * high + (count - ways) * low
  grid = np.linspace(0, 10, 20_001)[:, None]
  above = np.maximum(0, -np.expm1(np.minimum(grid - losses, 0))) @ masses
  return float(grid[np.argmax(above <= float(_DELTA)), 0])


def test_pure_budgets_are_exact():
  parts = [Cost(epsilon=Fraction(1, 3)), Cost(choices=(Fraction(1, 7),) * 2)]
  for spent in (costs.epsilon(parts, delta=Fraction(0), adjacency=_RO),
                costs.charged(parts, delta=Fraction(0), adjacency=_RO,
                              budget=Fraction(1))):
    assert spent == Fraction(1, 3) + Fraction(2, 7)
  assert _epsilon([Cost(rho=Fraction(1))], Fraction(0)) == math.inf
  assert _charged([Cost(rho=Fraction(1))] * 2, 9, Fraction(0)) == math.inf


@pytest.mark.parametrize('budget', ['1/100', '1', '30'])
@pytest.mark.parametrize('delta', [Fraction(1, 10**12), _DELTA])
def test_one_query_may_take_all_of_a_budget(budget, delta):
  cost = costs.concentrated(epsilon=Fraction(budget), delta=delta,
                            adjacency=_RO)
  assert .999 * Fraction(budget) < _charged([cost], budget, delta) <= Fraction(
      budget)
  # Almost nothing more is answered, or nothing at all where delta is shared.
  least = Cost(epsilon=Fraction(budget) / (10**9 if delta == _DELTA else 99))
  assert _charged([cost, least], budget, delta) > Fraction(budget)


@pytest.mark.parametrize('budget', [1, 8])
def test_many_small_queries_lose_hardly_anything(budget):
  """Adapting costs less than 1 % where small queries use up the budget."""
  for share in (3, 40):
    rho = _gaussian(budget).rho
    parts = [Cost(rho=rho / share)] * share
    assert budget - .01 < _epsilon(parts) <= budget
    assert _charged(parts, budget) < 1.005 * budget


def test_charges_grow_with_each_cost():
  generator = np.random.default_rng(0)
  kinds = [lambda x: Cost(epsilon=x), lambda x: Cost(rho=x / 9),
           lambda x: Cost(choices=(x, x / 2))]
  for budget in (1, 9):
    parts, last = [], 0.0
    for _ in range(12):
      size = Fraction(int(generator.integers(1, 99)), 200)
      parts.append(kinds[generator.integers(3)](size))
      fixed, now = _epsilon(parts), _charged(parts, budget)
      assert last <= now * (1 + 1e-12) and fixed <= now * (1 + 1e-12)
      last = now if len(parts) > 1 else 0.0
      # Charging each entry by itself does not cost less than all together.
      assert now <= sum(_charged([part] * 2, budget) for part in parts)


def test_shares_of_orders_are_all_of_delta():
  for budget in ('1/1000', '1', '50'):
    shares = costs._shares(Fraction(budget), _DELTA)
    assert sum(share for _, share in shares) == 1
    assert all(order > 1 for order, _ in shares)
  assert len(costs._shares(Fraction(1), Fraction(1, 10**12))) == 1


def _renyi(losses, probs, order):
  """Returns the larger Renyi divergence of order a, over both directions."""
  logs = np.log(probs)
  return max(np.logaddexp.reduce(logs + (order - 1) * losses),
             np.logaddexp.reduce(logs - order * losses)) / (order - 1)


def _spent_up(budget, order, shift):
  """Returns the most (1 - e^(shift - loss))+ of two losses within a budget."""
  best = 0.0
  for high in np.linspace(shift + 1e-3, shift + 2, 400):
    low_end, high_end = 0.0, 1.0
    for _ in range(60):  # the largest probability of the high loss
      prob = (low_end + high_end) / 2
      rest = 1 - prob * math.exp(-high)  # the second one's mass elsewhere
      low = math.log((1 - prob) / rest)
      fits = _renyi(np.array([high, low]), np.array([prob, 1 - prob]),
                    order) <= budget
      low_end, high_end = (prob, high_end) if fits else (low_end, prob)
    best = max(best, low_end * -math.expm1(shift - high))
  return best


def test_the_best_of_all_orders_is_no_filter():
  """The best of all orders exceeds delta for an adaptive analyst.

  The first query has two losses; the next one uses up what is left at order 30
  or at order 3, by the answer. Each course is within the budget at an order, at
  all of delta; shares of delta that sum to 1 keep the promise.
  """
  epsilon, delta = 8.0, 1e-3
  losses = np.array([.5, 0.0])
  losses[1] = math.log((1 - .05) / (1 - .05 * math.exp(-.5)))
  probs = np.array([.05, .95])

  def lost(shares):
    total = 0.0
    for loss, prob, order in zip(losses, probs, (30, 3), strict=True):
      overhead = math.log1p(-1 / order) - math.log(
          shares[order] * delta * order) / (order - 1)
      left = epsilon - overhead - _renyi(losses, probs, order)
      total += prob * _spent_up(left, order, epsilon - loss)
    return total

  assert lost({3: 1, 30: 1}) > 1.8 * delta
  assert lost({3: .9, 30: .1}) <= delta


@pytest.mark.parametrize('count', [1, 3, 12])
def test_choices_use_a_target_up(count):
  alone = costs.choices(epsilon=Fraction(1), delta=_DELTA, count=count,
                        adjacency=_RO)
  assert len(set(alone.choices)) == 1 and len(alone.choices) == count
  assert .999 < _epsilon([alone]) <= 1 <= alone.pure * (1 + Fraction(1, 10**6))
  assert (alone.pure > Fraction(11, 10)) == (count == 12)
  beside = _gaussian(1).part(Fraction(1, 20))
  chosen = costs.choices(epsilon=Fraction(1), delta=_DELTA, count=count,
                         adjacency=_RO, beside=beside)
  assert .999 < _epsilon([chosen + beside]) <= 1
  exact = costs.choices(epsilon=Fraction(1), delta=None, count=count,
                        adjacency=_RO, beside=Cost(epsilon=Fraction(1, 20)))
  assert exact.pure == Fraction(19, 20)


def test_costs_add_by_part():
  one = Cost(epsilon=Fraction(1), choices=(Fraction(3), Fraction(2)))
  both = one + Cost(rho=Fraction(5), choices=(Fraction(2),))
  assert both.choices == (2, 2, 3) and both.epsilon == 1 and both.rho == 5
  assert (one.pure, both.pure) == (6, None)
  assert [one.notion, both.notion, Cost(rho=Fraction(1)).notion] == [
      'epsilon-DP', 'Renyi-DP', 'rho-zCDP']
  assert Cost.from_json(both.to_json()) == both
  assert both.part(Fraction(1, 2)).choices == (1, 1, Fraction(3, 2))
  assert not costs.exceeds([one], one) and costs.exceeds([one, one], one)
  # Choices do not pay for other choices, nor for epsilon.
  assert costs.exceeds([Cost(choices=(Fraction(1),) * 2)],
                       Cost(choices=(Fraction(2),)))
  assert costs.exceeds([Cost(choices=(Fraction(1),))],
                       Cost(epsilon=Fraction(2)))


def test_events_say_all_parts():
  cost = Cost(epsilon=Fraction(1, 3), rho=Fraction(1, 8),
              choices=(Fraction(1, 10),) * 3)
  text = str(cost.event(_RO))
  for name in ('PureDpEvent(epsilon=0.33333333333333337',
               'ConcentratedDpEvent(rho=0.125', 'BoundedRangeDpEvent(width=0.1',
               'count=3'):
    assert name in text
  spent = accounting.epsilon(cost.event(_RO), delta=1e-6, adjacency=_RO,
                             accountant='rdp', orders=costs._ORDERS)
  assert spent == pytest.approx(_epsilon([cost]), rel=1e-9)
