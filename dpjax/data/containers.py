"""Images and labels from the bytes of the formats they are published in.

A reader takes unpacked files and returns both official parts. None executes
anything it reads, and none judges the content: that is `images`' part.

Formats: IDX (http://yann.lecun.com/exdb/mnist), the binary version of CIFAR
(https://www.cs.toronto.edu/~kriz/cifar.html), NumPy archives with the keys
that Keras uses, and mosaics, that is large images made of small ones.
"""

import io
import math
import struct
from typing import NamedTuple
import zipfile
import zlib

import numpy as np

from dpjax import errors

_CIFAR_SHAPE = (3, 32, 32)
_UNSIGNED_BYTE = 8


class Blob(NamedTuple):
  """A file in memory.

  Attributes:
    where: its path, for messages.
    content: its bytes, unpacked.
  """
  where: str
  content: bytes


class Images(NamedTuple):
  """Images and labels, compact, on the host.

  Attributes:
    x: [n, h, w, c] uint8.
    y: [n] integers.
  """
  x: np.ndarray
  y: np.ndarray


class Parts(NamedTuple):
  """The two parts into which the publisher divided the records."""
  train: Images
  test: Images


def idx(blob: Blob, *, num_axes: int) -> np.ndarray:
  """Returns the array of bytes in an IDX file, [...] uint8.

  Raises:
    ValueError: for another magic number, or a size other than the header's.
  """
  magic = bytes((0, 0, _UNSIGNED_BYTE, num_axes))
  if blob.content[:4] != magic:
    raise ValueError(f'{blob.where} is no IDX file with {num_axes} axes of '
                     f'bytes: it starts with {blob.content[:4].hex()!r}, '
                     f'expected {magic.hex()!r}')
  start = 4 + 4 * num_axes
  if len(blob.content) < start:
    raise ValueError(f'{blob.where} is truncated: {len(blob.content)} bytes, '
                     f'expected at least {start}')
  shape = struct.unpack(f'>{num_axes}I', blob.content[4:start])
  expected = start + math.prod(shape)
  if len(blob.content) != expected:
    raise ValueError(f'{blob.where} has {len(blob.content)} bytes, expected '
                     f'{expected} for its shape {shape}')
  return np.frombuffer(blob.content, np.uint8, offset=start).reshape(shape)


def idx_parts(train_x: Blob, train_y: Blob, test_x: Blob, test_y: Blob
              ) -> Parts:
  """Reads the four IDX files of MNIST and its successors; one channel."""
  return Parts(*(
    Images(idx(x, num_axes=3)[..., None], idx(y, num_axes=1))
    for x, y in ((train_x, train_y), (test_x, test_y))))


def cifar_images(planes: np.ndarray) -> np.ndarray:
  """Returns [n, 32, 32, 3] from n rows of 3,072 bytes, plane by plane."""
  return planes.reshape(-1, *_CIFAR_SHAPE).transpose(0, 2, 3, 1)


def cifar_binary(blob: Blob) -> Images:
  """Reads a batch: for each record one byte for the label, 3,072 of image.

  Raises:
    ValueError: if the file does not consist of whole records.
  """
  width = 1 + math.prod(_CIFAR_SHAPE)
  if not blob.content or len(blob.content) % width:
    raise ValueError(f'{blob.where} has {len(blob.content)} bytes, expected '
                     f'a multiple of {width}, the size of a record')
  rows = np.frombuffer(blob.content, np.uint8).reshape(-1, width)
  return Images(cifar_images(rows[:, 1:]), rows[:, 0])


def cifar_binary_parts(*batches: Blob) -> Parts:
  """Reads training batches and, last, the test batch."""
  return join([cifar_binary(batch) for batch in batches])


def join(batches: list[Images]) -> Parts:
  """Joins training batches; the last batch is the test part."""
  *train, test = batches
  return Parts(Images(*map(np.concatenate, zip(*train))), test)


def npz_parts(blob: Blob) -> Parts:
  """Reads an archive with x_train, y_train, x_test, y_test; no pickles.

  Images may lack the axis of their only channel, labels may be [n, 1].

  Raises:
    ValueError: for a damaged archive, or arrays that are missing or objects.
  """
  try:
    with np.load(io.BytesIO(blob.content), allow_pickle=False) as archive:
      arrays = [archive[name]
                for name in ('x_train', 'y_train', 'x_test', 'y_test')]
  except (zipfile.BadZipFile, zlib.error, EOFError, OSError, TypeError,
          ValueError) as error:
    raise ValueError(f'{blob.where} is a damaged npz file: '
                     f'{errors.one_line(error)}') from None
  except KeyError as error:
    raise ValueError(f'{blob.where}: {error.args[0]}') from None
  x_train, y_train, x_test, y_test = arrays
  return Parts(_from_npz(x_train, y_train), _from_npz(x_test, y_test))


def _from_npz(x, y) -> Images:
  return Images(x[..., None] if x.ndim == 3 else x,
                y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y)


def npy(blob: Blob) -> np.ndarray:
  """Returns the array of an npy file; `ValueError` if damaged or a pickle."""
  try:
    return np.load(io.BytesIO(blob.content), allow_pickle=False)
  except (EOFError, OSError, ValueError) as error:
    raise ValueError(f'{blob.where} is a damaged npy file: '
                     f'{errors.one_line(error)}') from None


def mosaic(blob: Blob, *, grid: tuple[int, int], size: int) -> np.ndarray:
  """Cuts a mosaic into its colour images, row by row.

  Args:
    blob: an image in a lossless format that Pillow reads.
    grid: rows and columns of the mosaic.
    size: height and width of each image in it.

  Returns:
    [rows * columns, size, size, 3] uint8.

  Raises:
    ValueError: for a file that is no image, or of another size.
  """
  from PIL import Image  # Slow to import, and needed for mosaics alone.
  try:
    with Image.open(io.BytesIO(blob.content)) as image:
      pixels = np.asarray(image.convert('RGB'))
  except (OSError, SyntaxError, ValueError) as error:
    raise ValueError(f'{blob.where} is a damaged image: '
                     f'{errors.one_line(error)}') from None
  rows, columns = grid
  if pixels.shape != (rows * size, columns * size, 3):
    raise ValueError(f'{blob.where} has {pixels.shape[0]} x {pixels.shape[1]} '
                     f'pixels, expected {rows * size} x {columns * size}')
  cells = pixels.reshape(rows, size, columns, size, 3)
  return cells.transpose(0, 2, 1, 3, 4).reshape(-1, size, size, 3)


def mosaic_parts(train_y: Blob, test_y: Blob, *mosaics: Blob,
                 grid: tuple[int, int] = (100, 100), size: int = 32) -> Parts:
  """Reads training mosaics and, last, that of the test part; labels as npy."""
  *train, test = [mosaic(blob, grid=grid, size=size) for blob in mosaics]
  return Parts(Images(np.concatenate(train), npy(train_y)),
               Images(test, npy(test_y)))
