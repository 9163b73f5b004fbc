"""Tests sensitivities of trigonometric sums: certified, attained, tables."""

import math

import numpy as np
import pytest
from scipy import optimize

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import sensitivities

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE

# Item DEN-P3: N, then l1 and l2 under REPLACE_ONE, l1 under ADD_OR_REMOVE_ONE.
TABLE = [(3, 4.0000, 2.8284, 2.00), (5, 6.8374, 3.5355, 3.878),
         (9, 12.4315, 4.6987, 7.596), (17, 23.5579, 6.4399, 15.007),
         (33, 45.7724, 8.9656, 29.813), (65, 90.1801, 12.5803, 59.418),
         (129, 178.984, 17.7217, None)]


def basis(x, top):
  """Returns [..., 2 K] values of the sines and cosines at places [...]."""
  phases = 2 * np.pi * np.multiply.outer(x, np.arange(1, top + 1))
  return math.sqrt(2) * np.concatenate([np.sin(phases), np.cos(phases)], -1)


def cosines(x, top):
  return math.sqrt(2) * np.cos(np.pi * np.multiply.outer(
      x, np.arange(1, top + 1)))


def largest_change(move, dims, top):
  """Returns the largest change, by climbs from the best random places."""
  places = np.random.default_rng(0).uniform(0, 1, (20_000, dims))
  values = move(places)
  starts = places[np.argsort(values)[-8:]]
  uphill = [optimize.minimize(lambda place: -move(place[None])[0], start,
                              method='Nelder-Mead', options={
                                  'xatol': 1e-10, 'fatol': 1e-12})
            for start in starts]
  assert values.max() <= max(-optimum.fun for optimum in uphill) + 1e-9
  return max(-optimum.fun for optimum in uphill)


@pytest.mark.parametrize('size, first, second, single', TABLE)
def test_table_of_the_reference(size, first, second, single):
  actual = {(order, adjacency): sensitivities.trigonometric(
      size, order=order, adjacency=adjacency)
            for order in (1, 2) for adjacency in Adjacency}
  assert actual[1, REPLACE] == pytest.approx(first, abs=6e-4)
  assert actual[2, REPLACE] == pytest.approx(second, abs=6e-5)
  assert actual[2, ADD] == math.sqrt(size - 1)
  if single:
    assert actual[1, ADD] == pytest.approx(single, abs=6e-4)
  for order in (1, 2):
    ratio = sensitivities.trigonometric(size, order=order, adjacency=REPLACE,
                                        printed=True) / actual[order, REPLACE]
    assert 1.7 < ratio < 2.2


def test_printed_sensitivities():
  for order, power in ((1, 1), (2, 0.5)):
    assert sensitivities.trigonometric(
        9, order=order, adjacency=REPLACE, printed=True) == pytest.approx(
            2 * math.sqrt(2) * 9**power)
    assert sensitivities.trigonometric(
        9, order=order, printed=True, adjacency=ADD) == pytest.approx(
            math.sqrt(2) * 9**power)


@pytest.mark.parametrize('size', [3, 5, 11, 21])
@pytest.mark.parametrize('order', [1, 2])
def test_no_pair_moves_sums_farther_and_one_as_far(size, order):
  top = size // 2
  largest = largest_change(lambda pair: np.linalg.norm(
      basis(pair[:, 0], top) - basis(pair[:, 1], top), order, -1), 2, top)
  limit = sensitivities.trigonometric(size, order=order, adjacency=REPLACE)
  assert largest <= limit <= largest * (1 + 1e-6)


@pytest.mark.parametrize('size', [3, 5, 11, 21])
def test_no_record_is_longer_and_one_as_long(size):
  top = size // 2
  largest = largest_change(lambda place: np.linalg.norm(
      basis(place[:, 0], top), 1, -1), 1, top)
  limit = sensitivities.trigonometric(size, order=1, adjacency=ADD)
  assert largest <= limit <= largest * (1 + 1e-6)


def test_limits_of_many_functions():
  """Sensitivities tend to 1.3876 N and sqrt(2.4345 N)."""
  for order, power, wanted in ((1, 1, 1.3876), (2, 2, 2.4345)):
    assert sensitivities.trigonometric(
        257, order=order, adjacency=REPLACE)**power / 257 == pytest.approx(
            wanted, abs=2e-4)


@pytest.mark.parametrize('basis_of, weighted', [
    (lambda x, top: basis(x, top).reshape(len(x), 2, top),
     sensitivities.weighted_circle),
    (lambda x, top: cosines(x, top)[:, None], sensitivities.weighted_cosine)])
@pytest.mark.parametrize('weights', [
    [1.0], [0.0, 2.0], [1, 1 / 2, 1 / 3, 1 / 4], [0.1, 3.0, 0.0, 0.7, 0.2]])
def test_weighted_sums_move_as_far_as_said(basis_of, weighted, weights):
  top = len(weights)

  def norm(functions):
    return np.sum(np.asarray(weights) * functions**2, (-2, -1))
  largest = largest_change(lambda pair: norm(
      basis_of(pair[:, 0], top) - basis_of(pair[:, 1], top)), 2, top)
  assert largest <= weighted(weights, adjacency=REPLACE) <= largest * (1 + 1e-6)
  # The places include ends of cells, where the cosine is longest.
  longest = norm(basis_of(np.linspace(0, 1, 1001), top)).max()
  assert weighted(weights, adjacency=ADD) == pytest.approx(longest)


def test_anchors_of_weights():
  """Weighted sensitivities match DEN-B4 and B5, whose
  first is 9, not 8.9995."""
  for top, wanted in ((2, 9.0), (6, 12.778), (13, 15.641), (23, 17.795),
                      (49, 20.730), (105, 23.735)):
    assert sensitivities.weighted_circle(
        1 / np.arange(1, top + 1), adjacency=REPLACE) == pytest.approx(wanted, abs=6e-4)
  for smoothness, wanted in ((1, 14.9967), (2, 21.7270)):
    weights = 1 - (np.arange(1, 8) / 7.5)**smoothness
    assert sensitivities.weighted_circle(
        weights, adjacency=REPLACE) == pytest.approx(wanted, abs=7e-4)
  for width, ratio in ((10, 4.44), (50, 4.08)):
    weights = 1 - np.arange(1, width) / width
    # A record at each end attains it.
    ends = cosines(np.array([0.0, 1.0]), width - 1)
    sensitivity = sensitivities.weighted_cosine(weights, adjacency=REPLACE)
    assert sensitivity == pytest.approx(weights @ (ends[0] - ends[1])**2)
    assert sensitivity / weights.sum() == pytest.approx(ratio, abs=6e-3)


@pytest.mark.parametrize('size', [1, 2, 4, 10, 3.0])
def test_even_numbers_are_refused(size):
  with pytest.raises(ValueError, match='num_functions'):
    sensitivities.trigonometric(size, order=1, adjacency=REPLACE)


@pytest.mark.parametrize('weights', [[], [0.0], [-1.0, 2.0], [math.nan],
                                     [[1.0]]])
def test_weights_that_are_none_are_refused(weights):
  for weighted in (sensitivities.weighted_circle,
                   sensitivities.weighted_cosine):
    with pytest.raises(ValueError, match='weights'):
      weighted(weights, adjacency=REPLACE)
  with pytest.raises(ValueError, match='order'):
    sensitivities.trigonometric(3, order=3, adjacency=REPLACE)
