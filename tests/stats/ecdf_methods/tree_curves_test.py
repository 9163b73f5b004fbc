"""Tests curves from trees: their linear form, and their noise."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.privacy import accounting
from dpjax.privacy import draws
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import mechanisms
from dpjax.stats.ecdf_methods import digits
from dpjax.stats.ecdf_methods import grids
from dpjax.stats.ecdf_methods import hierarchy
from dpjax.stats.ecdf_methods import trees
from tests.stats.ecdf_methods import dense

_ADD, _REPLACE = Adjacency.ADD_OR_REMOVE_ONE, Adjacency.REPLACE_ONE
_KEY = jax.random.key(0)


@pytest.fixture(autouse=True)
def _double():
  with jax.enable_x64(True):
    yield


def _mechanism(estimator='least_squares', **options):
  given = dict(num_thresholds=23, adjacency=_ADD, epsilon=0.7,
               shape=(3, 2, 4), monotone=False)
  return trees.TreeEcdf(**(given | options), estimator=estimator)


@pytest.mark.slow
@pytest.mark.parametrize('estimator', trees.ESTIMATORS)
def test_ranks_are_unbiased_and_vary_as_told(estimator):
  """Ranks are unbiased with the stated variance, from exact coefficients."""
  shape = (2, 5, 3)
  nodes = dense.nodes(shape, 23)
  shares = tuple(np.arange(1, 4) / 6)
  for adjacency in Adjacency:
    mechanism = _mechanism(estimator, adjacency=adjacency, shape=shape,
                           shares=shares)
    total = 0.0 if mechanism.knows_total else None

    def curve(values, mechanism=mechanism, total=total):
      return trees.estimated(
          jnp.split(values, np.cumsum(np.cumprod(shape))[:-1]), 23,
          mechanism.parameters, None if total is None else jnp.asarray(total),
          shape=shape, estimator=estimator, monotone=False)

    ranks = np.asarray(jax.jit(jax.vmap(curve))(np.eye(len(nodes))))
    below = np.tril(np.ones((23, 23)))
    if mechanism.knows_total:  # n is given apart from the counts, here as 0.
      ranks, below = ranks[:, :-1], below[:-1]
      unbiased = ranks.T @ nodes
      assert np.ptp(unbiased - below, axis=1).max() < 1e-12
    else:
      np.testing.assert_allclose(ranks.T @ nodes, below, atol=1e-12)
    exact = dense.by_level(shape, mechanism.noise_variances) @ ranks**2
    np.testing.assert_allclose(mechanism.variances()[:exact.size], exact,
                               rtol=1e-9)
    assert np.all(mechanism.variances()[exact.size:] == 0)


@pytest.mark.every(3)
@pytest.mark.parametrize('budget', [dict(epsilon=0.8), dict(rho=0.1)])
def test_noise_of_nodes_is_independent(budget):
  """Nodes have uncorrelated noise of the stated variance, to 5 errors.

  The statistics of 21 pairs fail by chance once in 10^5 runs of other keys.
  """
  mechanism = _mechanism(num_thresholds=4, shape=(2, 2), shares=(0.75, 0.25),
                         **(dict(epsilon=None) | budget))
  leaves = np.array([3.0, 0.0, 2.0, 40.0])

  def draw(key):
    return jnp.concatenate(trees.noisy_levels(
        key, jnp.asarray(leaves), (2, 2), jnp.asarray(mechanism.scales),
        pure=mechanism.pure))

  noise = np.asarray(jax.jit(jax.vmap(draw))(jax.random.split(_KEY, 4000)))
  grid = 1.0 if mechanism.pure else 2.0**np.floor(
      np.log2(mechanism.scales[0]) - 8)
  np.testing.assert_array_equal(noise / grid, np.round(noise / grid))
  stddevs = np.sqrt(dense.by_level((2, 2), mechanism.noise_variances))
  noise = (noise - [3, 42, 3, 0, 2, 40]) / stddevs
  np.testing.assert_allclose(noise.mean(0), 0, atol=5 / np.sqrt(4000))
  # Squares of Laplace noise have a deviation of sqrt(5).
  slack = 5 * (np.sqrt(5) - 1) * np.eye(6) + 5
  assert np.all(np.abs(noise.T @ noise / 4000 - np.eye(6))
                <= slack / np.sqrt(4000))


@pytest.mark.slow
@pytest.mark.parametrize('adjacency', Adjacency)
def test_monotone_ranks_are_nonnegative_least_squares(adjacency):
  """Monotone ranks equal the host's nonnegative least squares."""
  mechanism = _mechanism(adjacency=adjacency, monotone=True)
  counts = np.random.default_rng(0).poisson(3.0, 23).astype(float)
  leaves = np.append(counts, 0.0)
  keys = jax.random.split(_KEY, 8)
  ranks = np.asarray(mechanisms.repeated(mechanism.draw)(keys, counts,
                                                   mechanism.parameters))
  assert np.all(np.diff(ranks, axis=1, prepend=0.0) >= 0)
  noisy = jax.jit(
      jax.vmap(lambda key: trees.noisy_levels(
          key, jnp.asarray(leaves), mechanism.branching,
          jnp.asarray(mechanism.scales), pure=True)))(keys)
  total = counts.sum() if mechanism.knows_total else None
  for place in range(8):
    wanted = hierarchy.nonnegative(
        [np.asarray(each)[place] for each in noisy], mechanism.branching,
        mechanism.noise_variances, np.append(np.ones(23), 0.0), total)
    np.testing.assert_allclose(ranks[place], np.cumsum(wanted)[:23], atol=1e-9)
  if mechanism.knows_total:
    np.testing.assert_array_equal(ranks[:, -1], counts.sum())
  assert np.std(ranks[:, 9]) > 1


