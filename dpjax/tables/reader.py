"""Reads columns of CSV and Parquet files, and of tables in memory.

`read` yields the exact fields of a few columns, record by record, for releases.
`table` gives whole columns as arrays, for training and studies. Both read
regular CSV files with `arrow` and others line by line, with the same result.
"""

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
import contextlib
import dataclasses
import io
import itertools
import os
import pathlib
from typing import Any, IO, NamedTuple, TYPE_CHECKING, TypeAlias

import numpy as np

from dpjax import errors
from dpjax.tables import arrow
from dpjax.tables import columns
from dpjax.tables import decimals
from dpjax.tables import lines
from dpjax.tables import parquet
from dpjax.tables.columns import Column
from dpjax.tables.columns import Distinct
from dpjax.tables.formats import FileError
from dpjax.tables.formats import Format

if TYPE_CHECKING:
  import pyarrow

FORMATS = ('.csv', '.csv.gz', '.tsv', '.tsv.gz', '.parquet')
"""Extensions of the files that can be read."""

Fields: TypeAlias = Generator[object, None, None]
"""The fields of records, one after the other; closing it closes the reader."""

_SEPARATORS = {',': 'a comma', ';': 'a semicolon', '\t': 'a tab', '|': 'a bar'}
_SHOWN = 20


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Table:
  """A table in memory: a file, or columns of a data frame.

  Attributes:
    name: name of the file, for messages.
    header: names of the columns.
    columns: the fields of each column, see `columns`.
    num_records: number of records.
    form: how numbers are written in text.
    place: from the index of a record to its place, such as 'line 7'.
    typed: whether text is never a number, as in a Parquet file.
  """
  name: str
  header: tuple[str, ...]
  columns: tuple[Column, ...]
  num_records: int
  form: Format = Format()
  place: Callable[[int], str] = lambda record: f'record {record + 1}'
  typed: bool = False

  def texts(self, column: str) -> Distinct:
    """Returns the texts of a column, '' for missing ones.

    Raises:
      ValueError: if the column does not exist or is of another type.
    """
    return columns.texts(self._column(column, numeric=False))

  def numbers(self, column: str, *, gaps: bool = True) -> np.ndarray:
    """Returns a column as numbers [n] float64, NaN where one is missing.

    Numbers that are too large for float64 are infinite.

    Args:
      column: its name.
      gaps: whether a number may be missing.

    Raises:
      ValueError: if the column does not exist or is of another type.
      FileError: for a field that is not a number, see `formats.REFUSALS`.
    """
    return columns.reals(
        self._column(column, numeric=True), self.form, gaps=gaps,
        where=lambda record: f'{self.where(record)}, column {column!r}')

  def index(self, column: str) -> int:
    """Returns the index of a column; raises ValueError if there is not one."""
    return index(self.name, column, self.header)

  def where(self, record: int) -> str:
    """Returns the name of the table and the place of a record in it."""
    return f'{self.name} {self.place(record)}'

  def _column(self, name: str, *, numeric: bool) -> Column:
    column = self.columns[self.index(name)]
    if hasattr(column, 'dictionary_encode'):
      parquet.check_type(name, column.type, numeric=numeric and self.typed,
                         dates=numeric and bool(self.form.dates))
    return column


def read(path: str, file: IO[bytes], *names: str, numeric: bool,
         form: Format = Format(), gaps: bool = True) -> Fields:
  """Yields the fields of a column, in order, or tuples for several columns.

  Args:
    path: name of the file; its extension gives the format.
    file: the file, open in binary mode at its start.
    *names: names in the header; without any, None is yielded per record.
    numeric: whether the fields of the first column are yielded as decimal
      numbers, None if missing. Fields of other columns are the text of a CSV
      file or the values of a Parquet file.
    form: the owner's declarations. Blank lines of a CSV file are not records.
    gaps: whether a number may be missing.

  Raises:
    ValueError: for an unknown extension, an unknown column or a missing header.
    FileError: for a fault of the file, see `formats.REFUSALS`.
  """
  if extension(path) == '.parquet':
    return _parquet(path, file, names, numeric=numeric, form=form, gaps=gaps)
  return _csv(path, file, names, numeric=numeric, form=form, gaps=gaps)


def of_rows(rows: Iterable[Sequence[object]], *, numeric: bool,
            form: Format = Format(), gaps: bool = True) -> Iterator[object]:
  """Yields the fields of records in memory, in the form that `read` yields.

  Args:
    rows: the fields of each record.
    numeric: whether the first field is a number; see `read`.
    form: how numbers are written in text.
    gaps: whether a number may be missing.

  Raises:
    FileError: for a field that is not a number, see `formats.REFUSALS`.
  """
  for place, row in enumerate(rows, 1):
    fields = list(row)
    if numeric and fields:
      fields[0] = _number(fields[0], f'record {place}', form, gaps)
    yield _single_or_tuple(fields)


