"""Encodes the bytes of a tabular file as features in [-1, 1] and labels.

The schema has the columns with their public bounds and categories. Each field
is encoded by itself, see `dpjax.data.columns`, so no row depends on others.
"""

from collections.abc import Callable, Sequence
import dataclasses
import io
from typing import NamedTuple

import numpy as np

from dpjax.data import columns
from dpjax.tables import lines
from dpjax.tables import reader
from dpjax.tables.formats import FileError
from dpjax.tables.formats import Format


class Erratum(NamedTuple):
  """A published correction of one field of one record.

  Attributes:
    key: first field of the record.
    column: name of the column.
    wrong: text in the file; only this text is corrected.
    value: text of the original.
  """
  key: str
  column: str
  wrong: str
  value: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schema:
  """The public description of a tabular file.

  Attributes:
    columns: all columns in the file's order, exactly one of them a `Label`.
    delimiter: one character between the fields.
    header: whether the first line has the column names.
    comment: start of lines that are comments; '' if there are none.
    errata: published corrections, see `Erratum`.
  """
  columns: tuple[columns.Column, ...]
  delimiter: str = ','
  header: bool = False
  comment: str = ''
  errata: tuple[Erratum, ...] = ()

  def __post_init__(self) -> None:
    labels = [c for c in self.columns if isinstance(c, columns.Label)]
    if len(labels) != 1:
      raise ValueError(f'a schema needs one label, got {len(labels)}')

  @property
  def form(self) -> Format:
    """Returns how a published file of this schema is written."""
    return Format(
      separator=self.delimiter,
      missing_tokens=tuple(dict.fromkeys(
        column.missing for column in self.columns
        if isinstance(column, columns.Numeric) and column.missing)))

  @property
  def feature_names(self) -> tuple[str, ...]:
    """Returns the names of the encoded features, one for each column of x."""
    return tuple(name for c in self.columns for name in c.names())


class Encoded(NamedTuple):
  """Encoded features and labels on the host.

  Attributes:
    x: features, [n, p] float32 in [-1, 1].
    y: classes, [n] int32.
  """
  x: np.ndarray
  y: np.ndarray


def parse(content: bytes, schema: Schema, *, file: str) -> reader.Table:
  """Splits a file into the text of its fields.

  Args:
    content: unpacked bytes, UTF-8 with or without byte order mark.
    schema: the expected columns.
    file: file name for messages.

  Returns:
    The records, without header, comments and empty lines.

  Raises:
    ValueError: a line is ill-quoted, or the header or a number of fields is not
      that of the schema.
  """
  numbers, rows = [], []
  header = schema.header
  for number, row in lines.records(file, io.BytesIO(content), schema.form):
    if isinstance(row, FileError):  # Never: `form` refuses faulty lines.
      raise row
    if not any(row) or (schema.comment and row[0].startswith(schema.comment)):
      continue
    if header:
      _check_header(row, schema, file=file)
      header = False
      continue
    if len(row) != len(schema.columns):
      raise ValueError(f'{file} line {number}: expected '
                       f'{len(schema.columns)} fields, got {len(row)}')
    numbers.append(number)
    rows.append(_correct(row, schema))
  return of_rows(rows, schema, file=file,
                 place=lambda record: f'line {numbers[record]}')


def of_rows(rows: Sequence[Sequence[str]], schema: Schema, *, file: str,
            place: Callable[[int], str]) -> reader.Table:
  """Returns records, one text per column of a schema, as a table.

  Args:
    rows: the records.
    schema: public description of the columns.
    file: file name for messages.
    place: from the index of a record to its place, for messages.
  """
  return reader.Table(
    name=file, header=tuple(column.name for column in schema.columns),
    # Without rows there is nothing to transpose: each column is empty.
    columns=tuple(zip(*rows, strict=True)) or len(schema.columns) * ((),),
    num_records=len(rows), form=schema.form, place=place)


def encode(table: reader.Table, schema: Schema) -> Encoded:
  """Encodes the records one by one with the schema's constants.

  Args:
    table: n records; columns are found by their names.
    schema: public bounds, categories and classes.

  Returns:
    x [n, p] float32 in [-1, 1] and y [n] int32.

  Raises:
    ValueError: a column is missing, the schema does not allow a field (the
      message names the first one), or there is no record.
  """
  for column in schema.columns:
    table.index(column.name)
  if not table.num_records:
    raise ValueError(f'{table.name} has no records')
  # Storing rounds to float32, which keeps -1 and 1 and thus the bounds.
  x = np.empty((table.num_records, len(schema.feature_names)), np.float32)
  end = 0
  for column in schema.columns:
    # Exactly one column is a label; `Schema` checks that.
    if isinstance(column, columns.Label):
      labels = _encode_texts(column, table, np.int32)
    elif isinstance(column, columns.Numeric):
      start, end = end, end + len(column.names())
      # No number may be missing unless the schema has a text for that.
      x[:, start:end] = column.encode(
        table.numbers(column.name, gaps=bool(column.missing)))
    elif not isinstance(column, columns.Skip):
      start, end = end, end + len(column.names())
      x[:, start:end] = _encode_texts(column, table, np.float32)
  return Encoded(x=x, y=labels)


def _encode_texts(column: columns.OfText, table: reader.Table,
                  dtype: type[np.generic]) -> np.ndarray:
  """Returns the encoded column: [n, width], or [n] for a label.

  Each distinct text is encoded once; the rows then look up their text.
  """
  texts, codes = table.texts(column.name)
  encoded: list[tuple[float, ...] | int] = []
  faults: dict[int, ValueError] = {}
  for index, text in enumerate(texts):
    try:
      encoded.append(column.encode(text))
    except ValueError as error:
      faults[index] = error
  if faults:
    # `argmax` finds the first record that has a faulty text.
    record = int(np.isin(codes, list(faults)).argmax())
    raise ValueError(f'{table.where(record)}, column {column.name!r}: '
                     f'{faults[int(codes[record])]}')
  return np.array(encoded, dtype)[codes]


def _check_header(row: Sequence[str], schema: Schema, *, file: str) -> None:
  expected = [column.name for column in schema.columns]
  if row == expected:
    return
  if len(row) != len(expected):
    raise ValueError(f'{file}: the header has {len(row)} names, expected '
                     f'{len(expected)}')
  actual, expected_name = next(p for p in zip(row, expected) if p[0] != p[1])
  raise ValueError(f'{file}: the header names a column {actual!r} where '
                   f'{expected_name!r} is expected')


def _correct(row: list[str], schema: Schema) -> list[str]:
  """Returns `row` with the published corrections of this record."""
  for erratum in schema.errata:
    if row[0] != erratum.key:
      continue
    row = [
      erratum.value
      if (column.name, text) == (erratum.column, erratum.wrong) else text
      for column, text in zip(schema.columns, row)]
  return row
