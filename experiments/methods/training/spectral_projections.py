"""Projects weights on a spectral-norm ball, or makes them orthogonal."""

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.lipschitz import orthogonal
from dpjax.typing import Array

_UNIT_ROUNDOFF = 2.0**-24


def orthogonal_weights(weights: Array, *, weight_norm: float,
                       num_iterations: int) -> tuple[Array, Array]:
  """Returns `weight_norm` times orthogonalised weights, and a norm bound.

  Every singular value ends near `weight_norm`, so a layer with these weights
  changes the length of gradients by this factor only. Item SPEC-08.

  Args:
    weights: weight matrix, [m, n].
    weight_norm: target of all singular values, positive and public.
    num_iterations: steps of `orthogonal.bjorck`.

  Returns:
    (weights, an upper bound of their spectral norm). The bound is not finite
    if an entry is not.
  """
  errors.check_scale('weight_norm', weight_norm)
  scaled = weight_norm * orthogonal.bjorck(
      weights, num_iterations=num_iterations)
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
    weights: weight matrix, [m, n].
    radius: positive. Rounding may carry the result's norm above it, so
      certify the norm before it enters a sensitivity.

  Returns:
    The unchanged weights if they lie in the ball; NaN if they are not finite.
  """
  left, values, right = jnp.linalg.svd(weights, full_matrices=False)
  shrunk = left * jnp.minimum(values, radius)[None]
  projected = jnp.matmul(shrunk, right, precision=jax.lax.Precision.HIGHEST)
  return jnp.where(values[0] <= radius, weights, projected)
