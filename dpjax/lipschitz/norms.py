"""Spectral norms: estimates from below, certified bounds from above.

Only an upper bound may enter a sensitivity. Power iteration converges from
below, so noise scaled by it is too small; it is here to watch a run with.
"""

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.typing import Array

_UNIT_ROUNDOFF = 2.0**-24
_SQUARINGS = 3


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


def spectral_upper_bound(weights: Array, *, num_iterations: int = 6) -> Array:
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
  """
  errors.check_at_least('num_iterations', num_iterations, 1)
  tall = weights if weights.shape[0] >= weights.shape[1] else weights.T
  rank = tall.shape[1]
  # The largest entry first, or the squares of tiny or huge weights are lost.
  # A NaN is kept a NaN: what cannot be bounded must not look like zero.
  largest = jnp.max(jnp.abs(tall))
  unit = tall / jnp.where(largest == 0, 1.0, largest)
  frobenius = jnp.linalg.norm(unit)
  unit = unit / jnp.where(largest == 0, 1.0, frobenius)
  margin = 1 + rank * (sum(tall.shape) + 8) * _UNIT_ROUNDOFF
  scale = largest * (frobenius * margin)
  if rank == 1:
    return scale
  gram = _product(unit.T, unit)
  if rank == 2:
    return scale * jnp.sqrt(_largest_eigenvalue(gram))
  log_bound = jnp.zeros([], gram.dtype)
  for power in range(1, num_iterations + 1):
    # Normalised now and then: three squarings shrink the leading singular
    # value of a matrix of unit Frobenius norm to rank^-4 at worst.
    if power % _SQUARINGS == 0 or power == num_iterations:
      size = jnp.maximum(jnp.linalg.norm(gram), 1e-37)
      log_bound = log_bound + jnp.log(size) / 2**power
      gram = gram / size
    if power < num_iterations:
      gram = _product(gram, gram)
  return scale * jnp.exp(log_bound)


def _product(left: Array, right: Array) -> Array:
  # HIGHEST keeps accelerators from rounding the inputs to fewer bits.
  return jnp.matmul(left, right, precision=jax.lax.Precision.HIGHEST)


def _largest_eigenvalue(gram: Array) -> Array:
  """Of a symmetric positive semi-definite [2, 2] matrix, in closed form."""
  half_sum = (gram[0, 0] + gram[1, 1]) / 2
  half_gap = (gram[0, 0] - gram[1, 1]) / 2
  return half_sum + jnp.hypot(half_gap, gram[0, 1])
