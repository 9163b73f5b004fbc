"""Exact sums of bounded contributions of records.

A sum in floating point is rounded, and what is rounded off one record depends
on all others. So contributions are rounded first, each towards zero to a
multiple of 2^-24, and summed as integers.
"""

from collections.abc import Callable
import functools

import jax
import jax.numpy as jnp

from dpjax.typing import Array

MOST_RECORDS = 2**22
"""Sums of more integers, each at most 2^8, may not fit into 32 bits."""
_ROUNDING = 2.0**-24
_BLOCK = 128


def clipped(values: Array, bound: float | Array) -> Array:
  """Returns rows [n, c] clipped to l2 norm `bound`, divided by `bound`.

  Their norm is at most 1 in spite of rounding. An entry that is not finite
  counts as 0, and so does a row whose squared norm is not.
  """
  finite = jnp.where(jnp.isfinite(values), values, 0)
  norms = jnp.linalg.norm(finite, axis=1, keepdims=True)
  # A norm of c numbers has a relative error of at most (c + 3) / 2 roundings,
  # and a handful more follow.
  shrink = 1 - (values.shape[1] + 8) * _ROUNDING
  return finite * (shrink / jnp.maximum(norms, bound))


def exact_sum(values: Array) -> Array:
  """Returns the sum over axis 0 of values in [-1, 1], truncated to 2^-24.

  Args:
    values: [n, ...] with n at most `MOST_RECORDS`.
  """
  return _joined(_parts(values))


@functools.partial(jax.jit, static_argnums=0)
def exact_sum_of(contribution: Callable[..., Array], x: Array,
                 *given: Array) -> Array:
  """Returns the exact sum of the contributions of records.

  Args:
    contribution: (records [b, ...], *given) -> contributions [b, m] in [-1, 1];
      that of a record of zeros must be zero.
    x: records [n, ...], n at most `MOST_RECORDS`; mapped in blocks.
    *given: public arrays.
  """
  blocks = -(-x.shape[0] // _BLOCK)
  padded = jnp.pad(x, [(0, blocks * _BLOCK - x.shape[0])] + [(0, 0)] * (
      x.ndim - 1)).reshape(blocks, _BLOCK, *x.shape[1:])
  shape = jax.eval_shape(contribution, jax.ShapeDtypeStruct(
      (_BLOCK, *x.shape[1:]), x.dtype), *given).shape[1:]
  total, _ = jax.lax.scan(
      lambda total, block: (total + _parts(contribution(block, *given)), None),
      jnp.zeros((3, *shape), jnp.int32), padded)
  return _joined(total)


def _parts(values: Array) -> Array:
  """Returns three sums of integers, of 8 bits of each value: [3, ...].

  The integers come from steps that are exact in float32.
  """
  parts, rest = [], values
  for _ in range(3):
    whole = jnp.trunc(rest * 256)
    rest = rest * 256 - whole
    parts.append(jnp.sum(whole.astype(jnp.int32), axis=0))
  return jnp.stack(parts)


def _joined(parts: Array) -> Array:
  """Returns the value of sums of `_parts`, rounded to float32."""
  high, middle, low = parts.astype(jnp.float32)
  return high * 256.0**-1 + middle * 256.0**-2 + low * 256.0**-3
