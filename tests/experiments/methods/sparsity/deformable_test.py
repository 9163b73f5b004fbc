"""These tests compare butterfly layers with matrices filled in by loops."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import linalg
from scipy import stats

from experiments.methods.sparsity import deformable
from experiments.methods.sparsity.chains import Chain

# The chains are wide, tall and not monotone, square, and one dense factor.
_CHAINS = (Chain((2, 2, 3), (3, 2, 4)), Chain((3, 5), (2, 4)),
           Chain((2,) * 4, (2,) * 4), Chain((4,), (6,)))

# Each is one program; otherwise every operation would be compiled.
_init = jax.jit(deformable.init, static_argnums=(1, 2))
_apply = jax.jit(deformable.apply)
_dense = jax.jit(deformable.dense)
_kernel = jax.jit(deformable.kernel, static_argnums=1)


def _key(number=0):
  return jax.random.key(1_000 + number)


def _places(chain):
  """Returns the row and column of each coefficient, found by loops."""
  places = []
  for a, r, s, t in chain.shapes:
    rows, columns = np.zeros((2, a, r, s, t), int)
    for outer, row, column, inner in np.ndindex(a, r, s, t):
      rows[outer, row, column, inner] = (outer * r + row) * t + inner
      columns[outer, row, column, inner] = (outer * s + column) * t + inner
    places.append((rows, columns))
  return places


def _matrices(factors, chain):
  """Returns the factors as dense matrices."""
  matrices = []
  for factor, places, (before, after) in zip(
      factors, _places(chain), itertools.pairwise(chain.sizes), strict=True):
    matrix = np.zeros((after, before))
    matrix[places] = factor
    matrices.append(matrix)
  return matrices


def _product(matrices):
  product = np.eye(matrices[0].shape[1])
  for matrix in matrices:
    product = matrix @ product
  return product


@pytest.mark.every(1)
@pytest.mark.parametrize('chain', _CHAINS, ids=str)
def test_matrix_and_product_are_those_of_dense_factors(chain):
  factors = _init(_key(), chain)
  matrices = _matrices(factors, chain)
  for matrix, support in zip(matrices, chain.supports(), strict=True):
    np.testing.assert_array_equal(matrix != 0, support)
  matrix = _product(matrices)
  np.testing.assert_allclose(_dense(factors), matrix, atol=1e-6)
  x = jax.random.normal(_key(1), (2, 3, chain.size[1]))
  np.testing.assert_allclose(_apply(factors, x), x @ matrix.T,
                             atol=1e-5)


def test_hadamard():
  """Blocks [[1, 1], [1, -1]] give the Hadamard matrix (MIA-07)."""
  block = jnp.array([[1.0, 1.0], [1.0, -1.0]])
  factors = tuple(jnp.broadcast_to(block[None, :, :, None], shape)
                  for shape in _CHAINS[2].shapes)
  np.testing.assert_array_equal(_dense(factors), linalg.hadamard(16))


def test_jacobian_is_what_one_coefficient_does():
  """The Jacobian in a coefficient is the product with a unit in its place."""
  chain = _CHAINS[0]
  factors = _init(_key(2), chain)
  for number, jacobian in enumerate(jax.jit(jax.jacobian(deformable.dense))(factors)):
    for place in np.ndindex(factors[number].shape):
      unit = np.zeros(factors[number].shape)
      unit[place] = 1
      alone = (*factors[:number], unit, *factors[number + 1:])
      np.testing.assert_allclose(jacobian[(..., *place)],
                                 _product(_matrices(alone, chain)), atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize('through', ['apply', 'dense'])
def test_gradients_are_those_on_the_supports(through):
  """Gradients are those of dense factors, restricted to the supports."""
  chain = _CHAINS[1]
  factors = _init(_key(3), chain)
  x = jax.random.normal(_key(4), (chain.size[1],))

  def of_factors(factors):
    y = (deformable.apply(factors, x) if through == 'apply'
         else deformable.dense(factors) @ x)
    return jnp.sum(jnp.sin(3 * y))

  def of_matrices(matrices):
    y = x
    for matrix in matrices:
      y = matrix @ y
    return jnp.sum(jnp.sin(3 * y))

  matrices = [jnp.asarray(matrix, jnp.float32)
              for matrix in _matrices(factors, chain)]
  gradients, wanted = (jax.jit(jax.grad(of_factors))(factors),
                       jax.jit(jax.grad(of_matrices))(matrices))
  for gradient, other, places in zip(gradients, wanted, _places(chain),
                                     strict=True):
    assert np.count_nonzero(other) > gradient.size
    np.testing.assert_allclose(gradient, other[places], atol=1e-5)
  stepped = jax.tree.map(lambda value, by: value - by, factors, gradients)
  for matrix, support in zip(_matrices(stepped, chain), chain.supports(),
                             strict=True):
    assert not matrix[~support].any()


def test_convolutions_are_factors_on_patches():
  """A convolution applies the factors to each patch of a 5 x 4 image."""
  chain = Chain((2, 3), (9, 2))
  factors = _init(_key(5), chain)
  image = np.asarray(jax.random.normal(_key(6), (5, 4, 2)))
  patches = np.zeros((5, 4, 18), np.float32)
  for up, left, channel, row, column in np.ndindex(5, 4, 2, 3, 3):
    y, x = up + row - 1, left + column - 1
    if 0 <= y < 5 and 0 <= x < 4:
      patches[up, left, 9 * channel + 3 * row + column] = image[y, x, channel]
  kernel = _kernel(factors, (3, 3, 2, 6))
  convolved = jax.lax.conv_general_dilated(
      image[None], kernel, (1, 1), 'SAME',
      dimension_numbers=('NHWC', 'HWIO', 'NHWC'))
  np.testing.assert_allclose(convolved[0], _apply(factors, patches),
                             atol=1e-5)


def test_kernels_of_any_shape():
  factors = _init(_key(7), Chain((2, 2), (6, 5)))
  matrix = np.asarray(_dense(factors))
  kernel = np.asarray(_kernel(factors, (2, 3, 5, 4)))
  for row, column, entering, leaving in np.ndindex(2, 3, 5, 4):
    assert kernel[row, column, entering, leaving] == matrix[
        leaving, 6 * entering + 3 * row + column]


@pytest.mark.every(1)
@pytest.mark.parametrize('chain', _CHAINS, ids=str)
@pytest.mark.parametrize('variance', [None, 0.25])
def test_coefficients_are_scaled_so_that_variances_multiply(chain, variance):
  """Scaled coefficients give entries the stated variance (b^2 / 3)^L."""
  drawn = np.linspace(-1, 1, chain.num_parameters, dtype=np.float32)
  factors = deformable.scaled(drawn, chain, variance)
  assert tuple(factor.shape for factor in factors) == chain.shapes
  scaled = np.concatenate([factor.ravel() for factor in factors])
  bound = scaled[-1]
  np.testing.assert_allclose(scaled, bound * drawn, rtol=1e-6, atol=1e-7)
  wanted = 1 / (3 * chain.size[1]) if variance is None else variance
  assert (bound**2 / 3)**len(factors) == pytest.approx(wanted, rel=1e-5)


def test_coefficients_are_uniform_on_both_sides_of_zero():
  """Coefficients are uniform on both sides of zero.

  The test fails by chance once in 10^4 keys.
  """
  chain = Chain((8, 8), (8, 8))
  ones = deformable.scaled(np.ones(1024, np.float32), chain)
  drawn = np.concatenate([
      np.ravel(factor / one) for factor, one in zip(
          _init(_key(12), chain), ones, strict=True)])
  assert stats.kstest(drawn, stats.uniform(-1, 2).cdf).pvalue > 1e-4
  assert np.abs(drawn).max() <= 1 + 1e-6


@pytest.mark.slow
@pytest.mark.parametrize('chain, variance', [
    (Chain((2, 4), (6, 4)), None), (Chain((2, 2, 2), (3, 2, 2)), 0.25)])
def test_entries_have_the_variance(chain, variance):
  """Entries of the product have the stated variance, over 4000 draws.

  Each statistic is off by 5 errors once in 1.7 million keys. A factor 3^(L - 1)
  (M-E09), n = p in the place of q, and variances 1 / n are off by 25 errors or
  more.
  """
  wanted = 1 / 72 if variance is None else variance
  keys = jax.random.split(_key(8), 4_000)
  factors = jax.jit(jax.vmap(
      lambda key: deformable.init(key, chain, variance)))(keys)
  matrices = jax.jit(jax.vmap(deformable.dense))(factors)
  # The third statistic takes two entries that share all but one coefficient.
  for sample, mean in ((jnp.mean(matrices ** 2, (1, 2)), wanted),
                       (jnp.mean(matrices, (1, 2)), 0.0),
                       (matrices[:, 0, 0] * matrices[:, 0, 1], 0.0)):
    error = jnp.std(sample) / math.sqrt(len(keys))
    assert abs(jnp.mean(sample) - mean) < 5 * error
    assert error < wanted / 25
  bound = math.sqrt(3) * wanted ** (0.5 / len(chain.rows))
  for factor in factors:
    largest = float(jnp.abs(factor).max())
    assert 0.999 * bound < largest <= bound * (1 + 1e-6)


def test_factors_and_keys_are_independent():
  """Four factors of two keys have no number in common."""
  drawn = [factor.ravel() for number in (9, 10)
           for factor in _init(_key(number), _CHAINS[2])]
  values = np.concatenate(drawn)
  assert len(np.unique(values)) == len(values) == 2 * 4 * 32


@pytest.mark.every(2)
def test_many_replicas_at_once():
  keys = jax.random.split(_key(11), 3)
  factors = jax.jit(jax.vmap(
      lambda key: deformable.init(key, _CHAINS[0])))(keys)
  together = jax.jit(jax.vmap(deformable.dense))(factors)
  for number in range(3):
    alone = _dense(tuple(factor[number] for factor in factors))
    np.testing.assert_allclose(together[number], alone, rtol=1e-6)


def test_bad_input_is_one_line():
  factors = _init(_key(), Chain((2, 2), (3, 2)))
  with pytest.raises(ValueError, match=r'^x must have 6 entries .* \(2, 4\)$'):
    deformable.apply(factors, jnp.ones((2, 4)))
  for shape in ((1, 1, 6, 3), (1, 2, 6, 4), (2, 2, 1, 6)):
    with pytest.raises(ValueError, match='^a kernel of shape .* 4 x 6 matrix$'):
      deformable.kernel(factors, shape)
  with pytest.raises(ValueError, match='^variance must be'):
    deformable.init(_key(), Chain((2, 2), (3, 2)), 0.0)
