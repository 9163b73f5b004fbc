"""Tests factorisations of prefix sums against dense algebra, and limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg
from scipy import optimize

from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import mechanisms
from dpjax.stats.ecdf_methods import toeplitz
from experiments.methods.statistics import optimal_prefix_sums as optimal
from experiments.methods.statistics import smooth_binary_ecdf as smooth_binary
from tests.stats.ecdf_methods import dense

_ADD, _REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
_KEY = jax.random.key(0)


@pytest.fixture(autouse=True)
def _double():
  with jax.enable_x64(True):
    yield


def _root(size):
  return linalg.toeplitz(toeplitz.square_root(size), np.zeros(size))


@pytest.mark.parametrize('size', [2, 3, 17, 64])
def test_a_square_root_of_prefix_sums(size):
  """The root squares to prefix sums, with exact sensitivity and rank noise."""
  root = _root(size)
  np.testing.assert_allclose(root @ root, np.tril(np.ones((size, size))),
                             atol=1e-12)
  for adjacency in Adjacency:
    mechanism = toeplitz.SquareRootEcdf(num_thresholds=size, rho=0.3,
                                        adjacency=adjacency)
    exact = dense.sensitivity(root, 2, replaced=mechanism.knows_total)
    assert mechanism.l2_sensitivity**2 == pytest.approx(exact, rel=1e-12)
    assert exact / (2 * mechanism.scale**2) == pytest.approx(0.3)
    weights = np.linalg.inv(np.linalg.inv(root) @ np.linalg.inv(root).T)
    variances = mechanism.variances() / mechanism.scale**2
    np.testing.assert_allclose(variances, dense.prefix_variances(
        weights, known=mechanism.knows_total), atol=1e-11)
    covariance = root @ root[-1]
    np.testing.assert_allclose(mechanism.parameters.regression,
                               covariance / covariance[-1], rtol=1e-12)


@pytest.mark.every(2)
@pytest.mark.parametrize('size, adjacency, squared, mse, largest', [
    (2**10, _ADD, 3.2726, 9.67, 10.71), (2**15, _ADD, 4.3758, 17.76, 19.15),
    (2**10, _REPLACE, 5.4229, 15.09, 16.17),
    (2**15, _REPLACE, 7.6294, 29.96, 31.48)])
def test_reference_errors_of_a_square_root(size, adjacency, squared, mse,
                                           largest):
  """A square root has the errors of EC-47 and EC-49, in units 1 / (2 rho)."""
  mechanism = toeplitz.SquareRootEcdf(num_thresholds=size, rho=0.5,
                                      adjacency=adjacency)
  assert mechanism.l2_sensitivity**2 == pytest.approx(squared, rel=2e-5)
  variances = mechanism.variances()
  assert np.mean(variances) == pytest.approx(mse, rel=1e-3)
  assert np.max(variances) == pytest.approx(largest, rel=1e-3)


def test_nonnegative_counts_are_those_of_scipy():
  """Nonnegative counts match SciPy in the noise's metric, with a heavy sum."""
  size, rng, cut = 24, np.random.default_rng(0), 0
  precision = _root(size)  # C counts has noise z.
  solve = jax.jit(toeplitz.nonnegative)
  for _ in range(15):
    counts = rng.normal(size=size) * 5 + 1
    counts += (max(counts.sum(), 3.0) - counts.sum()) / size
    wanted, _ = optimize.nnls(
        np.vstack([precision, 1e4 * np.ones(size)]),
        np.append(precision @ counts, 1e4 * counts.sum()))
    np.testing.assert_allclose(solve(jnp.asarray(counts)), wanted, atol=1e-5)
    cut += np.sum(wanted == 0)
  assert cut > 100


@pytest.mark.slow
@pytest.mark.parametrize('adjacency', Adjacency)
def test_monotone_ranks_are_more_exact(adjacency):
  """Monotone ranks have less than 0.7 of the squared error of raw ones."""
  mechanism = toeplitz.SquareRootEcdf(num_thresholds=64, rho=0.01,
                                      adjacency=adjacency)
  counts = np.random.default_rng(0).poisson(3.0, 64).astype(float)
  ranks = np.asarray(mechanisms.repeated(mechanism.draw)(
      jax.random.split(_KEY, 200), counts, mechanism.parameters))
  assert np.all(np.diff(ranks, axis=1, prepend=0.0) >= 0)
  error = np.mean(np.square(ranks - np.cumsum(counts)), 0)
  assert np.mean(error) < 0.7 * np.mean(mechanism.variances())
  if mechanism.knows_total:
    assert np.all(ranks[:, -1] == counts.sum())
  else:  # The estimate of n does not change.
    assert error[-1] == pytest.approx(mechanism.variances()[-1], rel=0.3)


@pytest.mark.every(3)
@pytest.mark.parametrize('adjacency', Adjacency)
def test_costs_are_the_budget(adjacency):
  """The event is a Gaussian release of mu = sqrt(2 rho) for any strategy."""
  for kind in (toeplitz.SquareRootEcdf, smooth_binary.SmoothBinaryEcdf):
    mechanism = kind(num_thresholds=9, rho=0.3, adjacency=adjacency)
    epsilon = accounting.epsilon(mechanism.event, delta=1e-5,
                                 adjacency=adjacency)
    exact = accounting.gaussian_epsilon(shift=np.sqrt(0.6), delta=1e-5)
    assert exact <= epsilon + 1e-9 and epsilon == pytest.approx(exact, rel=2e-3)


