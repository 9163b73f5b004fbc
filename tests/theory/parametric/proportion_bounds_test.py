"""Tests bounds of proportions: printed constants, order, random arguments."""


import numpy as np
import pytest

from dpjax.privacy.notions import ApproxDP
from dpjax.privacy.notions import KullbackLeiblerPrivacy
from dpjax.privacy.notions import PureDP
from dpjax.privacy.notions import TotalVariationPrivacy
from dpjax.privacy.notions import ZCDP
from dpjax.theory.parametric import proportion_bounds
from dpjax.theory.parametric import proportions
from dpjax.theory.parametric import supports


def test_a_constant_is_off_by_a_quarter_at_least():
  """The constant 1/2 has the largest risk 1/4; others have more (T-E01)."""
  shares = np.linspace(0, 1, 101)
  risks = np.square(shares[:, None] - shares).max(1)
  assert risks.min() == pytest.approx(0.25) == proportion_bounds.trivial()
  assert np.sum(risks < 0.25 + 1e-12) == 1
  assert shares[risks.argmin()] == pytest.approx(0.5)


def test_constants_of_zcdp():
  """zCDP constants by tests and scores exceed the 1/64 of Lalanne (2023)."""
  n, rho = 10**5, 1e-8
  bounds = {bound.name: bound.value * n**2 * rho
            for bound in proportion_bounds.lower(num_examples=n,
                                                 guarantee=ZCDP(rho=rho))}
  assert 0.047 < bounds['two proportions'] < bounds['scores'] < 0.5
  assert bounds['scores'] > 0.28


def _random_guarantees(rng):
  budget = 10**rng.uniform(-9, 1.5)
  return (PureDP(epsilon=budget), ZCDP(rho=budget),
          ApproxDP(epsilon=budget, delta=10**rng.uniform(-9, -2)),
          TotalVariationPrivacy(level=min(1.0, budget)),
          KullbackLeiblerPrivacy(level=budget), None)


@pytest.mark.slow
@pytest.mark.parametrize('study', (proportions.STUDY, supports.STUDY,
                                   supports.ABSOLUTE), ids=lambda s: s.name)
def test_no_bound_is_above_an_estimator_or_a_constant(study):
  """No bound exceeds an estimator or constant, for random n and budgets."""
  rng = np.random.default_rng(0)
  for _ in range(12):
    n = int(10**rng.uniform(0, 3.3))
    for guarantee in _random_guarantees(rng):
      arguments = dict(num_examples=n, guarantee=guarantee)
      trivial = study.trivial()
      for bound in study.lower(**arguments):
        assert 0 <= bound.value <= trivial * (1 + 1e-12), (bound, arguments)
        for upper in study.upper(**arguments):
          assert bound.value <= upper.value * (1 + 1e-9), (bound, upper,
                                                           arguments)
      assert study.best_lower(**arguments).value <= study.best_upper(
          **arguments).value * (1 + 1e-9)
  for guarantee in (PureDP(epsilon=0.0), ZCDP(rho=0.0),
                    TotalVariationPrivacy(level=0.0)):
    best = study.best_lower(num_examples=9, guarantee=guarantee)
    # Nobody may use the data, which two points at the ends show.
    assert best.value == pytest.approx(study.trivial())
    assert study.best_upper(num_examples=9, guarantee=guarantee
                            ).name == 'best constant'


def test_without_privacy_the_minimax_risk_is_attained():
  for n in (1, 7, 400):
    assert proportions.STUDY.best_upper(num_examples=n, guarantee=None
                                        ).value == pytest.approx(
        proportions.STUDY.best_lower(num_examples=n, guarantee=None).value)


@pytest.mark.every(1)
@pytest.mark.parametrize('guarantee, names', [
    (None, ['mean', 'mean, shrunk']),
    (PureDP(epsilon=0.7), ['table of noisy counts', 'geometric', 'Laplace']),
    (ApproxDP(epsilon=0.7, delta=0.0), ['geometric', 'Laplace']),
    (ApproxDP(epsilon=0.7, delta=1e-5), ['geometric', 'Gaussian']),
    (ZCDP(rho=0.2), ['Gaussian', 'geometric']),
    (KullbackLeiblerPrivacy(level=0.2), ['Gaussian']),
    (TotalVariationPrivacy(level=0.3), ['subsample, shrunk', 'Gaussian']),
    (TotalVariationPrivacy(level=0.01), ['Gaussian']),
    (PureDP(epsilon=0.0), ['table of noisy counts'])])
def test_what_is_offered_for_a_guarantee_and_how_much_it_errs(guarantee,
                                                              names):
  """Each guarantee gets its estimators, with risks of at most a constant's."""
  if guarantee == PureDP(epsilon=0.0):
    assert proportions.estimators(num_examples=40, guarantee=guarantee) == ()
    return
  bounds = proportions.STUDY.upper(num_examples=40, guarantee=guarantee)
  plain = [upper for upper in bounds if upper.name in names]
  assert sorted({upper.name.removesuffix(', shrunk') for upper in bounds}) == (
      sorted({name.removesuffix(', shrunk') for name in names}))
  assert {upper.name for upper in plain} == set(names)
  estimators = proportions.estimators(num_examples=40, guarantee=guarantee)
  values = [each.worst_risk() for each in estimators]
  start = len(bounds) - len(estimators)
  assert [upper.value for upper in bounds[start:]] == values
  assert all(upper.exact for upper in bounds)
  lower = proportions.STUDY.best_lower(num_examples=40, guarantee=guarantee)
  assert lower.value <= min(upper.value for upper in bounds) * (1 + 1e-9)
  best = {upper.name: upper.value for upper in bounds}
  if 'table of noisy counts' in best:
    # The best is within half a per cent of what cannot be beaten.
    assert best['table of noisy counts'] < 1.005 * min(best.values())
    assert lower.value > 0.995 * best['table of noisy counts']
  if 'subsample, shrunk' in best:
    assert best['subsample, shrunk'] == proportion_bounds.non_private(12)
