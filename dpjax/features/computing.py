"""Computes features of all records, once, and keeps them in a private file.

Features of private records are private: files have mode 0600 in a folder of
mode 0700. The name of a file is a digest of the records, by which somebody who
guesses all records could confirm the guess; so names are private, too, and no
message has one.
"""

from collections.abc import Callable
import dataclasses
import errno
import hashlib
import os
import pathlib

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax import private_files
from dpjax.report import files
from dpjax.typing import Array, ArrayLike

# To be raised by whoever changes the features that a description stands for.
_VERSION = 1
_DTYPES = ('float32', 'float16', 'bfloat16')
_HASHED = 2**26  # bytes of records that are hashed at once
_PUBLIC = (bool, int, float, str, bytes, type(None))


def computed(function: Callable[[ArrayLike], Array], records: ArrayLike, *,
             block: int = 1024, dtype: str = 'float32',
             cache_dir: private_files.Path | None = None,
             progress: Callable[[int, int], None] | None = None) -> np.ndarray:
  """Returns the features of all records, computed in blocks.

  Args:
    function: feature function, maps [b, ...] to [b, ...] row by row.
    records: all records, [n, ...], n >= 1, on the host; PRIVATE.
    block: number of records that are on the device at once.
    dtype: 'float32', or 'float16' or 'bfloat16' for half the memory.
    cache_dir: private folder, in which the features are stored and looked up by
      digests of the description of the function, of the dtype, and of the
      records. None stores nothing.
    progress: called with (records done, n) after each block.

  Returns:
    Features [n, ...] on the host; PRIVATE.

  Raises:
    PermissionError: if other users have permissions on the folder or the file.
    ValueError: if there are no records, if the function returns other rows, or
      if `cache_dir` is given and the function has no public description, see
      `description`.
  """
  errors.check_at_least('block', block, 1)
  errors.check_choice('dtype', dtype, _DTYPES)
  records = np.asarray(records)
  if records.ndim < 1 or not records.shape[0]:
    raise ValueError(f'records must be [n, ...], n >= 1, got {records.shape}')
  if cache_dir is None:
    return _computed(function, records, block, dtype, progress)
  name = _digest(f'{_VERSION} {description(function)} {dtype}', records)
  path = pathlib.Path(cache_dir) / f'{name}.features'
  private_files.make_folder(cache_dir)
  try:
    return _load(path, records.shape[0], dtype)
  except FileNotFoundError:
    pass
  features = _computed(function, records, block, dtype, progress)
  _store(path, features)
  return features


def description(function: object) -> str:
  """Returns a text that determines a feature function.

  It names the type of a frozen dataclass and all its fields, with digests of
  arrays. Two functions with one description compute the same features, as long
  as nobody changes their code: a class of your own should have a field with its
  version.

  Raises:
    ValueError: for anything else, such as a lambda, of which equal texts may
      mean different functions.
  """
  if isinstance(function, _PUBLIC):
    return repr(function)
  if isinstance(function, tuple):
    return f'({" ".join(f"{description(each)}," for each in function)})'
  if isinstance(function, (np.ndarray, jax.Array)):
    return _digest('array', np.asarray(function))
  if (not dataclasses.is_dataclass(function) or isinstance(function, type) or
      not getattr(function, '__dataclass_params__').frozen):
    raise ValueError(
      f'features of {type(function).__name__!r} cannot be stored, because only '
      'frozen dataclasses of numbers, texts, tuples and arrays have a '
      'description; make it one, or leave cache_dir out')
  fields = ' '.join(f'{field.name}={description(getattr(function, field.name))}'
                    for field in dataclasses.fields(function))
  return f'{type(function).__module__}.{type(function).__qualname__}({fields})'


def _computed(function: Callable[[ArrayLike], Array], records: np.ndarray,
              block: int, dtype: str,
              progress: Callable[[int, int], None] | None) -> np.ndarray:
  """Returns the features of all records."""
  num_records = records.shape[0]
  block = min(block, num_records)
  compiled = jax.jit(lambda x: function(x).astype(dtype))
  result = None
  for start in range(0, num_records, block):
    part = records[start:start + block]
    num_rows = part.shape[0]
    # The last block is filled up, so that there is one program.
    filled = np.pad(part, ((0, block - num_rows),) + ((0, 0),) * (
      part.ndim - 1))
    features = np.asarray(compiled(filled))
    if features.shape[:1] != (block,):
      raise ValueError(f'a feature function must return a row for each of '
                       f'{block} records, got shape {features.shape}')
    if result is None:
      result = np.empty((num_records, *features.shape[1:]), features.dtype)
    result[start:start + num_rows] = features[:num_rows]
    if progress is not None:
      progress(start + num_rows, num_records)
  assert result is not None
  return result


def _digest(text: str, array: np.ndarray) -> str:
  """Returns the SHA-256 of a text and of type, shape and bytes of an array."""
  digest = hashlib.sha256(
    f'{text}\n{array.dtype.str} {array.shape}\n'.encode())
  rows = array.reshape(1, -1) if not array.ndim else array
  step = max(1, _HASHED * len(rows) // max(rows.nbytes, 1))
  for start in range(0, len(rows), step):
    digest.update(np.ascontiguousarray(rows[start:start + step]).tobytes())
  return digest.hexdigest()


def _load(path: pathlib.Path, num_records: int, dtype: str) -> np.ndarray:
  """Returns stored features; `FileNotFoundError` if there are none."""
  try:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
  except OSError as error:
    if error.errno != errno.ELOOP:
      raise
    raise PermissionError('a file of features is a symbolic link; remove the '
                          'folder of the cache') from None
  with os.fdopen(descriptor, 'rb') as file:
    private_files.check_file(path.parent / 'a file of features', descriptor)
    stored = np.load(file, allow_pickle=False)
  features = stored.view(jnp.dtype(dtype))
  if features.shape[:1] != (num_records,):
    raise ValueError('a file of features has other records than its name says; '
                     'remove the folder of the cache')
  return features


def _store(path: pathlib.Path, features: np.ndarray) -> None:
  """Stores features in a file that is complete as soon as it has its name."""
  # NumPy's files know no bfloat16.
  plain = features.view(np.uint16) if features.itemsize == 2 else features
  with files.replacing(path, mode=0o600) as file:
    np.save(file, plain, allow_pickle=False)
