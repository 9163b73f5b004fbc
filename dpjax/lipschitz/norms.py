"""Spectral norms: estimates from below, certified bounds from above.

Only an upper bound may enter a sensitivity. Power iteration converges from
below, so noise scaled by it is too small; use it only to monitor a run.
"""

from collections.abc import Callable
import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax import floats
from dpjax.typing import Array

_UNIT_ROUNDOFF = 2.0**-24
# Largest natural logarithm of a squared Frobenius norm in _schatten; float32
# overflows at 88.
_LOG_RANGE = 80
# Longer sums are split into parts, which limits their rounding error.
_LONGEST_SUM = 512
# Complex Gram matrices round in two parts, each with one more term.
_COMPLEX_ROUNDING = 1.5
# Up to this relative margin, the worst case over spectra is used for all.
_SMALL_MARGIN = 2.0**-10


def power_iteration(weights: Array, start: Array, *,
                    num_iterations: int) -> tuple[Array, Array]:
  """Returns a *lower* bound of the spectral norm and the vector attaining it.

  From an angle a between `start` and the leading singular vector, with rho the
  ratio of the second singular value to the first, the bound after t rounds is
  at least ||W|| / sqrt(1 + rho^(4t) tan^2 a). Barczewski (2025, section
  5.2.3); item SPEC-01, erratum E9.

  Args:
    weights: W, [m, n].
    start: [n], not orthogonal to the leading right singular vector; the
      vector of the previous step is a good start.
    num_iterations: t, at least 1.

  Returns:
    (||W v||, v) with v a unit vector after t rounds of
    v <- W^T W v / ||W^T W v||. v stays unchanged if W^T W v is zero or not
    finite, so it can always serve as the next start.
  """
  return power_iteration_of_map(
      lambda v: jnp.matmul(weights, v, precision=jax.lax.Precision.HIGHEST),
      start, num_iterations=num_iterations)


def power_iteration_of_map(apply: Callable[[Array], Array], start: Array, *,
                           num_iterations: int) -> tuple[Array, Array]:
  """Runs `power_iteration` for any linear map, by its transpose.

  Args:
    apply: linear map from arrays of the shape of `start` to arrays.
    start: not orthogonal to the leading right singular vector.
    num_iterations: at least 1.
  """
  errors.check_at_least('num_iterations', num_iterations, 1)
  transpose = jax.linear_transpose(apply, start)

  def turn(_: int, vector: Array) -> Array:
    image = unit_and_norm(apply(vector))[0]
    image, norm = unit_and_norm(transpose(image)[0])
    return jnp.where((norm > 0) & jnp.isfinite(norm), image, vector)

  vector = jax.lax.fori_loop(0, num_iterations, turn, unit_and_norm(start)[0])
  return unit_and_norm(apply(vector))[1], vector


def unit_and_norm(x: Array) -> tuple[Array, Array]:
  """Returns (x / ||x||_2, ||x||_2) over all entries; (0, 0) for zeros.

  It works at every scale of x. The norm is not finite if an entry is not.
  """
  scale = floats.power_of_two_below(jnp.max(jnp.abs(x)))
  ordinary = x * floats.inverse_power_of_two(scale)
  norm = jnp.sqrt(jnp.sum(jnp.square(ordinary)))
  return ordinary / jnp.where(norm == 0, 1.0, norm), scale * norm


def exact_upper_bound(weights: np.ndarray) -> float:
  """Returns the spectral norm by float64 SVD on the host, rounded up. SPEC-03.

  Args:
    weights: [m, n]; takes seconds for min(m, n) up to about 2048.

  Returns:
    The norm, or NaN if an entry is not finite.
  """
  matrix = np.asarray(weights, np.float64)
  if not np.all(np.isfinite(matrix)):
    return math.nan
  return float(np.linalg.norm(matrix, 2)) * (1 + 1e-10)


