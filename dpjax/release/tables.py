"""Columns of a CSV or Parquet file, record by record.

Errors tell of the file to whoever holds it; they are no private release and
not for others.
"""

from collections.abc import Iterator, Sequence
import csv
import io
import pathlib
from typing import BinaryIO

from dpjax import errors

FORMATS = ('.csv', '.parquet')


def read(path: str, file: BinaryIO, *columns: str, numeric: bool,
         separator: str = ',') -> Iterator[object]:
  """The fields of a column, in order, or tuples of the fields of several.

  Args:
    path: tells the format by its end.
    file: open at its start.
    *columns: names in the header; without any there is None for each record.
    numeric: whether the first must be of numbers, where the file says.
    separator: of a CSV file. Blank lines are no records.

  Raises:
    ValueError: for another format, an unknown column, a broken file.
  """
  suffix = pathlib.Path(path).suffix.lower()
  errors.check_choice('input', suffix, FORMATS)
  if suffix == '.csv':
    return _csv(file, columns, separator)
  return _parquet(file, columns, numeric)


def _csv(file: BinaryIO, columns: Sequence[str], separator: str) -> Iterator:
  if len(separator) != 1:
    raise ValueError(f'separator must be one character, got {separator!r}')
  text = io.TextIOWrapper(file, encoding='utf-8-sig', newline='')
  try:
    rows = csv.reader(text, delimiter=separator, strict=True)
    header = [name.strip() for name in next(rows, [])]
    places = [_place(column, header) for column in columns]
    for row in rows:
      if not row:
        continue
      if len(row) != len(header):
        raise ValueError(f'line {rows.line_num} has {len(row)} fields, the '
                         f'header {len(header)}')
      yield _packed([row[place].strip() for place in places])
  except csv.Error as error:
    raise ValueError(f'line {rows.line_num}: {error}') from error
  finally:
    text.detach()  # leaves the file open for who opened it


def _packed(fields: Sequence[object]) -> object:
  """None for no field, the only one, or all of several."""
  return tuple(fields) if len(fields) > 1 else next(iter(fields), None)


def _place(column: str, names: list[str]) -> int:
  if names.count(column) != 1:
    what = 'several columns' if column in names else 'no column'
    near = errors.did_you_mean(column, set(names) - {column})
    if len(names) == 1 and column in names[0]:
      near = '; is the separator another one?'
    raise ValueError(f'{what} {column!r}; there are {", ".join(names)}{near}')
  return names.index(column)


def _parquet(file: BinaryIO, columns: Sequence[str], numeric: bool) -> Iterator:
  try:
    import pyarrow
    from pyarrow import parquet
  except ImportError as error:
    raise ImportError('Parquet needs the extra `parquet`: pip install '
                      'dpjax[parquet]') from error
  try:
    table = parquet.ParquetFile(file)
    if not columns:
      yield from (None for _ in range(table.metadata.num_rows))
      return
    places = [_place(column, table.schema_arrow.names) for column in columns]
    kind = table.schema_arrow.field(places[0]).type
    types = pyarrow.types
    if numeric and not (types.is_integer(kind) or types.is_floating(kind) or
                        types.is_decimal(kind) or types.is_boolean(kind)):
      raise ValueError(f'column {columns[0]!r} is {kind}, not numeric')
    for batch in table.iter_batches(columns=list(columns)):
      fields = [batch.column(name).to_pylist() for name in columns]
      yield from map(_packed, zip(*fields, strict=True))
  except pyarrow.ArrowException as error:
    raise ValueError(f'no Parquet file: {errors.one_line(error)}') from error