def test_an_unknown_total_is_kept():
  """The fitted total is kept, as freeing it makes the curve less exact."""
  shape, rng = hierarchy.best_shape(64, known=False, pure=True), (
      np.random.default_rng(1))
  leaves = np.zeros(np.prod(shape))
  alive = (np.arange(leaves.size) < 64).astype(float)
  errors = np.zeros(3)
  for _ in range(100):
    leaves[:64] = rng.poisson(3.0, 64)
    noisy = [each + rng.laplace(size=each.size) * 40 * len(shape)
             for each in hierarchy.levels(leaves, shape)]
    variances = (1.0,) * len(shape)
    raw = hierarchy.least_squares(noisy, shape, variances, alive)
    kept = hierarchy.nonnegative(noisy, shape, variances, alive)
    assert kept.sum() == pytest.approx(max(0, raw.sum()), abs=1e-6)
    free, left = raw, alive
    while np.any(free < 0):
      left = left * (free >= 0)
      free = hierarchy.least_squares(noisy, shape, variances, left)
    errors += [np.sum(np.square(np.cumsum(each - leaves)))
               for each in (raw, kept, free)]
  assert errors[1] < 0.6 * errors[0] and errors[2] > errors[0]


@pytest.mark.parametrize('estimator, pure, adjacency, size, mse, largest', [
    ('least_squares', True, _ADD, 2**10, 1025, 2048),
    ('least_squares', True, _REPLACE, 2**10, 1365, 2048),
    ('plain', True, _ADD, 2**10, 1000, 2000),
    ('plain', True, _REPLACE, 2**10, 4002, 8000),
    ('plain', True, _ADD, 2**15, 3375, 6750),
    ('plain', False, _REPLACE, 2**15, 225, 450),
    ('honaker', True, _ADD, 2**10, 581, 1161),
    ('honaker', True, _REPLACE, 2**15, 7473, 14946),
    ('honaker', False, _ADD, 2**15, 62.3, 125)])
def test_reference_errors_of_histograms_and_binary_trees(
    estimator, pure, adjacency, size, mse, largest):
  """Histograms and binary trees have EC-49's errors, in budget units."""
  shape = ((size,) if estimator == 'least_squares'
           else (2,) * (size.bit_length() - 1))
  budget = dict(epsilon=0.01) if pure else dict(epsilon=None, rho=0.5)
  variances = _mechanism(estimator, adjacency=adjacency, num_thresholds=size,
                         shape=shape, **budget).variances()
  variances = variances * (0.01**2 if pure else 1)
  assert np.mean(variances) == pytest.approx(mse, rel=2e-3)
  assert np.max(variances) == pytest.approx(largest, rel=4e-3)


