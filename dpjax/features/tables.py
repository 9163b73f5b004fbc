"""One-hot features of tables with products of columns, from a public schema.

Numbers are cut into bins, so each column of a record is one of a few values. A
record has a 1 for the value of each column and for the pair of values of each
crossed pair of columns. All records have the same number of ones, so their norm
is public and constant, and is made 1. A linear model on such features can
represent any function of two columns at a time.
"""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import functools
import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.data import columns
from dpjax.data.tabular import Schema
from dpjax.typing import Array, ArrayLike

_GOLDEN = 0x9E3779B1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Field:
  """A column of the table, as it stands in the encoded features.

  Attributes:
    name: name of the column.
    start: its first encoded feature.
    width: number of its encoded features.
    cuts: for a number, the increasing ends between its bins, in [-1, 1]; None
      for a column that is one-hot or a single bit.
  """
  name: str
  start: int
  width: int
  cuts: tuple[float, ...] | None = None

  @property
  def num_values(self) -> int:
    """Number of values; a number that may be missing has one for that."""
    if self.cuts is None:
      return max(self.width, 2)
    return len(self.cuts) + self.width


@dataclasses.dataclass(frozen=True, kw_only=True)
class CrossedColumns:
  """Maps encoded records [b, p] to unit-norm one-hot features with crosses.

  `crossed` makes it from a schema. Guarantee: a row of the result is a function
  of the same row of the records and of public numbers, so it costs no privacy
  budget. Each row has `num_ones` entries 1 / sqrt(`num_ones`), and zeros.

  Attributes:
    fields: the columns.
    pairs: numbers of the two columns of each cross.
    buckets: for each cross, the number of its features. A cross with more pairs
      of values than that is hashed; crosses share no features, so two ones of a
      record never meet.
    num_inputs: p.
  """
  fields: tuple[Field, ...]
  pairs: tuple[tuple[int, int], ...]
  buckets: tuple[int, ...]
  num_inputs: int

  @property
  def num_ones(self) -> int:
    """Number of entries of a row that are not 0."""
    return len(self.fields) + len(self.pairs)

  @property
  def output_shape(self) -> tuple[int]:
    """Shape of the features of one record."""
    return (sum(each.num_values for each in self.fields) + sum(self.buckets),)

  def indices(self, x: ArrayLike) -> Array:
    """Returns the places of the ones, [b, num_ones] int32.

    A linear model can look up these rows of its weights, instead of a product
    with the features.

    Args:
      x: records encoded by the schema, [b, p] floats, as `Dataset.x`.

    Raises:
      ValueError: if the records have another shape.
    """
    records = jnp.asarray(x)
    if records.ndim != 2 or records.shape[1] != self.num_inputs:
      raise ValueError(f'records must have shape [b, {self.num_inputs}], got '
                       f'{list(records.shape)}')
    return _indices(records.astype(jnp.float32), self)

  def __call__(self, x: ArrayLike) -> Array:
    """Returns the features [b, *output_shape] float32 of encoded records.

    Raises:
      ValueError: if the records have another shape.
    """
    places = self.indices(x)
    rows = jnp.arange(places.shape[0])[:, None]
    return jnp.zeros((places.shape[0], *self.output_shape), jnp.float32).at[
      rows, places].set(1 / math.sqrt(self.num_ones))


def crossed(schema: Schema, *, bins: int = 10,
            cuts: Mapping[str, Sequence[float]] | None = None,
            crosses: int = 2, pairs: Iterable[tuple[str, str]] | None = None,
            most: int | None = None) -> CrossedColumns:
  """Returns the one-hot features of a public schema, with crossed columns.

  Args:
    schema: public description of the table; its label is no feature.
    bins: number of bins of equal width for each number, between the public
      bounds and on the scale of its column.
    cuts: increasing public ends between bins, in the unit of the file, for
      numbers that are to have other bins. Quantiles of the data would leak.
    crosses: 2 to cross pairs of columns, 1 for none.
    pairs: names of the columns of each pair that is crossed; all pairs if None.
    most: largest number of features. If there are more, the crosses with most
      pairs of values are hashed.

  Raises:
    ValueError: if an argument is out of range, or names no column.

  Examples:
    >>> from dpjax.data import columns, tabular
    >>> from dpjax.features import tables
    >>> schema = tabular.Schema(columns=(
    ...     columns.Numeric('age', 0, 100), columns.Binary('smoker'),
    ...     columns.Label('sick', (('0',), ('1',)))))
    >>> features = tables.crossed(schema, bins=2)
    >>> features(np.float32([[-0.5, 1.0]])).round(2)
    Array([[0.58, 0.  , 0.  , 0.58, 0.  , 0.58, 0.  , 0.  ]], dtype=float32)
  """
  errors.check_at_least('bins', bins, 2)
  if crosses not in (1, 2):
    raise ValueError(f'crosses must be 1 or 2, got {crosses}')
  fields = _fields(schema, bins, dict(cuts or {}))
  chosen = _pairs(fields, pairs) if crosses == 2 else ()
  sizes = [fields[i].num_values * fields[j].num_values for i, j in chosen]
  if most is not None:
    sizes = _limited(sizes, most - sum(each.num_values for each in fields))
  return CrossedColumns(fields=fields, pairs=chosen, buckets=tuple(sizes),
                        num_inputs=len(schema.feature_names))


