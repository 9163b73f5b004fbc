"""Tests conversions between notions, tight and printed forms side by side."""

import math

import numpy as np
import pytest
from scipy import integrate

from dpjax.privacy import accounting
from dpjax.privacy import divergences
from dpjax.privacy import notions
from dpjax.privacy import renyi
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.notions import ApproxDP
from dpjax.privacy.notions import PureDP
from dpjax.privacy.notions import ZCDP
from experiments.methods.mechanisms import renyi_steps
from experiments.methods.theory import compared_notions
from experiments.methods.theory import composition
from experiments.methods.theory import printed_guarantees

AR, RO = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
ORDERS = [1.01, 1.5, 2.0, 4.0, 8.0, 64.0]


def _response(epsilon, categories=2):
  """Returns the answer probabilities of two neighbours."""
  p = np.ones(categories)
  p[0] = math.exp(epsilon)
  return p / p.sum(), np.roll(p, 1) / p.sum()


@pytest.mark.parametrize('epsilon', [0.1, 1.0, 3.0])
@pytest.mark.parametrize('order', ORDERS)
def test_laplace_curve_by_quadrature(epsilon, order):
  """The Laplace Renyi curve equals its integral (DEF-05)."""
  log_ratio = lambda x: epsilon * (abs(x - 1) - abs(x))
  integrand = lambda x: math.exp(
    (order - 1) * log_ratio(x) - epsilon * abs(x)) * epsilon / 2
  total = sum(integrate.quad(integrand, *ends, epsabs=0, epsrel=1e-11)[0]
              for ends in ((-math.inf, 0), (0, 1), (1, math.inf)))
  divergence = renyi_steps.laplace(epsilon=epsilon, order=order).divergence
  assert divergence == pytest.approx(math.log(total) / (order - 1), abs=1e-9)


@pytest.mark.parametrize('order, golden', [(1.5, .512883511), (2.0, .619123630),
                                           (8.0, .910198801)])
def test_golden_laplace_curve(order, golden):
  divergence = renyi_steps.laplace(epsilon=1.0, order=order).divergence
  assert divergence == pytest.approx(golden, abs=1e-8)


@pytest.mark.parametrize('categories', [2, 3, 10])
@pytest.mark.parametrize('order', ORDERS)
def test_response_curve_by_enumeration(categories, order):
  for epsilon in (0.1, 1.0, 3.0):
    p, q = _response(epsilon, categories)
    divergence = renyi_steps.randomized_response(epsilon=epsilon, order=order,
                                      num_categories=categories).divergence
    assert divergence == pytest.approx(divergences.renyi(p, q, order=order),
                                       abs=1e-9)


def test_golden_response_curve():
  """Randomised response has the golden Renyi divergences (DEF-05)."""
  for epsilon, order, categories, golden in (
      (math.log(3), 2.0, 2, .847297860), (math.log(3), 4.0, 2, 1.002870645),
      (1.0, 2.0, 5, .470718272)):
    assert renyi_steps.randomized_response(
      epsilon=epsilon, order=order, num_categories=categories
    ).divergence == pytest.approx(golden, abs=1e-8)


@pytest.mark.parametrize('epsilon', [0.0, 0.01, 0.5, 1.0, 4.0])
def test_pure_chain_is_ordered(epsilon):
  """Divergences are at most the tight zCDP line, then the printed (ALG-02)."""
  pure = PureDP(epsilon=epsilon)
  tight, printed = (notions.zcdp_from_pure(pure),
                    printed_guarantees.zcdp_from_pure_printed(pure))
  assert tight.rho <= printed.rho
  curve = [renyi.renyi_from_pure(pure, order=order) for order in ORDERS]
  for guarantee in curve:
    line = renyi_steps.renyi_from_zcdp(tight, order=guarantee.order).divergence
    assert guarantee.divergence <= min(epsilon, line) + 1e-12
    assert guarantee.divergence <= printed_guarantees.renyi_from_pure_printed(
      pure, order=guarantee.order).divergence + 1e-12
  assert printed_guarantees.rho_of_curve(curve) <= tight.rho + 1e-12
  assert printed_guarantees.rho_of_curve(curve) >= 0.97 * tight.rho