@pytest.mark.parametrize('estimator, pure, known, size, mse', [
    ('plain', True, False, 2**10, 244), ('plain', True, True, 2**15, 3190),
    ('plain', False, False, 2**10, 37.0), ('plain', False, True, 2**15, 167.8),
    ('signed', True, False, 2**10, 171), ('signed', True, False, 2**15, 510),
    ('signed', True, True, 2**10, 512), ('signed', True, True, 2**15, 1718),
    ('signed_honaker', True, False, 2**10, 161),
    ('signed_honaker', True, True, 2**15, 1625)])
def test_best_digits_are_as_good_as_those_known(estimator, pure, known, size,
                                                mse):
  """Best digits are within EC-49, whose last line ignores shared nodes."""
  ways = dict(known=known, signed=estimator.startswith('signed'),
              bottom_up=estimator.endswith('honaker'))
  shape = digits.best_shape(size, pure=pure, **ways)
  high = len(shape)
  cost = np.mean(digits.plan(shape, (1.0,) * high, size, **ways).variances) * (
      2 * high**2 if pure else high)
  cost *= (4 if pure else 2) if known else 1
  assert 0.94 * mse < cost < 1.003 * mse


@pytest.mark.parametrize('adjacency', Adjacency)
def test_what_one_record_moves_through_a_grid(adjacency):
  """One record costs the budget exactly, also on
  thresholds or out of bounds."""
  mechanism = _mechanism(num_thresholds=20, adjacency=adjacency)
  grid = grids.Grid(lower=0.0, upper=1.0, num_thresholds=20)
  nodes, rng = dense.nodes(mechanism.branching, 20), np.random.default_rng(3)
  values = np.concatenate([grid.thresholds, [-1.0, 0.0, 2.0], rng.uniform(
      size=10)])
  scales = dense.by_level(mechanism.branching, mechanism.scales)
  most = 0.0
  for _ in range(200):
    data = rng.choice(values, 12)
    other = data[1:] if adjacency is _ADD else np.append(
        data[1:], rng.choice(values))
    change = nodes @ (grid.counts(data) - grid.counts(other))
    most = max(most, np.sum(np.abs(change) / scales))
  assert most == pytest.approx(0.7)
  assert mechanism.event == accounting.pure_event(epsilon=0.7,
                                                  adjacency=adjacency)


def test_laws_are_shared_and_noise_is_that_of_the_budget():
  make = functools.partial(_mechanism, estimator='signed', adjacency=_REPLACE)
  assert make(epsilon=3.0).draw is make(shares=(0.5, 0.2, 0.3)).draw
  np.testing.assert_allclose(make().scales, 6 / 0.7)
  np.testing.assert_allclose(make().noise_variances,
                             draws.discrete_laplace_variance(6 / 0.7))
  gaussian = make(epsilon=None, rho=0.2)
  np.testing.assert_allclose(gaussian.noise_variances, 6 / 0.4)
  assert gaussian.scale == pytest.approx(np.sqrt(15))
  assert make(shape=None).branching == digits.best_shape(
      23, known=True, pure=True, signed=True, bottom_up=False)


@pytest.mark.every(1)
@pytest.mark.parametrize('make, message', [
    (lambda: _mechanism(shape=(4, 5)), 'a tree of 20 leaves is too small'),
    (lambda: _mechanism(estimator='half'), 'estimator must be one of'),
    (lambda: _mechanism('plain', monotone=True), 'only ranks by least squares'),
    (lambda: _mechanism(shares=(0.5, 0.5)), 'shares of 3 levels, got 2'),
    (lambda: _mechanism(shares=(0.5, 0.5, 0.5)),
     'shares must sum to 1, got 1.5'),
    (lambda: _mechanism(shares=(1.5, -1.0, 0.5)), 'shares must be a positive')
])
def test_bad_arguments(make, message):
  with pytest.raises(ValueError, match=message):
    make()
