"""Norms and sums of the gradients of a leaf that one or several sites read.

The gradient of a record is a sum of products X_u^T D_u over the reads u of the
leaf (see `reads`). As matrices with the positions of all reads one below the
other, X and D are those of one dense layer, so Gram matrices give the norm of
the sum, cross terms included. Reads of separate parts of a leaf have no cross
terms, and their squared norms add up.
"""

from collections.abc import Callable, Sequence
import functools
import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from dpjax.grads import contractions
from dpjax.grads import lookups
from dpjax.grads.contractions import Layer
from dpjax.grads.lookups import Lookups
from dpjax.grads.lookups import Table
from dpjax.grads.reads import Factor
from dpjax.grads.reads import Read
from dpjax.typing import Array, PyTree

# Norms are products of two factors. Next to a factor above this, the other one
# may be so small that its squares underflow; such records count as unusable.
_LARGEST_NORM = 1e10


class Group(NamedTuple):
  """Reads of one part of a leaf.

  Attributes:
    dense: reads by dense layers and convolutions.
    tables: reads by embeddings.
    flipped: for each of `dense`, whether its two factors change places.
    layer: all of `dense` as one layer of tuples of inputs and cotangents, or
      that of a single read; None if there is none.
    to_part: gradient [1, k, n] -> the part of the leaf.
    is_kept: whether gradients of records are formed because that is cheapest.
  """
  dense: tuple[Read, ...]
  tables: tuple[Read, ...]
  flipped: tuple[bool, ...]
  layer: Layer | None
  to_part: Callable[[Array], Array]
  is_kept: bool

  @property
  def reads(self) -> tuple[Read, ...]:
    """All reads."""
    return *self.dense, *self.tables

  @property
  def is_alone(self) -> bool:
    """Whether the factors of the one read are those of its site."""
    return len(self.reads) == 1 and self.reads[0].is_plain

  @property
  def has_outer(self) -> bool:
    """Whether a record's gradient is a single outer product."""
    return (self.layer is not None and not self.tables
            and contractions.is_outer(self.layer))


class Measured(NamedTuple):
  """Gradients of the records by a part of a leaf.

  Attributes:
    squares: [b] squared norms.
    sound: [b] bool, True for records whose norm can be measured.
    values: tree of arrays [b, ...] from which weighted sums are computed.
    total: (weights [b], values) -> weighted sum of the gradients.
    axis: of the records in `values`: 1 if they are stacked, [steps, b, ...]; a
      tree prefix of `values`.
  """
  squares: Array
  sound: Array
  values: PyTree
  total: Callable[[Array, PyTree], Array]
  axis: PyTree


def groups(reads: Sequence[Read], gram_is_cheaper: Callable[[Layer], bool]
           ) -> list[Group] | None:
  """Returns the reads of a leaf by the part that they read.

  None if gradients of the leaf must be formed: if parts overlap, if an array is
  a matrix in one read and another matrix in another one, or if forming is
  cheaper than comparing the lookups of an embedding.

  Args:
    reads: of one leaf, at least one.
    gram_is_cheaper: see `bookkeeping.of_record_loss`.
  """
  if len(reads) > 1 and any(read.chain or read.is_whole
                            for read in reads):
    return None
  if any(isinstance(read.operation, Layer) and read.operation.has_windows
         and not read.is_plain for read in reads):
    return None
  parts: dict[Any, list[Read]] = {}
  for read in reads:
    parts.setdefault((read.starts, read.widths), []).append(read)
  if not all(itertools.starmap(_are_apart, itertools.combinations(parts, 2))):
    return None
  found = [_group(part, gram_is_cheaper) for part in parts.values()]
  known = [group for group in found if group is not None]
  return known if len(known) == len(found) else None


def _are_apart(one: Any, other: Any) -> bool:
  """Returns whether two parts (starts, widths) have no entry in common."""
  return any(a + wide <= b or b + long <= a for a, wide, b, long in zip(
      *one, *other, strict=True))


