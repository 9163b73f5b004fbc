"""Tests how much Gaussian noise keeps a guarantee."""

import pytest

from dpjax.privacy.notions import ApproxDP
from dpjax.privacy.notions import KullbackLeiblerPrivacy
from dpjax.privacy.notions import PureDP
from dpjax.privacy.notions import TotalVariationPrivacy
from dpjax.privacy.notions import ZCDP
from dpjax.theory.parametric import gaussian_noise
from experiments.methods.theory import tradeoffs


def test_shifts_keep_each_notion_exactly():
  shift = gaussian_noise.shift
  # These are divergences of two normal distributions this far apart.
  assert shift(KullbackLeiblerPrivacy(level=0.02))**2 / 2 == pytest.approx(0.02)
  assert gaussian_noise.rho(ZCDP(rho=0.02)) == pytest.approx(0.02)
  for epsilon, delta, guarantee in (
      (0.0, 0.3, TotalVariationPrivacy(level=0.3)),
      (0.0, 0.3, ApproxDP(epsilon=0.0, delta=0.3)),
      (0.7, 1e-5, ApproxDP(epsilon=0.7, delta=1e-5))):
    actual = tradeoffs.gaussian_delta(epsilon, shift=shift(guarantee))
    assert actual == pytest.approx(delta, rel=1e-4)
    assert actual <= delta * 1.00001


def test_where_no_noise_is_enough_and_where_none_is_needed():
  for guarantee in (PureDP(epsilon=1.0), ApproxDP(epsilon=1.0, delta=0.0),
                    ZCDP(rho=0.0), TotalVariationPrivacy(level=0.0)):
    assert gaussian_noise.shift(guarantee) == 0
  for guarantee in (None, TotalVariationPrivacy(level=1.0)):
    with pytest.raises(ValueError, match='needs no noise'):
      gaussian_noise.shift(guarantee)
