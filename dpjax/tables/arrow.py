"""Reads text with pyarrow, where it means what `lines` says it means.

pyarrow splits a file of a million records in a tenth of a second, but guesses
at ill-quoted text and states no line numbers. So it only reads files on which
both agree, by the checks of `_is_regular`; every function here returns None
where `lines` or `columns` must decide.
"""

from collections.abc import Iterable
from typing import Any, IO, TYPE_CHECKING
import zlib

import numpy as np

from dpjax import unpacking
from dpjax.tables.formats import Format

if TYPE_CHECKING:
  import pyarrow

MOST_BYTES = 2**30
"""Larger files are read line by line, in constant memory."""

# Below the limits of `lines` on lines, records and fields, in characters.
_LONGEST_LINE = 2**17
_BLOCK = 2**20
_NEWLINE, _RETURN, _QUOTE = b'\n\r"'


def content(file: IO[bytes], *, packed: bool) -> bytes | None:
  """Returns the bytes of a file, unpacked; None if it is large or damaged.

  A packed file of more than `unpacking.RATIO_LIMIT` times its size is left to
  `lines`, which refuses it, or reads it, in constant memory.
  """
  start = file.tell()
  size = file.seek(0, 2) - start
  file.seek(start)
  if size > MOST_BYTES:
    return None
  if not packed:
    return file.read()
  unpacked = bytearray()
  try:
    reader = unpacking.gunzip(file)
    while block := reader.read(_BLOCK):
      unpacked += block
      if len(unpacked) > min(unpacking.RATIO_LIMIT * size, MOST_BYTES):
        return None
  except (unpacking.ExpandedError, EOFError, OSError, zlib.error):
    return None
  return bytes(unpacked)


def split(text: bytes, form: Format, num_columns: int,
          places: Iterable[int]) -> 'pyarrow.Table | None':
  """Returns the fields of a CSV file as text, which is not stripped.

  Args:
    text: content of the file.
    form: how the file is written.
    num_columns: number of columns, by the header.
    places: the columns that are wanted; without any, the first one.

  Returns:
    A table with columns named '0', '1', ...; None if the file is not regular.
  """
  try:
    import pyarrow
    from pyarrow import csv
  except ImportError:
    return None
  body = _decoded(text, form)
  if body is None or not _is_regular(body, form.separator):
    return None
  start = 0
  if not form.header:
    # Not a blank line: `lines` would take the header from a later line.
    start = body.find(b'\n') + 1
    if not body[:start].rstrip(b'\r\n'):
      return None
  # Without a type for each column, pyarrow would guess it from the records.
  column_types = {str(place): pyarrow.string() for place in places}
  try:
    return csv.read_csv(
        pyarrow.BufferReader(pyarrow.py_buffer(body).slice(start)),
        read_options=csv.ReadOptions(column_names=[
            str(place) for place in range(num_columns)]),
        parse_options=csv.ParseOptions(delimiter=form.separator),
        convert_options=csv.ConvertOptions(
            column_types=column_types or {'0': pyarrow.string()},
            include_columns=list(column_types or '0')))
  except pyarrow.ArrowException:  # lines of several lengths, or none at all
    return None


def _decoded(text: bytes, form: Format) -> bytes | None:
  """Returns text as UTF-8 without byte order mark; None if it is not text."""
  try:
    if form.encoding != 'utf-8':
      return text.decode(form.encoding).encode()
    if not text.isascii():
      text.decode()
  except UnicodeDecodeError:
    return None
  return text.removeprefix(b'\xef\xbb\xbf')


