"""These tests check pools by dense Jacobians and searches.

They cover NET-04, NET-05 and E11.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.lipschitz import pooling
from dpjax.lipschitz.node import Context

# Each case of a table is another pool, with a bound of its own.
pytestmark = pytest.mark.every(1)


@pytest.mark.parametrize('size, stride, expected', [
  (2, 2, 1.0), (2, 1, 2.0), (3, 2, 2.0), (3, 1, 3.0)])
def test_max_pool_attains_its_constant(oracles, size, stride, expected):
  """Max pooling attains its constant, above 1
  where windows overlap (NET-04, E11)."""
  pool = pooling.max_pool((size, size), (stride, stride))
  assert pool.lipschitz((9, 9, 1)) == expected
  rng = np.random.default_rng(0)
  # One pixel sticks out, so it is the largest of every window it is in.
  records = rng.normal(size=(40, 9, 9, 1))
  records[20:] *= 0.01
  records[20:, 4, 4] += 1
  norms = oracles.norms(oracles.input_jacobians(pool, {}, records))
  assert norms.max() == pytest.approx(expected, rel=1e-12)
  assert (norms.max() > 1.001) == (size > stride)


@pytest.mark.parametrize('size, stride, expected, bound', [
  (2, 2, 0.5, 0.5), (2, 1, 0.983, 1.0), (3, 2, 0.526, 2 / 3),
  (3, 1, 0.951, 1.0)])
def test_average_pool_norm(oracles, size, stride, expected, bound):
  """Average pooling has the known norm, exactly
  1/k without overlap (NET-05)."""
  pool = pooling.average_pool((size, size), (stride, stride))
  assert pool.lipschitz((9, 9, 1)) == pytest.approx(bound, rel=1e-12)
  norms = [oracles.norms(oracles.input_jacobians(
    pool, {}, np.zeros((1, n, n, 1))))[0] for n in (8, 10, 12)]
  assert max(norms) <= bound * (1 + 1e-12)
  assert min(abs(value - expected) for value in norms) < 8e-3


def test_other_geometries(oracles):
  """Pools with oblong windows or long strides keep their bound."""
  rng = np.random.default_rng(0)
  for window, strides in (((2, 3), (1, 1)), ((1, 2), (3, 1)), ((2, 2), (3, 3)),
                          ((3, 2), (2, 2))):
    for make in (pooling.max_pool, pooling.average_pool):
      pool = make(window, strides)
      records = rng.normal(size=(8, 6, 6, 2))
      records[0] = np.indices((6, 6, 2)).sum(0)
      jacobians = oracles.input_jacobians(pool, {}, records)
      out = pool.output_shape((6, 6, 2))
      assert jacobians.shape[1] == math.prod(out)
      limit = pool.lipschitz((6, 6, 2))
      assert oracles.norms(jacobians).max() <= limit * (1 + 1e-12)


def test_global_average_pool_is_exact(oracles):
  """Global average pooling is the mean and has norm 1 / sqrt(h w) (NET-05)."""
  pool = pooling.global_average_pool()
  x = np.random.default_rng(0).normal(size=(1, 4, 6, 3))
  norm = oracles.norms(oracles.input_jacobians(pool, {}, x))[0]
  assert norm == pytest.approx(1 / math.sqrt(24), rel=1e-12)
  assert pool.lipschitz((4, 6, 3)) == pytest.approx(norm, rel=1e-12)
  np.testing.assert_allclose(pool.function(jnp.asarray(x, jnp.float32)),
                             x.mean((1, 2)), rtol=1e-5, atol=1e-6)


def test_values_by_hand():
  x = jnp.arange(16.0).reshape((1, 4, 4, 1))
  np.testing.assert_array_equal(pooling.max_pool().function(x)[0, :, :, 0],
                                [[5, 7], [13, 15]])
  np.testing.assert_array_equal(
    pooling.average_pool().function(x)[0, :, :, 0], [[2.5, 4.5], [10.5, 12.5]])
  overlapping = pooling.average_pool((3, 3), (1, 1)).function(x)
  np.testing.assert_allclose(overlapping[0, :, :, 0], [[5, 6], [9, 10]])


@pytest.mark.parametrize('pool', [
  pooling.max_pool((2, 2), (1, 1)), pooling.max_pool((3, 3), (2, 2)),
  pooling.average_pool((2, 2), (1, 1)), pooling.global_average_pool()],
  ids=['max 2 1', 'max 3 2', 'average', 'global'])
def test_no_record_leaves_further_than_the_ceiling(pool):
  """No image leaves a pool above its ceiling,
  not even a negative one (LIP-02)."""
  rng = np.random.default_rng(0)
  x = rng.normal(size=(300, 5, 5, 2))
  x[:100] = -np.abs(x[:100])
  x[100:200] = rng.random((100, 5, 5, 2)) < 0.1
  x[0] = -1
  out = pool.apply({}, jnp.asarray(x, jnp.float32), Context())
  flat = lambda a: np.linalg.norm(np.float64(a).reshape(len(a), -1), axis=1)
  limits = np.array([pool.output_bound({}, float(r), (5, 5, 2)) for r in flat(x)])
  assert np.all(flat(out) <= limits * (1 + 1e-6))
  assert np.max(flat(out) / limits) > 0.65


def test_search_from_below_stays_below_the_constant(oracles):
  """The search stays below the pools' constants (LIP-00)."""
  for pool in (pooling.max_pool((2, 2), (1, 1)), pooling.average_pool((3, 3),
                                                                      (2, 2))):
    function = lambda x, pool=pool: pool.function(
      x.reshape((1, 5, 5, 1))).reshape((-1,))
    lower = oracles.lip_lower(function, jax.random.key(0), 64, size=25)
    assert 0.6 * pool.lipschitz((5, 5, 1)) <= lower <= (
      pool.lipschitz((5, 5, 1)) * (1 + 1e-5))


