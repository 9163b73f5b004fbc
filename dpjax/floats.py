"""Exact powers of two: scales that cost no rounding error."""

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.typing import Array

# Of NumPy: importing must not start a backend, which many processes do later.
_EXPONENT = np.uint32(0xFF << 23)
_LARGEST = np.uint32(253 << 23)

SMALLEST_NORMAL = 2.0**-126
"""The least positive float32 that no processor takes for 0.

A product that is smaller may be computed as 0, so a sum of k products is too
small by at most k times this, beside its rounding.
"""


def power_of_two_below(x: Array | float) -> Array:
  """The largest power of two <= x, float32, at most 2^126.

  From the exponent bits, which fuses into what uses it. Zero, and what is too
  small for a normal float32 number, gives 0; NaN gives 2^126.

  Args:
    x: >= 0, any shape.
  """
  bits = jax.lax.bitcast_convert_type(jnp.asarray(x, jnp.float32), jnp.uint32)
  return _from_bits(jnp.minimum(bits & _EXPONENT, _LARGEST))


def inverse_power_of_two(power: Array) -> Array:
  """1 / power for a result of `power_of_two_below`; 2^127 for 0."""
  bits = jax.lax.bitcast_convert_type(power, jnp.uint32)
  return _from_bits(jnp.uint32(254 << 23) - bits)


def _from_bits(bits: Array) -> Array:
  return jax.lax.bitcast_convert_type(bits, jnp.float32)
