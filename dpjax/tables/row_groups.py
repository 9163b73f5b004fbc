"""Reads records of Parquet files and Arrow tables by number, group by group.

A table that is larger than memory is read by row groups, of which few are kept.
Records that are drawn at random are in most row groups, so reading a batch from
files with many more row groups than are kept takes as long as reading the
wanted columns of all of them. Small row groups (about a thousand records) keep
the memory small, and Arrow tables that are mapped into memory read the records
of a batch only. The metadata of a file has about 130 bytes for each column and
row group. Those of few files are kept, so many files need less memory than one.
"""

import abc
import collections
from collections.abc import Callable, Iterator, Sequence
import functools
import glob
import os
import threading
from typing import Any, IO, TYPE_CHECKING, TypeAlias

import numpy as np

from dpjax import errors
from dpjax.tables import parquet

if TYPE_CHECKING:
  import pyarrow

KEPT_GROUPS = 8
"""Number of row groups that are kept in memory."""

KEPT_FILES = 16
"""Number of files whose metadata are kept in memory."""

_Kept: TypeAlias = collections.OrderedDict[int, Any]


class GroupedRecords(abc.ABC):
  """Records of a table in groups; the base of the classes below.

  Attributes:
    columns: names of the columns that are read.
  """

  def __init__(self, schema: 'pyarrow.Schema',
               sizes: Sequence[int] | np.ndarray,
               columns: Sequence[str] | None, *, numeric: bool = True):
    """Checks the columns.

    Args:
      schema: names and types of the table.
      sizes: number of records of each group.
      columns: the columns that are wanted; None for all.
      numeric: whether they must be numeric, as `load` needs.

    Raises:
      ValueError: if a column is missing, or must be numeric and is not of
        numbers or of lists of them; if there are no records.
    """
    self.columns = tuple(schema.names if columns is None else columns)
    for name in self.columns:
      errors.check_choice('column', name, tuple(schema.names))
      if numeric:
        _check_numeric(name, schema.field(name).type)
    self._ends = np.cumsum(sizes)
    if not len(sizes) or not self._ends[-1] or not self.columns:
      raise ValueError('the table has no records, or no columns')

  def __len__(self) -> int:
    return int(self._ends[-1])

  @abc.abstractmethod
  def group(self, number: int) -> 'pyarrow.Table | pyarrow.RecordBatch':
    """Returns a group of records, with the wanted columns."""

  def load(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
    """Returns the records with these numbers.

    Args:
      numbers: [k] integers from 0.

    Returns:
      For each column an array [k], or [k, d] for lists of d numbers. A missing
      floating-point number is NaN.

    Raises:
      ValueError: if an integer or a list is missing, or if lists differ in
        length. Whether this happens depends on the records.
    """
    whole: dict[str, np.ndarray] = {}
    for places, taken in self.parts(numbers):
      for name in self.columns:
        values = _numbers(name, taken.column(name))
        if name not in whole:
          whole[name] = np.zeros([len(numbers), *values.shape[1:]],
                                 values.dtype)
        if whole[name].shape[1:] != values.shape[1:]:
          raise _unequal(name)
        whole[name][places] = values
    return whole

  def parts(self, numbers: np.ndarray) -> Iterator[tuple[np.ndarray, Any]]:
    """Yields (places in `numbers`, their records) for each group that has any.

    Args:
      numbers: [k] integers from 0.
    """
    groups = np.searchsorted(self._ends, numbers, side='right')
    for number in np.unique(groups).tolist():
      places = np.flatnonzero(groups == number)
      start = self._ends[number - 1] if number else 0
      yield places, self.group(number).take(numbers[places] - start)


class ParquetRecords(GroupedRecords):
  """Records of Parquet files, in the order of the files."""

  def __init__(self, path: str | os.PathLike[str], columns:
               Sequence[str] | None = None, *, numeric: bool = True):
    """Reads the metadata of the files.

    Args:
      path: a file, a folder of files that end in .parquet, or a pattern such as
        'folder/*.parquet'. Files are in the order of their names.
      columns: the columns that are wanted; None for all.
      numeric: whether they must be numeric, as `load` needs.

    Raises:
      ImportError: if pyarrow is not installed.
      ValueError: see `GroupedRecords`; if there is no such file, or if files
        have different columns.
    """
    self._path, self._numeric = os.fspath(path), numeric
    self._paths, self._versions = paths(self._path), []
    if not self._paths:
      raise ValueError(f'no Parquet file is at {self._path}')
    sizes: list[np.ndarray] = []
    first: Any = None
    for name in self._paths:
      with open(name, 'rb') as file, parquet.opened(name, file) as whole:
        self._versions.append(_version(file))
        schema = whole.schema_arrow.remove_metadata()
        sizes.append(np.array([
            whole.metadata.row_group(group).num_rows
            for group in range(whole.metadata.num_row_groups)], np.int64))
      first = schema if first is None else first
      if not schema.equals(first):
        raise ValueError(f'{name} has other columns than {self._paths[0]}')
    super().__init__(first, np.concatenate(sizes), columns, numeric=numeric)
    # Of each file: the number of its first group and record.
    self._first_groups = _starts([len(each) for each in sizes])
    self._first_records = _starts([each.sum() for each in sizes])
    self._kept: _Kept = collections.OrderedDict()
    self._kept_metadata: _Kept = collections.OrderedDict()
    self._lock = threading.Lock()

  def __reduce__(self) -> tuple[Any, ...]:
    # A copy in another process reads the files anew.
    return functools.partial(ParquetRecords, numeric=self._numeric), (
        self._path, self.columns)

  def where(self, number: int) -> tuple[str, int]:
    """Returns the file of a record, and its number in that file, from 0."""
    # Files without records start where the next one does.
    place = int(np.searchsorted(self._first_records, number, side='right')) - 1
    return self._paths[place], number - int(self._first_records[place])

  def group(self, number: int) -> 'pyarrow.Table':
    """Returns a row group; the last ones that were read are kept."""
    with self._lock:
      return _kept(self._kept, number, KEPT_GROUPS,
                   lambda: self._read(number))

  def _read(self, number: int) -> 'pyarrow.Table':
    """Reads a row group; its file must still be what it was."""
    place = int(np.searchsorted(self._first_groups, number, side='right')) - 1
    name = self._paths[place]
    with open(name, 'rb') as file:
      if _version(file) != self._versions[place]:
        raise ValueError(f'{name} was changed after it was opened')
      with parquet.opened(name, file, self._kept_metadata.get(place)) as whole:
        _kept(self._kept_metadata, place, KEPT_FILES, lambda: whole.metadata)
        return whole.read_row_group(number - int(self._first_groups[place]),
                                    list(self.columns))


class ArrowRecords(GroupedRecords):
  """Records of an Arrow table, in memory or mapped into it."""

  def __init__(self, table: 'pyarrow.Table',
               columns: Sequence[str] | None = None):
    """Checks the columns, see `GroupedRecords`."""
    self._batches = table.to_batches()
    super().__init__(table.schema, [batch.num_rows for batch in self._batches],
                     columns)

  def group(self, number: int) -> 'pyarrow.RecordBatch':
    """Returns a batch of the table."""
    return self._batches[number].select(list(self.columns))


def _kept(values: _Kept, key: int, most: int, make: Callable[[], Any]) -> Any:
  """Returns a kept value, or makes it; keeps those that were asked for last."""
  if key not in values:
    values[key] = make()
    if len(values) > most:
      values.popitem(last=False)
  values.move_to_end(key)
  return values[key]


def _starts(sizes: Sequence[int]) -> np.ndarray:
  """Returns the number of items before each part, for the sizes of parts."""
  return np.cumsum([0, *sizes[:-1]])


def _version(file: IO[bytes]) -> tuple[int, int]:
  """Returns what changes with the content of a file."""
  status = os.stat(file.fileno())
  return status.st_size, status.st_mtime_ns


def paths(path: str) -> list[str]:
  """Returns the files that a path, a folder or a pattern names; [] if none."""
  if os.path.isdir(path):
    path = os.path.join(glob.escape(path), '*.parquet')
  return [path] if os.path.exists(path) else sorted(glob.glob(path))


def _is_list(kind: 'pyarrow.DataType') -> bool:
  from pyarrow import types
  return (types.is_fixed_size_list(kind) or types.is_list(kind) or
          types.is_large_list(kind))


def _check_numeric(column: str, kind: 'pyarrow.DataType') -> None:
  """Raises ValueError if a column is not of numbers or lists of numbers."""
  from pyarrow import types
  value = kind.value_type if _is_list(kind) else kind
  if not (types.is_integer(value) or types.is_floating(value) or
          types.is_boolean(value)):
    raise ValueError(f'column {column!r} is {kind}, not numbers or lists of '
                     'numbers: name the columns to read, or encode it')


def _numbers(column: str, values: Any) -> np.ndarray:
  """Returns a column as an array [k], or [k, d] if it is of lists."""
  import pyarrow
  from pyarrow import types
  if isinstance(values, pyarrow.ChunkedArray):
    values = values.combine_chunks()
  if _is_list(values.type):
    if values.null_count:
      raise _missing(column)
    flat = _numbers(column, values.flatten())
    lengths = values.value_lengths().to_numpy(zero_copy_only=False)
    if (lengths != lengths[0]).any():
      raise _unequal(column)
    return flat.reshape(len(values), int(lengths[0]))
  if values.null_count and not types.is_floating(values.type):
    raise _missing(column)
  return values.to_numpy(zero_copy_only=False)


def _missing(column: str) -> ValueError:
  return ValueError(f'column {column!r} has missing values that are not '
                    'floating-point numbers: fill them first')


def _unequal(column: str) -> ValueError:
  return ValueError(f'column {column!r} has lists of different lengths: pad or '
                    'cut them to one length first')