def _is_regular(text: bytes, separator: str) -> bool:
  r"""Returns whether text has one meaning for every reader of CSV.

  Lines end in \n or \r\n. A quotation mark opens a field at its start, and the
  next one ends the field, or is the first of a pair that stands for one. So by
  induction over quotation marks, those of even number, counted from 0, open.
  No field goes on in the next line, and no line is long.
  """
  # `lines` skips blanks before a field, so they cannot separate fields.
  if (b'\0' in text or separator == ' ' or not separator.isascii() or
      b'\r' in text and text.count(b'\r') != text.count(b'\r\n')):
    return False
  octets = np.frombuffer(text, np.uint8)
  ends = np.flatnonzero(octets == _NEWLINE)
  if np.diff(ends, prepend=-1, append=len(octets)).max() > _LONGEST_LINE:
    return False
  quotes = np.flatnonzero(octets == _QUOTE)
  if not len(quotes):
    return True
  # If an odd number of marks precedes a line's end, a field goes on.
  if len(quotes) % 2 or (np.searchsorted(quotes, ends) % 2).any():
    return False
  # For each byte, whether it may stand beside a quotation mark, outside of the
  # field. In the padded text, byte i has the neighbours i and i + 2.
  is_neighbour = np.zeros(256, bool)
  is_neighbour[[ord(separator), _NEWLINE, _QUOTE]] = True
  padded = np.frombuffer(b'\n%b\n' % text, np.uint8)
  if not is_neighbour[padded[quotes[::2]]].all():
    return False
  is_neighbour[_RETURN] = True
  return bool(is_neighbour[padded[quotes[1::2] + 2]].all())


def listed(column: 'pyarrow.ChunkedArray | pyarrow.Array') -> list[Any]:
  """Returns the fields of a column as Python values."""
  import pyarrow
  # NumPy gives the same values as pyarrow, ten times faster.
  if not column.null_count and (pyarrow.types.is_integer(column.type) or
                                pyarrow.types.is_float64(column.type)):
    return column.to_numpy().tolist()
  return column.to_pylist()


def distinct(column: 'pyarrow.ChunkedArray | pyarrow.Array'
             ) -> tuple[list[Any], np.ndarray]:
  """Returns a column's distinct values, and each record's index into them."""
  import pyarrow
  # Dictionaries of files may have equal values, or unused ones.
  if pyarrow.types.is_dictionary(column.type):
    column = column.cast(column.type.value_type)
  if isinstance(column, pyarrow.ChunkedArray):
    column = column.combine_chunks()
  encoded = column.dictionary_encode()
  values = encoded.dictionary.to_pylist()
  if not encoded.indices.null_count:
    return values, encoded.indices.to_numpy()
  codes = encoded.indices.fill_null(len(values))
  return [*values, None], codes.to_numpy(zero_copy_only=False)


def numbers(column: 'pyarrow.ChunkedArray', form: Format) -> np.ndarray | None:
  """Returns a column as float64, NaN for missing numbers.

  None if a field is not a number, or if it is written with thousands marks.
  """
  import pyarrow
  from pyarrow import compute
  kind = column.type
  if pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or (
      pyarrow.types.is_boolean(kind)):
    # `safe` would raise an error for an integer that float64 must round.
    return column.cast(pyarrow.float64(), safe=False).to_numpy()
  if not pyarrow.types.is_string(kind) or form.thousands or form.dates:
    return None
  # `lines` strips fields while it reads them; pyarrow does not.
  column = compute.ascii_trim(column, ' \t')
  missing = compute.is_in(column, value_set=pyarrow.array(
      ['', *form.missing_tokens], kind))
  texts = compute.if_else(missing, pyarrow.scalar(None, kind), column)
  if form.decimal != '.':
    # As in `formats`, a point is no decimal mark if a comma is.
    if compute.any(compute.match_substring(texts, '.')).as_py():
      return None
    texts = compute.replace_substring(texts, form.decimal, '.',
                                      max_replacements=1)
  try:
    values = texts.cast(pyarrow.float64()).to_numpy()
  except pyarrow.ArrowException:
    return None
  # Text such as nan, which is not declared to be missing, is not a number.
  return values if np.isnan(values).sum() == texts.null_count else None


def simple(texts: list[str], form: Format) -> list[bool]:
  """Returns which texts are short numbers, without exponent and blanks.

  `Decimal` converts these to the numbers that `form.number` returns.
  """
  import pyarrow
  from pyarrow import compute
  if form.thousands or form.decimal != '.' or form.dates:
    return [False] * len(texts)
  # Numbers of at most 198 digits lose none in `decimals`, which keeps 200.
  return compute.match_substring_regex(
      pyarrow.array(texts, pyarrow.string()),
      r'^[+-]?[0-9]{1,99}([.][0-9]{0,99})?$').to_pylist()
