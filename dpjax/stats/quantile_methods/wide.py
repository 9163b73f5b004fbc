"""Computes with numbers >= 0 that have their own exponent: no underflow.

A number is mantissa 2^exponent, with a float64 mantissa and an int32 exponent.
Sums of such numbers keep a relative precision of 2^-53 at any distance, as
log-sum-exp does, at a tenth of the time: an addition is a comparison, two
shifts of an exponent and a multiplication. Products and sums move mantissas
away from [1, 2); `normalised` brings them back and must be called every few
hundred steps.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax.typing import Array

# Exponent of zero: the sum of two such exponents does not overflow int32.
_LEAST = -2**28
_BIAS = 1023
_FRACTION_BITS = 52


class Wide(NamedTuple):
  """Numbers >= 0, in arrays of any shape.

  Attributes:
    mantissa: float64, >= 0.
    exponent: int32; -2^28 if the number is 0.
  """
  mantissa: Array
  exponent: Array


def zeros(shape: tuple[int, ...]) -> Wide:
  """Returns zeros of this shape."""
  return Wide(jnp.zeros(shape, jnp.float64),
              jnp.full(shape, _LEAST, jnp.int32))


def normalised(number: Wide) -> Wide:
  """Returns the same numbers with mantissas in [1, 2).

  A mantissa below 2^-1022 counts as 0.
  """
  # Read the exponent's bits and replace them by those of 1: no logarithm.
  bits = jax.lax.bitcast_convert_type(number.mantissa, jnp.int64)
  power = jax.lax.shift_right_logical(bits, jnp.int64(_FRACTION_BITS))
  fraction = bits & jnp.int64(2**_FRACTION_BITS - 1)
  one = jnp.int64(_BIAS << _FRACTION_BITS)
  mantissa = jax.lax.bitcast_convert_type(fraction | one, jnp.float64)
  exponent = number.exponent + power.astype(jnp.int32) - _BIAS
  return where(power > 0, Wide(mantissa, exponent), zeros(mantissa.shape))


def of(values: Array) -> Wide:
  """Converts float64 numbers >= 0 to wide ones."""
  return normalised(Wide(values, jnp.zeros(values.shape, jnp.int32)))


def exp(logs: Array) -> Wide:
  """Returns e^logs for natural logarithms above -10^8; -inf gives 0."""
  finite = jnp.isfinite(logs)
  logs = jnp.where(finite, logs, 0.0)
  # e^log = 2^k e^(log - k ln 2) with a factor in [1, 2), which cannot overflow.
  exponent = jnp.floor(logs / math.log(2))
  number = Wide(jnp.exp(logs - exponent * math.log(2)),
                exponent.astype(jnp.int32))
  return where(finite, normalised(number), zeros(logs.shape))


def log(number: Wide) -> Array:
  """Returns natural logarithms; -inf for 0."""
  positive = number.mantissa > 0
  logs = jnp.log(jnp.where(positive, number.mantissa, 1.0))
  logs = logs + number.exponent.astype(jnp.float64) * math.log(2)
  return jnp.where(positive, logs, -jnp.inf)


def where(condition: Array, one: Wide, other: Wide) -> Wide:
  """Returns elements of `one` where the condition holds, else of `other`."""
  return Wide(jnp.where(condition, one.mantissa, other.mantissa),
              jnp.where(condition, one.exponent, other.exponent))


def add(one: Wide, other: Wide) -> Wide:
  """Returns one + other, not normalised."""
  # The smaller number is shifted; where it falls below 2^-1022 it is lost, at
  # no cost to the relative precision of the sum.
  exponent = jnp.maximum(one.exponent, other.exponent)
  return Wide(one.mantissa * _power_of_two(one.exponent - exponent)
              + other.mantissa * _power_of_two(other.exponent - exponent),
              exponent)


def times(one: Wide, other: Wide) -> Wide:
  """Returns one * other, not normalised."""
  # The bound keeps zeros from overflowing int32 when they are multiplied again.
  return Wide(one.mantissa * other.mantissa,
              jnp.maximum(one.exponent + other.exponent, _LEAST))


def _power_of_two(exponent: Array) -> Array:
  """Returns 2^exponent for int32 exponents <= 0; 0 below 2^-1022."""
  # Built from its bits: a shift, and no call of exp2.
  biased = jnp.maximum(exponent, -_BIAS) + _BIAS
  bits = jax.lax.shift_left(biased.astype(jnp.int64),
                            jnp.int64(_FRACTION_BITS))
  return jax.lax.bitcast_convert_type(bits, jnp.float64)
