"""These tests check the printed bounds of supports and their limits."""

import math

import pytest

from dpjax.privacy.notions import PureDP
from dpjax.privacy.notions import TotalVariationPrivacy
from dpjax.privacy.notions import ZCDP
from dpjax.theory.parametric import support_bounds
from dpjax.theory.parametric import supports
from experiments.methods.theory import testing
from experiments.methods.theory import thesis_supports


def test_bounds_of_the_text():
  """The printed bound does not follow, since the power is below e^-1 (E-08)."""
  for n, printed, derived in ((2, .0115, .0078), (100, 4.599e-6, 4.575e-6)):
    assert thesis_supports.printed_two_supports(n) == pytest.approx(
        printed, rel=5e-3)
    assert thesis_supports.two_supports(n) == pytest.approx(derived, rel=5e-3)
  for n in range(2, 60):
    derived = thesis_supports.two_supports(n)
    assert thesis_supports.printed_two_supports(n) > derived
    assert thesis_supports.thesis(num_examples=n, guarantee=None) <= derived
    assert support_bounds.bayes(n) > derived
    assert math.exp(-1) / (8 * (n + 1)**2) <= (n / (n + 1))**n / (
        8 * (n + 1)**2)


def test_constants_of_the_text_under_privacy():
  """Bounds under privacy follow from tests of the ends 1 - D and 1.

  D is 1 / (n epsilon) or 1 / (n sqrt rho).
  """
  n = 80
  for guarantee, near, error in (
      (PureDP(epsilon=0.2), 1 / 16, lambda d: testing.le_cam_pure(
          d, num_records=n, epsilon=0.2, exponential=True)),
      (ZCDP(rho=0.01), 1 / 8, lambda d: testing.le_cam_zcdp(
          d, num_records=n, rho=0.01))):
    printed_bound = thesis_supports.thesis(num_examples=n, guarantee=guarantee)
    assert printed_bound == pytest.approx((near / 2)**2 * error(near))
    assert printed_bound < max(bound.value for bound in support_bounds.lower(
        num_examples=n, guarantee=guarantee))
  for nothing in (PureDP(epsilon=1 / n), ZCDP(rho=1 / n**2)):
    assert thesis_supports.thesis(num_examples=n, guarantee=nothing) == 0


def test_the_printed_bound_of_the_paper_exceeds_a_constant():
  """Outside its regime the printed bound t /
  (32 n level) exceeds 1/2 (E-11)."""
  level = TotalVariationPrivacy(level=1e-6)
  assert 1 / (32 * 100 * 1e-6) > support_bounds.absolute_trivial()
  for printed in (False, True):
    assert thesis_supports.paper(num_examples=100, guarantee=level,
                                 printed=printed) == 0
  bound = supports.ABSOLUTE.best_lower(num_examples=100, guarantee=level)
  assert 0.49 < bound.value <= 0.5
