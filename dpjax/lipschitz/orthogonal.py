"""Orthogonal weights: by Bjorck's iteration, or kept so by one step of it."""

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.lipschitz import norms
from dpjax.typing import Array, PRNGKey

_STEPS_FROM_RANDOM = 40
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


def random_orthogonal(key: PRNGKey, shape: tuple[int, int],
                      dtype: jax.typing.DTypeLike = jnp.float32) -> Array:
  """Draws a matrix with orthonormal columns, or rows if these are fewer.

  The distribution does not change under rotations. It takes matrix products
  alone: programs for CPUs that compute several QR decompositions, as for the
  layers of several runs at once, can wait for each other for ever.

  Args:
    key: key of the draw.
    shape: (m, n), numbers of rows and columns.
    dtype: type of the entries.
  """
  gaussian = jax.random.normal(key, shape, jnp.float32)
  # A square Gaussian matrix may have a singular value of 1e-4 of its norm,
  # which grows by 3/2 a step.
  return bjorck(gaussian, num_iterations=_STEPS_FROM_RANDOM).astype(dtype)


def retract(weights: Array, *, num_steps: int = 1) -> tuple[Array, Array]:
  """Moves weights towards the nearest orthogonal ones, and bounds their norm.

  One step costs two matrix products, and the norm needs no other: after a step
  from ||W||_2 <= 2 it is at most 1. That premise is certified by the Gram
  matrix of the step, as ||W||_2^2 <= 1 + ||W^T W - I||_F; weights for which
  this exceeds 4 are scaled down first. From singular values 1 + e the step
  leads to 1 - 3/2 e^2 or closer, so that orthogonal weights stay nearly so when
  noise moves them a little in each step of training. To first order in the
  noise it removes the part that is normal to the orthogonal matrices, half of
  its energy if W is square.

  Args:
    weights: [m, n] float32; its rows or columns, the fewer, become orthonormal.
    num_steps: number of steps, at least 1.

  Returns:
    (weights, bound): the bound of their spectral norm covers the rounding of
    float32, and is NaN if an entry is not finite. A zero matrix stays zero.
  """
  errors.check_at_least('num_steps', num_steps, 1)
  wide = weights.shape[0] < weights.shape[1]
  tall = weights.T if wide else weights
  for _ in range(num_steps):
    tall, bound = _retracted(tall)
  return tall.T if wide else tall, bound


def _retracted(tall: Array) -> tuple[Array, Array]:
  """Returns a step of `retract` from [m, n], m >= n, and a bound of its norm.

  Let f be ||W||_F^2 and u the unit roundoff. A sum of k products has an error
  of at most (k + 8) u times the sum of their absolute values. So the Gram
  matrix G has an error of norm at most (m + 8) u f, and the product W G one of
  at most (n + 8) u sqrt(f) ||G||_F. The result is 3/2 W - 1/2 W G with
  ||W||_2 <= 2, so its error is at most the former and half of the latter;
  16 u sqrt(f) covers the scaling and the last sum.
  """
  highest = jax.lax.Precision.HIGHEST
  rows, columns = tall.shape
  # Covers the rounding of traces, of sums of n^2 squares, and of what follows.
  margin = 1 + (columns**2 + rows + 64) * _UNIT_ROUNDOFF
  gram = jnp.matmul(tall.T, tall, precision=highest)
  energy = jnp.trace(gram) * margin
  of_gram = (rows + 8) * _UNIT_ROUNDOFF
  excess = jnp.sqrt(jnp.sum(jnp.square(gram - jnp.eye(columns)))) * margin
  # Below 2 by more than the rounding of the root and of the scaling.
  scale = jnp.minimum(1.0, 1.99 / jnp.sqrt(1 + excess + of_gram * energy))
  tall, gram, energy = tall * scale, gram * scale**2, energy * scale**2
  stepped = 1.5 * tall - 0.5 * jnp.matmul(tall, gram, precision=highest)
  size = jnp.sqrt(jnp.sum(jnp.square(gram))) * margin
  root = jnp.sqrt(energy)
  error = of_gram * energy + _UNIT_ROUNDOFF * root * (
      (columns + 8) * size / 2 + 16)
  return stepped, 1 + error * margin


def bjorck_step(weights: Array) -> Array:
  """Takes one step of `bjorck` without scaling; norms above 2 may grow.

  If ||W||_2 <= 2, the result has norm at most 1.
  """
  highest = jax.lax.Precision.HIGHEST
  gram = jnp.matmul(weights.T, weights, precision=highest)
  return 1.5 * weights - 0.5 * jnp.matmul(weights, gram, precision=highest)
