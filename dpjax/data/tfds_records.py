"""Reads data sets that TensorFlow Datasets prepared as ArrayRecord files.

Reading needs no TensorFlow, because Pillow decodes the PNG images. *Preparing*
a data set needs TensorFlow, and importlib_resources, which TFDS does not
declare as a dependency.

TFDS imports the classes named in features.json, so read only folders that you
trust.
"""

from collections.abc import Callable, Iterable, Iterator
import contextlib
import importlib.util
import io
import os
import pathlib
from typing import Any, NamedTuple

import numpy as np

from dpjax import errors
from dpjax.data import containers
from dpjax.data import files

# <version>/<name>-<part>.array_record-<shard>-of-<number of shards>.
_PATTERN = '*/*.array_record*'
_NEEDED_TO_PREPARE = {
  'tensorflow': 'tensorflow-cpu',
  'importlib_resources': 'importlib_resources',
}


def find(name: str, *, data_dir: str | os.PathLike[str] | None = None
         ) -> pathlib.Path | None:
  """Returns the prepared folder `<data_dir>/<name>/<version>`, or None.

  If there are several versions, the alphabetically last one is returned.
  """
  root = files.resolve_data_dir(data_dir)
  if root is None:
    return None
  # A version occurs once for each of its files.
  versions = sorted(path.parent for path in (root / name).glob(_PATTERN))
  return versions[-1] if versions else None


def read(folder: pathlib.Path) -> containers.Parts:
  """Reads both parts of a prepared data set with an image and a label.

  Args:
    folder: folder with ArrayRecord files, dataset_info.json, features.json.

  Returns:
    The parts, in the order of the files, which is not the publisher's.

  Raises:
    ValueError: TFDS cannot read the folder.
  """
  parts = Opened(folder)
  return containers.Parts(*(part.read(range(part.size))
                            for part in (parts.train, parts.test)))


class Part(NamedTuple):
  """A part of a prepared data set, whose records are read by number.

  Attributes:
    size: number of records.
    read: numbers -> images and labels; raises ValueError if TFDS or Pillow
      cannot read them.
  """
  size: int
  read: Callable[[Iterable[int]], containers.Images]


class Opened:
  """A prepared data set with an image and a label, whose records stay on disk.

  Attributes:
    train: the publisher's training part.
    test: the publisher's test part.
    num_classes: number of classes of the label.
  """

  def __init__(self, folder: pathlib.Path):
    """Opens a folder, see `read`; raises ValueError if TFDS cannot read it."""
    self._folder = folder
    with self._one_line():
      import tensorflow_datasets as tfds  # Slow to import; rarely needed.
      builder = tfds.builder_from_directory(folder, file_format='array_record')
      self.num_classes: int = builder.info.features['label'].num_classes
      # Images stay PNG bytes here: TFDS would decode them by TensorFlow.
      self.train, self.test = (self._part(builder.as_data_source(
        split=split, decoders={'image': tfds.decode.SkipDecoding()}))
                               for split in ('train', 'test'))

  def _part(self, source: Any) -> Part:

    def read(numbers: Iterable[int]) -> containers.Images:
      with self._one_line():
        records = source.__getitems__(list(numbers))
        return containers.Images(
          np.stack([_decode(record['image']) for record in records]),
          np.array([record['label'] for record in records]))

    return Part(len(source), read)

  @contextlib.contextmanager
  def _one_line(self) -> Iterator[None]:
    try:
      yield
    except Exception as error:  # TFDS can raise any type of exception.
      raise ValueError(f'{self._folder} is not a readable TFDS folder: '
                       f'{errors.one_line(error)}') from None


def prepare(name: str, *,
            data_dir: str | os.PathLike[str] | None = None) -> None:
  """Downloads a data set by TFDS and prepares it as ArrayRecord files.

  Raises:
    ValueError: no data folder is given.
    ImportError: a package is missing; raised before any download.
  """
  root = files.resolve_data_dir(data_dir)
  if root is None:
    raise ValueError('a download needs --data_dir or DPJAX_DATA_DIR')
  missing = [package for module, package in _NEEDED_TO_PREPARE.items()
             if importlib.util.find_spec(module) is None]
  if missing:
    raise ImportError(
      f'to download and prepare {name} TFDS needs {" and ".join(missing)}, '
      f'not installed; reading the prepared files does not need them')
  import tensorflow_datasets as tfds
  tfds.builder(
    name, data_dir=root, file_format='array_record').download_and_prepare()


def _decode(content: bytes) -> np.ndarray:
  """Decodes an image to [h, w, c]."""
  from PIL import Image
  with Image.open(io.BytesIO(content)) as image:
    pixels = np.asarray(image)
  # Pillow gives grey images no channel axis.
  return pixels[..., None] if pixels.ndim == 2 else pixels
