"""Tests trees and wavelets: costs, definitions and errors."""

import dataclasses

import jax
import numpy as np
import pytest

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import estimate
from dpjax.stats.density_methods import hierarchies
from experiments.methods.statistics import compared_densities
from tests.stats.ecdf_methods import dense

ADD, REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
HEIGHT = 3
SHAPE = (2,) * HEIGHT
PURE, ZCDP = dict(epsilon=0.6), dict(rho=0.05)


def tree(**options):
  return hierarchies.TreeDensity(**(dict(
      num_records=200, height=HEIGHT, adjacency=REPLACE) | options))


def haar(**options):
  return hierarchies.HaarDensity(**(dict(
      num_records=200, height=HEIGHT, adjacency=REPLACE) | options))


def release(mechanism, seed, counts):
  """Returns one release, compiled."""
  return mechanism.coefficients(jax.random.key(seed), counts[None])[0]


def haar_matrix():
  return np.stack([np.asarray(hierarchies.differences(row))
                   for row in np.eye(2**HEIGHT, dtype=np.float32)], 1)


@pytest.mark.parametrize('mechanism,matrix', [
    (tree(**PURE), dense.nodes(SHAPE, 8)),
    (tree(**PURE, shares=(0.2, 0.3, 0.5)), dense.nodes(SHAPE, 8)),
    (tree(**ZCDP), dense.nodes(SHAPE, 8)),
    (tree(**PURE, adjacency=ADD), dense.nodes(SHAPE, 8)),
    (haar(**PURE), haar_matrix()), (haar(**ZCDP), haar_matrix()),
    (haar(**ZCDP, growth=0.3), haar_matrix())])
def test_the_budget_is_spent_by_the_worst_pair_of_records(mechanism, matrix):
  """The worst pair of records spends exactly the budget, over all levels."""
  sizes = np.cumprod(SHAPE) if len(matrix) > 7 else 2**np.arange(HEIGHT)
  scaled = matrix / np.repeat(mechanism.scales, sizes)[:, None]
  cost = dense.sensitivity(scaled, 1 if mechanism.pure else 2,
                           replaced=mechanism.adjacency is REPLACE)
  assert cost == pytest.approx(
      mechanism.epsilon if mechanism.pure else 2 * mechanism.rho)


def test_variances_of_nodes_are_those_of_dense_least_squares():
  variances = np.array([3.0, 0.5, 7.0])
  nodes = dense.nodes(SHAPE, 8)
  covariance = nodes @ dense.covariance(nodes.T @ np.diag(
      1 / dense.by_level(SHAPE, variances)) @ nodes, known=True) @ nodes.T
  np.testing.assert_allclose(np.diag(covariance), dense.by_level(
      SHAPE, hierarchies.node_variances(variances)))


@pytest.mark.every(3)
@pytest.mark.parametrize('mechanism', [
    tree(**PURE, level=2), tree(**ZCDP), haar(**PURE, threshold=0.0),
    haar(**ZCDP, threshold=0.0)])
def test_errors_are_those_of_the_closed_form(mechanism):
  density, repetitions = compared_densities.tent(4), 2000
  counts = density.counts(np.random.default_rng(5), num_records=200,
                          num_bins=8, repetitions=repetitions)
  errors = estimate.errors_of('histogram', mechanism.coefficients(
      jax.random.key(3), counts), density)
  error = np.std(errors) / np.sqrt(repetitions)
  assert np.mean(errors) == pytest.approx(mechanism.expected(density).total,
                                          abs=4 * error)
  assert mechanism.expected(density).privacy > 5 * error


@pytest.mark.slow
@pytest.mark.parametrize('adjacency', [ADD, REPLACE])
def test_nodes_are_sums_of_their_children(adjacency):
  counts = np.arange(8.0) * 200 / 28
  leaves, upper = (release(tree(**PURE, adjacency=adjacency, level=level), 2,
                           counts) for level in (3, 2))
  np.testing.assert_allclose(leaves.reshape(4, 2).mean(1), upper)
  assert upper.mean() == pytest.approx(1)
  assert np.abs(leaves - counts * 8 / 200).max() > 0.05


def test_without_thresholds_and_noise_wavelets_are_the_histogram():
  counts = np.array([2, 4, 38, 18, 0, 60, 40, 38.0])
  heights = release(haar(epsilon=1e6, threshold=0.0), 0, counts)
  np.testing.assert_allclose(heights, counts * 8 / 200, atol=1e-12)
  # Bins differ by 2 sqrt(200 / 4) = 14.1 or not, pairs by 20, halves by 28.3.
  heights = release(haar(epsilon=1e6), 0, counts)
  np.testing.assert_allclose(heights, np.array(
      [3, 3, 38, 18, 4.5, 64.5, 34.5, 34.5]) * 8 / 200, atol=1e-12)


def test_a_flat_histogram_errs_less_at_its_best_level():
  """A flat histogram at its best level errs less than eight shared levels."""
  for density in (compared_densities.tent(2), compared_densities.beta(2, 2), compared_densities.blocks()):
    mechanism = tree(num_records=10**4, epsilon=0.5, height=8)
    best = dataclasses.replace(
        mechanism, level=hierarchies.oracle_level(mechanism, density)
    ).expected(density).total
    flat = min(
        dataclasses.replace(
            mechanism, height=level, level=level, shares=(
                *(1e-9,) * (level - 1),
                1 - (level - 1) * 1e-9)).expected(density).total
        for level in range(1, 9))
    assert 1.5 < best / flat < 4
    assert mechanism.expected(density).total > best


def test_bad_input_is_refused():
  for options, match in [
      (dict(level=4), 'has no level 4'), (dict(level=0), 'level'),
      (dict(shares=(0.5, 0.5)), 'shares'), (dict(epsilon=None), 'budget'),
      (dict(shares=(0.5, 0.5, 0.5)), 'shares'),
      (dict(shares=(float('nan'), 0.5, 0.5)), 'shares')]:
    with pytest.raises(ValueError, match=match):
      tree(**(PURE | options))
  with pytest.raises(ValueError, match='replace_one'):
    haar(**PURE, adjacency=ADD)
  with pytest.raises(ValueError, match='threshold'):
    haar(**PURE, threshold=-1.0)
  with pytest.raises(NotImplementedError, match='not linear'):
    haar(**PURE).expected(compared_densities.tent(2))
  with pytest.raises(ValueError, match='replace_one'):
    tree(**PURE, adjacency=ADD).expected(compared_densities.tent(2))
