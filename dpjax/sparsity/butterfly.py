"""Square matrices with a butterfly factorisation: thesis 000, section 1.2.2.

W = X_1 X_2 ... X_L of size N = 2^L, where the support of X_l is I_(2^(l-1)) (x)
[[1, 1], [1, 1]] (x) I_(N / 2^l) (Figure 1.3). Every entry of W is one product
of L entries, 2 N log2 N numbers say all of W, and a product with W takes
O(N log N) (MIA-07).

Factors are an array [L, N/2, 2, 2]. Block number a N/2^l + c of X_l, for a <
2^(l-1) and c < N/2^l, holds the entries in rows (a, i, c) and columns (a, j, c)
of an index split as [2^(l-1), 2, N/2^l].
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.typing import Array, PRNGKey

# Factors multiplied together before they meet x, at most. Four make blocks of
# 16 x 16: twice the arithmetic of one factor after the other, a quarter of the
# passes over memory, and products of matrices. Gradients are such products too:
# these took a ninth of the time on CPU and a seventh on a GPU.
_MERGED = 4


def num_factors(size: int) -> int:
  """L of a size N = 2^L.

  Raises:
    ValueError: N is no power of two, or below 2.
  """
  errors.check_at_least('size', size, 2)
  if size & (size - 1):
    raise ValueError(f'size must be a power of two, got {size}')
  return size.bit_length() - 1


def init(key: PRNGKey, size: int, *, variance: float | None = None) -> Array:
  """Random factors whose product has entries of a given variance.

  An entry of the product is a product of L independent entries, so each has
  variance^(1/L), uniform about 0. The scale of each factor by its own two
  inputs would be too small by 3^((L-1)/2) (M-E09).

  Args:
    key: used for nothing else.
    size: N, a power of two.
    variance: of entries of the product; 1/(3 N) when not given, that of
      (-1/sqrt N, 1/sqrt N), from which the dense layers of the thesis start.

  Returns:
    Factors [L, N/2, 2, 2], float32.

  Raises:
    ValueError: the size is no power of two, or the variance not positive.
  """
  count = num_factors(size)
  variance = 1 / (3 * size) if variance is None else variance
  errors.check_positive('variance', variance)
  bound = math.sqrt(3 * variance**(1 / count))
  return jax.random.uniform(key, (count, size // 2, 2, 2), jnp.float32,
                            -bound, bound)


def apply(factors: Array, x: Array) -> Array:
  """W x, without W.

  Args:
    factors: [L, N/2, 2, 2].
    x: [..., N], of the dtype of the factors.

  Returns:
    [..., N].

  Raises:
    ValueError: shapes do not fit.
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
  """W, [N, N]; `apply` is x @ W.T.

  Raises:
    ValueError: there are no such factors.
  """
  count, _ = _check(factors)
  return _merged(factors, 0, count)[0, 0]


def supports(size: int) -> np.ndarray:
  """Where X_1 ... X_L may be other than zero: [L, N, N] bool, Figure 1.3.

  Two entries of each row and column; the product of all has no zero.
  """
  return np.stack([
      np.kron(np.kron(np.eye(2**level), np.ones((2, 2))),
              np.eye(size >> level + 1)) > 0
      for level in range(num_factors(size))])


def hadamard(size: int) -> Array:
  """Factors of the Hadamard matrix of Sylvester, entries +-1; float32."""
  count = num_factors(size)
  block = jnp.array([[1, 1], [1, -1]], jnp.float32)
  return jnp.broadcast_to(block, (count, size // 2, 2, 2))


def fourier(size: int) -> Array:
  """Factors of the discrete Fourier transform after `bit_reversal`; complex64.

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
  """The permutation of N = 2^L indices that reverses their L bits, [N]."""
  count = num_factors(size)
  return np.arange(size).reshape((2,) * count).transpose().ravel()


def _check(factors: Array) -> tuple[int, int]:
  """(L, N) of factors."""
  if factors.ndim != 4 or factors.shape[1:] != (
      2**factors.shape[0] // 2, 2, 2) or not factors.shape[0]:
    raise ValueError('factors must have shape [L, 2^(L-1), 2, 2], got '
                     f'{factors.shape}')
  return factors.shape[0], 2 * factors.shape[1]


def _merged(factors: Array, first: int, last: int) -> Array:
  """The product of factors first, ..., last - 1, counted from 0, as blocks.

  Returns:
    [2^first, N/2^last, r, r] with r = 2^(last - first): entry (a, c, i, j) is
    in row (a, i, c) and column (a, j, c) of an index split likewise.
  """
  inner = 2 * factors.shape[1] >> last
  blocks = factors[last - 1].reshape(-1, inner, 2, 2)
  for level in reversed(range(first, last - 1)):
    width = blocks.shape[-1]
    # The right one leads from (a, j, q, c) to (a, j, p, c), the left one on to
    # (a, i, p, c).
    left = factors[level].reshape(-1, width, inner, 2, 2)
    right = blocks.reshape(-1, 2, inner, width, width)
    blocks = jnp.einsum('apcij,ajcpq->acipjq', left, right).reshape(
        -1, inner, 2 * width, 2 * width)
  return blocks
