"""Spectral norms: estimates from below, certified bounds from above.

Only an upper bound may enter a sensitivity. Power iteration converges from
below, so noise scaled by it is too small; it is here to watch a run with.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax import floats
from dpjax.typing import Array

_UNIT_ROUNDOFF = 2.0**-24
# Of the squared Frobenius norm in _schatten, as a natural logarithm.
_LOG_RANGE = 80


def power_iteration(weights: Array, start: Array, *,
                    num_iterations: int) -> tuple[Array, Array]:
  """A *lower* bound of the spectral norm, and the vector that attains it.

  Args:
    weights: [m, n].
    start: [n], not orthogonal to the leading right singular vector.
    num_iterations: at least 1.

  Returns:
    (||W v||, v) with v a unit vector after `num_iterations` rounds of
    v <- W^T W v / ||W^T W v||. Source: thesis 003, section 5.2.3.
  """
  errors.check_at_least('num_iterations', num_iterations, 1)

  def turn(_, vector):
    image = weights.T @ (weights @ vector)
    return image / jnp.maximum(jnp.linalg.norm(image), 1e-30)

  vector = jax.lax.fori_loop(0, num_iterations, turn, start)
  return jnp.linalg.norm(weights @ vector), vector


def exact_upper_bound(weights: np.ndarray) -> float:
  """The spectral norm by float64 SVD on the host, rounded up."""
  matrix = np.asarray(weights, np.float64)
  return float(np.linalg.norm(matrix, 2)) * (1 + 1e-10)


def spectral_upper_bound(weights: Array, *, num_iterations: int = 6,
                         any_scale: bool = True) -> Array:
  """A certified upper bound of the spectral norm, jittable, float32.

  Gram iteration (Delattre et al. 2023): with G_0 = W, G_{i+1} = G_i^T G_i, the
  bound ||G_t||_F^(1/2^t) is the Schatten norm of order 2^(t+1), so that

    ||W||_2 <= bound <= r^(1/2^(t+1)) ||W||_2,  r = min(m, n).

  Two columns or rows, as in a binary classifier's last layer, have a closed
  form. Rounding is covered: each float32 product loses at most a factor
  1 - gamma r of the leading singular value, gamma = (inner size) 2^-24, of
  which the 2^i-th root is taken.

  Args:
    weights: [m, n].
    num_iterations: t; 6 is at most r^(1/128), 2.7 % for r = 30.
    any_scale: False saves a pass for weights known to be of ordinary size: the
      result is then a bound of norms above 1e-8 only, and NaN above 1e8.

  Returns:
    A scalar, NaN or infinite if an entry is: what cannot be bounded must not
    look small.
  """
  errors.check_at_least('num_iterations', num_iterations, 1)
  rank = min(weights.shape)
  margin = 1 + rank * (sum(weights.shape) + 8) * _UNIT_ROUNDOFF
  unit, scale = weights, jnp.float32(1)
  if any_scale:
    # The largest entry to [1, 4), or squares of tiny or huge ones are lost.
    scale = floats.power_of_two_below(jnp.max(jnp.abs(weights)))
    unit = weights * floats.inverse_power_of_two(scale)
  if rank == 1:
    return scale * (margin * jnp.sqrt(jnp.sum(jnp.square(unit))))
  tall = unit if weights.shape[0] >= weights.shape[1] else unit.T
  gram = _product(tall.T, tall)
  if rank == 2:
    return scale * (margin * jnp.sqrt(_largest_eigenvalue(gram)))
  return scale * (margin * _schatten(gram, rank, num_iterations))


def _schatten(gram: Array, rank: int, num_iterations: int) -> Array:
  """||gram^(2^(t-1))||_F^(1/2^t), by squarings.

  Divided by its Frobenius norm over rank^(1/4), a Gram matrix has its leading
  eigenvalue in [rank^(-1/4), rank^(1/4)]; it is done again before squarings
  could carry that out of float32's range.
  """
  center = rank**0.25
  apart = max(1, int(math.log2(_LOG_RANGE / math.log(rank))) + 1)
  bound = jnp.float32(1)
  for squarings in range(num_iterations):
    if squarings:
      gram = _product(gram, gram)
    last = squarings == num_iterations - 1
    if last or squarings % apart == 0:
      size = jnp.sqrt(jnp.sum(jnp.square(gram)))
      if not last:
        size = jnp.maximum(size / center, 1e-18)
        gram = gram / size
      bound = bound * _repeated_sqrt(size, squarings + 1)
  return bound


def _product(left: Array, right: Array) -> Array:
  # HIGHEST keeps accelerators from rounding the inputs to fewer bits.
  return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)


def _repeated_sqrt(x: Array, times: int) -> Array:
  for _ in range(times):
    x = jnp.sqrt(x)
  return x


def _largest_eigenvalue(gram: Array) -> Array:
  """Of a symmetric positive semi-definite [2, 2] matrix, in closed form."""
  half_sum = (gram[0, 0] + gram[1, 1]) / 2
  half_gap = (gram[0, 0] - gram[1, 1]) / 2
  return half_sum + jnp.sqrt(half_gap * half_gap + gram[0, 1] * gram[0, 1])
