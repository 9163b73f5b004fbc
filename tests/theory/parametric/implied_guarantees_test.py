"""Tests that what holds under a guarantee holds under implied ones."""

import numpy as np
import pytest

from dpjax.privacy import notions
from dpjax.theory.parametric import studies
from dpjax.theory.parametric import subsampling

_SIZE, _DELTA = 0.4, 1e-3
_NUM = 60
_PURE = notions.PureDP(epsilon=_SIZE)
_RHO = notions.zcdp_from_pure(_PURE).rho
# (stronger, weaker, whether `_KEEPING` have the same estimators for both).
_IMPLIED = [
    (_PURE, notions.ApproxDP(epsilon=_SIZE, delta=_DELTA), True),
    (_PURE, notions.ZCDP(rho=_RHO), False),
    (_PURE, notions.KullbackLeiblerPrivacy(level=_RHO), False),
    (notions.ZCDP(rho=_RHO), notions.KullbackLeiblerPrivacy(level=_RHO), True),
    (notions.ApproxDP(epsilon=_SIZE, delta=_DELTA),
     notions.TotalVariationPrivacy(level=0.25), False)]
_KEEPING = ('support_max', 'support_max_absolute', 'mean', 'density')
_DEAR = ('normal_mean', 'likelihood')


def _parameters(name):
  """Returns small models, whose bounds are quick."""
  known = dict(dimension=2, d=2, moment=np.inf, radius=2.0, b=1.0, sigma=0.7)
  return {key: known[key] for key in studies.STUDIES[name].parameters}


@pytest.mark.every(1)
@pytest.mark.parametrize('name', [
    pytest.param(name, marks=[pytest.mark.slow] if name in _DEAR else [])
    for name in studies.STUDIES])
def test_weaker_guarantees_have_smaller_bounds(name):
  study, known = studies.STUDIES[name], _parameters(name)
  known = dict(known, num_examples=_NUM)
  lower, upper = {}, {}
  for guarantee in {one for pair in _IMPLIED for one in pair[:2]}:
    lower[guarantee] = study.best_lower(guarantee=guarantee, **known).value
    upper[guarantee] = study.best_upper(guarantee=guarantee, **known).value
  if name in _KEEPING:
    # Estimators of one name under the same epsilon are the same.
    pure, approx = ({one.name: one.value for one in study.upper(
        guarantee=guarantee, **known)} for guarantee in _IMPLIED[0][:2])
    for kept in pure.keys() & approx.keys():
      assert approx[kept] == pytest.approx(pure[kept], rel=1e-6)
  slack = 1 + 1e-6
  for strong, weak, kept in _IMPLIED:
    assert lower[weak] <= lower[strong] * slack, (strong, weak)
    assert lower[weak] <= upper[strong] * slack, (strong, weak)
    if kept and name in _KEEPING:
      assert upper[weak] <= upper[strong] * slack, (strong, weak)


@pytest.mark.every(1)
@pytest.mark.parametrize('name', ['proportion', 'support_max', 'mean',
                                  'support_max_absolute', 'density'])
def test_a_subset_in_the_open_errs_as_so_many_records_do(name):
  study, known = studies.STUDIES[name], _parameters(name)
  for level in (0.1, 0.3, 0.99):
    size = subsampling.subset_size(_NUM, level)
    bounds = study.upper(num_examples=_NUM, guarantee=(
        notions.TotalVariationPrivacy(level=level)), **known)
    open_ones = [one.value for one in bounds if 'sub' in one.name]
    assert open_ones == [pytest.approx(
        study.non_private(num_examples=size, **known))]