def _fields(schema: Schema, bins: int, cuts: dict[str, Sequence[float]]
            ) -> tuple[Field, ...]:
  """Returns the columns of a schema that are features."""
  fields, start = [], 0
  for column in schema.columns:
    width = len(column.names())
    if width:
      ends = None
      if isinstance(column, columns.Numeric):
        ends = tuple(2 * k / bins - 1 for k in range(1, bins))
        if column.name in cuts:
          ends = _scaled(column, cuts.pop(column.name))
      fields.append(Field(name=column.name, start=start, width=width,
                          cuts=ends))
    start += width
  if cuts:
    raise ValueError(f'cuts must be of columns of numbers, got {sorted(cuts)}')
  return tuple(fields)


def _scaled(column: columns.Numeric, cuts: Sequence[float]
            ) -> tuple[float, ...]:
  """Returns cuts in the unit of the file as encoded numbers in (-1, 1)."""
  values = np.asarray(cuts, np.float64)
  if values.ndim != 1 or not values.size or not (
      np.diff(values, prepend=column.lower, append=column.upper) > 0).all():
    raise ValueError(f'cuts of {column.name!r} must increase strictly between '
                     f'{column.lower} and {column.upper}, got {list(cuts)}')
  return tuple(column.encode(values)[:, 0].tolist())


def _pairs(fields: tuple[Field, ...],
           names: Iterable[tuple[str, str]] | None
           ) -> tuple[tuple[int, int], ...]:
  """Returns pairs of numbers of columns, by names or all."""
  if names is None:
    return tuple(itertools.combinations(range(len(fields)), 2))
  known = [each.name for each in fields]
  pairs = []
  for pair in names:
    places = [known.index(errors.check_choice('a column of pairs', name, known))
              for name in pair]
    if len(places) != 2 or places[0] == places[1]:
      raise ValueError(f'pairs must be of two columns, got {pair}')
    pairs.append((min(places), max(places)))
  if len(set(pairs)) != len(pairs):
    raise ValueError('pairs must name each pair once')
  return tuple(pairs)


def _limited(sizes: list[int], most: int) -> list[int]:
  """Returns sizes of which the largest are cut, so that they sum to `most`."""
  if most < len(sizes):
    raise ValueError(f'most leaves {most} features for {len(sizes)} crosses; '
                     'take more features, fewer bins or fewer pairs')
  left, cut = most, {}
  order = sorted(range(len(sizes)), key=lambda place: sizes[place])
  for done, place in enumerate(order):
    cut[place] = min(sizes[place], left // (len(sizes) - done))
    left -= cut[place]
  return [cut[place] for place in range(len(sizes))]


@functools.partial(jax.jit, static_argnums=1)
def _indices(x: Array, crossing: CrossedColumns) -> Array:
  """Returns the places of the ones of encoded records [b, p]."""
  values = [_value(x, field) for field in crossing.fields]
  places, start = [], 0
  for value, field in zip(values, crossing.fields, strict=True):
    places.append(start + value)
    start += field.num_values
  for number, ((i, j), size) in enumerate(zip(
      crossing.pairs, crossing.buckets, strict=True)):
    width = crossing.fields[j].num_values
    code = values[i] * width + values[j]
    if size < crossing.fields[i].num_values * width:
      code = _hashed(code, number, size)
    places.append(start + code)
    start += size
  return jnp.stack(places, axis=1)


def _value(x: Array, field: Field) -> Array:
  """Returns the number of the value of a column, [b] int32."""
  part = x[:, field.start:field.start + field.width]
  if field.cuts is not None:
    # A cut belongs to the bin above it, in float32 as the records are.
    value = jnp.searchsorted(jnp.asarray(field.cuts, jnp.float32), part[:, 0],
                             side='right').astype(jnp.int32)
    missing = part[:, -1] > 0.5 if field.width == 2 else False
    return jnp.where(missing, len(field.cuts) + 1, value)
  if field.width == 1:
    return (part[:, 0] > 0.5).astype(jnp.int32)
  return jnp.argmax(part, axis=1).astype(jnp.int32)


def _hashed(code: Array, number: int, size: int) -> Array:
  """Returns a public hash of codes [b] of cross `number`, in [0, size)."""
  # The finaliser of MurmurHash3, which mixes all bits.
  word = code.astype(jnp.uint32) + jnp.uint32((number + 1) * _GOLDEN % 2**32)
  for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
    word = (word ^ (word >> jnp.uint32(shift))) * jnp.uint32(factor)
  word ^= word >> jnp.uint32(16)
  return (word % jnp.uint32(size)).astype(jnp.int32)
