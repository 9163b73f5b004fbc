"""How a binary hierarchy over rows is laid out for passes up and down it.

Vertices 0, ..., N lie between rows; those in the middle of the nodes of a level
are handled at once. Rows are filled up to a power of two, 2^L: vertices from N
on are one vertex, kept at the place 2^L.

Levels of many nodes are written out, in the order of reversed bits: left and
right halves of nodes are then halves of arrays. The levels of `WIDTH` nodes and
fewer run in a loop, in plain order and filled up to one size: every level that
is written out takes half a second to compile.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.typing import Array

WIDTH = 256

ENDS = ('equal', 'at_most', 'free')
"""What the last rank is: the total, no more than that, or anything."""


class Layout(NamedTuple):
  """Vertices in the middle of nodes, by level from the leaves up.

  Attributes:
    size: N.
    below: of levels that are written out, int32 [M / 2] each for M nodes.
    above: of those in the loop, int32 [levels, width / 2]; -1 fills up.
  """
  size: int
  below: tuple[np.ndarray, ...]
  above: np.ndarray

  @property
  def depth(self) -> int:
    """L."""
    return len(self.below) + len(self.above)

  @property
  def width(self) -> int:
    """Nodes of the lowest level in the loop."""
    return 2 * self.above.shape[1]

  def parts(self, values: Array) -> tuple[tuple[Array, ...], Array, Array]:
    """Values of all vertices, [2^L + 1], by `below`, `above` and the ends."""
    filled = jnp.where(self.above < 0, jnp.zeros([], values.dtype),
                       values[np.maximum(self.above, 0)])
    return (tuple(values[place] for place in self.below), filled,
            values[np.array([0, 1 << self.depth])])

  def joined(self) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Which of them are one with vertex N."""
    return (tuple(place >= self.size for place in self.below),
            self.above >= self.size)

  def together(self, below: tuple[Array, ...], above: Array,
               ends: Array) -> Array:
    """Values of vertices 0, ..., N - 1, from parts."""
    places = np.concatenate([*self.below, self.above.ravel(),
                             np.array([0, 1 << self.depth], np.int32)])
    kept = np.flatnonzero(places >= 0)
    order = kept[np.argsort(places[kept])[:self.size]]
    return jnp.concatenate([*below, above.reshape(-1), ends])[order]


def num_levels(num_rows: int) -> int:
  """L, the least with 2^L >= N."""
  return (errors.check_at_least('num_rows', num_rows, 1) - 1).bit_length()


@functools.cache
def layout(num_rows: int) -> Layout:
  """The layout for N rows."""
  depth = num_levels(num_rows)
  loop = min(depth, WIDTH.bit_length() - 1)
  below = [_middles(reversed_bits(1 << (depth - level)), level)
           for level in range(1, depth - loop + 1)]
  above = np.full([loop, max(1, 1 << loop >> 1)], -1, np.int32)
  for row, level in enumerate(range(depth - loop + 1, depth + 1)):
    nodes = np.arange(1 << (depth - level), dtype=np.int32)
    above[row, :nodes.size] = _middles(nodes, level)
  return Layout(num_rows, tuple(below), above)


def _middles(nodes: np.ndarray, level: int) -> np.ndarray:
  return (2 * nodes + 1) << (level - 1)


@functools.cache
def reversed_bits(size: int) -> np.ndarray:
  """0, ..., size - 1 by their reversed bits, int32; a power of two of them."""
  order = np.zeros(1, np.int32)
  while order.size < size:
    order = np.concatenate([2 * order, 2 * order + 1])
  return order


def increments(ranks: Array, total: Array) -> Array:
  """g of all vertices [2^L + 1], 0 where there is none by itself."""
  size = 1 << num_levels(ranks.size)
  inner = jnp.concatenate([ranks[:1], jnp.diff(ranks)])
  gap = jnp.zeros([size - ranks.size], ranks.dtype)
  return jnp.concatenate([inner, gap, (total - ranks[-1])[None]])


def cumulated(increments: Array, total: Array, end: str) -> Array:
  """Ranks [N] from increments of the vertices before each row."""
  # Partial sums that are added up in parallel fall here and there by rounding.
  found = jax.lax.cummax(jnp.cumsum(jnp.maximum(increments, 0.0)))
  if end == 'free':
    return found
  found = jnp.minimum(found, total)
  return found.at[-1].set(total) if end == 'equal' else found


def halves(values: Array) -> tuple[Array, Array]:
  """Left and right halves of nodes, the last axis in reversed order."""
  half = values.shape[-1] // 2
  return values[..., :half], values[..., half:]


def pairs(values: Array) -> tuple[Array, Array]:
  """The same of an axis in plain order."""
  return values[..., 0::2], values[..., 1::2]


def filled(values: Array) -> Array:
  """Filled up with zeros to twice the length."""
  gap = [(0, 0)] * (values.ndim - 1) + [(0, values.shape[-1])]
  return jnp.pad(values, gap)


def interleaved(left: Array, right: Array) -> Array:
  """Undoes `pairs`, of one axis."""
  return jnp.stack([left, right], 1).reshape(-1)


def in_plain_order(values: Array) -> Array:
  """From reversed order to plain, in the last axis, and back."""
  return values[..., reversed_bits(values.shape[-1])]