def spectral_upper_bound(weights: Array, *, num_iterations: int = 6,
                         any_scale: bool = True) -> Array:
  """Computes a certified upper bound of the spectral norm; jittable, float32.

  Gram iteration (Delattre et al. 2023): with G_0 = W, G_{i+1} = G_i^* G_i, the
  bound ||G_t||_F^(1/2^t) is the Schatten norm of order 2^(t+1), so that

    ||W||_2 <= bound <= r^(1/2^(t+1)) ||W||_2,  r = min(m, n).

  Two columns or rows, as in a binary classifier's last layer, have a closed
  form. The bound covers rounding: a float32 product with sums of k terms moves
  the leading eigenvalue by at most k 2^-24 ||W||_F^2, of which the 2^i-th root
  is taken. For large matrices the margin uses the W at hand. Let b be the
  computed bound. If b >= ||W||_2, no margin is needed; otherwise
  ||W||_F^2 / b^2 is at least the ratio that the margin needs. Item SPEC-04
  has the margin 2 k 2^-24 sqrt(r), which holds for t = 1 only: a Hadamard
  matrix needs r.

  Args:
    weights: [..., m, n], float32 or complex64; one bound for each matrix.
    num_iterations: t; 6 exceeds the norm by a factor of at most r^(1/128),
      2.7 % for r = 30.
    any_scale: False saves one pass over weights of ordinary size; the result
      then bounds norms above 1e-8 only, and is NaN above 1e8.

  Returns:
    Bounds [...], NaN or infinite where an entry is, so that an unknown norm
    never looks small. Entries below 2^-126 count as zeros.

  Examples:
    >>> from dpjax.lipschitz import norms
    >>> weights = jnp.diag(jnp.array([3.0, 2.0, 1.0]))
    >>> round(float(norms.spectral_upper_bound(weights)), 3)
    3.0
  """
  errors.check_at_least('num_iterations', num_iterations, 1)
  wide = weights.shape[-2] < weights.shape[-1]
  tall = jnp.swapaxes(weights, -2, -1) if wide else weights
  parts: tuple[Array, ...] = (tall,)
  if jnp.iscomplexobj(tall):
    parts = tall.real, tall.imag
  scale = None
  if any_scale:
    # Scales the largest entry to [1, 4); otherwise squares of tiny entries
    # underflow and those of huge entries overflow.
    largest = sum(jnp.max(jnp.abs(part), (-2, -1)) for part in parts)
    scale = floats.power_of_two_below(largest)
    inverse = floats.inverse_power_of_two(scale)[..., None, None]
    parts = tuple(part * inverse for part in parts)
  bound = _bound_of_ordinary(parts, num_iterations)
  return bound if scale is None else scale * bound


def _bound_of_ordinary(parts: tuple[Array, ...], num_iterations: int) -> Array:
  """Bounds the norms of tall matrices, given as (real,) or (real, imaginary).
  """
  rows, rank = parts[0].shape[-2:]
  rounding = _UNIT_ROUNDOFF * (_COMPLEX_ROUNDING if len(parts) == 2 else 1)
  rounding *= _terms(rows) + _terms(rank) + 8
  if rank == 1:
    # The norm of a vector is its Frobenius norm: no matrix product.
    return (1 + (rows + 8) * _UNIT_ROUNDOFF) * _frobenius(parts)
  gram = _gram(parts)
  if rank == 2:
    return (1 + rank * rounding) * jnp.sqrt(_largest_eigenvalue(gram))
  bound = _schatten(gram, rank, num_iterations)
  if rank * rounding < _SMALL_MARGIN:
    return (1 + rank * rounding) * bound
  # The last Frobenius norm sums rank^2 squares; covers their rounding.
  bound = bound * (1 + rank**2 * _UNIT_ROUNDOFF / 2**num_iterations)
  energy = jnp.sum(jnp.diagonal(gram[0], axis1=-2, axis2=-1), -1)
  # any_scale=False promises nothing for norms below 1e-8, squares below 1e-16.
  loss = rounding * energy / jnp.maximum(jnp.square(bound), 1e-16)
  return jnp.where(loss < 1, bound / (1 - loss), jnp.inf)