def table(path: str | os.PathLike[str], form: Format = Format()) -> Table:
  """Reads all columns of a file.

  Args:
    path: path of the file; its extension gives the format.
    form: how the file is written; see `formats.Format`.

  Raises:
    ValueError: for an unknown extension or a missing header.
    FileError: for a fault of the file, see `formats.REFUSALS`.
  """
  path = os.fspath(path)
  with open(path, 'rb') as file:
    if extension(path) != '.parquet':
      return _csv_table(path, file, form)
    with parquet.opened(path, file) as opened:
      whole = opened.read()
  return dataclasses.replace(of_columns(whole, name=path, form=form),
                             typed=True)


def of_columns(frame: Any, *, name: str = 'table',
               form: Format = Format()) -> Table:
  """Returns columns in memory as a table.

  Args:
    frame: a data frame of pandas or polars, a table of Arrow, a mapping from
      names to columns, or an array [n, p] whose columns `form.header` names.
    name: name of the table, for messages.
    form: how numbers are written in text.

  Raises:
    ValueError: if columns have several dimensions or unequal lengths.
  """
  if getattr(frame, 'ndim', 0) == 2 and not hasattr(frame, 'columns'):
    names = form.header
    if len(names) != frame.shape[1]:
      raise ValueError(f'an array of {frame.shape[1]} columns needs as many '
                       f'names as header, got {len(names)}')
    fields = [frame[:, place] for place in range(len(names))]
  else:
    # `columns` of an Arrow table are not names, but the columns themselves.
    arrow_table = hasattr(frame, 'column_names')
    names = tuple(frame.column_names if arrow_table else
                  getattr(frame, 'columns', frame))
    fields = frame.columns if arrow_table else [frame[name] for name in names]
  parts = tuple(map(columns.of, fields))
  if len(set(map(len, parts))) > 1:
    raise ValueError('columns must have equal lengths, got '
                     f'{", ".join(str(len(part)) for part in parts)}')
  return Table(name=name, header=tuple(map(str, names)), columns=parts,
               num_records=len(parts[0]) if parts else 0, form=form)


def extension(path: str) -> str:
  """Returns the extension of a file, one of `FORMATS`.

  Raises:
    ValueError: if it has another one.
  """
  name = pathlib.Path(path).name.lower()
  for kind in FORMATS:
    if name.endswith(kind):
      return kind
  errors.check_choice('extension of the input', pathlib.Path(name).suffix,
                      FORMATS)
  raise AssertionError('unreachable: no extension is one of FORMATS')


def index(path: str, column: str, names: Sequence[str]) -> int:
  """Returns the index of a column, whose name must be unique.

  Raises:
    ValueError: if no column or several have this name; the message suggests
      another name or another separator if that is likely.
  """
  if names.count(column) == 1:
    return names.index(column)
  if column in names:
    raise ValueError(f'{path} has {names.count(column)} columns {column!r}')
  hint = errors.did_you_mean(column, names)
  if len(names) == 1:
    likely = [f'{words} ({sign!r})' for sign, words in _SEPARATORS.items()
              if sign in names[0]]
    if likely or column in names[0]:
      hint = f'; is the separator {" or ".join(likely) or "another one"}?'
  raise ValueError(f'{path} has no column {column!r}; there are '
                   f'{", ".join(names[:_SHOWN])}'
                   f'{", ..." * (len(names) > _SHOWN)}{hint}')


def _single_or_tuple(fields: Sequence[object]) -> object:
  """Returns None for no field, a single field as it is, or else a tuple."""
  return tuple(fields) if len(fields) > 1 else next(iter(fields), None)


def _number(field: object, where: str, form: Format,
            gaps: bool) -> decimals.Decimal | None:
  """Returns a field as a number; `where` begins the error message."""
  try:
    return columns.number(field, form, gaps=gaps)
  except FileError as error:
    raise FileError(error.reason, f'{where}: {error.fault}') from None


def _csv(path: str, file: IO[bytes], names: Sequence[str], *, numeric: bool,
         form: Format, gaps: bool) -> Fields:
  """Yields the fields of a CSV file; see `read`.

  If a batch of `arrow` has a field that is refused, `lines` reads that batch
  again, and raises the error with the line number.
  """
  start, num_read = file.tell(), 0
  whole = _split(path, file, form, names)
  if whole is not None:
    places = [str(whole.header.index(name)) for name in names]
    for batch in whole.fields.to_batches():
      try:
        fields = _converted(batch, places, numeric, form, gaps)
      except FileError:
        break
      yield from fields
      num_read += batch.num_rows
    if num_read == whole.fields.num_rows:
      return
  file.seek(start)
  with contextlib.closing(_line_by_line(
      path, file, names, numeric=numeric, form=form, gaps=gaps)) as rest:
    yield from itertools.islice(rest, num_read, None)


