"""Makes a data set from a user's table and a public schema.

Guarantee: each row of the result depends on the schema and the fields of its
own record alone. The number of records is public. Error messages and counts
may reveal data; show them only to the data owner.
"""

import os
import pathlib
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from dpjax.data import arrays
from dpjax.data import columns
from dpjax.data import files
from dpjax.data import schema_files
from dpjax.data import tabular
from dpjax.tables import reader

TFDS = 'tfds:'
"""Start of names of data sets that TensorFlow Datasets prepared."""


class Counts(NamedTuple):
  """Exact counts of how often a column's rules applied. NOT a private release.

  Attributes:
    column: name of the column.
    clipped: how many numbers lie outside the bounds.
    missing: how many numbers are missing.
    other: how many fields are not in the public list.
  """
  column: str
  clipped: int
  missing: int
  other: int


def is_path(name: str) -> bool:
  """Returns whether `name` is a file path rather than a data set name."""
  # The names of published data sets have neither dots nor slashes.
  return not name.startswith(TFDS) and (
      '.' in name or '/' in name or os.sep in name)


def find(path: str, *, data_dir: str | os.PathLike[str] | None = None
         ) -> pathlib.Path:
  """Returns the path of the file: `path` itself, or `path` below `data_dir`.

  Raises:
    FileNotFoundError: neither exists.
  """
  root = files.resolve_data_dir(data_dir)
  candidates = [pathlib.Path(path).expanduser()]
  candidates += [root / path] if root is not None else []
  for candidate in candidates:
    if candidate.is_file():
      return candidate
  where = ' or '.join(str(candidate) for candidate in candidates)
  raise FileNotFoundError(f'no file {where}')


def load(path: str, schema: str, *,
         data_dir: str | os.PathLike[str] | None = None) -> arrays.Dataset:
  """Reads and encodes a user's file.

  Args:
    path: path of a CSV file, plain or .gz, or of a Parquet file; absolute or
      below `data_dir`.
    schema: JSON, see `schema_files`; chosen without looking at the file.
    data_dir: data folder; default $DPJAX_DATA_DIR.

  Returns:
    A data set with x [n, p] float32 in [-1, 1] and y [n] int32.

  Raises:
    FileNotFoundError: the file does not exist.
    ValueError: the schema is not valid, or does not allow a field; the message
      names file, line and column of the first such field.
  """
  user = schema_files.parse(schema)
  return _encoded(reader.table(find(path, data_dir=data_dir), user.form), user,
                  path)


def load_with_ids(
    path: str, schema: str, column: str, *,
    data_dir: str | os.PathLike[str] | None = None
    ) -> tuple[arrays.Dataset, np.ndarray]:
  """Reads a user's file, and a column that says whose record each is.

  Args:
    path: see `load`.
    schema: see `load`.
    column: name of a column of ids, which are compared as text.
    data_dir: see `load`.

  Returns:
    (data set of N records, their ids: texts [N]).

  Raises:
    FileNotFoundError: see `load`.
    ValueError: see `load`; or there is no such column, or an id is missing:
      nobody could say how many records a person has.
  """
  user = schema_files.parse(schema)
  table = reader.table(find(path, data_dir=data_dir), user.form)
  texts, codes = table.texts(column)
  missing = np.array([user.form.is_missing(text) for text in texts])[codes]
  if missing.any():
    raise ValueError(f'{table.where(int(missing.argmax()))}, column '
                     f'{column!r}: the id of a user is missing; leave such '
                     'records out')
  return _encoded(table, user, path), np.array(texts)[codes]


def of_columns(frame: Any, schema: str, *, name: str = 'user'
               ) -> arrays.Dataset:
  """Encodes a user's table in memory, as `load` does a file.

  Args:
    frame: a data frame of pandas or polars, an Arrow table, a mapping from
      names to columns, or an array [n, p] if the schema has a "header".
    schema: JSON, see `schema_files`; chosen without looking at the records.
    name: name of the data set.

  Raises:
    ValueError: as for `load`.
  """
  user = schema_files.parse(schema)
  return _encoded(reader.of_columns(frame, name=name, form=user.form), user,
                  name)


def _encoded(table: reader.Table, user: schema_files.UserSchema,
             name: str) -> arrays.Dataset:
  encoded = tabular.encode(table, user.schema)
  return arrays.Dataset(
    name=name, x=jnp.asarray(encoded.x), y=jnp.asarray(encoded.y),
    num_classes=user.num_classes, feature_names=user.schema.feature_names)


def count(table: reader.Table,
          schema: tabular.Schema) -> tuple[Counts, ...]:
  """Counts how often each rule applied. NOT private: for the data owner only.

  Args:
    table: table with fields that the schema allows.
    schema: its schema.

  Returns:
    Counts of each numeric and each categorical column.
  """
  counts = []
  for column in schema.columns:
    if isinstance(column, columns.Numeric):
      values = table.numbers(column.name)
      # Comparisons with NaN are false, so a missing number is not clipped.
      clipped = (values < column.lower) | (values > column.upper)
      counts.append(Counts(column.name, int(clipped.sum()),
                           int(np.isnan(values).sum()), 0))
    elif isinstance(column, columns.Grouped):
      texts, codes = table.texts(column.name)
      other = [column.group(text) == schema_files.OTHER for text in texts]
      counts.append(Counts(column.name, 0, 0,
                           int(np.array(other)[codes].sum())))
  return tuple(counts)
