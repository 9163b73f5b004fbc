"""Makes a data set from a user's CSV file and a public schema.

Guarantee: each row of the result depends on the schema and the fields of its
own record alone. The number of records is public. Error messages and counts
may reveal data; show them only to the data owner.
"""

import csv
import io
import os
import pathlib
from typing import NamedTuple

import jax.numpy as jnp

from dpjax import errors
from dpjax.data import arrays
from dpjax.data import columns
from dpjax.data import files
from dpjax.data import schema_files
from dpjax.data import tabular

_SEPARATORS = {',': 'a comma', ';': 'a semicolon', '\t': 'a tab', '|': 'a bar'}


class Fields(NamedTuple):
  """The fields of a CSV file as text.

  Attributes:
    header: names of all columns.
    lines: line number in the file of each record.
    rows: the records, each with one text per column.
  """
  header: tuple[str, ...]
  lines: tuple[int, ...]
  rows: tuple[tuple[str, ...], ...]


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
  return '.' in name or '/' in name or os.sep in name


def find(path: str, *, data_dir: str | os.PathLike | None = None
         ) -> pathlib.Path:
  """Returns the path of the file: `path` itself, or `path` below `data_dir`.

  Raises:
    FileNotFoundError: neither exists.
  """
  root = files.resolve_data_dir(data_dir)
  tried = [pathlib.Path(path).expanduser()]
  tried += [root / path] if root is not None else []
  for each in tried:
    if each.is_file():
      return each
  where = ' or '.join(str(each) for each in tried)
  raise FileNotFoundError(f'no file {where}')


def read(path: pathlib.Path, separator: str) -> Fields:
  """Reads the fields of a CSV file with a header, plain or packed with gzip.

  Args:
    path: path of a file in UTF-8, with or without byte order mark.
    separator: character between fields; it has no effect within quotation
      marks.

  Raises:
    ValueError: the file is broken or empty, or a line has another number of
      fields than the header.
  """
  content = files.read_unverified(path)
  try:
    text = content.decode('utf-8-sig')
  except UnicodeDecodeError as error:
    # error.start is an offset into error.object, which excludes a byte order
    # mark; the mark has no line break, so the line number is right.
    line = 1 + error.object.count(b'\n', 0, error.start)
    raise ValueError(f'{path} line {line} is not UTF-8 text; save the file '
                     'as CSV in UTF-8') from None
  reader = csv.reader(io.StringIO(text, newline=''), delimiter=separator,
                      skipinitialspace=True, strict=True)
  header, lines, rows = None, [], []
  try:
    for fields in reader:
      row = tuple(field.strip() for field in fields)
      if not row:
        continue
      if header is None:
        header = row
        continue
      if len(row) != len(header):
        raise ValueError(f'{path} line {reader.line_num}: {len(row)} fields, '
                         f'the header has {len(header)}')
      lines.append(reader.line_num)
      rows.append(row)
  except csv.Error as error:
    raise ValueError(f'{path} line {reader.line_num}: {error}') from None
  if header is None:
    raise ValueError(f'{path} is empty; it needs a header and records')
  if not rows:
    raise ValueError(f'{path} has a header and no records')
  return Fields(header, tuple(lines), tuple(rows))


def place(name: str, header: tuple[str, ...], *, path: pathlib.Path,
          separator: str) -> int:
  """Returns the index of the column with this name.

  Raises:
    ValueError: no column or more than one has this name; the message suggests
      another separator if that is likely.
  """
  if header.count(name) == 1:
    return header.index(name)
  if name in header:
    raise ValueError(f'{path} has {header.count(name)} columns {name!r}')
  others = [f'{words} ({each!r})' for each, words in _SEPARATORS.items()
            if len(header) == 1 and each != separator and each in header[0]]
  if others:
    raise ValueError(f'{path} has no column {name!r}: its header is one field; '
                     f'is the separator {" or ".join(others)} and not '
                     f'{separator!r}?')
  raise ValueError(f'{path} has no column {name!r}' + (
    errors.did_you_mean(name, header) or
    f'; there are {", ".join(header[:20])}{", ..." * (len(header) > 20)}'))


def select(path: pathlib.Path, user: schema_files.UserSchema) -> tabular.Table:
  """Reads the columns of a schema, in its order.

  All spellings of missing numbers become `schema_files.ABSENT`.

  Raises:
    ValueError: as for `read` and `place`.
  """
  schema = user.schema
  fields = read(path, schema.delimiter)
  places = [place(column.name, fields.header, path=path,
                  separator=schema.delimiter) for column in schema.columns]
  numeric = [isinstance(column, columns.Numeric) for column in schema.columns]
  rows = tuple(
    tuple(schema_files.ABSENT if number and row[at] in user.missing
          else row[at] for at, number in zip(places, numeric, strict=True))
    for row in fields.rows)
  return tabular.Table(file=str(path), lines=fields.lines, rows=rows)


def load(path: str, schema: str, *, data_dir: str | os.PathLike | None = None
         ) -> arrays.Dataset:
  """Reads and encodes a user's table.

  Args:
    path: path of a CSV file with a header, absolute or below `data_dir`.
    schema: JSON, see `schema_files`; chosen without looking at the file.
    data_dir: data folder to search, too; default $DPJAX_DATA_DIR.

  Returns:
    A data set with x [n, p] float32 in [-1, 1] and y [n] int32.

  Raises:
    FileNotFoundError: the file does not exist.
    ValueError: the schema is not valid, or does not allow a field; the message
      names file, line and column of the first such field.
  """
  user = schema_files.parse(schema)
  table = select(find(path, data_dir=data_dir), user)
  encoded = tabular.encode(table, user.schema)
  return arrays.Dataset(
    name=path, x=jnp.asarray(encoded.x), y=jnp.asarray(encoded.y),
    num_classes=user.num_classes, feature_names=user.schema.feature_names)


def count(table: tabular.Table,
          schema: tabular.Schema) -> tuple[Counts, ...]:
  """Counts how often each rule applied. NOT private: for the data owner only.

  Args:
    table: table from `select`, with fields that the schema allows.
    schema: schema of the table.

  Returns:
    Counts of each numeric and each categorical column.
  """
  counts = []
  for column, fields in zip(schema.columns, zip(*table.rows, strict=True),
                            strict=True):
    if isinstance(column, columns.Numeric):
      values = [float(text) for text in fields if text != schema_files.ABSENT]
      clipped = sum(not column.lower <= value <= column.upper
                    for value in values)
      counts.append(Counts(column.name, clipped, len(fields) - len(values), 0))
    elif isinstance(column, columns.Grouped):
      other = sum(column.group(text) == schema_files.OTHER for text in fields)
      counts.append(Counts(column.name, 0, 0, other))
  return tuple(counts)