@pytest.mark.every(2)
@pytest.mark.parametrize('rho, basic, library, exact', [
  (.01, .68861, .54581, .49698), (.1, 2.24597, 1.91425, 1.76006),
  (.5, 5.29853, 4.72851, 4.37718), (1., 7.78614, 7.07739, 6.57297),
  (2., 11.59705, 10.72551, 9.99726)])
def test_golden_concentrated_conversions(rho, basic, library, exact):
  """zCDP conversions give the golden epsilons at delta 1e-5 (ALG-04)."""
  closed = notions.approx_from_zcdp(ZCDP(rho=rho), delta=1e-5).epsilon
  assert closed == pytest.approx(basic, abs=1e-5)
  event = accounting.concentrated_event(rho=rho, adjacency=AR)
  by_orders = accounting.epsilon(event, delta=1e-5, adjacency=AR,
                                 accountant='rdp')
  assert by_orders == pytest.approx(library, rel=2e-3)
  gaussian = accounting.gaussian_event(noise_multiplier=(2 * rho)**-0.5)
  curve = accounting.epsilon(gaussian, delta=1e-5, adjacency=AR)
  assert curve == pytest.approx(exact, rel=1e-3)
  assert curve < by_orders < closed


def test_concentrated_releases_add_up_and_are_restated():
  """zCDP costs add up (ALG-11), and a replacement costs 4 rho (ALG-12)."""
  one = accounting.concentrated_event(rho=0.1, adjacency=AR)
  spent = lambda event, adjacency: accounting.epsilon(
    event, delta=1e-6, adjacency=adjacency, accountant='rdp')
  four = accounting.concentrated_event(rho=0.4, adjacency=AR)
  assert spent(accounting.repeated_event(one, 4), AR) == pytest.approx(
    spent(four, AR))
  assert spent(one, RO) == pytest.approx(spent(four, AR))
  replaced = accounting.concentrated_event(rho=0.4, adjacency=RO)
  assert spent(replaced, RO) == pytest.approx(spent(four, AR))
  with pytest.raises(ValueError, match='ConcentratedDpEvent under add'):
    spent(replaced, AR)
  with pytest.raises(ValueError, match='pld accountant does not cover'):
    accounting.epsilon(one, delta=1e-6, adjacency=AR)


@pytest.mark.parametrize('delta', [0.0, 1e-5, 0.1, 0.3])
def test_a_pure_guarantee_with_a_delta(delta):
  p, q = _response(1.0)
  converted = compared_notions.approx_from_pure(
      PureDP(epsilon=1.0), delta=delta)
  if converted.epsilon:
    assert divergences.hockey_stick(p, q, epsilon=converted.epsilon) == (
      pytest.approx(delta, abs=1e-12))
  else:
    assert divergences.hockey_stick(p, q, epsilon=0.0) <= delta


@pytest.mark.parametrize('epsilon, delta, size, sharp, thesis, lecture', [
  (.5, 1e-5, 2, 2.6487e-5, 3.2974e-5, 5.4366e-5),
  (1., 1e-6, 10, 1.2818e-2, 8.1031e-2, 2.2026e-1)])
def test_golden_groups(epsilon, delta, size, sharp, thesis, lecture):
  """Group deltas match exact, thesis and lecture-note values (ALG-05)."""
  one = ApproxDP(epsilon=epsilon, delta=delta)
  assert composition.group(one, size=size).delta == pytest.approx(sharp,
                                                                  rel=1e-4)
  printed = printed_guarantees.group_printed(one, size=size).delta
  assert printed == pytest.approx(lecture, rel=1e-4)
  assert printed * math.exp(-epsilon) == pytest.approx(thesis, rel=1e-4)


@pytest.mark.parametrize('epsilon, prob, golden', [
  (1.0, 0.1, .158565), (2.0, 0.01, .061933), (0.5, 0.5, .280930)])
def test_golden_amplification(epsilon, prob, golden):
  """Closed form and accountant give the golden amplified epsilon (ALG-14)."""
  closed = composition.sampled_poisson(ApproxDP(epsilon=epsilon, delta=0.0),
                                       sampling_prob=prob)
  assert closed.epsilon == pytest.approx(golden, abs=1e-6)
  event = accounting.poisson_event(
    accounting.laplace_event(noise_multiplier=1 / epsilon),
    sampling_prob=prob, num_steps=1)
  actual = accounting.epsilon(event, delta=1e-12, adjacency=AR)
  assert golden - 1e-6 <= actual <= golden + 2e-4
