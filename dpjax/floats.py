"""Exact powers of two, by which scaling adds no rounding error."""

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.typing import Array

# NumPy, not JAX: importing this module must not start a JAX backend, because
# programs may choose it or fork processes later.
_EXPONENT = np.uint32(0xFF << 23)
# The bits of 2^126, the largest power whose inverse is a normal number.
_LARGEST = np.uint32(253 << 23)

SMALLEST_NORMAL = 2.0**-126
"""The least positive float32 that no processor flushes to 0.

A smaller product may be computed as 0. So a sum of k non-negative products is
too small by at most k times this number, in addition to its rounding error.
"""


def power_of_two_below(x: Array | float) -> Array:
  """Returns the largest power of two <= x, float32, at most 2^126.

  Computed by masking the exponent bits, an elementwise operation that XLA fuses
  with the code around it. Zero and subnormal float32 numbers give 0; NaN gives
  2^126.

  Args:
    x: >= 0, any shape.
  """
  bits = jax.lax.bitcast_convert_type(jnp.asarray(x, jnp.float32), jnp.uint32)
  return _from_bits(jnp.minimum(bits & _EXPONENT, _LARGEST))


def inverse_power_of_two(power: Array) -> Array:
  """Returns 1 / power exactly, for a result of `power_of_two_below`.

  Zero gives 2^127.
  """
  bits = jax.lax.bitcast_convert_type(power, jnp.uint32)
  return _from_bits(jnp.uint32(254 << 23) - bits)


def _from_bits(bits: Array) -> Array:
  """Returns the float32 numbers with these uint32 bits."""
  return jax.lax.bitcast_convert_type(bits, jnp.float32)
