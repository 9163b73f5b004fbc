"""Orthogonalises weights, and projects them on a spectral-norm ball."""

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.lipschitz import norms
from dpjax.typing import Array

_UNIT_ROUNDOFF = 2.0**-24


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


def orthogonal_weights(weights: Array, *, weight_norm: float,
                       num_iterations: int) -> tuple[Array, Array]:
  """Returns `weight_norm` times orthogonalised weights, and a norm bound.

  Every singular value ends near `weight_norm`, so a layer with these weights
  changes the length of gradients by this factor only. Item SPEC-08.

  Args:
    weights: [m, n].
    weight_norm: target of all singular values, positive and public.
    num_iterations: steps of `bjorck`.

  Returns:
    (weights, an upper bound of their spectral norm). The bound is not finite
    if an entry is not.
  """
  errors.check_scale('weight_norm', weight_norm)
  scaled = weight_norm * bjorck(weights, num_iterations=num_iterations)
  # Covers the rounding of one step, as in norms.spectral_upper_bound.
  rank, other = sorted(weights.shape)
  margin = 1 + rank * (rank + other + 8) * _UNIT_ROUNDOFF
  # The zero term makes the bound NaN if an entry is not finite.
  return scaled, weight_norm * margin + 0.0 * jnp.sum(scaled)


def project_spectral_ball(weights: Array, radius: Array | float) -> Array:
  """Returns the nearest matrix (Frobenius) with spectral norm <= radius.

  Computes U min(S, radius) V^T by an SVD. Unlike rescaling it changes no
  singular value below `radius`. It is a metric projection and thus firmly
  non-expansive, as Barczewski (2025, Theorem 5.2.3) needs; rescaling is not.
  Items SPEC-10, BIAS-03, erratum E18.

  Args:
    weights: [m, n].
    radius: positive. Rounding may carry the result's norm above it, so
      certify the norm before it enters a sensitivity.

  Returns:
    The unchanged weights if they lie in the ball; NaN if they are not finite.
  """
  left, values, right = jnp.linalg.svd(weights, full_matrices=False)
  shrunk = left * jnp.minimum(values, radius)[None]
  projected = jnp.matmul(shrunk, right, precision=jax.lax.Precision.HIGHEST)
  return jnp.where(values[0] <= radius, weights, projected)