@pytest.mark.parametrize('size', [2, 9, 64])
def test_balanced_codes(size):
  """Ranks are sums of disjoint nodes, and the worst
  record spends the budget."""
  tree, high = smooth_binary.nodes(size), smooth_binary.height(size)
  bins = np.arange(size)
  counted = (tree.starts[:, None] <= bins) & (bins < tree.ends[:, None])
  counted = counted.astype(float)
  ranks = np.zeros((size, len(counted)))
  np.put_along_axis(ranks, tree.of_ranks, 1.0, 1)
  np.testing.assert_array_equal(ranks @ counted, np.tril(np.ones((size, size))))
  assert np.all(ranks.sum(1) == high // 2)
  for adjacency in Adjacency:
    mechanism = smooth_binary.SmoothBinaryEcdf(num_thresholds=size, rho=0.3,
                                               adjacency=adjacency)
    sensitivity = dense.sensitivity(counted, 2, replaced=mechanism.knows_total)
    # Nodes that no rank needs are not drawn, so the cost may be less.
    assert sensitivity / (2 * mechanism.scale**2) <= 0.3 * (1 + 1e-12)
    if size == 64:
      assert sensitivity / (2 * mechanism.scale**2) == pytest.approx(0.3)


def test_reference_errors_of_balanced_codes():
  """Balanced codes have EC-46's errors, also in 2000 draws to 5 errors."""
  for size, wanted in [(2**10, 42), (2**15, 81)]:
    high = smooth_binary.height(size)
    assert (high - high // 2) * (high // 2) == wanted
  mechanism = smooth_binary.SmoothBinaryEcdf(num_thresholds=9, rho=0.02,
                                             adjacency=_ADD)
  counts = np.arange(9.0)
  ranks = np.asarray(mechanisms.repeated(mechanism.draw)(
      jax.random.split(_KEY, 2000), counts, mechanism.parameters))
  noise = (ranks - np.cumsum(counts)) / np.sqrt(mechanism.variances())
  np.testing.assert_allclose(noise.mean(0), 0, atol=5 / np.sqrt(2000))
  np.testing.assert_allclose(noise.var(0), 1, atol=5 * np.sqrt(2 / 2000))


@pytest.mark.parametrize('adjacency', Adjacency)
def test_optima_lie_between_bounds(adjacency):
  """Lower and upper bounds meet, below the error of a known factorisation."""
  lower, upper = optimal.mean_optimum(24, adjacency=adjacency, num_rounds=60)
  assert lower <= upper < 1.01 * lower
  mechanism = toeplitz.SquareRootEcdf(num_thresholds=24, rho=0.5,
                                      adjacency=adjacency)
  assert upper < np.mean(mechanism.variances()) < 1.15 * lower
  # Sums over changes are enumerated.
  moves = optimal._Moves(6, adjacency)
  rng = np.random.default_rng(0)
  weights = moves.start() * rng.uniform(size=moves.start().shape)
  size = moves.size
  changes = np.array([(np.arange(size) >= first) & (np.arange(size) <= last)
                      for first in range(size) for last in range(size)
                      if (last == size - 1 or adjacency is _REPLACE)], float)
  exact = np.einsum('p,pi,pj->ij', weights.reshape(-1), changes, changes)
  np.testing.assert_allclose(moves.covariance(weights), exact, atol=1e-12)
  norms = np.sum(changes @ exact * changes, 1).reshape(weights.shape)
  np.testing.assert_allclose(moves.norms(exact), np.triu(norms)
                             if adjacency is _REPLACE else norms, atol=1e-12)


def test_reference_bounds():
  """Bounds match EC-48, and the optimum lies above the lower bound."""
  assert optimal.mean_lower_bound(2**10) == pytest.approx(8.466, abs=5e-4)
  assert optimal.mean_lower_bound(2**15) == pytest.approx(16.092, abs=5e-4)
  assert optimal.max_upper_bound(2**10) == pytest.approx(10.16, abs=5e-3)
  assert optimal.max_upper_bound(2**15) == pytest.approx(18.41, abs=5e-3)
  sums = np.tril(np.ones((24, 24)))
  nuclear = np.linalg.svd(sums, compute_uv=False).sum()
  assert optimal.mean_lower_bound(24) == pytest.approx(nuclear**2 / 24**2)
  lower, _ = optimal.mean_optimum(24, adjacency=_ADD, num_rounds=30)
  assert optimal.mean_lower_bound(24) < lower


@pytest.mark.every(1)
@pytest.mark.parametrize('make, message', [
    (lambda: toeplitz.SquareRootEcdf(num_thresholds=4, rho=-1.0,
                                     adjacency=_ADD), 'rho must be a positive'),
    (lambda: smooth_binary.SmoothBinaryEcdf(num_thresholds=1, rho=1.0,
                                            adjacency=_ADD), 'num_thresholds'),
    (lambda: optimal.mean_optimum(1, adjacency=_ADD), 'num_thresholds must'),
    (lambda: optimal.mean_lower_bound(0), 'num_thresholds must be')])
def test_bad_arguments(make, message):
  with pytest.raises(ValueError, match=message):
    make()
