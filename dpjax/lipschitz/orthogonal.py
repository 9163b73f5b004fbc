"""Making weights orthogonal, and projecting them on a spectral ball."""

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.lipschitz import norms
from dpjax.typing import Array

_UNIT_ROUNDOFF = 2.0**-24


def bjorck(weights: Array, *, num_iterations: int) -> Array:
  """Iterates W <- 3/2 W - 1/2 W W^T W, from W over a certified norm.

  Each singular value s goes to s (3 - s^2) / 2, which is at most 1 on [0, 2]
  and tends to 1 from (0, sqrt(3)), to -1 from (sqrt(3), 2], and diverges
  beyond sqrt(5). Dividing by an upper bound of the norm first keeps the
  iteration where it converges, and the result has norm at most 1, up to the
  rounding of one step, after any number of steps. It drives *every* singular
  value to 1, a small one by a factor of 3/2 a step: it cannot be used to keep
  norms merely small, and of a reshaped kernel it bounds the matrix, not the
  convolution. Source: thesis 003, section 5.2.3; item SPEC-08, erratum E10.

  Args:
    weights: [m, n]; a zero matrix stays zero.
    num_iterations: a value of 0.001 needs about 25.
  """
  errors.check_at_least('num_iterations', num_iterations, 1)
  bound = norms.spectral_upper_bound(weights)
  unit = weights / jnp.where(bound == 0, 1.0, bound)
  wide = weights.shape[0] < weights.shape[1]
  tall = unit.T if wide else unit
  turned = jax.lax.fori_loop(0, num_iterations,
                             lambda _, w: bjorck_step(w), tall)
  return turned.T if wide else turned


def bjorck_step(weights: Array) -> Array:
  """One step of `bjorck`, unguarded: norms above 2 may grow.

  Free certificate: if ||W||_2 <= 2 the result has norm at most 1.
  """
  highest = jax.lax.Precision.HIGHEST
  gram = jnp.matmul(weights.T, weights, precision=highest)
  return 1.5 * weights - 0.5 * jnp.matmul(weights, gram, precision=highest)


def orthogonal_weights(weights: Array, *, weight_norm: float,
                       num_iterations: int) -> tuple[Array, Array]:
  """`weight_norm` times `bjorck` of the weights, and its certificate.

  Every singular value ends near `weight_norm`, so a layer made of them keeps
  the lengths of gradients. Source: SPEC-08.

  Args:
    weights: [m, n].
    weight_norm: target of all singular values, public.
    num_iterations: of `bjorck`.

  Returns:
    (weights, an upper bound of their spectral norm), the bound not finite if
    an entry is not.
  """
  errors.check_scale('weight_norm', weight_norm)
  made = weight_norm * bjorck(weights, num_iterations=num_iterations)
  # Rounding of one step, from below norm 2: as in norms.spectral_upper_bound.
  rank, other = sorted(weights.shape)
  margin = 1 + rank * (rank + other + 8) * _UNIT_ROUNDOFF
  # Zero times what is not finite is NaN.
  return made, weight_norm * margin + 0.0 * jnp.sum(made)


def project_spectral_ball(weights: Array, radius: Array | float) -> Array:
  """The nearest matrix in Frobenius norm with spectral norm <= radius.

  U min(S, radius) V^T by an SVD. Unlike rescaling it moves no singular value
  that is small enough, and it is a metric projection: firmly non-expansive,
  which the convergence theorem of thesis 003 (5.2.3) needs and rescaling is
  not. Source: item SPEC-10, BIAS-03, erratum E18.

  Args:
    weights: [m, n].
    radius: positive. The result's norm may exceed it by rounding; certify it
      before it enters a sensitivity.

  Returns:
    The weights themselves where they lie in the ball; NaN for what is not
    finite.
  """
  left, values, right = jnp.linalg.svd(weights, full_matrices=False)
  shrunk = left * jnp.minimum(values, radius)[None]
  projected = jnp.matmul(shrunk, right, precision=jax.lax.Precision.HIGHEST)
  return jnp.where(values[0] <= radius, weights, projected)