@pytest.mark.parametrize('make, message', [
  (lambda: pooling.max_pool((0, 2)), 'window must be an integer >= 1'),
  (lambda: pooling.average_pool((2, 2), (0, 1)), 'stride must be an integer'),
  (lambda: pooling.max_pool((3, 3)).output_shape((2, 4, 1)), 'does not fit'),
  (lambda: pooling.average_pool().output_shape((16,)), 'takes images'),
  (lambda: pooling.global_average_pool().output_shape((16,)), 'takes images')])
def test_refused_when_built(make, message):
  with pytest.raises(ValueError, match=message):
    make()


@pytest.mark.every(4)
@pytest.mark.parametrize('window, strides', [
  ((2, 2), (2, 2)), ((3, 2), (2, 1)), ((1, 4), (3, 3)), ((7, 6), (1, 5))])
def test_windows_by_slices_are_those_of_xla(window, strides):
  """Pooling by slices equals XLA's pooling in values and gradients.

  Where values are equal, their shares of the gradient sum to one.
  """
  x = jax.random.normal(jax.random.key(0), (3, 7, 6, 2))
  library = lambda start, join: lambda x: jax.lax.reduce_window(
    x, start, join, (1, *window, 1), (1, *strides, 1), 'VALID')
  area = math.prod(window)
  for pool, wanted in (
      (pooling.max_pool(window, strides).function,
       library(-jnp.inf, jax.lax.max)),
      (lambda x: area * pooling.average_pool(window, strides).function(x),
       library(0.0, jax.lax.add))):
    np.testing.assert_allclose(pool(x), wanted(x), rtol=1e-5, atol=1e-5)
    slope = lambda function: jax.grad(
      lambda x: jnp.sum(jnp.sin(function(x))))(x)
    np.testing.assert_allclose(slope(pool), slope(wanted), rtol=1e-4,
                               atol=1e-5)
  shares = jax.grad(lambda x: jnp.sum(pooling.window_maximum(
    x, window, strides)))(jnp.ones((1, 7, 6, 1)))
  outputs = wanted(jnp.ones((1, 7, 6, 1))).size
  assert jnp.sum(shares) == pytest.approx(outputs) and jnp.all(shares >= 0)


@pytest.mark.parametrize('size, stride, expected', [
  (2, 1, 2.0), (3, 2, 2.0), (3, 1, 3.0)])
def test_equal_values_do_not_exceed_the_constant(oracles, size, stride,
                                                 expected):
  """Ties do not exceed max pooling's constant.

  Training averages the Jacobians of tied maxima: each row sums to 1.
  """
  pool = pooling.max_pool((size, size), (stride, stride))
  rng = np.random.default_rng(1)
  records = rng.integers(0, 3, (60, 7, 7, 1)).astype(float)
  records[0] = 0.0
  jacobians = oracles.input_jacobians(pool, {}, records)
  assert oracles.norms(jacobians).max() <= expected * (1 + 1e-12)
  flat = np.reshape(jacobians, (60, -1, 49))
  np.testing.assert_allclose(flat.sum(2), 1, atol=1e-6)
  # Without ties this would test nothing.
  assert np.any((flat > 1e-6) & (flat < 1 - 1e-6))
