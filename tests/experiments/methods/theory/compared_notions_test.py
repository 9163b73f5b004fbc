"""These tests check range ends of notions that are only compared."""

import math

import pytest

from dpjax.privacy import notions
from experiments.methods.theory import compared_notions


@pytest.mark.parametrize('make, message', [
  (lambda: compared_notions.approx_from_pure(
      notions.PureDP(epsilon=1.), delta=1.),
   r'delta must lie in \[0, 1\), got 1'),
  (lambda: compared_notions.approx_from_pure(
      notions.PureDP(epsilon=1.), delta=-.1),
   r'delta must lie in \[0, 1\), got -0.1'),
  *((lambda kind=kind, value=value: kind(level=value),
     'level must be a number >= 0') for value in (-1e-9, math.inf, math.nan)
    for kind in (compared_notions.ChiSquarePrivacy,
                 compared_notions.ConditionalTesting)),
  (lambda: compared_notions.ConditionalTesting(level=1., mass=-.1),
   r'mass must lie in \[0, 1\], got -0.1'),
  (lambda: compared_notions.ConditionalTesting(level=1., mass=1.1),
   r'mass must lie in \[0, 1\], got 1.1'),
  (lambda: compared_notions.zcdp_of_group(notions.ZCDP(rho=1.), size=0),
   'size must be an integer >= 1'),
])
def test_refusals(make, message):
  with pytest.raises(ValueError, match=f'^{message}[^\n]*$'):
    make()


def test_guarantees_may_lie_at_the_ends_of_their_ranges():
  assert compared_notions.ChiSquarePrivacy(level=0.).level == 0
  for mass in (0., 1.):
    assert compared_notions.ConditionalTesting(level=0., mass=mass).mass == mass
  assert compared_notions.ConditionalTesting(level=0.).mass == 0
