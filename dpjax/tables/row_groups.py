"""Reads records of Parquet files and Arrow tables by number, group by group.

A table that is larger than memory is read by row groups, of which few are kept.
Records that are drawn at random are in most row groups, so reading a batch from
files with many more row groups than are kept takes as long as reading the
wanted columns of all of them. Small row groups (about a thousand records) keep
the memory small, and Arrow tables that are mapped into memory read the records
of a batch only.
"""

import abc
import collections
from collections.abc import Sequence
import glob
import itertools
import os
import threading
from typing import Any, TYPE_CHECKING

import numpy as np

from dpjax import errors
from dpjax.tables import parquet

if TYPE_CHECKING:
  import pyarrow

KEPT_GROUPS = 8
"""Number of row groups that are kept in memory."""


class GroupedRecords(abc.ABC):
  """Records of a table in groups; the base of the classes below.

  Attributes:
    columns: names of the columns that are read.
  """

  def __init__(self, schema: 'pyarrow.Schema', sizes: Sequence[int],
               columns: Sequence[str] | None):
    """Checks the columns.

    Args:
      schema: names and types of the table.
      sizes: number of records of each group.
      columns: the columns that are wanted; None for all.

    Raises:
      ValueError: if a column is missing, or is not of numbers or of lists of
        them; if there are no records.
    """
    self.columns = tuple(schema.names if columns is None else columns)
    for name in self.columns:
      errors.check_choice('column', name, tuple(schema.names))
      _check_numeric(name, schema.field(name).type)
    self._ends = list(itertools.accumulate(sizes))
    if not self._ends or not self._ends[-1] or not self.columns:
      raise ValueError('the table has no records, or no columns')

  def __len__(self) -> int:
    return self._ends[-1]

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
    groups = np.searchsorted(self._ends, numbers, side='right')
    whole: dict[str, np.ndarray] = {}
    for number in np.unique(groups).tolist():
      places = np.flatnonzero(groups == number)
      start = self._ends[number - 1] if number else 0
      taken = self.group(number).take(numbers[places] - start)
      for name in self.columns:
        values = _numbers(name, taken.column(name))
        if name not in whole:
          whole[name] = np.zeros([len(numbers), *values.shape[1:]],
                                 values.dtype)
        if whole[name].shape[1:] != values.shape[1:]:
          raise _unequal(name)
        whole[name][places] = values
    return whole


class ParquetRecords(GroupedRecords):
  """Records of Parquet files, in the order of the files."""

  def __init__(self, path: str | os.PathLike[str], columns:
               Sequence[str] | None = None):
    """Reads the metadata of the files.

    Args:
      path: a file, a folder of files that end in .parquet, or a pattern such as
        'folder/*.parquet'. Files are in the order of their names.
      columns: the columns that are wanted; None for all.

    Raises:
      ImportError: if pyarrow is not installed.
      ValueError: see `GroupedRecords`; if there is no such file, or if files
        have different columns.
    """
    self._path, self._metadata = os.fspath(path), []
    self._paths, schemas, self._places = _files(self._path), [], []
    for place, name in enumerate(self._paths):
      with open(name, 'rb') as file, parquet.opened(name, file) as whole:
        self._metadata.append(whole.metadata)
        schemas.append(whole.schema_arrow.remove_metadata())
      self._places += [(place, group)
                       for group in range(whole.metadata.num_row_groups)]
    for name, schema in zip(self._paths, schemas, strict=True):
      if not schema.equals(schemas[0]):
        raise ValueError(f'{name} has other columns than {self._paths[0]}')
    super().__init__(schemas[0], [
        self._metadata[place].row_group(group).num_rows
        for place, group in self._places], columns)
    self._kept: collections.OrderedDict[int, Any] = collections.OrderedDict()
    self._lock = threading.Lock()

  def __reduce__(self) -> tuple[Any, ...]:
    # A copy in another process reads the files anew.
    return ParquetRecords, (self._path, self.columns)

  def group(self, number: int) -> 'pyarrow.Table':
    """Returns a row group; the last ones that were read are kept."""
    from pyarrow import parquet as files
    with self._lock:
      if number not in self._kept:
        place, group = self._places[number]
        with files.ParquetFile(self._paths[place],
                               metadata=self._metadata[place]) as whole:
          self._kept[number] = whole.read_row_group(group, list(self.columns))
        if len(self._kept) > KEPT_GROUPS:
          self._kept.popitem(last=False)
      self._kept.move_to_end(number)
      return self._kept[number]


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


def _files(path: str) -> list[str]:
  """Returns the files that a path, a folder or a pattern names."""
  if os.path.isdir(path):
    path = os.path.join(glob.escape(path), '*.parquet')
  names = [path] if os.path.exists(path) else sorted(glob.glob(path))
  if not names:
    raise ValueError(f'no Parquet file is at {path}')
  return names


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
