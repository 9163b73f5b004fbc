"""Records that are read by number, so that data may be larger than memory.

`source` makes one value of what has records: arrays and files that are mapped
into memory, Parquet files, Arrow tables, data sets of Hugging Face, Grain,
TensorFlow Datasets and PyTorch, and functions of record numbers.

Data that can only be read in an order of its own is refused. Epsilon is that of
the sampler, which draws the numbers of the records of each step. Batches of a
shuffled epoch, or of a buffer, have another distribution, and another epsilon.
"""

from collections.abc import Callable, Sequence
import dataclasses
import functools
import mmap
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.tables import row_groups
from dpjax.train import workers as workers_lib
from dpjax.typing import PyTree

_MOST = 2**31 - 1  # Largest number of records of a sampler.
_INSTEAD = ('give records by number: the data set itself, with len(data) and '
            'data[i]; Parquet files; or a function of record numbers')
# Types that look as if they had records by number: package and class.
_STREAMS = {('torch', 'IterableDataset'), ('torch', 'DataLoader'),
            ('datasets', 'IterableDataset'), ('tensorflow', 'DatasetV2'),
            ('grain', 'IterDataset'), ('grain', 'DataLoader')}
_BATCHED = {('keras', 'PyDataset'), ('keras', 'Sequence')}


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Source:
  """Records that are read by number; see `source`.

  Attributes:
    load: numbers [k] -> these records in order, a tree of arrays [k, ...].
      Record i is the same in every call.
    num_records: number of records, below 2^31.
    read_ahead: number of parts of batches that are loaded before they are
      needed; a part has `max_batch_size` records.
  """
  load: Callable[[np.ndarray], PyTree]
  num_records: int
  read_ahead: int = 2

  def __len__(self) -> int:
    return self.num_records


def source(records: Any, *, num_records: int | None = None,
           columns: Sequence[str] | None = None, read_ahead: int = 2,
           workers: int = 1, processes: bool = False) -> Source:
  """Returns records that are read by number, for `Private.step`.

  The guarantee of a run is for these records: record i must be the same in all
  steps, must not depend on the others, and must not be in the data twice, as it
  is after `repeat` of Grain. After `batch` of Grain, a batch is one record.

  Args:
    records: an array or `np.memmap` [n, ...], or a tuple, dict or other tree of
      them; the path of a Parquet file, of a folder of them, or a pattern such
      as 'folder/*.parquet'; an Arrow table; a data set of Hugging Face;
      anything with len(records) and records[i], such as a list of records, a
      data set of PyTorch, or a data source of Grain or of TensorFlow Datasets,
      whose records are numbers, arrays or trees of them (several are read at
      once if there is `__getitems__`); or a function of numbers [k], which
      returns a tree of arrays [k, ...], with `num_records`.
    num_records: number of records of a function.
    columns: names of the fields that are read, of records with names; None for
      all.
    read_ahead: number of parts of batches, of `max_batch_size` records, that
      are loaded before they are needed, at least 1. They are in memory.
    workers: number of threads that load a part together.
    processes: whether the workers are processes. Records are then copied to
      them once, so they must be small or files, and can be pickled.

  Raises:
    ImportError: if Parquet files are given and pyarrow is not installed.
    ValueError: if records are not numbers, or have no common shape; if there
      are none, or more than 2^31 - 1; if the data can only be read in an order
      of its own, as a `tf.data.Dataset`, a `DataLoader` or a generator.

  Examples:
    >>> from dpjax.train import sources
    >>> ages = sources.source([{'age': 31, 'id': 7}, {'age': 45, 'id': 8}],
    ...                       columns=['age'])
    >>> len(ages), ages.load(np.array([1, 0]))
    (2, {'age': array([45, 31])})
  """
  errors.check_at_least('read_ahead', read_ahead, 1)
  errors.check_at_least('workers', workers, 1)
  load, size = _loading(records, num_records, columns)
  if not errors.check_at_least('the number of records', size, 1) <= _MOST:
    raise ValueError(f'the data has {size} records, at most 2^31 - 1 are '
                     'supported; a data set that repeats itself must not')
  checked: Callable[[np.ndarray], PyTree] = _Checked(load)
  if workers > 1 or processes:
    checked = workers_lib.Parallel(checked, workers=workers,
                                   processes=processes)
  return Source(load=checked, num_records=size, read_ahead=read_ahead)


def _loading(records: Any, num_records: int | None,
             columns: Sequence[str] | None
             ) -> tuple[Callable[[np.ndarray], PyTree], int]:
  """Returns (function that loads records by number, number of records)."""
  kinds = {(kind.__module__.split('.')[0], kind.__name__)
           for kind in type(records).__mro__}
  by_number = hasattr(records, '__getitem__') and hasattr(records, '__len__')
  if kinds & _BATCHED:
    raise ValueError(f'data of type {type(records).__name__} are batches, not '
                     'records: ' + _INSTEAD)
  if kinds & _STREAMS or not (by_number or callable(records) or isinstance(
      records, (str, os.PathLike, np.generic)) or _is_array(records)):
    raise ValueError(
        f'data of type {type(records).__name__} come in an order of their own, '
        'not that of a sampler, so epsilon would not hold: ' + _INSTEAD)
  if callable(records) and not by_number:
    if num_records is None:
      raise ValueError('a function of record numbers needs num_records')
    return _Fields(records, columns), num_records
  if num_records is not None:
    raise ValueError('num_records is for functions; other records have a '
                     'length')
  if isinstance(records, (str, os.PathLike)):
    files = row_groups.ParquetRecords(records, columns)
    return files.load, len(files)
  if ('pyarrow', 'Table') in kinds:
    table = row_groups.ArrowRecords(records, columns)
    return table.load, len(table)
  if ('datasets', 'Dataset') in kinds:
    return _of_hugging_face(records, columns)
  if not isinstance(records, list) and (arrays := _arrays(records)):
    sizes = {leaf.shape[0] if leaf.shape else 0 for leaf in arrays}
    if len(sizes) != 1:
      raise ValueError('arrays must have one row for each record, got '
                       f'{", ".join(map(str, sorted(sizes)))} rows')
    return _Fields(functools.partial(
        _rows, jax.tree.map(_read_at_random, records)), columns), sizes.pop()
  if isinstance(records, (dict, tuple, bytes)):
    raise ValueError(f'a {type(records).__name__} must hold arrays; of several '
                     'data sets, such as train and test, choose one')
  return _Fields(functools.partial(_items, records), columns), len(records)


