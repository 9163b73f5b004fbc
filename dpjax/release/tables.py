"""Reads columns of a CSV or Parquet file, record by record.

Fields of a numeric column become exact decimal numbers, or None where a value
is missing; `formats` says which fields are which, and lists all refusals.
CSV is read by `csv` of the standard library, because data frame readers lack
three things: fields stay text until they are exact decimal numbers, errors
state line numbers, and each line can be read by itself.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
import csv
import io
import numbers
import pathlib
import re
from typing import Any, BinaryIO
import zlib

from dpjax import errors
from dpjax import unpacking
from dpjax.release import formats
from dpjax.release import lattice
from dpjax.release.formats import FileError
from dpjax.release.formats import Format

FORMATS = ('.csv', '.csv.gz', '.parquet')

_LONGEST_LINE = 2**20
_LONGEST_FIELD = 2**17
# Surrogates: the decoder's replacement for bytes that are not valid text.
_NO_TEXT = re.compile('[\ud800-\udfff]')


def read(path: str, file: BinaryIO, *columns: str, numeric: bool,
         form: Format = Format(), gaps: bool = True
         ) -> Generator[Any, None, None]:
  """Yields the fields of a column, in order, or tuples for several columns.

  Args:
    path: name of the file; its extension gives the format.
    file: the file, open in binary mode at its start.
    *columns: names in the header; without any, None is yielded per record.
    numeric: whether the first column is numeric: its fields are then decimal
      numbers, or None if missing. Fields of other columns are the text of a CSV
      file or the values of a Parquet file, None for a null.
    form: the owner's declarations. Blank lines of a CSV file are no records.
    gaps: whether a number may be missing.

  Raises:
    ValueError: for an unknown extension, an unknown column or a missing header.
    FileError: for a fault of the file, see `formats.REFUSALS`.
  """
  name = pathlib.Path(path).name.lower()
  kind = next((kind for kind in FORMATS if name.endswith(kind)), None)
  if kind is None:
    errors.check_choice('input', pathlib.Path(name).suffix, FORMATS)

  def number(field, place):
    try:
      return _number(field, form, gaps)
    except FileError as error:
      raise FileError(error.reason, f'{path} {place}, column {columns[0]!r}: '
                      f'{error.fault}') from None

  convert = number if numeric else None
  if kind == '.parquet':
    return _parquet(path, file, columns, convert)
  return _csv(path, file, columns, convert, form)


def of_rows(rows: Iterable[Sequence[object]], *, numeric: bool,
            form: Format = Format(), gaps: bool = True) -> Iterator[object]:
  """Returns the fields of records in memory, as `read` does those of a file.

  Args:
    rows: the fields of each record.
    numeric: whether the first field is a number; see `read`.
    form: how text that stands for a number is written.
    gaps: whether a number may be missing.

  Raises:
    FileError: for a field that is no number, see `formats.REFUSALS`.
  """
  for place, row in enumerate(rows, 1):
    fields = list(row)
    if numeric and fields:
      first = fields[0]
      if not _is_scalar(first):
        # Its text is no number, so it is refused, or missing if declared so.
        first = formats.shown(repr(first))
      try:
        fields[0] = _number(first, form, gaps)
      except FileError as error:
        raise FileError(error.reason, f'record {place}: {error.fault}'
                        ) from None
    yield _packed(fields)


def _is_scalar(field: object) -> bool:
  """Returns whether a field is a number, text, or a missing value.

  `lattice.number` takes dates, lists and other objects for missing numbers.
  """
  return field is None or isinstance(field, (str, numbers.Number)) or (
      # The missing values of pandas, which is not imported for their sake.
      type(field).__name__ in ('NAType', 'NaTType'))


def _number(field: object, form: Format,
            gaps: bool) -> lattice.Decimal | None:
  """Returns a field as a number; None if it is missing and that is allowed."""
  value = None
  missing = field is None
  if isinstance(field, str):
    missing = form.is_missing(field)
    value = None if missing else form.number(field)
  elif field is not None:  # Tables of floats spell a missing number as NaN.
    value = lattice.number(field)
    missing = value is None
  if value is None and not missing and form.unparsed == 'refuse':
    raise FileError('number', f'{formats.shown(field)} is no number'
                    f'{formats.advice(field)}')
  if value is None and not gaps:
    raise FileError('missing', 'a number is missing, and no rule says how it '
                    'is treated')
  return value


def _csv(path: str, file: BinaryIO, columns: Sequence[str],
         convert: Callable | None, form: Format
         ) -> Generator[Any, None, None]:
  """Yields the fields of a CSV file; see `read`."""
  unpacked = file
  if path.lower().endswith('.gz'):
    unpacked = unpacking.gunzip(file)
  text = io.TextIOWrapper(
      unpacked, encoding=form.encoding.replace('utf-8', 'utf-8-sig'),
      errors='surrogateescape', newline='')
  try:
    rows = (_lines_alone if form.bad_lines == 'missing' else _rows)(
        path, text, form)
    header = form.header or _header(path, rows)
    places = [_place(path, column, header) for column in columns]
    for number, row in rows:
      if isinstance(row, FileError) or len(row) != len(header):
        if form.bad_lines == 'refuse':
          raise FileError('fields', f'{path} line {number} has {len(row)} '
                          f'fields, the header {len(header)}')
        fields = [None] * len(columns)
      else:
        fields = [row[place].strip() for place in places]
      if convert is not None:
        fields[0] = convert(fields[0], f'line {number}')
      yield _packed(fields)
  except unpacking.ExpandedError as error:
    raise FileError('expanded', f'{path} {error}') from None
  except (EOFError, OSError, zlib.error) as error:
    if unpacked is file:
      raise
    raise FileError('damaged', f'{path} is a damaged gzip file: '
                    f'{errors.one_line(error)}') from None
  finally:
    text.detach()  # leaves the file open for the caller


def _lines(path: str, text: io.TextIOWrapper
           ) -> Iterator[tuple[int, str | FileError]]:
  """Yields (line number from 1, line), or the fault of the line instead."""
  number = 0
  while line := text.readline(_LONGEST_LINE):
    number += 1
    if len(line) == _LONGEST_LINE and line[-1] not in '\r\n':
      while (rest := text.readline(_LONGEST_LINE)) and rest[-1] not in '\r\n':
        pass
      yield number, FileError('length', f'{path} line {number} has more than '
                              f'{_LONGEST_LINE} characters')
    elif not line.isascii() and _NO_TEXT.search(line):
      yield number, FileError(
          'encoding', f'{path} line {number} is no text in '
          f'{text.encoding.removesuffix("-sig")}: save the file as UTF-8, or '
          'declare its encoding, latin-1 say')
    else:
      yield number, line


def _rows(path: str, text: io.TextIOWrapper, form: Format
          ) -> Iterator[tuple[int, list[str]]]:
  """Yields (last line number of a row, its fields); raises at a fault."""
  reached, size = 0, 0

  def lines():
    nonlocal reached, size
    for number, line in _lines(path, text):
      reached = number
      if isinstance(line, FileError):
        raise line
      size += len(line)
      if size > _LONGEST_LINE:
        raise FileError('length', f'{path} line {number} is one of a record of '
                        f'more than {_LONGEST_LINE} characters')
      yield line

  try:
    for row in csv.reader(lines(), delimiter=form.separator, strict=True):
      size = 0  # The reader takes lines only as it needs them.
      if max(map(len, row), default=0) > _LONGEST_FIELD:
        raise FileError('length', f'{path} line {reached} has a field of more '
                        f'than {_LONGEST_FIELD} characters')
      if row:
        yield reached, row
  except csv.Error as error:
    reason = 'length' if 'larger' in str(error) else 'quoting'
    raise FileError(reason, f'{path} line {reached}: {error}') from None


def _lines_alone(path: str, text: io.TextIOWrapper, form: Format
                 ) -> Iterator[tuple[int, list[str] | FileError]]:
  """Yields (line number, fields) of each line by itself, or its fault.

  A change of one line changes one record: an open quotation mark ends with its
  line, and cannot swallow the lines that follow.
  """
  for number, line in _lines(path, text):
    if isinstance(line, FileError):
      yield number, line
      continue
    try:
      yield from ((number, row) for _, row in _rows(
          path, io.StringIO(line, newline=''), form))
    except FileError as error:
      yield number, error


def _header(path: str, rows: Iterator[tuple[int, list[str] | FileError]]
            ) -> tuple[str, ...]:
  """Returns the names of the columns, from the first line."""
  _, row = next(rows, (0, None))
  if row is None:
    raise ValueError(f'{path} is empty: there is no header with the columns; '
                     'for a file without a header, declare their names')
  if isinstance(row, FileError):
    raise row
  names = tuple(name.strip() for name in row)
  if any('\0' in name for name in names):
    raise ValueError(f'{path} looks like UTF-16: save it as UTF-8')
  return names


def _packed(fields: Sequence[object]) -> object:
  """Returns None for no field, a single field as it is, or else a tuple."""
  return tuple(fields) if len(fields) > 1 else next(iter(fields), None)


def _place(path: str, column: str, names: Sequence[str]) -> int:
  """Returns the index of a column, which must be unique."""
  if names.count(column) != 1:
    what = 'several columns' if column in names else 'no column'
    near = errors.did_you_mean(column, set(names) - {column})
    if len(names) == 1 and column in names[0]:
      near = '; is the separator another one?'
    raise ValueError(f'{path} has {what} {column!r}; there are '
                     f'{", ".join(names)}{near}')
  return names.index(column)


def _parquet(path: str, file: BinaryIO, columns: Sequence[str],
             convert: Callable | None) -> Generator[Any, None, None]:
  """Yields the fields of a Parquet file; see `read`."""
  try:
    import pyarrow
    from pyarrow import parquet
  except ImportError as error:
    raise ImportError('Parquet needs the extra `parquet`: pip install '
                      'dpjax[parquet]') from error
  try:
    table = parquet.ParquetFile(file)
    _check_expansion(table.metadata, path, file)
    if not columns:
      yield from (None for _ in range(table.metadata.num_rows))
      return
    names = table.schema_arrow.names
    for place, column in enumerate(columns):
      column_type = table.schema_arrow.field(_place(path, column, names)).type
      _check_type(pyarrow.types, column, column_type,
                  numeric=convert is not None and not place)
    number = 0
    for batch in table.iter_batches(columns=list(columns)):
      fields = [batch.column(name).to_pylist() for name in columns]
      for row in zip(*fields, strict=True):
        number += 1
        first = row[0] if convert is None else convert(
            row[0], f'record {number}')
        yield _packed((first, *row[1:]))
  except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
    raise FileError('damaged', f'{path} is no Parquet file, or a damaged one: '
                    f'{errors.one_line(error)}') from None


def _check_expansion(metadata, path: str, file: BinaryIO) -> None:
  """Refuses a Parquet file whose metadata declare too large an unpacked size.

  A record counts as one byte or more, since runs of equal values take no space.
  """
  place = file.tell()
  file.seek(0, io.SEEK_END)
  size = file.tell()
  file.seek(place)
  unpacked = sum(metadata.row_group(group).total_byte_size
                 for group in range(metadata.num_row_groups))
  try:
    unpacking.check(max(unpacked, metadata.num_rows), size)
  except unpacking.ExpandedError as error:
    raise FileError('expanded', f'{path} {error}') from None


def _check_type(types, column: str, kind: object, *, numeric: bool) -> None:
  """Refuses a column whose public type is neither numeric nor text."""
  while types.is_dictionary(kind):
    kind = kind.value_type
  if (types.is_integer(kind) or types.is_floating(kind) or
      types.is_decimal(kind) or types.is_boolean(kind) or
      types.is_null(kind)):
    return
  if numeric:
    raise ValueError(f'column {column!r} is {kind}, not numeric')
  if not (types.is_string(kind) or types.is_large_string(kind)):
    raise ValueError(f'column {column!r} is {kind}, neither text nor numeric')
