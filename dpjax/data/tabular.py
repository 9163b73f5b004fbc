"""From the bytes of a tabular file to features in [-1, 1] and labels.

The schema is all that is known beforehand: the columns with their public
bounds and categories. Rows are encoded field by field, see
`dpjax.data.columns`, so a row's encoding does not depend on other rows.
"""

import csv
import dataclasses
import io
from typing import NamedTuple

import numpy as np

from dpjax.data import columns


class Erratum(NamedTuple):
  """A published correction of one field, found by the record's own key.

  Attributes:
    key: first field of the record.
    column: name of the column.
    found: what the file says; the correction is made only if it says so.
    value: what the original says.
  """
  key: str
  column: str
  found: str
  value: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Schema:
  """What is publicly known about a file.

  Attributes:
    columns: all columns in the file's order, exactly one of them a `Label`.
    delimiter: one character between the fields.
    header: whether the first line holds the column names.
    comment: lines that start so are no records; '' for none.
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
    """Names of the encoded features, one for each column of x."""
    return tuple(name for c in self.columns for name in c.names())


class Table(NamedTuple):
  """The fields of a file as text.

  Attributes:
    file: name for messages.
    lines: line number in the file of each record, from 1.
    rows: the records, each a tuple with one text per column.
  """
  file: str
  lines: tuple[int, ...]
  rows: tuple[tuple[str, ...], ...]


class Encoded(NamedTuple):
  """Features and labels on the host.

  Attributes:
    x: features, [n, p] float32 in [-1, 1].
    y: classes, [n] int32.
  """
  x: np.ndarray
  y: np.ndarray


def parse(content: bytes, schema: Schema, *, file: str) -> Table:
  """Splits a file into the text of its fields.

  Args:
    content: the file, unpacked, UTF-8 with or without byte order mark.
    schema: the columns to expect.
    file: name for messages.

  Returns:
    The records, without header, comments and empty lines.

  Raises:
    ValueError: for a header or a number of fields other than the schema's.
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
    ValueError: naming file, line and column of the first field that is not
      what the schema allows; also if there is no record at all.
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
  # A field is encoded at its first occurrence and looked up afterwards; the
  # code of a text is the same wherever, and beside whatever, it stands.
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
  found, wanted = next(p for p in zip(row, expected) if p[0] != p[1])
  raise ValueError(f'{file}: the header names a column {found!r} where '
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
