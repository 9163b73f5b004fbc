"""Draws with fine tails, for noise that must keep a pure guarantee.

One 63-bit probability and a sign for each draw, so that what cannot be drawn
has probability 2^-64 and, on the grids of this room, everything else can (see
`additive` for why). Values have the relative rounding of their dtype: float32
unless asked for.
"""

import math

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.privacy import additive
from dpjax.typing import Array, PRNGKey


def _tails(key: PRNGKey, shape: tuple[int, ...],
           dtype: jnp.dtype = jnp.float32) -> tuple[Array, Array]:
  """Uniform on (0, 1/2), finest near 0, and an independent fair coin."""
  high, low = additive.random_words(key, (2, *shape))
  rest = jax.lax.shift_right_logical(low, jnp.uint32(1)).astype(dtype)
  tail = (high.astype(dtype) * jnp.asarray(2.0**-33, dtype) +
          (rest + 0.5) * jnp.asarray(2.0**-64, dtype))
  return tail, low % 2 == 1


def place_of_largest(noisy: Array) -> Array:
  """The first place [...] of the largest of [..., m], int32.

  By two passes: fused with draws, the argmax of XLA for CPUs takes them one by
  one, three times as long.
  """
  places = jnp.arange(noisy.shape[-1], dtype=jnp.int32)
  found = is_largest(noisy, jnp.max(noisy, -1, keepdims=True))
  return jnp.min(jnp.where(found, places, places.size - 1), -1)


def is_largest(noisy: Array, top: Array) -> Array:
  """Whether values are the largest, but for a few roundings.

  The pass that compares may draw anew and round otherwise than the one that
  found `top`; what is compared exactly is then not found.
  """
  slack = 16 * float(jnp.finfo(noisy.dtype).eps)
  return noisy >= top - slack * (1 + jnp.abs(top))


def standard_exponential(key: PRNGKey, shape: tuple[int, ...],
                         dtype: jnp.dtype = jnp.float32) -> Array:
  """Exponential draws of mean 1; as fine near 0 as in the tail, up to 45."""
  tail, lower = _tails(key, shape, dtype)
  return jnp.where(lower, -jnp.log1p(-tail), -jnp.log(tail))


def standard_laplace(key: PRNGKey, shape: tuple[int, ...],
                     dtype: jnp.dtype = jnp.float32) -> Array:
  """Draws of density exp(-|x|) / 2, up to 44 on either side."""
  tail, negative = _tails(key, shape, dtype)
  magnitude = -jnp.log(2 * tail)
  return jnp.where(negative, -magnitude, magnitude)


def discrete_laplace(key: PRNGKey, shape: tuple[int, ...],
                     scale: Array | float,
                     dtype: jnp.dtype = jnp.float32) -> Array:
  """Whole numbers of weights exp(-|z| / scale), of any scale; as floats.

  An exponential draw, rounded down, is geometric, and the difference of two
  has this law up to the rounding of `dtype`. A sum with integers is an integer:
  it has no lower bits. `integers.discrete_laplace` has the law to the last bit.
  """
  whole = jnp.floor(jnp.asarray(scale, dtype) * standard_exponential(
      key, (2, *shape), dtype))
  return whole[0] - whole[1]


def discrete_laplace_variance(scale: float) -> float:
  """2 a / (1 - a)^2 with a = exp(-1 / scale), below 2 scale^2."""
  rate = 1 / errors.check_positive('scale', scale)
  return 2 * math.exp(-rate) / math.expm1(-rate)**2


def standard_gumbel(key: PRNGKey, shape: tuple[int, ...],
                    dtype: jnp.dtype = jnp.float32) -> Array:
  """Draws of distribution exp(-exp(-x)), between -3.9 and 45."""
  return -jnp.log(standard_exponential(key, shape, dtype))


def standard_cauchy(key: PRNGKey, shape: tuple[int, ...]) -> Array:
  """Draws of density 1 / (pi (1 + x^2)), up to 5.9e18 on either side."""
  tail, negative = _tails(key, shape)
  magnitude = 1 / jnp.tan(jnp.pi * tail)
  return jnp.where(negative, -magnitude, magnitude)


def standard_gamma(key: PRNGKey, count: int) -> Array:
  """One draw of density x^(count-1) e^-x: a sum of `count` exponentials."""
  errors.check_at_least('count', count, 1)
  return jnp.sum(standard_exponential(key, (count,)))


def standard_uniform(key: PRNGKey, shape: tuple[int, ...]) -> Array:
  """Draws of the uniform distribution on [-1, 1], finest near 0."""
  tail, negative = _tails(key, shape)
  return jnp.where(negative, -2 * tail, 2 * tail)


def standard_direction(key: PRNGKey, size: int) -> Array:
  """One unit vector [size], uniform on the Euclidean sphere."""
  normals = additive.standard_normal(key, (size,))
  norm = jnp.sqrt(jnp.sum(jnp.square(normals)))
  return normals / jnp.maximum(norm, jnp.float32(1e-30))
