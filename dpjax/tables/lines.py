"""Splits CSV text into records, line by line, and reports each faulty line.

This module defines the meaning of a CSV file. It takes constant memory for
files of any size and states line numbers. `arrow` reads ordinary files many
times faster, and leaves files whose meaning it would have to guess.
"""

from collections.abc import Generator, Iterator
import csv
import io
import re
from typing import IO, TypeAlias
import zlib

from dpjax import errors
from dpjax import unpacking
from dpjax.tables.formats import FileError
from dpjax.tables.formats import Format

LONGEST_LINE = 2**20
LONGEST_FIELD = 2**17
"""Most characters of a line or a record, and of a field."""

# Surrogates: the decoder's replacement for bytes that are not valid text.
_NO_TEXT = re.compile('[\ud800-\udfff]')

Row: TypeAlias = list[str] | FileError
"""The fields of a record, or the fault of its line."""

Rows: TypeAlias = Generator[tuple[int, Row], None, None]
"""Line numbers and rows."""


def records(path: str, file: IO[bytes], form: Format, *,
            packed: bool = False, strict: bool = True) -> Rows:
  """Yields the line number and the fields of each record, the header included.

  Fields have no white space at their ends. Blanks before a quotation mark
  that opens a field do not count. Blank lines are not records. With
  `form.bad_lines` 'missing' each line is read separately.

  Args:
    path: name of the file, for messages.
    file: the file, open in binary mode at its start; it is left open.
    form: how the file is written.
    packed: whether the file is packed with gzip.
    strict: whether text after a closing quotation mark is a fault. If not, it
      belongs to the field, for published files that are known.

  Yields:
    The number of the last line of a record, and its fields; with `bad_lines`
    'missing' the fault of a faulty line instead.

  Raises:
    FileError: for a fault of the file, see `formats.REFUSALS`.
  """
  unpacked = unpacking.gunzip(file) if packed else file
  # `utf-8-sig` drops a byte order mark. Bytes that are no text are marked by
  # surrogates. With newline='' `csv` sees the line breaks inside of quotes.
  text = io.TextIOWrapper(
      unpacked, encoding=form.encoding.replace('utf-8', 'utf-8-sig'),
      errors='surrogateescape', newline='')
  split = _lines_alone if form.bad_lines == 'missing' else _rows
  try:
    yield from split(path, text, form, strict)
  except unpacking.ExpandedError as error:
    raise FileError('expanded', f'{path} {error}') from None
  except (EOFError, OSError, zlib.error) as error:
    if not packed:
      raise
    raise FileError('damaged', f'{path} is a damaged gzip file: '
                    f'{errors.one_line(error)}') from None
  finally:
    text.detach()  # leaves the file open for the caller


def header(path: str, rows: Rows) -> tuple[str, ...]:
  """Returns the names of the columns, from the first record.

  Raises:
    ValueError: if there is no record, or if the file looks like UTF-16.
    FileError: if the first line is faulty.
  """
  _, row = next(rows, (0, None))
  if row is None:
    raise ValueError(f'{path} is empty: there is no header with the columns; '
                     'for a file without a header, declare their names')
  if isinstance(row, FileError):
    raise row
  if any('\0' in name for name in row):
    raise ValueError(f'{path} looks like UTF-16: save it as UTF-8')
  return tuple(row)


def complete(path: str, rows: Rows, num_columns: int,
             form: Format) -> Iterator[tuple[int, list[str] | None]]:
  """Yields records that have a field for each column; None for faulty ones.

  Raises:
    FileError: for a faulty record, unless `form` declares it missing.
  """
  for number, row in rows:
    if not isinstance(row, FileError) and len(row) == num_columns:
      yield number, row
    elif form.bad_lines == 'missing':
      yield number, None
    elif isinstance(row, FileError):
      raise row
    else:
      raise FileError('fields', f'{path} line {number} has {len(row)} fields, '
                      f'the header {num_columns}')


def _lines(path: str, text: io.TextIOWrapper | io.StringIO, encoding: str,
           lines_before: int = 0) -> Iterator[tuple[int, str | FileError]]:
  """Yields (line number, line), or the fault of the line instead."""
  number = lines_before
  while line := text.readline(LONGEST_LINE):
    number += 1
    if len(line) == LONGEST_LINE and line[-1] not in '\r\n':
      while (rest := text.readline(LONGEST_LINE)) and rest[-1] not in '\r\n':
        pass
      yield number, FileError('length', f'{path} line {number} has more than '
                              f'{LONGEST_LINE} characters')
    elif not line.isascii() and _NO_TEXT.search(line):
      yield number, FileError(
          'encoding', f'{path} line {number} is not text in {encoding}: save '
          'the file as UTF-8, or declare its encoding, latin-1 say')
    else:
      yield number, line


def _rows(path: str, text: io.TextIOWrapper | io.StringIO, form: Format,
          strict: bool, lines_before: int = 0
          ) -> Iterator[tuple[int, list[str]]]:
  """Yields (last line number of a row, its fields); raises at a fault.

  `lines_before` is the number of lines before `text`.
  """
  last_line, size = lines_before, 0

  def lines() -> Iterator[str]:
    nonlocal last_line, size
    for number, line in _lines(path, text, form.encoding, lines_before):
      last_line = number
      if isinstance(line, FileError):
        raise line
      size += len(line)
      if size > LONGEST_LINE:
        raise FileError('length', f'{path} line {number} is in a record of '
                        f'more than {LONGEST_LINE} characters')
      yield line

  try:
    for row in csv.reader(lines(), delimiter=form.separator, strict=strict,
                          skipinitialspace=True):
      size = 0  # The reader takes lines only as it needs them.
      if max(map(len, row), default=0) > LONGEST_FIELD:
        raise FileError('length', f'{path} line {last_line} has a field of '
                        f'more than {LONGEST_FIELD} characters')
      if row:
        yield last_line, list(map(str.strip, row))
  except csv.Error as error:
    # `csv` has one type of error; the one of a long field says 'larger'.
    reason = 'length' if 'larger' in str(error) else 'quoting'
    raise FileError(reason, f'{path} line {last_line}: {error}') from None


def _lines_alone(path: str, text: io.TextIOWrapper, form: Format, strict: bool
                 ) -> Iterator[tuple[int, Row]]:
  """Yields (line number, fields) of each line by itself, or its fault.

  A change of one line changes one record: an open quotation mark ends with its
  line, and cannot swallow the lines that follow.
  """
  for number, line in _lines(path, text, form.encoding):
    if isinstance(line, FileError):
      yield number, line
      continue
    try:
      yield from _rows(path, io.StringIO(line, newline=''), form, strict,
                       number - 1)
    except FileError as error:
      yield number, error
