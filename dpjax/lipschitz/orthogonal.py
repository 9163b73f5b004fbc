"""Orthogonalises weights by Bjorck's iteration."""

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.lipschitz import norms
from dpjax.typing import Array


def bjorck(weights: Array, *, num_iterations: int) -> Array:
  """Orthogonalises weights by the iteration W <- 3/2 W - 1/2 W W^T W.

  Each singular value s goes to s (3 - s^2) / 2, which is at most 1 on [0, 2].
  The iteration converges to 1 from (0, sqrt(3)) and to -1 from (sqrt(3), 2],
  and diverges beyond sqrt(5). It starts from W over a certified upper bound of
  its norm, so it converges, and the result has norm at most 1 after any
  number of steps, up to the rounding of one step.

  It drives *every* singular value to 1 (small ones grow by 3/2 a step), so it
  cannot keep norms merely small. For a reshaped kernel it bounds the
  matrix, not the convolution. Barczewski (2025, section 5.2.3); item SPEC-08,
  erratum E10.

  Args:
    weights: [m, n]; a zero matrix stays zero.
    num_iterations: number of steps; a singular value of 0.001 of the norm
      needs about 25.
  """
  errors.check_at_least('num_iterations', num_iterations, 1)
  bound = norms.spectral_upper_bound(weights)
  unit = weights / jnp.where(bound == 0, 1.0, bound)
  wide = weights.shape[0] < weights.shape[1]
  # A tall matrix has the smaller Gram matrix A^T A.
  tall = unit.T if wide else unit
  turned = jax.lax.fori_loop(0, num_iterations,
                             lambda _, w: bjorck_step(w), tall)
  return turned.T if wide else turned


def bjorck_step(weights: Array) -> Array:
  """Takes one step of `bjorck` without scaling; norms above 2 may grow.

  If ||W||_2 <= 2, the result has norm at most 1.
  """
  highest = jax.lax.Precision.HIGHEST
  gram = jnp.matmul(weights.T, weights, precision=highest)
  return 1.5 * weights - 0.5 * jnp.matmul(weights, gram, precision=highest)
