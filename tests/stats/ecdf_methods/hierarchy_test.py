"""Tests trees of counts against dense linear algebra, and best shapes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.ecdf_methods import dyadic
from dpjax.stats.ecdf_methods import hierarchy
from tests.stats.ecdf_methods import dense

_ADD, _REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
_TREES = [((5,), 5), ((2, 2, 2), 7), ((3, 2, 4), 13), ((4, 3), 12)]


def _problem(shape, size, seed):
  """Returns noisy counts by level, their variances, and the existing leaves."""
  rng = np.random.default_rng(seed)
  noisy = [rng.normal(size=int(count)) * 3 + 1 for count in np.cumprod(shape)]
  variances = tuple(rng.uniform(0.5, 2, size=len(shape)).tolist())
  alive = (np.arange(np.prod(shape)) < size).astype(float)
  return noisy, variances, alive


def _weighted(shape, size, variances):
  """Returns nodes by leaves in units of their noise, and those units."""
  units = dense.by_level(shape, np.sqrt(variances))
  return dense.nodes(shape, size) / units[:, None], units


@pytest.mark.parametrize('shape, size', _TREES)
def test_least_squares_is_that_of_dense_algebra(shape, size):
  """Least squares match dense algebra, with a known sum and without."""
  noisy, variances, alive = _problem(shape, size, 0)
  nodes, units = _weighted(shape, size, variances)
  values = np.concatenate(noisy) / units
  free = np.linalg.lstsq(nodes, values, rcond=None)[0]
  system = np.block([[nodes.T @ nodes, np.ones((size, 1))],
                     [np.ones((1, size)), np.zeros((1, 1))]])
  bound = np.linalg.solve(system, np.append(nodes.T @ values, 7.0))[:-1]
  for total, wanted in [(None, free), (7.0, bound)]:
    fitted = hierarchy.least_squares(noisy, shape, variances, alive, total)
    np.testing.assert_allclose(fitted[:size], wanted, atol=1e-12)
    assert not np.any(fitted[size:])
  with jax.enable_x64(True):
    fitted = jax.jit(functools.partial(
        hierarchy.least_squares, shape=shape, variances=variances))(
            [jnp.asarray(each) for each in noisy], alive=jnp.asarray(alive),
            total=7.0)
  np.testing.assert_allclose(fitted[:size], bound, atol=1e-12)


@pytest.mark.parametrize('known', [True, False])
@pytest.mark.parametrize('shape, size', [*_TREES, ((4, 4, 4), 64)])
def test_nonnegative_least_squares_is_that_of_scipy(shape, size, known):
  nodes, units = _weighted(shape, size, _problem(shape, size, 0)[1])
  cut = 0
  for seed in range(12):
    noisy, variances, alive = _problem(shape, size, seed)
    nodes, units = _weighted(shape, size, variances)
    total = 4.0 if known else max(0.0, hierarchy.least_squares(
        noisy, shape, variances, alive).sum())
    fitted = hierarchy.nonnegative(noisy, shape, variances, alive,
                                   total if known else None)
    # The sum is one more equation, with a large weight.
    wanted, _ = optimize.nnls(
        np.vstack([nodes, 1e5 * np.ones(size)]),
        np.append(np.concatenate(noisy) / units, 1e5 * total))
    np.testing.assert_allclose(fitted[:size], wanted, atol=1e-5)
    cut += np.sum(wanted == 0)
  assert cut > 12


@pytest.mark.parametrize('known', [True, False])
@pytest.mark.parametrize('shape, size', [*_TREES, ((2, 3, 2), 2)])
def test_variances_are_those_of_dense_algebra(shape, size, known):
  _, variances, _ = _problem(shape, size, 1)
  nodes, _ = _weighted(shape, size, variances)
  exact = dense.prefix_variances(nodes.T @ nodes, known=known)
  actual = hierarchy.prefix_variances(shape, variances, size, known=known)
  np.testing.assert_allclose(actual, exact, atol=1e-12)
  assert hierarchy.mean_variance(shape, variances, size, known=known
                                 ) == pytest.approx(exact.mean(), abs=1e-12)


@pytest.mark.parametrize('shape', [(64,), (2,) * 6, (8, 8), (3, 5, 5)])
def test_sensitivity_by_enumeration(shape):
  """The worst pair spends the budget exactly, at N = 64."""
  nodes = dense.nodes(shape, 64)
  shares = np.arange(1.0, len(shape) + 1)
  shares /= shares.sum()
  for adjacency in Adjacency:
    replaced = adjacency is _REPLACE
    scales = dense.by_level(shape, hierarchy.noise_scales(
        shares, adjacency=adjacency, epsilon=0.7))[:, None]
    assert dense.sensitivity(nodes / scales, 1,
                             replaced=replaced) == pytest.approx(0.7)
    scales = dense.by_level(shape, hierarchy.noise_scales(
        shares, adjacency=adjacency, rho=0.2))[:, None]
    assert dense.sensitivity(nodes / scales, 2, replaced=replaced
                             ) / 2 == pytest.approx(0.2)


def test_single_bins_cost_less_than_their_own_count():
  """A tree's bins cost less than dyadic noise's (EC-27, replace_one).

  Neighbouring ranks share dyadic noise above the size of the gap: bins cost 8
  b^2 in the mean, 1800 at N = 2^15. The tree's bins cost 128 at most.
  """
  shape, size = (4, 4, 4), 64
  nodes = dense.nodes(shape, size)
  cells = np.diag(dense.covariance(nodes.T @ nodes, known=True))
  assert np.all(cells < 1) and np.mean(cells) > 0.5
  assert 2 * (2 * len(hierarchy.best_shape(2**15, known=True, pure=True))
              )**2 == 128
  rows = np.asarray(jax.jit(jax.vmap(dyadic.Layout(size, True).rows))(
      np.eye(2 * size - 1)))
  squares = np.sum(np.diff(rows, axis=1)**2, 0)
  place = np.arange(1, size)
  valuation = np.array([int(p & -p).bit_length() - 1 for p in place])
  np.testing.assert_array_equal(squares, 2 * (valuation + 1))
  assert np.mean(squares) == pytest.approx(4, rel=0.05)


@pytest.mark.parametrize('known, pure, size, printed, shape', [
    (False, True, 2**10, 118.1, (6, 14, 14)),
    (True, True, 2**10, 326, (16, 8, 8)),
    (False, True, 2**15, 348, (7, 17, 17, 17)),
    (True, True, 2**15, 1028, (15, 13, 13, 13)),
    (False, False, 2**10, 14.02, (2,) * 10),
    (True, False, 2**10, 21.37, (2,) * 10),
    (False, False, 2**15, 27.28, (2,) * 15),
    (True, False, 2**15, 44.55, (2,) * 15)])
def test_best_shapes_are_better_than_those_known(known, pure, size, printed,
                                                 shape):
  """Best shapes cost less than EC-49's shapes, which
  cost at most as printed."""
  both = [hierarchy.even_cost(each, size, known=known, pure=pure)
          for each in (shape, hierarchy.best_shape(size, known=known,
                                                   pure=pure))]
  if known:
    both = [(4 if pure else 2) * each for each in both]
  assert both[1] <= both[0] <= printed * 1.005
  assert both[1] > 0.94 * printed


@pytest.mark.slow
def test_small_trees_are_the_best_of_all():
  """Best shapes are within 1 % of all shapes of up to three levels."""
  for size in (2, 5, 9, 24):
    for known in (True, False):
      for pure in (True, False):
        def cost(shape):
          return hierarchy.even_cost(shape, size, known=known, pure=pure)
        shapes = [shape for high in (1, 2, 3)
                  for shape in np.ndindex((size,) * high)]
        shapes = [tuple(1 + part for part in shape) for shape in shapes]
        costs = [cost(shape) for shape in shapes
                 if min(shape) >= 2 and np.prod(shape) >= size]
        best = hierarchy.best_shape(size, known=known, pure=pure)
        assert cost(best) <= 1.01 * min(costs)


@pytest.mark.parametrize('known, size, printed', [
    (False, 2**10, 12.96), (True, 2**10, 19.15), (False, 2**15, 25.43),
    (True, 2**15, 41.19)])
def test_tuned_budgets(known, size, printed):
  """Tuned budgets of the binary tree match EC-49 for Gaussian noise."""
  shape = (2,) * (size.bit_length() - 1)
  shares = hierarchy.tuned_shares(shape, size, known=known, pure=False)
  assert sum(shares) == pytest.approx(1)
  cost = hierarchy.mean_variance(shape, 1 / np.array(shares), size,
                                 known=known)
  assert (2 if known else 1) * cost == pytest.approx(printed, rel=5e-4)


@pytest.mark.every(1)
@pytest.mark.parametrize('make, message', [
    (lambda: hierarchy.check_shape((), 2), 'shape must be a tuple'),
    (lambda: hierarchy.check_shape((4, 1), 2), 'shape must be an integer >= 2'),
    (lambda: hierarchy.check_shape((3, 3), 10), 'a tree of 9 leaves is too')])
def test_bad_arguments(make, message):
  with pytest.raises(ValueError, match=message):
    make()
