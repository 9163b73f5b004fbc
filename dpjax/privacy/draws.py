"""Noise samplers with fine tails, for mechanisms with a pure guarantee.

Each draw uses a 63-bit probability and a sign. So the omitted outcomes have
probability 2^-64, and every point on the output grids of this package remains
possible (`additive` explains why this matters). Values have the relative
rounding error of their dtype, float32 by default. Every sampler takes a key
that is used for nothing else.
"""

import math

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.privacy import additive
from dpjax.typing import Array, PRNGKey


def _tails(key: PRNGKey, shape: tuple[int, ...],
           dtype: jnp.dtype = jnp.float32) -> tuple[Array, Array]:
  """Draws uniform numbers on (0, 1/2), finest near 0, and fair coins."""
  high, low = additive.random_words(key, (2, *shape))
  # 32 high bits and 31 low bits, of weights 2^-33 and 2^-64. The low bits
  # matter near 0 only, where the dtype resolves them.
  rest = jax.lax.shift_right_logical(low, jnp.uint32(1)).astype(dtype)
  tail = (high.astype(dtype) * jnp.asarray(2.0**-33, dtype) +
          (rest + 0.5) * jnp.asarray(2.0**-64, dtype))
  return tail, low % 2 == 1


def place_of_largest(noisy: Array) -> Array:
  """Returns the first index [...] of the maximum over the last axis, int32.

  Uses two passes: argmax fused with draws runs element by element in XLA for
  CPUs, three times as long.
  """
  places = jnp.arange(noisy.shape[-1], dtype=jnp.int32)
  matches = is_largest(noisy, jnp.max(noisy, -1, keepdims=True))
  return jnp.min(jnp.where(matches, places, places.size - 1), -1)


def is_largest(noisy: Array, top: Array) -> Array:
  """Returns whether values equal the maximum, up to a few roundings.

  XLA may recompute the draws in the pass that compares, and round differently
  than in the pass that found `top`. An exact comparison could then match
  nothing.
  """
  slack = 16 * float(jnp.finfo(noisy.dtype).eps)
  return noisy >= top - slack * (1 + jnp.abs(top))


def standard_exponential(key: PRNGKey, shape: tuple[int, ...],
                         dtype: jnp.dtype = jnp.float32) -> Array:
  """Draws exponential numbers of mean 1, fine near 0 and up to 45."""
  tail, lower = _tails(key, shape, dtype)
  # log1p keeps full relative precision for draws near 0.
  return jnp.where(lower, -jnp.log1p(-tail), -jnp.log(tail))


def standard_laplace(key: PRNGKey, shape: tuple[int, ...],
                     dtype: jnp.dtype = jnp.float32) -> Array:
  """Draws numbers of density exp(-|x|) / 2, up to 44 on either side."""
  tail, negative = _tails(key, shape, dtype)
  magnitude = -jnp.log(2 * tail)
  return jnp.where(negative, -magnitude, magnitude)


def discrete_laplace(key: PRNGKey, shape: tuple[int, ...],
                     scale: Array | float,
                     dtype: jnp.dtype = jnp.float32) -> Array:
  """Draws integers of weights exp(-|z| / scale), for any scale; as floats.

  An exponential draw, rounded down, is geometric; the difference of two has
  this distribution up to the rounding of `dtype`. Its sum with an integer is an
  integer, so no low-order bits leak. `integers.discrete_laplace` has the exact
  distribution.
  """
  geometric = jnp.floor(jnp.asarray(scale, dtype) * standard_exponential(
      key, (2, *shape), dtype))
  return geometric[0] - geometric[1]


def discrete_laplace_variance(scale: float) -> float:
  """Returns the variance 2 a / (1 - a)^2, a = exp(-1/scale), < 2 scale^2."""
  rate = 1 / errors.check_positive('scale', scale)
  return 2 * math.exp(-rate) / math.expm1(-rate)**2


def standard_gumbel(key: PRNGKey, shape: tuple[int, ...],
                    dtype: jnp.dtype = jnp.float32) -> Array:
  """Draws Gumbel numbers, P(X <= x) = exp(-exp(-x)), between -3.9 and 45."""
  return -jnp.log(standard_exponential(key, shape, dtype))


def standard_cauchy(key: PRNGKey, shape: tuple[int, ...]) -> Array:
  """Draws numbers of density 1 / (pi (1 + x^2)), up to 5.9e18 either side."""
  tail, negative = _tails(key, shape)
  # The quantile function for tail probabilities, precise far in the tail.
  magnitude = 1 / jnp.tan(jnp.pi * tail)
  return jnp.where(negative, -magnitude, magnitude)


def standard_gamma(key: PRNGKey, count: int) -> Array:
  """Draws one number of density x^(count-1) e^-x, up to a constant.

  It is a sum of `count` exponential numbers.
  """
  errors.check_at_least('count', count, 1)
  return jnp.sum(standard_exponential(key, (count,)))


def standard_uniform(key: PRNGKey, shape: tuple[int, ...]) -> Array:
  """Draws uniform numbers on [-1, 1], finest near 0."""
  tail, negative = _tails(key, shape)
  return jnp.where(negative, -2 * tail, 2 * tail)


def standard_direction(key: PRNGKey, size: int) -> Array:
  """Draws one unit vector [size], uniform on the Euclidean sphere."""
  normals = additive.standard_normal(key, (size,))
  # A normal vector has a uniform direction; the floor avoids 0 / 0.
  norm = jnp.sqrt(jnp.sum(jnp.square(normals)))
  return normals / jnp.maximum(norm, jnp.float32(1e-30))