def _is_array(value: Any) -> bool:
  return hasattr(value, 'shape') and hasattr(value, 'dtype')


def _arrays(records: Any) -> list[Any] | None:
  """Returns the leaves of a tree if all are arrays, else None."""
  leaves = jax.tree.leaves(records)
  return leaves if leaves and all(map(_is_array, leaves)) else None


def _read_at_random(array: Any) -> Any:
  """Tells the system that a file in memory is read at random places.

  Otherwise it reads 128 KiB for each record, and keeps them.

  Returns:
    The array.
  """
  owner = array
  while (base := getattr(owner, 'base', None)) is not None:
    owner = base
  if isinstance(owner, mmap.mmap) and hasattr(owner, 'madvise'):
    owner.madvise(mmap.MADV_RANDOM)
  return array


def _rows(records: PyTree, numbers: np.ndarray) -> PyTree:
  """Returns rows of arrays."""
  return jax.tree.map(lambda leaf: np.asarray(leaf[numbers]), records)


def _items(records: Any, numbers: np.ndarray) -> PyTree:
  """Returns records of a sequence, stacked."""
  places = numbers.tolist()
  read = getattr(records, '__getitems__', None)
  items = read(places) if read else [records[place] for place in places]
  structures = {jax.tree.structure(item) for item in items}
  if len(structures) != 1:
    raise ValueError('all records must have the same fields')

  def stacked(path: Any, *leaves: Any) -> np.ndarray:
    arrays = [np.asarray(leaf) for leaf in leaves]
    # Shapes may tell of records, so they are not printed.
    if len({array.shape for array in arrays}) != 1:
      raise ValueError(f'records{jax.tree_util.keystr(path)} have different '
                       'shapes: pad or cut them to one shape')
    return np.stack(arrays)

  return jax.tree_util.tree_map_with_path(stacked, *items)


def _of_hugging_face(data: Any, columns: Sequence[str] | None
                     ) -> tuple[Callable[[np.ndarray], PyTree], int]:
  # A transform of the user stays; anything else would be lists of numbers.
  if data.format['type'] != 'custom':
    data = data.with_format('numpy', columns=list(columns or
                                                  data.column_names))
  return _Fields(functools.partial(_columns, data), columns), len(data)


def _columns(data: Any, numbers: np.ndarray) -> PyTree:
  return {name: np.asarray(values)
          for name, values in data[numbers.tolist()].items()}


class _Fields:
  """Loads the wanted fields of records."""

  def __init__(self, load: Callable[[np.ndarray], PyTree],
               columns: Sequence[str] | None):
    self._load, self._columns = load, columns

  def __call__(self, numbers: np.ndarray) -> PyTree:
    records = self._load(numbers)
    if self._columns is None:
      return records
    if not isinstance(records, dict):
      raise ValueError('columns are for records with named fields, got a '
                       f'{type(records).__name__}')
    for name in self._columns:
      errors.check_choice('column', name, tuple(map(str, records)))
    return {name: records[name] for name in self._columns}


class _Checked:
  """Loads records, and checks that all have the shapes of the first one."""

  def __init__(self, load: Callable[[np.ndarray], PyTree]):
    self._load = load
    self._first = _shapes(self._arrays_of(np.zeros([1], np.int64)))

  def __call__(self, numbers: np.ndarray) -> PyTree:
    records = self._arrays_of(numbers)
    if _shapes(records) != self._first:
      raise ValueError('all records must have the fields, shapes and types of '
                       'the first one: pad or cut them to one shape, and '
                       'convert them to one type')
    return records

  def _arrays_of(self, numbers: np.ndarray) -> PyTree:
    """Returns records as arrays of numbers [k, ...]."""

    def checked(path: Any, leaf: Any) -> np.ndarray:
      array = np.asarray(leaf)
      if not (jnp.issubdtype(array.dtype, jnp.number) or
              jnp.issubdtype(array.dtype, jnp.bool_)):
        raise ValueError(
            f'records{jax.tree_util.keystr(path)} are not numbers of one '
            f'shape, but of type {_kind(array.dtype)}: leave them out '
            '(columns), decode them, or pad them')
      if array.shape[:1] != numbers.shape:
        raise ValueError(f'{len(numbers)} records were asked for, but '
                         f'records{jax.tree_util.keystr(path)} have another '
                         'number of rows')
      return array

    records = jax.tree_util.tree_map_with_path(checked, self._load(numbers))
    if not jax.tree.leaves(records):
      raise ValueError('a record must have at least one field of numbers')
    return records


def _kind(dtype: np.dtype) -> str:
  """Returns the name of a type, without the length of texts."""
  return {'U': 'text', 'S': 'bytes', 'O': 'object'}.get(dtype.kind, dtype.name)


def _shapes(records: PyTree) -> tuple[Any, list[tuple[Any, ...]]]:
  leaves, structure = jax.tree.flatten(records)
  return structure, [(leaf.shape[1:], leaf.dtype) for leaf in leaves]
