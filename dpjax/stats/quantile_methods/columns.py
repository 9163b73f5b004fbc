"""Computes running sums of `Wide` numbers with decay, in parallel columns.

A sequence of K B numbers is laid out as [K, B]: each column holds K consecutive
numbers, so that place s is at [s % K, s // K]. A recurrence along the sequence
takes K steps over all columns at once, then B steps to carry sums from column
to column, and then K more.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax.stats.quantile_methods import wide
from dpjax.stats.quantile_methods.wide import Wide
from dpjax.typing import Array

# The largest K; longer sequences get more columns.
_LONGEST = 256


class Shape(NamedTuple):
  """Shape [K, B] of the layout of a sequence.

  Attributes:
    steps: K, numbers in a column; a power of two.
    columns: B, number of columns.
  """
  steps: int
  columns: int

  @property
  def size(self) -> int:
    """Number of places, K B."""
    return self.steps * self.columns


def shape(size: int) -> Shape:
  """Returns a nearly square layout with at least `size` places."""
  # Time is about 2 K + B steps, so neither side may be much the longer.
  steps = min(_LONGEST, 2**((size - 1).bit_length() // 2))
  return Shape(steps, -(-size // steps))


def places(layout: Shape) -> Array:
  """Returns each element's place in the sequence, [K, B] int32."""
  return (jnp.arange(layout.steps, dtype=jnp.int32)[:, None]
          + jnp.arange(layout.columns, dtype=jnp.int32)[None] * layout.steps)


def laid_out(values: Array, layout: Shape) -> Array:
  """Lays out a sequence of at most K B values as [K, B], padded with zeros."""
  full = jnp.pad(values, (0, layout.size - values.shape[0]))
  return full.reshape(layout.columns, layout.steps).T


def at(values: Array, place: Array) -> Array:
  """Returns the elements [...] of `values` [..., K, B] at one place s."""
  steps = values.shape[-2]
  return values[..., place % steps, place // steps]


def delayed(numbers: Wide, delay: Array) -> Wide:
  """Shifts a sequence [..., K, B] by `delay` places; zeros enter at the start.
  """
  zero = wide.zeros(())
  return Wide(_delayed(numbers.mantissa, delay, zero.mantissa),
              _delayed(numbers.exponent, delay, zero.exponent))


def _delayed(values: Array, delay: Array, fill: Array) -> Array:
  """Shifts values by `delay` places, with `fill` at the start."""
  *batch, steps, columns = values.shape
  delay = jnp.clip(delay, 0, steps * columns)
  whole, steps_left = delay // steps, delay % steps
  before = jnp.full((*batch, steps, columns + 1), fill)
  # Whole columns shift by slicing along columns; the rest of the delay joins
  # two neighbouring columns and slices along steps.
  padded = jnp.concatenate([before, values], -1)
  cut = lambda start: jax.lax.dynamic_slice_in_dim(padded, start, columns, -1)
  pairs = jnp.concatenate([cut(columns - whole), cut(columns + 1 - whole)], -2)
  return jax.lax.dynamic_slice_in_dim(pairs, steps - steps_left, steps, -2)


def decayed_sums(terms: Wide, decay: Wide, starts: Array) -> Wide:
  """Returns y_s = x_s + decay y_(s-1), or x_s where s is a start; normalised.

  Args:
    terms: x [K, R, B], normalised: R sequences.
    decay: [R], normalised.
    starts: [K, R, B] bool, where a sum starts anew.
  """
  decay = Wide(*(part[:, None] for part in decay))
  zero = wide.zeros(terms.mantissa.shape[1:])

  def step(carry: Wide, row: tuple[Wide, Array]) -> Wide:
    term, start = row
    carried = wide.where(start, zero, wide.times(carry, decay))
    return wide.add(term, carried)

  # First pass: the sum at the end of each column, as if none entered it.
  ends, _ = jax.lax.scan(lambda c, row: (step(c, row), None), zero,
                         (terms, starts))
  entering = _carried(wide.normalised(ends), decay, ~jnp.any(starts, 0),
                      terms.mantissa.shape[0])
  # Second pass: the same sums, from what enters each column.
  _, sums = jax.lax.scan(lambda c, row: (step(c, row),) * 2, entering,
                         (terms, starts))
  return wide.normalised(sums)


def _carried(ends: Wide, decay: Wide, whole: Array, steps: int) -> Wide:
  """Returns the sums [R, B] that enter each column from those before it.

  Args:
    ends: [R, B] sums at the end of each column, if 0 entered it.
    decay: [R, 1].
    whole: [R, B], True for a column in which no sum starts anew.
    steps: K.
  """
  # decay^steps by repeated squaring: steps is a power of two.
  for _ in range(steps.bit_length() - 1):
    decay = wide.normalised(wide.times(decay, decay))
  decay = Wide(*(part[:, 0] for part in decay))
  zero = wide.zeros(decay.mantissa.shape)

  def column(carry: Wide, row: tuple[Wide, Array]) -> tuple[Wide, Wide]:
    end, unbroken = row
    # A start within the column cuts off whatever entered it.
    carried = wide.where(unbroken, wide.times(carry, decay), zero)
    return wide.normalised(wide.add(end, carried)), carry

  by_column = jax.tree.map(lambda part: part.T, (ends, whole))
  _, entering = jax.lax.scan(column, zero, by_column)
  return jax.tree.map(lambda part: part.T, entering)
