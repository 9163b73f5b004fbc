"""Lays out a binary hierarchy over rows, for passes up and down its levels.

Vertices 0, ..., N lie between rows. All vertices in the middle of the nodes of
one level are processed at once. Rows are padded to a power of two, 2^L;
vertices from N on are one and the same vertex, stored at index 2^L.

Levels of many nodes are unrolled and stored in bit-reversed order, in which the
left and right halves of the nodes are the two halves of an array. Levels of at
most `WIDTH` nodes run in a loop, in natural order and padded to one size,
because each unrolled level takes half a second to compile.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.typing import Array

# Nodes of the lowest level in the loop.
WIDTH = 1024

ENDS = ('equal', 'at_most', 'free')
"""Constraint on the last rank: equal to the total, at most the total, or none.
"""


class Layout(NamedTuple):
  """Vertices in the middle of nodes, by level from the leaves up.

  Attributes:
    size: N.
    below: for the unrolled levels, int32 [M / 2] each for M nodes.
    above: for the levels in the loop, int32 [levels, width / 2], padded by -1.
  """
  size: int
  below: tuple[np.ndarray, ...]
  above: np.ndarray

  @property
  def depth(self) -> int:
    """Number of levels above the rows, L."""
    return len(self.below) + len(self.above)

  @property
  def width(self) -> int:
    """Number of nodes of the lowest level in the loop."""
    return 2 * self.above.shape[1]

  def parts(self, values: Array) -> tuple[tuple[Array, ...], Array, Array]:
    """Splits vertex values [2^L + 1] into `below`, `above` and the ends."""
    filled = jnp.where(self.above < 0, jnp.zeros([], values.dtype),
                       values[np.maximum(self.above, 0)])
    return (tuple(values[place] for place in self.below), filled,
            values[np.array([0, 1 << self.depth])])

  def joined(self) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Returns masks of the vertices that are the same as vertex N."""
    return (tuple(place >= self.size for place in self.below),
            self.above >= self.size)

  def together(self, below: tuple[Array, ...], above: Array,
               ends: Array) -> Array:
    """Returns values of vertices 0, ..., N - 1; the inverse of `parts`."""
    # Inverse permutation; places of -1 are padding, those from N on one vertex.
    places = np.concatenate([*self.below, self.above.ravel(),
                             np.array([0, 1 << self.depth], np.int32)])
    vertices = np.flatnonzero(places >= 0)
    order = vertices[np.argsort(places[vertices])[:self.size]]
    return jnp.concatenate([*below, above.reshape(-1), ends])[order]


def num_levels(num_rows: int) -> int:
  """Returns L, the least integer with 2^L >= N."""
  return (errors.check_at_least('num_rows', num_rows, 1) - 1).bit_length()


@functools.cache
def layout(num_rows: int) -> Layout:
  """Returns the layout for N rows."""
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
  """Returns the vertices in the middle of nodes of 2^level rows."""
  return (2 * nodes + 1) << (level - 1)


@functools.cache
def reversed_bits(size: int) -> np.ndarray:
  """Returns 0, ..., size - 1 in bit-reversed order, int32; size is 2^k."""
  order = np.zeros(1, np.int32)
  while order.size < size:
    order = np.concatenate([2 * order, 2 * order + 1])
  return order


def increments(ranks: Array, total: Array) -> Array:
  """Returns increments g of all vertices [2^L + 1], 0 at padded ones."""
  size = 1 << num_levels(ranks.size)
  # g_0 = S_1, g_k = S_(k+1) - S_k, and n - S_N at the last vertex.
  inner = jnp.concatenate([ranks[:1], jnp.diff(ranks)])
  gap = jnp.zeros([size - ranks.size], ranks.dtype)
  return jnp.concatenate([inner, gap, (total - ranks[-1])[None]])


def cumulated(increments: Array, total: Array, end: str) -> Array:
  """Returns ranks [N] from increments of the vertices before each row."""
  # A parallel prefix sum may decrease by rounding; the running maximum repairs
  # that.
  ranks = jax.lax.cummax(jnp.cumsum(jnp.maximum(increments, 0.0)))
  if end == 'free':
    return ranks
  ranks = jnp.minimum(ranks, total)
  return ranks.at[-1].set(total) if end == 'equal' else ranks


def halves(values: Array) -> tuple[Array, Array]:
  """Returns left and right halves of nodes; last axis in bit-reversed order."""
  half = values.shape[-1] // 2
  return values[..., :half], values[..., half:]


def pairs(values: Array) -> tuple[Array, Array]:
  """Returns left and right halves of nodes; last axis in natural order."""
  return values[..., 0::2], values[..., 1::2]


def filled(values: Array) -> Array:
  """Pads the last axis with zeros to twice its length."""
  gap = [(0, 0)] * (values.ndim - 1) + [(0, values.shape[-1])]
  return jnp.pad(values, gap)


def interleaved(left: Array, right: Array) -> Array:
  """Merges left and right halves; the inverse of `pairs` on one axis."""
  return jnp.stack([left, right], 1).reshape(-1)


def in_plain_order(values: Array) -> Array:
  """Converts the last axis from bit-reversed to natural order, or back."""
  return values[..., reversed_bits(values.shape[-1])]
