"""Norms and sums of gradients of embeddings.

The gradient of record i is X_i^T D_i as for a dense layer. Row t of X_i is zero
but for a one at the row of the table that is looked up; X_i is not formed.
"""

from collections.abc import Callable, Sequence
import math
from typing import NamedTuple

import jax
from jax.extend import core
import jax.numpy as jnp

from dpjax import floats
from dpjax.grads import contractions
from dpjax.grads import jaxprs
from dpjax.typing import Array

# How many comparisons of two lookups take as long as keeping a row of a table.
_PAIRS_PER_ROW = 40


class Table(NamedTuple):
  """An operation that looks up rows of one parameter: an embedding.

  Attributes:
    places: indices of one record -> (rows [t], [t] bool: True if it exists).
    num_sites: t, the number of lookups.
    shape: shape of the table.
    axes: as those of `Layer`.
  """
  places: Callable[[Array], tuple[Array, Array]]
  num_sites: int
  shape: tuple[int, ...]
  axes: tuple[Sequence[int], Sequence[int]]


def as_table(equation: core.JaxprEqn, operand: int) -> Table | None:
  """Returns an embedding as a `Table`, None for all other operations.

  An embedding reads whole rows of its first input: a `gather`, or for one row a
  `dynamic_slice`, as `jax.vmap` and indexing with one number make them. Indices
  along the other axes can only be zero, and are ignored or checked as JAX does.
  """
  name = equation.primitive.name
  if operand != 0 or name not in ('dynamic_slice', 'gather'):
    return None
  shape = jaxprs.aval(equation.invars[0]).shape
  if not shape or tuple(equation.params['slice_sizes']) != (1, *shape[1:]):
    return None
  axes = (0,), range(1, len(shape))
  if name == 'dynamic_slice':
    # A slice of a whole axis starts at 0, whatever its start.
    return Table(lambda rows: _clipped(_wide(rows).reshape((-1,)), shape[0]),
                 1, shape, axes)
  places = _places(equation, shape)
  sites = math.prod(jaxprs.aval(equation.invars[1]).shape[:-1])
  return None if places is None else Table(places, sites, shape, axes)


def _places(equation: core.JaxprEqn, shape: tuple[int, ...]
            ) -> Callable[[Array], tuple[Array, Array]] | None:
  """Returns `Table.places` of a gather of rows of an array of this shape.

  None if it is no embedding.
  """
  numbers, mode = (equation.params[name] for name in ('dimension_numbers',
                                                      'mode'))
  indices = jaxprs.aval(equation.invars[1]).shape
  out = len(jaxprs.aval(equation.outvars[0]).shape)
  first = len(indices) - 1  # Axes of slices come after those of indices.
  modes = jax.lax.GatherScatterMode
  if (numbers.collapsed_slice_dims not in ((), (0,))
      or 0 not in numbers.start_index_map or numbers.operand_batching_dims
      or tuple(numbers.offset_dims) != tuple(range(first, out))
      or mode not in (modes.CLIP, modes.FILL_OR_DROP,
                      modes.PROMISE_IN_BOUNDS)):
    return None
  place = numbers.start_index_map.index(0)

  def places(indices: Array) -> tuple[Array, Array]:
    starts = _wide(indices).reshape((-1, indices.shape[-1]))
    rows = starts[:, place]
    if mode == modes.CLIP:
      return _clipped(rows, shape[0])
    others = jnp.delete(starts, place, 1)
    return rows, ((rows >= 0) & (rows < shape[0])
                  & jnp.all(others == 0, 1))

  return places


def _clipped(rows: Array, num_rows: int) -> tuple[Array, Array]:
  """Returns the rows that a lookup which clips its indices reads."""
  return jnp.clip(rows, 0, num_rows - 1), jnp.ones(rows.shape, jnp.bool_)


def _wide(indices: Array) -> Array:
  """Returns integers of a type that can hold the number of rows."""
  return indices.astype(jnp.int32) if indices.dtype.itemsize < 4 else indices


def comparing_is_cheaper(num_sites: int, num_rows: int) -> bool:
  """Returns whether norms take less time if pairs of lookups are compared.

  The other way is to form the gradient of each record.
  """
  return num_sites**2 < _PAIRS_PER_ROW * num_rows


class Lookups(NamedTuple):
  """Lookups of b records in one table, t for each.

  Attributes:
    rows: [b, t] rows.
    known: [b, t] bool, True if the row exists.
    values: [b, t, n] cotangents of the rows that were read.
  """
  rows: Array
  known: Array
  values: Array


def squares(lookups: Lookups) -> Array:
  """Returns squared norms [b]; cotangents of lookups of one row add up."""

  def one(rows: Array, known: Array, values: Array) -> Array:
    same = ((rows[:, None] == rows[None]) & known[:, None] & known[None])
    # Lookups of one row share its gradient, the sum of their cotangents. It is
    # counted once for each of them, so each counts 1 / their number.
    same = same.astype(jnp.float32)
    sums = contractions.contract('st,tn->sn', same, values)
    counts = jnp.maximum(contractions.contract('st->s', same), 1.0)
    return (contractions.contract('sn,sn,s->', sums, sums, 1 / counts)
            + 2 * floats.SMALLEST_NORMAL * sums.size)

  return jax.vmap(one)(*lookups)


def cross(lookups: Lookups, left: Array, right: Array) -> Array:
  """Returns [b] twice the inner products of lookups and outer products.

  The outer products left^T right are gradients by the same table. The loss of
  products to underflow is added.

  Args:
    lookups: of b records.
    left: [b, 1, s, rows of the table].
    right: [b, 1, s, n].
  """

  def one(rows: Array, known: Array, values: Array, left: Array,
          right: Array) -> Array:
    read = jnp.where(known, left[0][:, jnp.where(known, rows, 0)], 0.0)
    products = contractions.contract('sn,tn->st', right[0], values)
    missed = floats.SMALLEST_NORMAL * (
        values.shape[1] * jnp.sum(jnp.abs(read.astype(jnp.float32)))
        + read.size)
    return 2 * (contractions.contract('st,st->', read, products) + missed)

  return jax.vmap(one)(*lookups, left, right)


def rounding(lookups: Lookups) -> Array:
  """Returns [b] the margin for lookups next to other gradients of a table.

  They may cancel, so that rounding errors remain; see
  `contractions.gram_norms`.
  """
  return 16 * contractions.UNIT_ROUNDOFF * contractions.contract(
      'btn,btn->b', lookups.values, lookups.values)


def total(lookups: Lookups, num_rows: int) -> Array:
  """Returns the sum of the gradients of b records, [rows of the table, n]."""
  values = lookups.values.astype(jnp.float32)
  return jnp.zeros((num_rows, values.shape[-1]), jnp.float32).at[
      _dropped(lookups, num_rows)].add(values, mode='drop')


def added(lookups: Lookups, gradients: Array) -> Array:
  """Returns gradients [b, 1, rows, n] with those of the lookups added."""
  rows = _dropped(lookups, gradients.shape[2])
  return jax.vmap(lambda each, rows, values: each.at[0, rows].add(
      values.astype(each.dtype), mode='drop'))(gradients, rows, lookups.values)


def _dropped(lookups: Lookups, num_rows: int) -> Array:
  """Returns rows; those that do not exist are out of range for 'drop'."""
  return jnp.where(lookups.known, lookups.rows, num_rows)
