"""Opens Parquet files, within the limits of unpacking, and checks types."""

from collections.abc import Iterator
import contextlib
import io
from typing import IO, TYPE_CHECKING

from dpjax import errors
from dpjax import unpacking
from dpjax.tables.formats import FileError

if TYPE_CHECKING:
  import pyarrow
  from pyarrow import parquet


@contextlib.contextmanager
def opened(path: str, file: IO[bytes],
           metadata: 'parquet.FileMetaData | None' = None
           ) -> 'Iterator[parquet.ParquetFile]':
  """Opens a Parquet file; errors while it is used also become `FileError`.

  Args:
    path: name of the file, for messages.
    file: the file, open in binary mode at its start.
    metadata: that of the file if it was opened before; None reads it.

  Raises:
    ImportError: if pyarrow is not installed.
    FileError: if the file is damaged, or unpacks to more than its limit.
  """
  try:
    import pyarrow
    from pyarrow import parquet
  except ImportError as error:
    raise ImportError('Parquet needs the extra `parquet`: pip install '
                      'dpjax[parquet]') from error
  try:
    # This reads metadata; records are unpacked after the check.
    whole = parquet.ParquetFile(file, metadata=metadata)
    if metadata is None:
      _check_expansion(whole.metadata, path, file)
    yield whole
  except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
    raise FileError('damaged', f'{path} is not a Parquet file, or is damaged: '
                    f'{errors.one_line(error)}') from None


def check_type(column: str, kind: 'pyarrow.DataType', *, numeric: bool,
               dates: bool = False) -> None:
  """Checks that a column holds numbers, or text unless `numeric`.

  Args:
    column: name of the column.
    kind: type of the column, which is public.
    numeric: whether text is rejected.
    dates: whether dates and times count as numbers.

  Raises:
    ValueError: if the column has another type.
  """
  from pyarrow import types
  while types.is_dictionary(kind):
    kind = kind.value_type
  if (types.is_integer(kind) or types.is_floating(kind) or
      types.is_decimal(kind) or types.is_boolean(kind) or
      types.is_null(kind)):
    return
  if dates and (types.is_date(kind) or types.is_timestamp(kind)):
    return
  if numeric:
    raise ValueError(f'column {column!r} is {kind}, not numeric')
  if not (types.is_string(kind) or types.is_large_string(kind) or
          types.is_string_view(kind)):
    raise ValueError(f'column {column!r} is {kind}, neither text nor numeric')


def _check_expansion(metadata: 'parquet.FileMetaData', path: str,
                     file: IO[bytes]) -> None:
  """Refuses a Parquet file whose metadata declare too large an unpacked size.

  A record counts as one byte or more, since runs of equal values take no space.
  """
  place = file.tell()
  size = file.seek(0, io.SEEK_END)
  file.seek(place)
  unpacked = sum(metadata.row_group(group).total_byte_size
                 for group in range(metadata.num_row_groups))
  try:
    unpacking.check(max(unpacked, metadata.num_rows), size)
  except unpacking.ExpandedError as error:
    raise FileError('expanded', f'{path} {error}') from None
