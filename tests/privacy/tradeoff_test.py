"""Tests trade-off functions: duality, shape, and tests that attain them."""

import math

import numpy as np
import pytest
from scipy import special

from dpjax.privacy import accounting
from dpjax.privacy import tradeoff
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.notions import ApproxDP
from experiments.methods.theory import tradeoffs

ALPHA = np.linspace(0, 1, 2001)
FUNCTIONS = {
  'pure': lambda a: tradeoff.approx(a, ApproxDP(epsilon=1.0, delta=0.0)),
  'approximate': lambda a: tradeoff.approx(a, ApproxDP(epsilon=0.5,
                                                       delta=0.1)),
  'gaussian': lambda a: tradeoffs.gaussian(a, shift=1.0),
  'laplace': lambda a: tradeoffs.laplace(a, epsilon=1.0),
}


@pytest.mark.parametrize('name', FUNCTIONS)
def test_shape(name):
  """Trade-off functions are convex, falling, below 1 - alpha, and symmetric."""
  values = FUNCTIONS[name](ALPHA)
  assert np.all(np.diff(values) <= 1e-12)
  assert np.all(np.diff(values, 2) >= -1e-12)
  assert np.all(values <= 1 - ALPHA + 1e-12) and np.all(values >= 0)
  inside = (values > 0) & (ALPHA > 0)
  np.testing.assert_allclose(FUNCTIONS[name](np.clip(values, 0, 1))[inside],
                             ALPHA[inside], atol=1e-9)


@pytest.mark.parametrize('epsilon', [0.0, 0.5, 1.0, 2.0])
def test_duality_gives_the_curves_of_the_mechanisms(epsilon):
  """Duality gives the delta curves of the mechanisms (DEF-03 from DEF-07)."""
  exact = {
    'gaussian': special.ndtr(0.5 - epsilon) - math.exp(epsilon) * special.ndtr(
      -0.5 - epsilon),
    'laplace': max(0.0, 1 - math.exp((epsilon - 1) / 2)),
    'pure': max(0.0, (math.e - math.exp(epsilon)) / (math.e + 1)),
  }
  for name, wanted in exact.items():
    assert tradeoffs.delta_of(epsilon, FUNCTIONS[name]) == (
      pytest.approx(wanted, abs=1e-9))


def test_golden_curves():
  """Curves have golden deltas, below the chance of a larger loss (L-E05)."""
  for name, epsilon, golden in (
      ('pure', 0.5, .287649137), ('laplace', 0.0, .393469340),
      ('laplace', 0.5, .221199217), ('gaussian', 1.0, .126936738)):
    assert tradeoffs.delta_of(epsilon, FUNCTIONS[name]) == (
      pytest.approx(golden, abs=2e-9))
  delta = tradeoffs.gaussian_delta(1.0, shift=1.0)
  assert delta == pytest.approx(.126936738, abs=1e-9)
  # The loss of N(1, 1) against N(0, 1) is N(1/2, 1).
  larger = special.ndtr(-0.5)
  assert larger == pytest.approx(.3085, abs=5e-5) and larger > 2 * delta


@pytest.mark.every(2)
def test_the_accountant_gives_the_curve_of_the_gaussian():
  event = accounting.gaussian_event(noise_multiplier=1.0)
  epsilons = np.linspace(0, 4, 41)
  deltas = accounting.delta_curve(event, epsilons=epsilons,
                                  adjacency=Adjacency.ADD_OR_REMOVE_ONE)
  lower = tradeoff.from_curve(ALPHA, epsilons, deltas)
  exact = tradeoffs.gaussian(ALPHA, shift=1.0)
  assert np.all(lower <= exact + 1e-9)
  assert np.max(exact - lower) < 2e-3


@pytest.mark.parametrize('epsilon, wanted', [(1.0, 0.731059),
                                             (math.log(3), 0.75)])
def test_golden_accuracies(epsilon, wanted):
  """The best accuracy is INT-02's, which randomised response attains."""
  pure = ApproxDP(epsilon=epsilon, delta=0.0)
  assert tradeoff.best_accuracy(pure) == pytest.approx(wanted, abs=1e-6)
  corner = 1 / (1 + math.exp(epsilon))
  assert tradeoff.approx(np.array(corner), pure) == pytest.approx(corner)
  assert tradeoffs.total_variation(pure) == pytest.approx(
    math.tanh(epsilon / 2))


def test_with_a_delta():
  guarantee = ApproxDP(epsilon=0.7, delta=0.05)
  growth = math.exp(0.7)
  assert tradeoff.best_accuracy(guarantee) == pytest.approx(
    (growth + 0.05) / (1 + growth))
  assert tradeoffs.total_variation(guarantee) == pytest.approx(
    (growth - 1 + 2 * 0.05) / (growth + 1))
  best = 1 - np.min(ALPHA + tradeoff.approx(ALPHA, guarantee)) / 2
  assert best == pytest.approx(tradeoff.best_accuracy(guarantee), abs=1e-3)
