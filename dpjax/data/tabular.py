"""Encodes the bytes of a tabular file as features in [-1, 1] and labels.

The schema has the columns with their public bounds and categories. Rows are
encoded field by field, see `dpjax.data.columns`, so the encoding of a row does
not depend on other rows.
"""

import csv
import dataclasses
import io
from typing import NamedTuple

import numpy as np

from dpjax.data import columns


class Erratum(NamedTuple):
  """A published correction of one field of one record.

  Attributes:
    key: first field of the record.
    column: name of the column.
    found: wrong text in the file; only this text is corrected.
    value: text of the original.
  """
  key: str
  column: str
  found: str
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

  def __post_init__(self):
    labels = [c for c in self.columns if isinstance(c, columns.Label)]
    if len(labels) != 1:
      raise ValueError(f'a schema needs one label, got {len(labels)}')

  @property
  def feature_names(self) -> tuple[str, ...]:
    """Returns the names of the encoded features, one for each column of x."""
    return tuple(name for c in self.columns for name in c.names())


class Table(NamedTuple):
  """The fields of a tabular file as text.

  Attributes:
    file: file name for messages.
    lines: line number in the file of each record, from 1.
    rows: the records, each a tuple with one text per column.
  """
  file: str
  lines: tuple[int, ...]
  rows: tuple[tuple[str, ...], ...]


class Encoded(NamedTuple):
  """Encoded features and labels on the host.

  Attributes:
    x: features, [n, p] float32 in [-1, 1].
    y: classes, [n] int32.
  """
  x: np.ndarray
  y: np.ndarray


def parse(content: bytes, schema: Schema, *, file: str) -> Table:
  """Splits a file into the text of its fields.

  Args:
    content: unpacked bytes, UTF-8 with or without byte order mark.
    schema: the expected columns.
    file: file name for messages.

  Returns:
    The records, without header, comments and empty lines.

  Raises:
    ValueError: the header or a number of fields is not that of the schema.
  """
  text = io.StringIO(content.decode('utf-8-sig'), newline='')
  reader = csv.reader(text, delimiter=schema.delimiter, skipinitialspace=True)
  lines, rows = [], []
  header = schema.header
  for fields in reader:
    row = tuple(field.strip() for field in fields)
    if not any(row) or (schema.comment and row[0].startswith(schema.comment)):
      continue
    if header:
      _check_header(row, schema, file=file)
      header = False
      continue
    if len(row) != len(schema.columns):
      raise ValueError(f'{file} line {reader.line_num}: expected '
                       f'{len(schema.columns)} fields, got {len(row)}')
    lines.append(reader.line_num)
    rows.append(_correct(row, schema))
  return Table(file=file, lines=tuple(lines), rows=tuple(rows))


def encode(table: Table, schema: Schema) -> Encoded:
  """Encodes the records one by one with the schema's constants.

  Args:
    table: n records with one field per column of `schema`.
    schema: public bounds, categories and classes.

  Returns:
    x [n, p] float32 in [-1, 1] and y [n] int32.

  Raises:
    ValueError: a field is not allowed by the schema (the message names file,
      line and column of the first one), or there is no record.
  """
  if not table.rows:
    raise ValueError(f'{table.file} has no records')
  features = []
  for column, fields in zip(schema.columns, zip(*table.rows)):
    values = _encode_column(column, fields, table=table)
    if isinstance(column, columns.Label):
      labels = values.astype(np.int32)
    else:
      features.append(values.astype(np.float32))
  return Encoded(x=np.concatenate(features, axis=1), y=labels)


def _encode_column(column, fields, *, table) -> np.ndarray:
  """Returns [n, width], or [n] for a label, in float64."""
  if isinstance(column, columns.Skip):
    return np.zeros((len(fields), 0))
  # Each distinct text is encoded once and looked up afterwards. The code of a
  # text does not depend on its row.
  index, codes = {}, []
  for line, text in zip(table.lines, fields):
    if text in index:
      continue
    try:
      codes.append(column.encode(text))
    except ValueError as error:
      raise ValueError(f'{table.file} line {line}, column {column.name!r}: '
                       f'{error}') from None
    index[text] = len(codes) - 1
  return np.array(codes, np.float64)[[index[text] for text in fields]]


def _check_header(row, schema, *, file):
  expected = tuple(column.name for column in schema.columns)
  if row == expected:
    return
  if len(row) != len(expected):
    raise ValueError(f'{file}: the header has {len(row)} names, expected '
                     f'{len(expected)}')
  actual, wanted = next(p for p in zip(row, expected) if p[0] != p[1])
  raise ValueError(f'{file}: the header names a column {actual!r} where '
                   f'{wanted!r} is expected')


def _correct(row, schema):
  """Returns `row` with the published corrections of this record."""
  for erratum in schema.errata:
    if row[0] != erratum.key:
      continue
    row = tuple(
      erratum.value
      if (column.name, text) == (erratum.column, erratum.found) else text
      for column, text in zip(schema.columns, row))
  return row
