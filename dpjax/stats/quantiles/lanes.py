"""Running sums that decay, of wide numbers, in lanes side by side.

A sequence of K B numbers is laid out as [K, B], one stretch of K after another
in a lane each: place s is at [s % K, s // K]. A recurrence along the sequence
takes K steps over all lanes at once, B to carry from lane to lane, and K more.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax.stats.quantiles import wide
from dpjax.stats.quantiles.wide import Wide
from dpjax.typing import Array

_LONGEST = 256


class Shape(NamedTuple):
  """Of a layout.

  Attributes:
    steps: K, a power of two.
    lanes: B.
  """
  steps: int
  lanes: int

  @property
  def size(self) -> int:
    """Places, K B."""
    return self.steps * self.lanes


def shape(size: int) -> Shape:
  """A layout for so many places or a few more, about square."""
  steps = min(_LONGEST, 2**((size - 1).bit_length() // 2))
  return Shape(steps, -(-size // steps))


def places(layout: Shape) -> Array:
  """The place [K, B] int32 of each element."""
  return (jnp.arange(layout.steps, dtype=jnp.int32)[:, None]
          + jnp.arange(layout.lanes, dtype=jnp.int32)[None] * layout.steps)


def laid_out(values: Array, layout: Shape) -> Array:
  """A sequence [size or less] as [K, B], with zeros at its end."""
  full = jnp.pad(values, (0, layout.size - values.shape[0]))
  return full.reshape(layout.lanes, layout.steps).T


def at(values: Array, place: Array) -> Array:
  """The elements [...] of [..., K, B] at one place."""
  steps = values.shape[-2]
  return values[..., place % steps, place // steps]


def delayed(numbers: Wide, delay: Array) -> Wide:
  """Elements [..., K, B] of `delay` places before, 0 before the first."""
  zero = wide.zeros(())
  return Wide(_delayed(numbers.mantissa, delay, zero.mantissa),
              _delayed(numbers.exponent, delay, zero.exponent))


def _delayed(values: Array, delay: Array, fill: Array) -> Array:
  *batch, steps, count = values.shape
  delay = jnp.clip(delay, 0, steps * count)
  lanes, rest = delay // steps, delay % steps
  before = jnp.full((*batch, steps, count + 1), fill)
  line = jnp.concatenate([before, values], -1)
  cut = lambda start: jax.lax.dynamic_slice_in_dim(line, start, count, -1)
  both = jnp.concatenate([cut(count - lanes), cut(count + 1 - lanes)], -2)
  return jax.lax.dynamic_slice_in_dim(both, steps - rest, steps, -2)


def decayed_sums(terms: Wide, decay: Wide, starts: Array) -> Wide:
  """y_s = x_s + decay y_(s-1), or x_s at a start; normalised.

  Args:
    terms: x [K, R, B], normalised: R sequences.
    decay: [R], normalised.
    starts: [K, R, B] bool.
  """
  decay = Wide(*(part[:, None] for part in decay))
  nothing = wide.zeros(terms.mantissa.shape[1:])

  def step(carry: Wide, row: tuple[Wide, Array]) -> Wide:
    term, start = row
    moved = wide.where(start, nothing, wide.times(carry, decay))
    return wide.add(term, moved)

  ends, _ = jax.lax.scan(lambda c, row: (step(c, row), None), nothing,
                         (terms, starts))
  entering = _carried(wide.normalised(ends), decay, ~jnp.any(starts, 0),
                      terms.mantissa.shape[0])
  _, found = jax.lax.scan(lambda c, row: (step(c, row),) * 2, entering,
                          (terms, starts))
  return wide.normalised(found)


def _carried(ends: Wide, decay: Wide, whole: Array, steps: int) -> Wide:
  """What enters each lane [R, B], from what would leave those before it."""
  for _ in range(steps.bit_length() - 1):
    decay = wide.normalised(wide.times(decay, decay))
  decay = Wide(*(part[:, 0] for part in decay))
  nothing = wide.zeros(decay.mantissa.shape)

  def lane(carry: Wide, of: tuple[Wide, Array]) -> tuple[Wide, Wide]:
    end, unbroken = of
    moved = wide.where(unbroken, wide.times(carry, decay), nothing)
    return wide.normalised(wide.add(end, moved)), carry

  across = jax.tree.map(lambda part: part.T, (ends, whole))
  _, entering = jax.lax.scan(lane, nothing, across)
  return jax.tree.map(lambda part: part.T, entering)
