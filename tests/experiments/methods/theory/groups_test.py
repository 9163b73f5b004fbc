"""These tests check group privacy by the truncated geometric mechanism."""

import math

import numpy as np
import pytest

from dpjax.privacy.notions import ApproxDP
from dpjax.privacy.notions import KullbackLeiblerPrivacy
from dpjax.privacy.notions import PureDP
from dpjax.privacy.notions import TotalVariationPrivacy
from dpjax.privacy.notions import ZCDP
from dpjax.theory.minimax import two_points
from experiments.methods.theory import best_channels as oracles
from experiments.methods.theory import groups
from experiments.methods.theory import tradeoffs


def _geometric(distance, epsilon):
  """Returns output distributions at both ends of a path."""
  q, y = math.exp(-epsilon), np.arange(distance + 1)
  weights = np.where((y == 0) | (y == distance), 1, 1 - q) / (1 + q)
  return weights * q**y, weights * q**(distance - y)


@pytest.mark.parametrize('epsilon', (0.05, 0.5, 3.0))
@pytest.mark.parametrize('distance', (1, 2, 3, 8, 31))
def test_excess_and_divergence_are_those_of_the_geometric_mechanism(epsilon,
                                                                    distance):
  here, there = _geometric(distance, epsilon)
  assert groups.divergence(distance, PureDP(epsilon=epsilon)) == pytest.approx(
      np.sum(here * np.log(here / there)), rel=1e-9)
  for t in np.linspace(-2 * distance * epsilon, 2 * distance * epsilon, 41):
    assert groups.excess(t, distance, PureDP(epsilon=epsilon)) == pytest.approx(
        np.sum(np.maximum(here - math.exp(t) * there, 0)), abs=1e-12)


@pytest.mark.every(3)
@pytest.mark.parametrize('guarantee', [
    ApproxDP(epsilon=0.5, delta=0.01), ApproxDP(epsilon=0.3, delta=0.1),
    ApproxDP(epsilon=2.0, delta=1e-3), TotalVariationPrivacy(level=0.13)])
def test_excess_is_the_best_test_of_a_path(guarantee):
  """The excess equals the best test of a path, by linear programmes."""
  epsilon = getattr(guarantee, 'epsilon', 0.2)
  for d in (1, 2, 5, 8):
    for t in np.linspace(-1.5 * d * epsilon - 0.5, 1.5 * d * epsilon + 0.5, 9):
      costs = np.zeros((1, d + 1, 2))
      costs[0, 0, 0], costs[0, d, 0] = -1, math.exp(t)
      best = -oracles.least(costs, oracles.chain(d + 1), guarantee).value
      assert groups.excess(t, d, guarantee) == pytest.approx(best, abs=1e-7)


def test_excess_at_weight_1_is_what_two_points_lose():
  d = np.arange(9)
  for guarantee in (PureDP(epsilon=0.4), ApproxDP(epsilon=0.4, delta=0.02),
                    ZCDP(rho=0.03), KullbackLeiblerPrivacy(level=0.01),
                    TotalVariationPrivacy(level=0.2), None):
    assert groups.excess(0.0, d, guarantee) == pytest.approx(
        1 - 2 * two_points.path_error(d, guarantee), abs=1e-12)


def test_gaussian_releases_exceed_no_bound_of_zcdp():
  d = np.arange(1, 7)
  t = np.linspace(-6, 6, 25)[:, None]
  for rho in (1e-3, 0.05, 0.7):
    excess = groups.excess(t, d, ZCDP(rho=rho))
    reached = np.stack([tradeoffs.gaussian_delta(
        t[:, 0], shift=math.sqrt(2 * rho) * size) for size in d], 1)
    assert (reached <= excess + 1e-12).all()
    # The bound is within a factor of 30 wherever delta is visible.
    seen = reached > 1e-8
    assert (excess[seen] < 30 * reached[seen]).all()
    assert groups.divergence(3, ZCDP(rho=rho)) == pytest.approx(9 * rho)


def test_divergences_grow_less_than_is_printed():
  d = np.arange(1, 40)
  for epsilon in (1e-4, 0.01, 0.3, 2.0):
    divergence = groups.divergence(d, PureDP(epsilon=epsilon))
    response = d * epsilon * np.tanh(d * epsilon / 2)
    assert (divergence <= response * (1 + 1e-9)).all()
    assert (response <= d * epsilon).all()
    assert divergence[0] == pytest.approx(response[0])
  assert groups.divergence(3, PureDP(epsilon=0.0)) == 0
  assert groups.excess(0.0, 3, PureDP(epsilon=0.0)) == 0
  assert groups.divergence(2, ApproxDP(epsilon=1.0, delta=0.1)) == np.inf


@pytest.mark.parametrize('guarantee', (PureDP(epsilon=0.3), ZCDP(rho=0.02)))
def test_mean_divergences_are_means(guarantee):
  n, t = 7, np.array([0.0, 0.2, 0.9, 1.0])
  words = oracles.data_sets(n, 2).sum(1)
  probs = t[:, None]**words * (1 - t[:, None])**(n - words)
  assert groups.mean_divergence(
      t, num_examples=n, guarantee=guarantee) == pytest.approx(
          probs @ groups.divergence(words, guarantee))


def test_refuses_what_is_no_distance():
  with pytest.raises(ValueError, match='distance must be a whole number'):
    groups.excess(0.0, 0.5, None)