def _schatten(gram: tuple[Array, ...], rank: int,
              num_iterations: int) -> Array:
  """Returns ||gram^(2^(t-1))||_F^(1/2^t), by repeated squaring.

  A Gram matrix divided by its Frobenius norm over rank^(1/4) has its leading
  eigenvalue in [rank^(-1/4), rank^(1/4)]. The division is repeated before
  squaring could carry the eigenvalue out of float32's range.
  """
  center = rank**0.25
  apart = max(1, int(math.log2(_LOG_RANGE / math.log(rank))) + 1)
  bound = jnp.float32(1)
  for squarings in range(num_iterations):
    if squarings:
      gram = _gram(gram)
    last = squarings == num_iterations - 1
    if last or squarings % apart == 0:
      size = _frobenius(gram)
      if not last:
        # The floor avoids 0 / 0 for zero matrices, whose bound stays 0.
        size = jnp.maximum(size / center, 1e-18)
        gram = tuple(part / size[..., None, None] for part in gram)
      bound = bound * _repeated_sqrt(size, squarings + 1)
  return bound


def _gram(parts: tuple[Array, ...]) -> tuple[Array, ...]:
  """Returns A^* A: (symmetric,) or, if complex, (symmetric, antisymmetric)."""
  if len(parts) == 1:
    return (_transposed_product(parts[0], parts[0]),)
  real, imaginary = parts
  cross = _transposed_product(real, imaginary)
  return (_transposed_product(real, real)
          + _transposed_product(imaginary, imaginary),
          cross - jnp.swapaxes(cross, -2, -1))


def _transposed_product(left: Array, right: Array) -> Array:
  """Returns left^T right over the last two axes, in sums of `_terms` terms."""
  rows = left.shape[-2]
  if rows <= _LONGEST_SUM:
    return _product(jnp.swapaxes(left, -2, -1), right)
  count = -(-rows // _LONGEST_SUM)
  left, right = (_padded(x, -rows % count) for x in (left, right))
  size = left.shape[-2] // count

  def add(i: int, total: Array) -> Array:
    # In sequence: as one batch the parts take four times as long on CPU.
    a, b = (jax.lax.dynamic_slice_in_dim(x, i * size, size, -2)
            for x in (left, right))
    return total + _product(jnp.swapaxes(a, -2, -1), b)

  return jax.lax.fori_loop(0, count, add, jnp.zeros(
      (*left.shape[:-2], left.shape[-1], right.shape[-1]), left.dtype))


def _padded(x: Array, rows: int) -> Array:
  """Appends `rows` rows of zeros, which change no Gram matrix."""
  return jnp.pad(x, [(0, 0)] * (x.ndim - 2) + [(0, rows), (0, 0)])


def _terms(rows: int) -> int:
  """Returns the number of additions in an entry of `_transposed_product`."""
  count = -(-rows // _LONGEST_SUM)
  return -(-rows // count) + (count if count > 1 else 0)


def _product(left: Array, right: Array) -> Array:
  # HIGHEST keeps accelerators from rounding the inputs to fewer bits.
  return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)


def _frobenius(parts: tuple[Array, ...]) -> Array:
  return jnp.sqrt(sum(jnp.sum(jnp.square(part), (-2, -1)) for part in parts))


def _repeated_sqrt(x: Array, times: int) -> Array:
  for _ in range(times):
    x = jnp.sqrt(x)
  return x


def _largest_eigenvalue(gram: tuple[Array, ...]) -> Array:
  """Returns the largest eigenvalues of positive semi-definite 2 x 2 matrices.
  """
  first, second = gram[0][..., 0, 0], gram[0][..., 1, 1]
  half_gap = (first - second) / 2
  off = sum(jnp.square(part[..., 0, 1]) for part in gram)
  return (first + second) / 2 + jnp.sqrt(half_gap * half_gap + off)
