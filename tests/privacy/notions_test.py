"""Tests dpjax.privacy.notions: every implication against exact losses."""

import dataclasses
import math

import dp_accounting
import numpy as np
import pytest

from dpjax.privacy import notions


def response_divergence(epsilon, alpha):
  """Returns the Renyi divergence of binary randomised response."""
  p = 1 / (1 + math.exp(-epsilon))
  q = 1 - p
  if alpha == 1:
    return (p - q) * epsilon
  return math.log(p**alpha * q**(1 - alpha) +
                  q**alpha * p**(1 - alpha)) / (alpha - 1)


@pytest.mark.parametrize('epsilon', [.01, .3, 1., 3., 8.])
def test_pure_gives_the_tight_concentrated_guarantee(epsilon):
  rho = notions.zcdp_from_pure(notions.PureDP(epsilon=epsilon)).rho
  slopes = [response_divergence(epsilon, a) / a
            for a in (1, *np.linspace(1.001, 30, 300))]
  assert max(slopes) == pytest.approx(rho, rel=1e-9)
  assert slopes[0] == max(slopes)
  assert rho <= epsilon**2 / 2


@pytest.mark.parametrize('epsilon', [.2, 1., 3.])
def test_random_pure_pairs_are_concentrated(epsilon):
  rho = notions.zcdp_from_pure(notions.PureDP(epsilon=epsilon)).rho
  rng = np.random.default_rng(0)
  for _ in range(200):
    # The masses on three outcomes have log-ratios within epsilon.
    q = rng.dirichlet(np.ones(3))
    ratio = np.exp(epsilon * (rng.random(3) - .5))
    p = q * ratio / np.sum(q * ratio)
    assert np.abs(np.log(p / q)).max() <= epsilon + 1e-12
    for alpha in (1.01, 1.5, 2., 5., 20.):
      loss = math.log(np.sum(p**alpha * q**(1 - alpha))) / (alpha - 1)
      assert loss <= rho * alpha + 1e-12


@pytest.mark.parametrize('rho', [.01, .5, 4.])
@pytest.mark.parametrize('delta', [1e-9, 1e-5, .1])
def test_concentrated_gives_approximate(rho, delta):
  # The Gaussian mechanism attains rho, so its exact curve lies below.
  got = notions.approx_from_zcdp(notions.ZCDP(rho=rho), delta=delta)
  exact = dp_accounting.get_epsilon_gaussian((2 * rho)**-.5, delta)
  assert got.delta == delta
  assert exact <= got.epsilon
  assert got.epsilon == pytest.approx(
      rho + 2 * math.sqrt(rho * math.log(1 / delta)))


@pytest.mark.parametrize('epsilon', [0., .1, 1., 9.])
@pytest.mark.parametrize('delta', [1e-9, 1e-5, .1])
def test_the_target_of_a_calibration_is_met_exactly(epsilon, delta):
  target = notions.ApproxDP(epsilon=epsilon, delta=delta)
  spent = notions.zcdp_from_approx_target(target)
  back = notions.approx_from_zcdp(spent, delta=delta)
  assert back.epsilon == pytest.approx(epsilon, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize('make, message', [
  (lambda: notions.PureDP(epsilon=-1.), 'epsilon must be a number >= 0, got'),
  (lambda: notions.PureDP(epsilon=math.inf), 'epsilon must be a number >= 0'),
  (lambda: notions.ApproxDP(epsilon=math.nan, delta=0.), 'epsilon must be a'),
  (lambda: notions.ApproxDP(epsilon=1., delta=1.), r'delta must lie in \[0, 1'),
  (lambda: notions.ApproxDP(epsilon=1., delta=-.1), r'delta must lie in \[0,'),
  *((lambda kind=kind, value=value: kind(level=value),
     'level must be a number >= 0') for value in (-1e-9, math.inf, math.nan)
    for kind in (notions.TotalVariationPrivacy,
                 notions.KullbackLeiblerPrivacy)),
  (lambda: notions.BoundedRange(width=-1.), 'width must be a number >= 0'),
  (lambda: notions.GaussianPrivacy(shift=-1.), 'shift must be a number >= 0'),
  (lambda: notions.zcdp_from_mechanism(notions.PureDP(epsilon=1.), 'gauss'),
   "mechanism must be one of .*; got 'gauss'"),
  (lambda: notions.ZCDP(rho=-1e-9), 'rho must be a number >= 0, got'),
  (lambda: notions.approx_from_zcdp(notions.ZCDP(rho=1.), delta=0.),
   'delta must lie strictly between 0 and 1, got 0'),
  (lambda: notions.zcdp_from_approx_target(
      notions.ApproxDP(epsilon=1., delta=0.)),
   'delta must lie strictly between 0 and 1, got 0'),
])
def test_refusals(make, message):
  with pytest.raises(ValueError, match=f'^{message}[^\n]*$'):
    make()


def test_guarantees_may_lie_at_the_ends_of_their_ranges():
  for kind in (notions.TotalVariationPrivacy, notions.KullbackLeiblerPrivacy):
    assert kind(level=0.).level == 0
  nothing = notions.PureDP(epsilon=0.)
  for name in ('laplace', 'geometric', 'exponential'):
    assert notions.zcdp_from_mechanism(nothing, name).rho == 0


def test_small_epsilons_have_the_limits_of_their_concentration():
  """Small epsilons use a series and reach their limit share of epsilon^2."""
  for name, share in (('laplace', 1 / 2), ('exponential', 1 / 8),
                      ('geometric', 1 / 2)):
    for epsilon in (1e-9, 9e-5, 1.1e-4, 3e-4):
      rho = notions.zcdp_from_mechanism(notions.PureDP(epsilon=epsilon),
                                        name).rho
      assert rho == pytest.approx(share * epsilon**2, rel=1e-3)


def test_guarantees_are_frozen():
  guarantee = notions.ZCDP(rho=1.)
  with pytest.raises(dataclasses.FrozenInstanceError):
    guarantee.rho = .5
