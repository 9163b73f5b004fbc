"""Tests what pure guarantees and bounded ranges imply at a Renyi order."""

import math

import mpmath
import numpy as np
import pytest

from dpjax.privacy import accounting
from dpjax.privacy import notions
from dpjax.privacy import renyi
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.notions import BoundedRange
from dpjax.privacy.notions import PureDP
from tests.privacy.spending import ADD
from tests.privacy.spending import REPLACE
from tests.privacy.spending import spend

pytestmark = pytest.mark.every(1)

_SIZES = [1e-7, 1e-3, .05, .2, 1., 7., 40.]
_ORDERS = [1.0005, 1.5, 2., 17., 3e3, 1e6]


def _of_two(high, low, order):
  """Returns the divergence of the pair with these two losses, to 60 digits."""
  prob = (1 - mpmath.exp(-low)) / (mpmath.exp(-high) - mpmath.exp(-low))
  moment = (prob * mpmath.exp((order - 1) * high)
            + (1 - prob) * mpmath.exp((order - 1) * low))
  return mpmath.log(moment) / (order - 1)


@pytest.mark.parametrize('size', _SIZES)
@pytest.mark.parametrize('order', _ORDERS)
def test_divergences_to_many_digits(size, order):
  """Divergences match the proofs' closed forms in 60 digits, and round up."""
  with mpmath.workdps(60):
    w, a = mpmath.mpf(size), mpmath.mpf(order)
    pure = _of_two(w, -w, a)
    b = mpmath.exp(-w)
    x = (a - 1) * (1 - b**a) / (a * (b - b**a))
    ranged = mpmath.log(x**(a - 1) * (1 - b**a + x * (b**a - b))
                        / (1 - b)) / (a - 1)
    # It is the largest over all pairs with two losses, w apart.
    t = mpmath.log(x)
    assert abs(_of_two(t, t - w, a) / ranged - 1) < 1e-30
    for other in (t * .9, t + (w - t) * .1):
      assert _of_two(other, other - w, a) < ranged
  for wanted, guarantee, event in (
      (pure, renyi.renyi_from_pure(PureDP(epsilon=size), order=order),
       accounting.pure_event(epsilon=size, adjacency=ADD)),
      (ranged, renyi.bounded_range(BoundedRange(width=size), order=order),
       accounting.bounded_range_event(width=size, adjacency=ADD))):
    assert guarantee.divergence == pytest.approx(
        float(wanted), rel=1e-8, abs=1e-15 * (1 + order * size))
    rounded = accounting.restating._divergences(event, (order,))[0]
    assert float(wanted) <= rounded <= float(wanted) * (1 + 1e-8) + 2e-15 * (
        1 + order * size)


def test_every_choice_is_below_the_bound():
  """Exponential mechanisms with random scores stay below the bound."""
  generator = np.random.default_rng(0)
  largest = 0.0
  for _ in range(2_000):
    one, change = generator.normal(0, 2, 3), generator.uniform(-.5, .5, 3)
    p, q = (np.exp(scores) / np.exp(scores).sum()
            for scores in (one, one + change * 1.4 / np.ptp(change)))
    for order in (1.5, 6.):
      value = math.log(np.sum(p**order * q**(1 - order))) / (order - 1)
      bound = renyi.bounded_range(BoundedRange(width=1.4), order=order)
      assert value <= bound.divergence + 1e-12
      largest = max(largest, value / bound.divergence)
  assert largest > .97


def test_slopes_are_those_of_zcdp():
  for width in (.1, 2.):
    rho = notions.zcdp_from_mechanism(PureDP(epsilon=width), 'exponential').rho
    slopes = [renyi.bounded_range(BoundedRange(width=width), order=a).divergence
              / a for a in (1 + 1e-6, 1.1, 3, 50)]
    assert slopes[0] == pytest.approx(rho, rel=1e-5)
    assert slopes == sorted(slopes, reverse=True)


@pytest.mark.parametrize('adjacency', Adjacency)
def test_choices_cost_less_than_pure_releases(adjacency):
  spent = {}
  for count in (1, 30):
    for by in accounting.ACCOUNTANTS:
      chosen, pure = (accounting.repeated_event(event, count) for event in (
          accounting.bounded_range_event(width=.2, adjacency=adjacency),
          accounting.pure_event(epsilon=.2, adjacency=adjacency)))
      spent[count, by] = [spend(event, adjacency, by)
                          for event in (chosen, pure)]
  # 'pld' uses the pure guarantee only.
  assert spent[30, 'pld'][0] == spent[30, 'pld'][1]
  assert spent[30, 'rdp'][0] < .52 * spent[30, 'rdp'][1]


def test_ranges_under_the_other_relation():
  choice = accounting.bounded_range_event(width=.3, adjacency=ADD)
  double = accounting.bounded_range_event(width=.6, adjacency=REPLACE)
  for by in accounting.ACCOUNTANTS:
    assert spend(choice, REPLACE, by) == spend(double, REPLACE, by)
    with pytest.raises(ValueError, match=f'^the {by} accountant does not '):
      spend(double, ADD, by)
  with pytest.raises(ValueError, match='width must be'):
    accounting.bounded_range_event(width=0., adjacency=ADD)
