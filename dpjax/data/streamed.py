"""Data sets that stay on disk: Parquet files, and images of TFDS.

A record of a table is encoded from its own fields and the public schema, as
`user_tables.load` encodes whole files, bit for bit. Only a few row groups are
in memory, whatever the number of records.
"""

from collections.abc import Callable, Iterator
import dataclasses
import hashlib
import os

import numpy as np

from dpjax.data import files
from dpjax.data import images
from dpjax.data import schema_files
from dpjax.data import tabular
from dpjax.data import tfds_records
from dpjax.data import user_tables
from dpjax.tables import reader
from dpjax.tables import row_groups

_BLOCK = 4096  # Records that are read at once, in the order of the files.


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class StreamedDataset:
  """A data set whose records are read from disk by their numbers.

  Attributes:
    name: name for reports.
    num_records: number of records.
    record_shape: shape of the features of one record.
    num_classes: number of classes, public.
    load: numbers [k] -> {'x': [k, ...] float32, 'y': [k] int32}, records in
      this order; from any thread.
    num_test: how many of the last records the publisher holds out; 0 if there
      is no such part.
  """
  name: str
  num_records: int
  record_shape: tuple[int, ...]
  num_classes: int
  load: Callable[[np.ndarray], dict[str, np.ndarray]]
  num_test: int = 0

  def blocks(self) -> Iterator[np.ndarray]:
    """Yields the numbers of all records in the order of the files, in blocks.
    """
    for start in range(0, self.num_records, _BLOCK):
      yield np.arange(start, min(start + _BLOCK, self.num_records))

  def digest(self) -> bytes:
    """Reads all records once; returns the SHA-256 of features and labels.

    Raises:
      ValueError: a field is not allowed; so this is known before training.
    """
    digest = hashlib.sha256(
        f'{self.num_records}{self.record_shape}{self.num_test}'.encode())
    for numbers in self.blocks():
      records = self.load(numbers)
      for name in ('x', 'y'):
        digest.update(np.ascontiguousarray(records[name]).data)
    return digest.digest()


def stays_on_disk(path: str, *,
                  data_dir: str | os.PathLike[str] | None = None) -> bool:
  """Returns whether a data set can only be streamed.

  It is a folder, a pattern such as 'a/*.parquet', or a name 'tfds:...'.
  """
  if path.startswith(user_tables.TFDS):
    return True
  if not user_tables.is_path(path):
    return False
  candidates = _candidates(path, data_dir)
  if any(os.path.isfile(candidate) for candidate in candidates):
    return False
  return any(sign in path for sign in '*?[') or any(
      os.path.isdir(candidate) for candidate in candidates)


def check_format(path: str) -> None:
  """Raises ValueError if a path names files without records by number."""
  if path.lower().endswith(tuple(set(reader.FORMATS) - {'.parquet'})):
    raise ValueError(f'{path} is text, which has no records by number: to '
                     'stream it, convert it to Parquet')


def open_table(path: str, schema: str, *,
               data_dir: str | os.PathLike[str] | None = None
               ) -> StreamedDataset:
  """Opens a user's table on disk; reads the metadata of its files only.

  Args:
    path: a Parquet file, a folder of files that end in .parquet, or a pattern;
      absolute or below `data_dir`. Files are in the order of their names.
    schema: JSON, see `schema_files`; chosen without looking at the files.
    data_dir: data folder; default $DPJAX_DATA_DIR.

  Raises:
    ImportError: pyarrow is not installed.
    FileNotFoundError: there is no such file.
    ValueError: the schema is not valid, or the files lack a column. Fields are
      checked when they are read.
  """
  user = schema_files.parse(schema)
  records = _ParquetTable(_find(path, data_dir), user)
  return StreamedDataset(
      name=path, num_records=len(records.files), num_classes=user.num_classes,
      record_shape=(len(user.schema.feature_names),), load=records.load)


