"""These tests check bounds by two proportions against the thesis."""

import math

import numpy as np
import pytest
from scipy import optimize

from dpjax.privacy.notions import PureDP
from dpjax.privacy.notions import TotalVariationPrivacy
from dpjax.privacy.notions import ZCDP
from dpjax.theory.parametric import proportion_bounds
from dpjax.theory.parametric import proportions
from experiments.methods.theory import thesis_proportions


def test_constants_of_the_thesis():
  """Derived constants lie between the printed and the best ones (MOD-BERN)."""
  thesis = thesis_proportions.thesis
  for n in (4, 50, 1000):
    derived = thesis(num_examples=n, guarantee=None)
    assert derived * n == pytest.approx(1 / 109.3, rel=1e-3)
    assert thesis(num_examples=n, guarantee=None, printed=True) == (
        pytest.approx(1 / (160 * n)))
    assert 1 / (160 * n) < derived < proportion_bounds.non_private(n)
  pure = PureDP(epsilon=0.1)
  assert thesis(num_examples=100, guarantee=pure) == pytest.approx(
      0.01541 / 100, rel=1e-3)
  assert thesis(num_examples=100, guarantee=pure, printed=True) == (
      pytest.approx(1 / 8000))
  assert thesis(num_examples=100, guarantee=ZCDP(rho=0.01)) == pytest.approx(
      1 / 6400)
  # Outside of the regimes nothing is said (E-11).
  for n, guarantee in ((3, None), (19, pure), (19, ZCDP(rho=0.01))):
    assert thesis(num_examples=n, guarantee=guarantee) == 0
  with pytest.raises(ValueError, match='has no bound for'):
    thesis(num_examples=9, guarantee=TotalVariationPrivacy(level=0.1))


def test_the_introduction_lost_a_factor():
  """The introduction lost a factor e^-1 at distance 1 / (n epsilon) (T-E02).

  The number is true nonetheless, by two proportions further apart.
  """
  for n, epsilon in ((100, 0.1), (1000, 0.05)):
    square = (n * epsilon)**2
    derived = thesis_proportions.two_point_bound(
        1 / (n * epsilon), num_examples=n, epsilon=epsilon) * square
    assert derived == pytest.approx(math.exp(-1) / 8)
    printed = thesis_proportions.printed_introduction(
        num_examples=n, epsilon=epsilon) * square
    assert printed == pytest.approx(1 / 8)
    bounds = {bound.name: bound.value for bound in proportion_bounds.lower(
        num_examples=n, guarantee=PureDP(epsilon=epsilon))}
    assert bounds['two proportions'] * square > 0.8 > printed
    assert bounds['minimax, solved'] > bounds['two proportions']


@pytest.mark.parametrize('people, epsilon, printed, best, exact, upper', [
  (100, 0.1, 4.599e-4, 6.767e-4, 7.325e-4, 2.25e-2),
  (1000, 0.05, 1.839e-5, 2.707e-5, 2.839e-5, 1.05e-3)])
def test_lower_bounds(people, epsilon, printed, best, exact, upper):
  """Lower bounds have golden values, with the e that T-E02 misses (INT-04)."""
  arguments = dict(num_examples=people, epsilon=epsilon)
  total = people * epsilon
  two = lambda d: thesis_proportions.two_point_bound(d, **arguments)
  assert two(1 / total) == pytest.approx(printed, rel=4e-4)
  assert two(2 / total) == pytest.approx(best, rel=2e-4)
  top = optimize.minimize_scalar(lambda d: -two(d), bounds=(0, 1),
                                 method='bounded', options={'xatol': 1e-9})
  assert top.x == pytest.approx(2 / total, rel=1e-3)
  assert thesis_proportions.lower_bound(**arguments) == pytest.approx(
      exact, rel=2e-4)
  assert proportions.risk(0.5, **arguments) == pytest.approx(upper, rel=2e-4)


def test_lower_bounds_are_below_what_is_attained():
  distances = np.linspace(0.001, 0.999, 999)
  for people in (1, 3, 10, 100, 10**4):
    for epsilon in (0.01, 0.1, 1.0, 5.0):
      arguments = dict(num_examples=people, epsilon=epsilon)
      bound = thesis_proportions.lower_bound(**arguments)
      coupled = thesis_proportions.coupled_bound(distances, **arguments)
      assert coupled.max() <= bound * (1 + 1e-9) < proportions.risk(
        0.5, **arguments)
      assert np.all(thesis_proportions.two_point_bound(distances, **arguments)
                    <= coupled * (1 + 1e-12))