def _group(reads: Sequence[Read], gram_is_cheaper: Callable[[Layer], bool]
           ) -> Group | None:
  """Returns the group of reads of one part, None if it must be formed."""
  dense = tuple(read for read in reads if isinstance(read.operation, Layer))
  tables = tuple(read for read in reads if isinstance(read.operation, Table))
  if len(reads) == 1 and dense and dense[0].is_plain:
    alone = _alone(dense[0])
    return Group(dense, (), (False,), alone, alone.to_weight,
                 _is_kept(alone, alone.num_sites, gram_is_cheaper))
  if reads[0].is_whole:  # A table for each step of a loop.
    return _of_tables(tables, lambda gradient: gradient.reshape(
        _table(reads[0]).shape))
  sides = _sides((*tables, *dense)[0])
  if not all(set(map(tuple, _sides(read))) == set(map(tuple, sides))
             for read in reads) or any(
                 _sides(read) != sides for read in tables):
    return None
  flipped = tuple(_sides(read) != sides for read in dense)
  to_part = _to_part(reads[0].widths, sides)
  layer = _combined(dense, flipped, sides, to_part) if dense else None
  if layer is None:
    return _of_tables(tables, to_part)
  return Group(dense, tables, flipped, layer, to_part, _is_kept(
      layer, sum(read.operation.num_sites for read in reads), gram_is_cheaper))


def _of_tables(reads: tuple[Read, ...], to_part: Callable[[Array], Array]
               ) -> Group | None:
  """Returns the group of lookups alone, None if it must be formed."""
  count = sum(read.operation.num_sites for read in reads)
  if not lookups.comparing_is_cheaper(count, _table(reads[0]).shape[0]):
    return None
  return Group((), reads, (), None, to_part, False)


def _is_kept(layer: Layer, num_sites: int,
             gram_is_cheaper: Callable[[Layer], bool]) -> bool:
  """Returns whether to form gradients, for that many positions in all."""
  return (not (layer.num_sites == num_sites and contractions.is_outer(layer))
          and not gram_is_cheaper(layer._replace(num_sites=num_sites)))


def _layer(read: Read) -> Layer:
  assert isinstance(read.operation, Layer)
  return read.operation


def _table(read: Read) -> Table:
  assert isinstance(read.operation, Table)
  return read.operation


def _alone(read: Read) -> Layer:
  """Returns the layer of the only read of a part, in the leaf's layout."""
  layer = _layer(read)
  if read.is_stacked:  # This is the layer of one step.
    return layer
  return layer._replace(
      to_weight=lambda gradient: read.restored(layer.to_weight(gradient)),
      total=lambda x, cotangent: read.restored(layer.total(x, cotangent)))


def _sides(read: Read) -> list[list[int]]:
  """Returns the axes of the leaf that the left and right factor have."""
  return [[i for i, axis in enumerate(read.axes) if axis in factor.axes]
          for factor in (read.left, read.right)]


def _to_part(widths: Sequence[int], sides: Sequence[Sequence[int]]
             ) -> Callable[[Array], Array]:
  """Returns gradient [1, k, n] -> the part of a leaf, see `Group`."""
  order = [*sides[0], *sides[1]]
  places = [order.index(i) for i in sorted(order)]
  return lambda gradient: gradient.reshape(
      [widths[i] for i in order]).transpose(places).reshape(widths)


def _combined(reads: Sequence[Read], flipped: Sequence[bool],
              sides: Sequence[Sequence[int]],
              to_part: Callable[[Array], Array]) -> Layer:
  """Returns all reads as one layer, with the positions of all of them."""

  def rows(xs: PyTree, cotangents: PyTree) -> tuple[Array, Array]:
    pairs = [_factors(read, flip, *one) if read.is_plain else one
             for read, flip, one in zip(reads, flipped, zip(
                 xs, cotangents, strict=True), strict=True)]
    first, second = (_joined(side) for side in zip(*pairs, strict=True))
    return first, second

  def total(xs: PyTree, cotangents: PyTree) -> Array:
    return sum((
        read.restored(_layer(read).total(x, cotangent)) if read.is_plain
        else to_part(contractions.contract('bgtk,bgtn->gkn', x, cotangent))
        for read, x, cotangent in zip(reads, xs, cotangents, strict=True)),
               start=jnp.zeros([], jnp.float32))

  sizes = [math.prod(reads[0].widths[i] for i in side) for side in sides]
  return Layer(rows, to_part, total,
               sum(read.operation.num_sites for read in reads),
               (1, sizes[0], sizes[1]),
               any(_layer(read).has_windows for read in reads))


