"""These tests compare butterflies with their definition, entry by entry."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg

from experiments.methods.sparsity import butterfly

SIZES = (2, 8, 16, 32, 512)
"""One, three, four, five and nine factors: one pass, two and three."""

apply, dense = jax.jit(butterfly.apply), jax.jit(butterfly.dense)


def _matrices(factors):
  """Returns X_1 ... X_L in float64, entry by entry."""
  factors = np.asarray(factors, np.float64)
  count, half = factors.shape[:2]
  matrices = np.zeros((count, 2 * half, 2 * half))
  for level, matrix in enumerate(matrices):
    inner = half >> level
    for block in range(half):
      a, c = divmod(block, inner)
      row = lambda i: (2 * a + i) * inner + c
      for i in range(2):
        for j in range(2):
          matrix[row(i), row(j)] = factors[level, block, i, j]
  return matrices


def _product(factors):
  return np.linalg.multi_dot([*_matrices(factors), np.eye(
      2 * factors.shape[1])])


def _factors(size, seed=0):
  return butterfly.init(jax.random.key(seed), size, variance=1 / size)


def _relative(actual, wanted):
  return np.max(np.abs(actual - wanted)) / np.max(np.abs(wanted))


@pytest.mark.slow
@pytest.mark.parametrize('size', SIZES)
def test_products_are_those_of_the_factors(size):
  factors = _factors(size)
  wanted = _product(factors)
  x = np.random.default_rng(1).normal(size=(2, 3, size)).astype(np.float32)
  assert _relative(dense(factors), wanted) < 1e-5
  product = apply(factors, x)
  assert product.shape == x.shape
  assert _relative(product, x @ wanted.T) < 1e-5
  if size == 8:
    assert _relative(apply(factors, x[0, 0]), wanted @ x[0, 0]) < 1e-5


def test_packs_by_vmap():
  factors = jnp.stack([_factors(8, seed) for seed in range(3)])
  x = np.random.default_rng(1).normal(size=(3, 4, 8)).astype(np.float32)
  products = jax.jit(jax.vmap(butterfly.apply))(factors, x)
  for each, one, value in zip(products, factors, x, strict=True):
    np.testing.assert_allclose(each, value @ _product(one).T, rtol=1e-4,
                               atol=1e-6)


@pytest.mark.parametrize('size', [2, 16, 64])
def test_supports(size):
  """Supports have indices that differ in at most one bit (Figure 1.3)."""
  supports = butterfly.supports(size)
  count = size.bit_length() - 1
  assert supports.shape == (count, size, size) and supports.dtype == bool
  differ = np.arange(size)[:, None] ^ np.arange(size)
  for level in range(count):
    np.testing.assert_array_equal(
        supports[level], (differ == 0) | (differ == size >> level + 1))
  assert np.all(supports.sum((1, 2)) == 2 * size)
  path_counts = np.linalg.multi_dot([*supports.astype(int),
                                     np.eye(size, dtype=int)])
  np.testing.assert_array_equal(path_counts, 1)


def test_supports_hold_all_factors_and_nothing_else():
  ones = np.ones((4, 8, 2, 2), np.float32)
  np.testing.assert_array_equal(_matrices(ones) != 0, butterfly.supports(16))


def test_each_entry_is_one_path():
  """Each entry of W depends on one entry of each factor and on no others."""
  derivatives = jax.jit(jax.jacrev(butterfly.dense))(_factors(16))
  moved = np.asarray(derivatives) != 0
  np.testing.assert_array_equal(moved.sum((3, 4, 5)), 1)
  np.testing.assert_array_equal(moved.sum((0, 1)), 8)


def test_gradients_are_those_of_the_product_on_its_supports():
  """Gradients are dF/dX_l = (X_1 ...)^T G (... X_L)^T on the supports."""
  size, rng = 32, np.random.default_rng(2)
  factors = _factors(size)
  x, weight = rng.normal(size=(2, 5, size)).astype(np.float32)
  by_factors, by_x = jax.jit(jax.grad(lambda f, x: jnp.sum(
      weight * butterfly.apply(f, x)), (0, 1)))(factors, x)
  matrices = _matrices(factors)
  outer = weight.T @ x
  for level, mask in enumerate(butterfly.supports(size)):
    before, after = (
        np.linalg.multi_dot([np.eye(size), np.eye(size), *part])
        for part in (matrices[:level], matrices[level + 1:]))
    wanted = np.where(mask, before.T @ outer @ after.T, 0)
    gradient = _matrices(np.where(np.arange(5)[:, None, None, None] == level,
                                  by_factors, 0))[level]
    assert _relative(gradient, wanted) < 1e-5
  assert _relative(by_x, weight @ _product(factors)) < 1e-5


@pytest.mark.parametrize('size', [2, 64])
def test_hadamard_is_exact(size):
  factors = butterfly.hadamard(size)
  np.testing.assert_array_equal(dense(factors), linalg.hadamard(size))
  assert set(np.unique(factors)) == {-1, 1}


@pytest.mark.every(3)
@pytest.mark.parametrize('size', [2, 64])
def test_fourier_after_bit_reversal(size):
  factors, order = butterfly.fourier(size), butterfly.bit_reversal(size)
  wanted = np.fft.fft(np.eye(size))
  assert _relative(dense(factors), wanted[:, order]) < 1e-6
  x = np.random.default_rng(3).normal(size=(3, size, 2)).astype(
      np.float32).view(np.complex64)[..., 0]
  transformed = apply(factors, x[:, order])
  assert _relative(transformed, np.fft.fft(x)) < 1e-6
  digits = [int(f'{i:0{size.bit_length() - 1}b}'[::-1], 2) for i in range(size)]
  np.testing.assert_array_equal(order, digits)


@pytest.mark.slow
@pytest.mark.parametrize('size,variance', [(8, None), (16, 0.5)])
def test_entries_of_the_product_have_the_variance(size, variance):
  """Each entry of the product has the stated variance (M-E09).

  The test allows five standard errors, at most 6 %.
  """
  keys = jax.random.split(jax.random.key(4), 10_000)
  products = jax.jit(jax.vmap(lambda key: butterfly.dense(
      butterfly.init(key, size, variance=variance))))(keys)
  squares = np.square(np.asarray(products, np.float64))
  wanted = 1 / (3 * size) if variance is None else variance
  of_all = squares.mean((1, 2))
  error = of_all.std() / len(keys)**0.5
  assert error < 0.012 * wanted
  assert abs(of_all.mean() - wanted) < 5 * error
  errors = squares.std(0) / len(keys)**0.5
  assert np.all(abs(squares.mean(0) - wanted) < 5 * errors)
  assert np.all(abs(products.mean(0)) < 5 * (wanted / len(keys))**0.5)


def test_factors_are_uniform_within_their_bound():
  factors = np.asarray(butterfly.init(jax.random.key(5), 1024))
  assert factors.shape == (10, 512, 2, 2) and factors.dtype == np.float32
  bound = (3 * (1 / 3072)**0.1)**0.5
  assert 0.999 * bound < factors.max() <= bound
  assert -bound <= factors.min() < -0.999 * bound
  again = butterfly.init(jax.random.key(5), 1024)
  np.testing.assert_array_equal(factors, again)


@pytest.mark.parametrize('size', [0, 1, 12, 4.0])
def test_refuses_sizes(size):
  for function in (butterfly.supports, butterfly.hadamard, butterfly.fourier,
                   butterfly.bit_reversal,
                   lambda n: butterfly.init(jax.random.key(0), n)):
    with pytest.raises(ValueError, match='size must be'):
      function(size)


def test_refuses_shapes_and_variances():
  with pytest.raises(ValueError, match=r'x must have shape \[..., 8\]'):
    butterfly.apply(_factors(8), jnp.zeros((8, 4)))
  for shape in ((3, 8, 2, 2), (0, 0, 2, 2), (3, 4, 2), (3, 4, 2, 1)):
    with pytest.raises(ValueError, match='factors must have shape'):
      butterfly.apply(jnp.zeros(shape), jnp.zeros(8))
  with pytest.raises(ValueError, match='variance must be a positive'):
    butterfly.init(jax.random.key(0), 8, variance=0.0)
