"""Data sets that TensorFlow Datasets prepared as ArrayRecord files.

To read them needs no TensorFlow: the records are taken undecoded, and their
PNG images decoded by Pillow. To *prepare* one of the stock image data sets
does need TensorFlow, and importlib_resources, which TFDS does not declare.

TFDS imports the classes that features.json names: read only own folders.
"""

import importlib.util
import io
import os
import pathlib

import numpy as np

from dpjax import errors
from dpjax.data import containers
from dpjax.data import files

_PATTERN = '*/*.array_record*'
_NEEDED_TO_PREPARE = {
  'tensorflow': 'tensorflow-cpu',
  'importlib_resources': 'importlib_resources',
}


def find(name: str, *, data_dir: str | os.PathLike | None = None
         ) -> pathlib.Path | None:
  """Returns the prepared folder `<data_dir>/<name>/<version>`, or None.

  Of several versions the last in alphabetical order is taken.
  """
  root = files.resolve_data_dir(data_dir)
  if root is None:
    return None
  found = sorted(path.parent for path in (root / name).glob(_PATTERN))
  return found[-1] if found else None


def read(folder: pathlib.Path) -> containers.Parts:
  """Reads both parts of a prepared data set with an image and a label.

  Args:
    folder: holds the ArrayRecord files, dataset_info.json, features.json.

  Returns:
    The parts, in the order of the files, which is not the publisher's.

  Raises:
    ValueError: one line, for a folder that TFDS cannot read.
  """
  import tensorflow_datasets as tfds  # Slow to import, and needed here alone.
  try:
    builder = tfds.builder_from_directory(folder, file_format='array_record')
    return containers.Parts(*(
      _read_part(builder.as_data_source(
        split=split, decoders={'image': tfds.decode.SkipDecoding()}))
      for split in ('train', 'test')))
  except Exception as error:  # TFDS and the record reader raise anything.
    raise ValueError(f'{folder} is not a readable TFDS folder: '
                     f'{errors.one_line(error)}') from None


def prepare(name: str, *, data_dir: str | os.PathLike | None = None) -> None:
  """Lets TFDS download a data set and prepare it as ArrayRecord files.

  Raises:
    ValueError: if no data folder is given.
    ImportError: one line, before any download, if a package is missing.
  """
  root = files.resolve_data_dir(data_dir)
  if root is None:
    raise ValueError('a download needs --data_dir or DPJAX_DATA_DIR')
  missing = [package for module, package in _NEEDED_TO_PREPARE.items()
             if importlib.util.find_spec(module) is None]
  if missing:
    raise ImportError(
      f'to download and prepare {name} TFDS needs {" and ".join(missing)}, '
      f'not installed; to read it afterwards does not')
  import tensorflow_datasets as tfds
  tfds.builder(
    name, data_dir=root, file_format='array_record').download_and_prepare()


def _read_part(source) -> containers.Images:
  records = source.__getitems__(range(len(source)))
  return containers.Images(
    np.stack([_decode(record['image']) for record in records]),
    np.array([record['label'] for record in records]))


def _decode(content: bytes) -> np.ndarray:
  """Returns [h, w, c]."""
  from PIL import Image
  with Image.open(io.BytesIO(content)) as image:
    pixels = np.asarray(image)
  return pixels[..., None] if pixels.ndim == 2 else pixels