def _joined(parts: Sequence[Array]) -> Array:
  """Joins factors [1, t, k] of several reads, in float32 if types differ."""
  if len({part.dtype for part in parts}) > 1:
    parts = [part.astype(jnp.float32) for part in parts]
  return jnp.concatenate(parts, 1) if len(parts) > 1 else parts[0]


def _factors(read: Read, flip: bool, x: Array,
             cotangent: Array) -> tuple[Array, Array]:
  """Returns one record's factors [1, t, k], [1, t, n], in the leaf's layout."""
  left, right = (
      _in_order(factor, read, rows[0]) for factor, rows in zip(
          (read.left, read.right), _layer(read).rows(x, cotangent),
          strict=True))
  return (right, left) if flip else (left, right)


def _in_order(factor: Factor, read: Read, rows: Array) -> Array:
  """Returns a factor [1, t, k] from rows, with axes in the leaf's order."""
  assert factor.of is not None
  values = factor.of(rows)
  order = sorted(range(len(factor.axes)),
                 key=lambda i: read.axes.index(factor.axes[i]))
  return values.transpose((0, *(1 + i for i in order))).reshape(
      (1, len(values), -1))


def measured(group: Group, passes: Sequence[Any],
             own: Callable[[Array], Array] | None = None) -> Measured:
  """Returns norms and sums of the gradients of the records by a part.

  Args:
    group: from `groups`.
    passes: for each site of the program, its inputs and cotangents [b, ...], or
      [steps, b, ...] if it reads a stacked parameter.
    own: applied to the total of each step, if given.
  """
  read = group.reads[0]
  if not read.is_stacked:
    return _of_group(group, passes)

  over_steps = _over_steps(group)

  def step(each: Any) -> Any:
    found = _of_group(group, {read.site: each})
    return found.squares, found.sound, found.values

  squares, sound, values = over_steps(step, passes[read.site])

  def total(weights: Array, values: PyTree) -> Array:
    if own is not None:
      return jax.lax.map(lambda each: own(_total(group, weights, each)), values)
    return read.restored(over_steps(
        lambda each: _total(group, weights, each), values))

  return Measured(jnp.sum(squares, 0), jnp.all(sound, 0), values, total, 1)


def _over_steps(group: Group) -> Callable[[Callable[..., Any], PyTree], Any]:
  """Returns the map over the steps of a stacked leaf.

  All steps at once, unless their Gram matrices are larger than what they
  multiply.
  """
  layer = group.layer
  if group.is_kept or group.has_outer or (
      layer is not None and layer.num_sites <= sum(layer.sizes[1:])):
    return lambda function, each: jax.vmap(function)(each)
  return jax.lax.map


def _of_group(group: Group, passes: Any) -> Measured:
  """Returns `measured` for one step."""
  xs: Any
  cotangents: Any
  xs, cotangents = zip(*(_values(read, flip, group.is_alone, passes[read.site])
                         for read, flip in zip(group.dense, group.flipped,
                                               strict=True)),
                       strict=True) if group.dense else ((), ())
  if group.is_alone and group.dense:
    xs, cotangents = xs[0], cotangents[0]
  found = [_looked_up(read, passes[read.site]) for read in group.tables]
  table = jax.tree.map(lambda *each: jnp.concatenate(each, 1), *found) if (
      found) else None
  if group.is_kept:
    return _kept(group, xs, cotangents, table)
  return _implicit(group, xs, cotangents, table)