def open_images(name: str, *, data_dir: str | os.PathLike[str] | None = None,
                downsample: int = 1, low: float = -1.0) -> StreamedDataset:
  """Opens images that TensorFlow Datasets prepared as ArrayRecord files.

  Args:
    name: 'tfds:' and the name of a data set with images of one shape, a label,
      and the parts train and test.
    data_dir: data folder; default $DPJAX_DATA_DIR.
    downsample: see `images.downsample`.
    low: see `images.scale`.

  Raises:
    FileNotFoundError: there is no such folder.
    ValueError: TFDS cannot read the folder, or a shape or label is not allowed.
  """
  folder = tfds_records.find(name.removeprefix(user_tables.TFDS),
                             data_dir=data_dir)
  if folder is None:
    raise FileNotFoundError(
        f'no ArrayRecord files of {name} are in the data folder: give '
        '--data_dir or DPJAX_DATA_DIR, and prepare them by tfds.builder(..., '
        "file_format='array_record')")
  parts = tfds_records.Opened(folder)
  num_train = parts.train.size
  shape = parts.train.read([0]).x.shape[1:]
  levels = images.levels(max_value=255, low=low)

  def load(numbers: np.ndarray) -> dict[str, np.ndarray]:
    pixels = np.empty((len(numbers), *shape), np.uint8)
    y = np.empty(len(numbers), np.int32)
    for part, places, first in (
        (parts.train, np.flatnonzero(numbers < num_train), 0),
        (parts.test, np.flatnonzero(numbers >= num_train), num_train)):
      if len(places):
        read = part.read((numbers[places] - first).tolist())
        if read.x.shape[1:] != shape:
          raise ValueError(f'{folder} has images of several shapes')
        pixels[places], y[places] = read
    # Test parts without published labels have -1.
    if len(y) and not 0 <= y.min() <= y.max() < parts.num_classes:
      raise ValueError(f'{folder} has labels that are no classes')
    return {'x': levels[images.shrink(pixels, downsample, name)], 'y': y}

  return StreamedDataset(
      name=name, num_records=num_train + parts.test.size, load=load,
      num_test=parts.test.size, num_classes=parts.num_classes,
      record_shape=load(np.zeros(1, np.int64))['x'].shape[1:])


class _ParquetTable:
  """Records of Parquet files, encoded by a schema."""

  def __init__(self, path: str, user: schema_files.UserSchema):
    """Opens the files; raises as `open_table`."""
    self._user = user
    self._names = tuple(column.name for column in user.schema.columns)
    header = row_groups.ParquetRecords(path, numeric=False).columns
    for name in self._names:
      reader.index(path, name, header)
    self.files = row_groups.ParquetRecords(path, self._names, numeric=False)

  def load(self, numbers: np.ndarray) -> dict[str, np.ndarray]:
    """Returns records; raises ValueError for a field that is not allowed."""
    schema = self._user.schema
    x = np.empty((len(numbers), len(schema.feature_names)), np.float32)
    y = np.empty(len(numbers), np.int32)
    for places, rows in self.files.parts(numbers):
      x[places], y[places] = tabular.encode(
          self._table(numbers[places], rows), schema)
    return {'x': x, 'y': y}

  def _table(self, numbers: np.ndarray, rows: object) -> reader.Table:
    """Returns the records with these numbers, of one row group, as a table."""
    name, _ = self.files.where(int(numbers[0]))
    return dataclasses.replace(
        reader.of_columns(rows, name=name, form=self._user.form), typed=True,
        place=lambda place: 'record '
        f'{self.files.where(int(numbers[place]))[1] + 1}')


def _candidates(path: str, data_dir: str | os.PathLike[str] | None
                ) -> list[str]:
  """Returns where a path may be: as it is, and below the data folder."""
  root = files.resolve_data_dir(data_dir)
  paths = [os.path.expanduser(path)]
  return paths if root is None else [*paths, str(root / path)]


def _find(path: str, data_dir: str | os.PathLike[str] | None) -> str:
  """Returns the path that has files; raises FileNotFoundError if none has."""
  candidates = _candidates(path, data_dir)
  for candidate in candidates:
    if row_groups.paths(candidate):
      return candidate
  raise FileNotFoundError(f'no Parquet file is at {" or ".join(candidates)}')