def _line_by_line(path: str, file: IO[bytes], names: Sequence[str], *,
                  numeric: bool, form: Format, gaps: bool) -> Fields:
  """Yields the fields of a CSV file, in constant memory; see `read`."""
  with contextlib.closing(lines.records(
      path, file, form, packed=_is_packed(path))) as rows:
    header = form.header or lines.header(path, rows)
    places = [index(path, name, header) for name in names]
    for number, row in lines.complete(path, rows, len(header), form):
      fields: list[object] = [row and row[place] for place in places]
      if numeric:
        fields[0] = _number(
            fields[0], f'{path} line {number}, column {names[0]!r}', form, gaps)
      yield _single_or_tuple(fields)


class _Split(NamedTuple):
  """A CSV file that `arrow` has split: bytes, header, and fields as text."""
  content: bytes
  header: tuple[str, ...]
  fields: 'pyarrow.Table'


def _split(path: str, file: IO[bytes], form: Format,
           names: Sequence[str] | None = None) -> _Split | None:
  """Splits a CSV file with `arrow`; None if `lines` must read it.

  Column i is named str(i). Columns that are not in `names` may be left out.
  """
  content = arrow.content(file, packed=_is_packed(path))
  if content is None:
    return None
  header = form.header
  if not header:
    # `lines` reads the names either way, so they are the same.
    with contextlib.closing(lines.records(
        path, io.BytesIO(content), form)) as rows:
      header = lines.header(path, rows)
  places = range(len(header)) if names is None else [
      index(path, name, header) for name in names]
  fields = arrow.split(content, form, len(header), places)
  return None if fields is None else _Split(content, header, fields)


def _is_packed(path: str) -> bool:
  return path.lower().endswith('.gz')


def _converted(batch: 'pyarrow.RecordBatch', places: Sequence[str],
               numeric: bool, form: Format, gaps: bool) -> Iterable[object]:
  """Returns the fields of records that `arrow` has split; see `read`."""
  if not places:
    return itertools.repeat(None, batch.num_rows)
  fields: list[Iterable[object]] = []
  for place in places:
    if numeric and not fields:
      fields.append(columns.exact(batch.column(place), form, gaps=gaps))
    else:
      texts, codes = columns.texts(batch.column(place))
      fields.append(map(texts.__getitem__, codes.tolist()))
  return zip(*fields, strict=True) if len(fields) > 1 else fields[0]


def _csv_table(path: str, file: IO[bytes], form: Format) -> Table:
  """Returns all columns of a CSV file; see `table`."""
  start = file.tell()
  whole = _split(path, file, form)
  if whole is not None:
    content = whole.content
    return Table(
        name=path, header=whole.header, columns=tuple(whole.fields.columns),
        num_records=whole.fields.num_rows, form=form,
        place=lambda record: _line_of(record, content, form))
  file.seek(start)
  numbers = []
  with contextlib.closing(lines.records(
      path, file, form, packed=_is_packed(path))) as rows:
    header = form.header or lines.header(path, rows)
    parts: list[list[str]] = [[] for _ in header]
    for number, row in lines.complete(path, rows, len(header), form):
      numbers.append(number)
      for part, field in zip(parts, row or [''] * len(header), strict=True):
        part.append(field)
  return Table(name=path, header=header, columns=tuple(parts),
               num_records=len(numbers), form=form,
               place=lambda record: f'line {numbers[record]}')


def _line_of(record: int, content: bytes, form: Format) -> str:
  """Returns the line of a record in an unpacked CSV file."""
  # Only errors need line numbers, so they are counted when needed.
  with contextlib.closing(lines.records(
      '', io.BytesIO(content), form)) as rows:
    number, _ = next(itertools.islice(rows, record + (not form.header), None))
  return f'line {number}'


def _parquet(path: str, file: IO[bytes], names: Sequence[str], *, numeric: bool,
             form: Format, gaps: bool) -> Fields:
  """Yields the fields of a Parquet file; see `read`."""
  with parquet.opened(path, file) as opened:
    if not names:
      yield from itertools.repeat(None, opened.metadata.num_rows)
      return
    header = opened.schema_arrow.names
    for position, name in enumerate(names):
      kind = opened.schema_arrow.field(index(path, name, header)).type
      is_number = numeric and not position
      parquet.check_type(name, kind, numeric=is_number,
                         dates=is_number and bool(form.dates))
    number = 0
    for batch in opened.iter_batches(columns=list(names)):
      for row in zip(*(batch.column(name).to_pylist() for name in names),
                     strict=True):
        number += 1
        fields = list(row)
        if numeric:
          fields[0] = _number(
              row[0], f'{path} record {number}, column {names[0]!r}', form,
              gaps)
        yield _single_or_tuple(fields)