def _values(read: Read, flip: bool, is_alone: bool,
            each: Any) -> tuple[Array, Array]:
  """Returns what stands for X and D [b, ...] in the group's layer."""
  x, cotangent = each.inputs[0], _scaled(read, each.cotangents[0])
  if is_alone or read.is_plain:
    return x, cotangent
  return jax.vmap(lambda *one: _factors(read, flip, *one))(x, cotangent)


def _scaled(read: Read, cotangent: Array) -> Array:
  """Returns the cotangent times the scale of the read."""
  if read.scale is None:
    return cotangent
  return read.scale * cotangent.astype(jnp.float32)


def _looked_up(read: Read, each: Any) -> Lookups:
  """Returns the lookups of all records in the layout of the leaf."""
  rows, known = jax.vmap(_table(read).places)(each.inputs[0])
  values = _scaled(read, each.cotangents[0]).reshape((*rows.shape, -1))
  if read.is_whole:
    return Lookups(rows, known, values)
  return Lookups(rows, known, jax.vmap(lambda one: _in_order(
      read.right, read, one)[0])(values))


def _kept(group: Group, xs: PyTree, cotangents: PyTree,
          table: Lookups | None) -> Measured:
  """Returns the part of a leaf by forming the gradients of the records."""
  assert group.layer is not None
  gradients = contractions.products(group.layer, xs, cotangents)
  if table is not None:
    gradients = lookups.added(table, gradients)
  # A barrier for the reason of `bundles.of_formed`.
  gradients = jax.lax.optimization_barrier(gradients)
  lengths = contractions.norms(gradients)
  return Measured(jnp.square(lengths), jnp.isfinite(lengths), gradients,
                  functools.partial(_total, group), 0)


def _implicit(group: Group, xs: PyTree, cotangents: PyTree,
              table: Lookups | None) -> Measured:
  """Returns the part of a leaf without forming the gradients."""
  layer, squares = group.layer, jnp.float32(0)
  lengths: list[Array] = []  # Squared norms of all factors.
  if group.has_outer:
    assert layer is not None
    xs, cotangents = contractions.factors(layer, xs, cotangents)
    lengths += [jnp.square(contractions.norms(each))
                for each in (xs, cotangents)]
    squares = math.prod(lengths)
  elif layer is not None:
    found = contractions.gram_norms(layer, xs, cotangents)
    squares = found.squares
    lengths += [found.of_inputs, found.of_cotangents]
  if table is not None:
    squares = squares + lookups.squares(table)
    lengths.append(jnp.square(contractions.norms(table.values)))
  if table is not None and layer is not None:
    squares = squares + lookups.cross(table, *jax.vmap(layer.rows)(
        xs, cotangents))
    squares = jnp.maximum(squares, 0.0) + lookups.rounding(table)
  # Also False for NaN.
  sound = jnp.all(jnp.stack(lengths) < _LARGEST_NORM**2, 0)
  return Measured(squares, sound, (xs, cotangents, table),
                  functools.partial(_total, group), 0)


def _total(group: Group, weights: Array, values: PyTree) -> Array:
  """Returns the weighted sum of the gradients, see `Measured`."""
  layer, total = group.layer, jnp.zeros([], jnp.float32)
  if group.is_kept:
    assert layer is not None
    return contractions.product_to_weight(layer, contractions.weighted_sum(
        weights, values))
  xs, cotangents, table = values
  # sum_i w_i X_i^T D_i = sum_i X_i^T (w_i D_i): only cotangents are weighted.
  by_weight = lambda each: (contractions.by_record(weights, each)
                            * each.astype(jnp.float32))
  if layer is not None:
    cotangents = jax.tree.map(by_weight, cotangents)
    total = (contractions.outer_total(layer, xs, cotangents)
             if group.has_outer else layer.total(xs, cotangents))
  if table is not None:
    total = total + group.to_part(lookups.total(
        table._replace(values=by_weight(table.values)),
        _table(group.tables[0]).shape[0]))
  return total
