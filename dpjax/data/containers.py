"""Readers of published image formats, from bytes to images and labels.

A reader takes unpacked files and returns the published training and test
parts, which `image_files` verifies. No reader executes anything in a file.

Formats: IDX (http://yann.lecun.com/exdb/mnist), the binary version of CIFAR
(https://www.cs.toronto.edu/~kriz/cifar.html), NumPy archives with the keys
that Keras uses, and mosaics (large images made of small ones).
"""

import io
import math
import struct
from typing import NamedTuple
import zipfile
import zlib

import numpy as np

from dpjax import errors

# An image is its red plane, then the green one, then the blue one.
_CIFAR_SHAPE = (3, 32, 32)
# Code of bytes in an IDX header; no other type is accepted.
_UNSIGNED_BYTE = 8


class Blob(NamedTuple):
  """A file in memory.

  Attributes:
    where: path of the file, for messages.
    content: unpacked bytes of the file.
  """
  where: str
  content: bytes


class Images(NamedTuple):
  """Images and labels as NumPy arrays on the host.

  Attributes:
    x: images [n, h, w, c] uint8.
    y: labels [n], integers.
  """
  x: np.ndarray
  y: np.ndarray


class Parts(NamedTuple):
  """The publisher's training and test parts."""
  train: Images
  test: Images


def idx(blob: Blob, *, num_axes: int) -> np.ndarray:
  """Returns the array of bytes in an IDX file, [...] uint8.

  Raises:
    ValueError: the magic number is wrong, or the size is not the header's.
  """
  # The header is two zero bytes, the type of the numbers, the number of axes,
  # then the length of each axis as a big-endian integer of 32 bits.
  magic = bytes((0, 0, _UNSIGNED_BYTE, num_axes))
  if blob.content[:4] != magic:
    raise ValueError(f'{blob.where} is not an IDX file with {num_axes} axes of '
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
  # The array shares memory with the bytes, so it is read-only.
  return np.frombuffer(blob.content, np.uint8, offset=start).reshape(shape)


def idx_parts(train_x: Blob, train_y: Blob, test_x: Blob, test_y: Blob
              ) -> Parts:
  """Reads the four IDX files of MNIST or similar sets; images have 1 channel.
  """
  return Parts(*(
    Images(idx(x, num_axes=3)[..., None], idx(y, num_axes=1))
    for x, y in ((train_x, train_y), (test_x, test_y))))


def cifar_images(planes: np.ndarray) -> np.ndarray:
  """Returns [n, 32, 32, 3] from n rows of 3,072 bytes, plane by plane."""
  return planes.reshape(-1, *_CIFAR_SHAPE).transpose(0, 2, 3, 1)


def cifar_binary(blob: Blob) -> Images:
  """Reads a binary CIFAR batch: 1 label byte and 3,072 image bytes per record.

  Raises:
    ValueError: the file does not consist of whole records.
  """
  width = 1 + math.prod(_CIFAR_SHAPE)
  if not blob.content or len(blob.content) % width:
    raise ValueError(f'{blob.where} has {len(blob.content)} bytes, expected '
                     f'a multiple of {width}, the size of a record')
  rows = np.frombuffer(blob.content, np.uint8).reshape(-1, width)
  return Images(cifar_images(rows[:, 1:]), rows[:, 0])


def cifar_binary_parts(*batches: Blob) -> Parts:
  """Reads binary CIFAR batches; the last one is the test part."""
  return join([cifar_binary(batch) for batch in batches])


def join(batches: list[Images]) -> Parts:
  """Joins training batches; the last batch is the test part."""
  *train, test = batches
  return Parts(Images(*map(np.concatenate, zip(*train))), test)


def npz_parts(blob: Blob) -> Parts:
  """Reads an npz archive with x_train, y_train, x_test, y_test; no pickles.

  Images may be [n, h, w] with one channel, labels may be [n, 1].

  Raises:
    ValueError: the archive is damaged, or an array is missing or has objects.
  """
  try:
    with np.load(io.BytesIO(blob.content), allow_pickle=False) as archive:
      # Arrays are unpacked only here, where damage is caught.
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


def _from_npz(x: np.ndarray, y: np.ndarray) -> Images:
  # Keras saves grey images without channels, CIFAR labels as [n, 1].
  return Images(x[..., None] if x.ndim == 3 else x,
                y[:, 0] if y.ndim == 2 and y.shape[1] == 1 else y)


def npy(blob: Blob) -> np.ndarray:
  """Returns the array of an npy file.

  Raises:
    ValueError: the file is damaged or is a pickle.
  """
  try:
    return np.load(io.BytesIO(blob.content), allow_pickle=False)
  except (EOFError, OSError, ValueError) as error:
    raise ValueError(f'{blob.where} is a damaged npy file: '
                     f'{errors.one_line(error)}') from None


def mosaic(blob: Blob, *, grid: tuple[int, int], size: int) -> np.ndarray:
  """Splits a mosaic into its colour images, row by row.

  Args:
    blob: an image in a lossless format that Pillow reads.
    grid: numbers of rows and columns of the mosaic.
    size: side of each image, in pixels.

  Returns:
    Images [rows * columns, size, size, 3] uint8.

  Raises:
    ValueError: the file is not an image, or has another size.
  """
  from PIL import Image  # Slow to import; only mosaics need it.
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
  # Axes are row, y, column, x, colour; row and column come first.
  cells = pixels.reshape(rows, size, columns, size, 3)
  return cells.transpose(0, 2, 1, 3, 4).reshape(-1, size, size, 3)


def mosaic_parts(train_y: Blob, test_y: Blob, *mosaics: Blob,
                 grid: tuple[int, int] = (100, 100), size: int = 32) -> Parts:
  """Reads mosaics and npy labels; the last mosaic is the test part."""
  *train, test = [mosaic(blob, grid=grid, size=size) for blob in mosaics]
  return Parts(Images(np.concatenate(train), npy(train_y)),
               Images(test, npy(test_y)))
