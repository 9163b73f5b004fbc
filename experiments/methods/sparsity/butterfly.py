"""Square butterfly-factorised matrices, Lalanne (2023, section 1.2.2).

W = X_1 X_2 ... X_L has size N = 2^L, and the support of X_l is I_(2^(l-1)) (x)
[[1, 1], [1, 1]] (x) I_(N / 2^l) (Figure 1.3 there). Every entry of W is one
product of L entries. 2 N log2 N numbers determine W, and a product with W takes
O(N log N) operations. Item MIA-07.

Factors are stored as an array [L, N/2, 2, 2]. Split an index as
[2^(l-1), 2, N/2^l]. Block number a N/2^l + c of X_l, for a < 2^(l-1) and
c < N/2^l, holds the entries in rows (a, i, c) and columns (a, j, c).
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.typing import Array, PRNGKey

# Most factors multiplied together before they are applied to x. Four factors
# make blocks of 16 x 16: twice the arithmetic of one factor after the other,
# but a quarter of the passes over memory, in matrix products. Gradients then
# took a ninth of the time on a CPU and a seventh on a GPU.
_MERGED = 4


def num_factors(size: int) -> int:
  """Returns L for a size N = 2^L.

  Raises:
    ValueError: N is not a power of two, or below 2.
  """
  errors.check_at_least('size', size, 2)
  if size & (size - 1):
    raise ValueError(f'size must be a power of two, got {size}')
  return size.bit_length() - 1


def init(key: PRNGKey, size: int, *, variance: float | None = None) -> Array:
  """Returns random factors whose product has entries of a given variance.

  An entry of the product is a product of L independent entries. Each of them
  is uniform about 0 with variance variance^(1/L). Scaling each factor by its
  own two inputs would make entries of the product too small, by a factor of
  3^((L-1)/2) (item M-E09).

  Args:
    key: random key, used for nothing else.
    size: N, a power of two.
    variance: variance of the product's entries. The default 1/(3 N) is that of
      the uniform distribution on (-1/sqrt N, 1/sqrt N), which Lalanne (2023,
      section 1.3) uses for dense layers.

  Returns:
    Factors [L, N/2, 2, 2], float32.

  Raises:
    ValueError: the size is not a power of two, or the variance not positive.
  """
  count = num_factors(size)
  variance = 1 / (3 * size) if variance is None else variance
  errors.check_positive('variance', variance)
  bound = math.sqrt(3 * variance**(1 / count))
  return jax.random.uniform(key, (count, size // 2, 2, 2), jnp.float32,
                            -bound, bound)


def apply(factors: Array, x: Array) -> Array:
  """Returns W x without forming W.

  Args:
    factors: [L, N/2, 2, 2].
    x: vectors [..., N], of the dtype of the factors.

  Returns:
    Vectors [..., N].

  Raises:
    ValueError: the shapes do not match.
  """
  count, size = _check(factors)
  if x.shape[-1:] != (size,):
    raise ValueError(f'x must have shape [..., {size}], got {x.shape}')
  passes = -(-count // _MERGED)
  cuts = [count * i // passes for i in range(passes + 1)]
  y = x.reshape(-1, size)
  for first, last in reversed(list(zip(cuts, cuts[1:], strict=False))):
    blocks = _merged(factors, first, last)
    outer, inner, width, _ = blocks.shape
    y = jnp.einsum('acij,najc->naic', blocks,
                   y.reshape(-1, outer, width, inner))
  return y.reshape(x.shape)


def dense(factors: Array) -> Array:
  """Returns the matrix W, [N, N]; `apply` is x @ W.T.

  Raises:
    ValueError: the factors have a wrong shape.
  """
  count, _ = _check(factors)
  return _merged(factors, 0, count)[0, 0]


def supports(size: int) -> np.ndarray:
  """Returns the supports of X_1 ... X_L, bools [L, N, N].

  Each row and column has two entries; the product of all supports is full.
  Lalanne (2023, Figure 1.3).
  """
  return np.stack([
      np.kron(np.kron(np.eye(2**level), np.ones((2, 2))),
              np.eye(size >> level + 1)) > 0
      for level in range(num_factors(size))])


def hadamard(size: int) -> Array:
  """Returns factors of Sylvester's Hadamard matrix, entries +-1; float32."""
  count = num_factors(size)
  block = jnp.array([[1, 1], [1, -1]], jnp.float32)
  return jnp.broadcast_to(block, (count, size // 2, 2, 2))


def fourier(size: int) -> Array:
  """Returns factors of the discrete Fourier transform; complex64.

  `apply(fourier(N), x[..., bit_reversal(N)])` is `jnp.fft.fft(x)`.
  """
  levels = []
  for level in range(num_factors(size)):
    width = size >> level
    twiddles = np.tile(np.exp(-2j * np.pi * np.arange(width // 2) / width),
                       2**level)
    ones = np.ones_like(twiddles)
    levels.append(np.stack([ones, twiddles, ones, -twiddles], -1))
  return jnp.asarray(np.reshape(levels, (-1, size // 2, 2, 2)), jnp.complex64)


def bit_reversal(size: int) -> np.ndarray:
  """Returns the permutation [N] of N = 2^L indices that reverses their bits."""
  count = num_factors(size)
  return np.arange(size).reshape((2,) * count).transpose().ravel()


def _check(factors: Array) -> tuple[int, int]:
  """Returns (L, N) of factors; raises ValueError for a wrong shape."""
  if factors.ndim != 4 or factors.shape[1:] != (
      2**factors.shape[0] // 2, 2, 2) or not factors.shape[0]:
    raise ValueError('factors must have shape [L, 2^(L-1), 2, 2], got '
                     f'{factors.shape}')
  return factors.shape[0], 2 * factors.shape[1]


def _merged(factors: Array, first: int, last: int) -> Array:
  """Returns the product of factors first, ..., last - 1 (from 0) as blocks.

  Returns:
    [2^first, N/2^last, r, r] with r = 2^(last - first). Entry (a, c, i, j) is
    in row (a, i, c) and column (a, j, c) of an index split as
    [2^first, r, N/2^last].
  """
  inner = 2 * factors.shape[1] >> last
  blocks = factors[last - 1].reshape(-1, inner, 2, 2)
  for level in reversed(range(first, last - 1)):
    width = blocks.shape[-1]
    # The right factor maps index (a, j, q, c) to (a, j, p, c); the left factor
    # maps that to (a, i, p, c).
    left = factors[level].reshape(-1, width, inner, 2, 2)
    right = blocks.reshape(-1, 2, inner, width, width)
    blocks = jnp.einsum('apcij,ajcpq->acipjq', left, right).reshape(
        -1, inner, 2 * width, 2 * width)
  return blocks
