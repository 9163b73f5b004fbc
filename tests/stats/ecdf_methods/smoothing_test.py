"""Tests projections of ranks: optimality, against other solvers."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from dpjax.stats.ecdf_methods import levels
from dpjax.stats.ecdf_methods import smoothing
from experiments.methods.statistics import flows

_SIZES = (2, 5, 8, 13)


def _noise_matrix(size):
  """Returns Z [N, nodes] and each node's level, by definition."""
  columns, heights = [], []
  for level in range(levels.num_levels(size) + 1):
    for start in range(0, size, 2**level):
      columns.append((np.arange(size) // 2**level == start // 2**level) * 1.0)
      heights.append(level)
  return np.array(columns).T, np.array(heights)


def _cases(size, count, seed=0):
  rng = np.random.default_rng(seed)
  for _ in range(count):
    counts = rng.poisson(3, size)
    yield (np.cumsum(counts) + rng.normal(0, 6, size), float(counts.sum()),
           rng.uniform(0.3, 3, levels.num_levels(size) + 1))


@functools.cache
def _jitted(function):
  return jax.jit(function, static_argnames='end')


def _constraints(size, end):
  """Returns the rows A of the constraints A f >= b on ranks, without b."""
  rows = np.eye(size) - np.eye(size, k=-1)
  return rows if end == 'free' else np.vstack([rows, -np.eye(size)[-1:]])


@pytest.mark.slow
@pytest.mark.every(5)
@pytest.mark.parametrize('end', levels.ENDS)
@pytest.mark.parametrize('size', _SIZES)
def test_least_squares_is_optimal(size, end):
  # For a convex problem these conditions suffice: f keeps the constraints, and
  # the gradient is a nonnegative combination of the active ones.
  matrix, heights = _noise_matrix(size)
  for ranks, total, variances in _cases(size, 6):
    with jax.enable_x64(True):
      fitted = np.asarray(_jitted(smoothing.least_squares)(
          jnp.asarray(ranks), total, jnp.asarray(variances), end=end))
    assert np.all(np.diff(fitted, prepend=0) >= -1e-9)
    assert end == 'free' or fitted[-1] <= total + 1e-9
    assert end != 'equal' or fitted[-1] == total
    gradient = np.linalg.solve(
        matrix * variances[heights] @ matrix.T, fitted - ranks)
    rows = _constraints(size, end)
    slack = rows @ fitted + np.where(np.arange(len(rows)) == size, total, 0)
    active = rows[slack < 1e-7]
    if end == 'equal':
      active = np.vstack([active, np.eye(size)[-1:], -np.eye(size)[-1:]])
    if not len(active):
      assert np.abs(gradient).max() < 1e-7
      continue
    assert optimize.nnls(active.T, gradient)[1] < 1e-6


@pytest.mark.every(5)
@pytest.mark.parametrize('end', levels.ENDS)
@pytest.mark.parametrize('size', _SIZES)
def test_least_absolute_is_a_minimum_that_its_noise_attains(size, end):
  matrix, _ = _noise_matrix(size)
  both = np.hstack([matrix, -matrix])
  ones = np.ones(both.shape[1])
  increments = (np.eye(size) - np.eye(size, k=-1))
  for ranks, total, _ in _cases(size, 4, seed=1):
    with jax.enable_x64(True):
      fitted, least = map(np.asarray, _jitted(flows.absolute_and_value)(
          jnp.asarray(ranks), total, end=end))
    upper, bounds = -increments @ both, increments @ ranks
    last, rest = both[-1:], [total - ranks[-1]]
    equal = dict(A_eq=last, b_eq=rest) if end == 'equal' else {}
    if end == 'at_most':
      upper, bounds = np.vstack([upper, last]), np.append(bounds, rest)
    exact = optimize.linprog(ones, upper, bounds, **equal).fun
    assert least == pytest.approx(exact, abs=1e-7)
    spent = optimize.linprog(ones, A_eq=both, b_eq=fitted - ranks).fun
    assert spent == pytest.approx(exact, abs=1e-6)
    assert np.all(np.diff(fitted, prepend=0) >= -1e-9)
    assert end == 'free' or fitted[-1] <= total + 1e-9


def test_without_absolute_values_there_is_no_least_noise():
  """Printed 6.3.6 with p = 1 is unbounded: a node minus its halves (C12)."""
  matrix, heights = _noise_matrix(4)
  nodes = np.zeros(heights.size)
  nodes[[0, 1]], nodes[4] = -1, 1
  np.testing.assert_array_equal(matrix @ nodes, 0)
  assert nodes.sum() == -1


@pytest.mark.every(2)
def test_least_absolute_noise_is_one_of_many():
  """Curves as far apart as can be share the least sum;
  ours is between (C16)."""
  ranks, (matrix, _) = np.array([1.0, -1.0]), _noise_matrix(2)
  with jax.enable_x64(True):
    fitted, least = map(np.asarray, _jitted(flows.absolute_and_value)(
        jnp.asarray(ranks), 1.0, end='at_most'))
  for curve in (np.zeros(2), np.ones(2), fitted):
    spent = optimize.linprog(np.ones(6), A_eq=np.hstack([matrix, -matrix]),
                             b_eq=curve - ranks).fun
    assert spent == pytest.approx(2) == float(least)
  np.testing.assert_allclose(fitted, 0.5)


def _large_case(depth):
  rng = np.random.default_rng(2)
  counts = rng.poisson(3, 2**depth)
  ranks = np.cumsum(counts) + sum(np.repeat(
      rng.laplace(0, 2 * depth, 2**(depth - level)), 2**level)
                                  for level in range(depth + 1))
  return ranks, counts


@pytest.mark.slow
def test_both_agree_with_dual_values_on_a_larger_case():
  # By weak duality, a feasible dual of the same value proves that both are
  # optimal. For p = 2 the dual is half of the loss, K mu being w - g.
  ranks, counts = _large_case(8)
  total = float(counts.sum())
  with jax.enable_x64(True):
    squares, sweeps = _jitted(smoothing.squares_and_sweeps)(
        jnp.asarray(ranks), total, jnp.ones([9]), end='equal')
    absolute, least = _jitted(flows.absolute_and_value)(
        jnp.asarray(ranks), total, end='equal')
  matrix, _ = _noise_matrix(ranks.size)
  squares = np.asarray(squares)
  multiplier = np.linalg.solve(matrix @ matrix.T, squares - ranks)
  # Differences of rows give mu, up to the last rank's free one.
  mu = np.append(np.cumsum(multiplier[::-1])[::-1], 0.0)
  slopes = np.diff(squares, prepend=0)
  assert np.abs(mu[:-1][slopes > 1e-6] - mu[:-1][slopes > 1e-6][0]).max() < 1e-6
  assert sweeps < 15
  spent = optimize.linprog(
      np.ones(2 * matrix.shape[1]), A_eq=np.hstack([matrix, -matrix]),
      b_eq=np.asarray(absolute) - ranks).fun
  assert spent == pytest.approx(float(least), rel=1e-9)
  exact = np.cumsum(counts)
  raw = np.mean((ranks - exact)**2)
  assert np.mean((squares - exact)**2) < 0.6 * raw


@pytest.mark.slow
@pytest.mark.parametrize('size', [7, 64])
def test_isotonic_regression(size):
  for ranks, total, _ in _cases(size, 3, seed=3):
    with jax.enable_x64(True):
      fitted = np.asarray(_jitted(smoothing.isotonic)(
          jnp.asarray(ranks), total, end='at_most'))
    expected = np.clip(optimize.isotonic_regression(ranks).x, 0, total)
    np.testing.assert_allclose(fitted, expected, atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize('function', [
    lambda ranks, total: smoothing.least_squares(ranks, total, jnp.ones([5])),
    flows.least_absolute], ids=['squares', 'absolute'])
def test_what_is_monotone_stays(function):
  ranks = np.cumsum([0, 3, 1, 0, 2, 5, 0, 0, 1, 1, 4, 0])
  with jax.enable_x64(True):
    fitted = jax.jit(function)(jnp.asarray(ranks, jnp.float64),
                               float(ranks[-1]))
  np.testing.assert_allclose(fitted, ranks, atol=1e-9)


@pytest.mark.every(2)
def test_levels_that_are_written_out_give_the_same(monkeypatch):
  """Levels with more than `WIDTH` nodes, in another layout,
  give the same result."""
  (ranks, total, _), = _cases(11, 1, seed=5)
  monkeypatch.setattr(levels, 'WIDTH', 4)
  levels.layout.cache_clear()
  assert len(levels.layout(11).below) == 2
  # `_jitted` would reuse the earlier layout.
  flat, absolute = (jax.jit(lambda *args, function=function: function(
      *args, 'equal')) for function in (
          smoothing.isotonic, flows.absolute_and_value))
  with jax.enable_x64(True):
    flat = np.asarray(flat(ranks, total))
    fitted, least = map(np.asarray, absolute(ranks, total))
  levels.layout.cache_clear()
  expected = np.clip(optimize.isotonic_regression(ranks).x, 0, total)
  np.testing.assert_allclose(flat, np.append(expected[:-1], total), atol=1e-7)
  matrix, _ = _noise_matrix(11)
  both = np.hstack([matrix, -matrix])
  increments = np.eye(11) - np.eye(11, k=-1)
  exact = optimize.linprog(
      np.ones(both.shape[1]), -increments @ both, increments @ ranks,
      A_eq=both[-1:], b_eq=[total - ranks[-1]]).fun
  spent = optimize.linprog(np.ones(both.shape[1]), A_eq=both,
                           b_eq=fitted - ranks).fun
  assert least == pytest.approx(exact, abs=1e-7)
  assert spent == pytest.approx(exact, abs=1e-6)
  assert np.all(np.diff(fitted, prepend=0) >= -1e-9) and fitted[-1] == total
