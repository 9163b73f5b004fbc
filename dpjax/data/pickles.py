"""Reads the Python version of CIFAR without executing its pickles.

A pickle is a program that may call any function. This reader allows three
names of NumPy only and replaces each by an inert recorder, so that no function
is called. The array is then built from the recorded bytes.
"""

import io
import pickle

import numpy as np

from dpjax import errors
from dpjax.data import containers

# The names that NumPy 1 writes into the pickle of an array.
_ALLOWED = frozenset((
  ('numpy.core.multiarray', '_reconstruct'),
  ('numpy', 'ndarray'),
  ('numpy', 'dtype'),
))
_WIDTH = 3 * 32 * 32


class _Recorder:
  """Replaces every object that the pickle creates; stores its arguments."""

  def __init__(self, *args: object):
    self.args = args
    self.state: object = ()

  # `pickle` passes the content of an array to this method.
  def __setstate__(self, state: object) -> None:
    self.state = state


class _Unpickler(pickle.Unpickler):

  def find_class(self, module: str, name: str) -> type[_Recorder]:
    if (module, name) in _ALLOWED:
      return _Recorder
    raise pickle.UnpicklingError(f'it asks for {module}.{name}')


def cifar_pickle(blob: containers.Blob) -> containers.Images:
  """Reads a batch of the Python version of CIFAR-10.

  Guarantee: no name in the file is imported or called. A hostile file can
  still exhaust memory.

  Args:
    blob: a dictionary, pickled by Python 2 with protocol 2, in which b'data'
      is an array of bytes [n, 3072] and b'labels' a list of n integers.

  Raises:
    ValueError: the file has another content.
  """
  try:
    # Text of Python 2 stays bytes, so keys are b'data' and b'labels'.
    batch = _Unpickler(io.BytesIO(blob.content), encoding='bytes').load()
  except Exception as error:  # Bad bytes can raise any type of exception.
    raise ValueError(f'{blob.where} is not a CIFAR batch: '
                     f'{errors.one_line(error)}') from None
  if not isinstance(batch, dict) or not {b'data', b'labels'} <= set(batch):
    raise ValueError(f'{blob.where} is not a CIFAR batch: it is not a '
                     'dictionary with data and labels')
  rows = _rows(batch[b'data'], where=blob.where)
  labels = batch[b'labels']
  # A bool is an instance of int, so `isinstance` would accept it.
  if not (isinstance(labels, list) and all(type(k) is int for k in labels)):
    raise ValueError(f'{blob.where}: labels must be a list of integers')
  return containers.Images(containers.cifar_images(rows), np.asarray(labels))


def cifar_pickle_parts(*batches: containers.Blob) -> containers.Parts:
  """Reads batches of the Python version; the last one is the test part."""
  return containers.join([cifar_pickle(batch) for batch in batches])


def _rows(recorder: object, *, where: str) -> np.ndarray:
  """Returns [n, 3072] uint8 from the recorded state of an array."""
  # NumPy pickles an array as (version, shape, dtype, is_fortran, bytes).
  state = recorder.state if isinstance(recorder, _Recorder) else ()
  if not (isinstance(state, tuple) and len(state) == 5):
    raise ValueError(f'{where}: data must be an array')
  _, shape, dtype, fortran, content = state
  kind = dtype.args[:1] if isinstance(dtype, _Recorder) else ()
  if kind != (b'u1',) or not isinstance(content, bytes):
    raise ValueError(f'{where}: data must be an array of bytes')
  num_examples, rest = divmod(len(content), _WIDTH)
  if rest or shape != (num_examples, _WIDTH):
    raise ValueError(f'{where}: data must be [n, {_WIDTH}], got {shape} in '
                     f'{len(content)} bytes')
  return np.frombuffer(content, np.uint8).reshape(
    shape, order='F' if fortran else 'C')
