"""The Python version of CIFAR, read without running what the pickle asks.

A pickle is a program. Here it may name three things of NumPy, and gets for
each an inert recorder: no function of NumPy is called with what the file
says. The array is then made from the recorded bytes.
"""

import io
import pickle

import numpy as np

from dpjax import errors
from dpjax.data import containers

_ALLOWED = frozenset((
  ('numpy.core.multiarray', '_reconstruct'),
  ('numpy', 'ndarray'),
  ('numpy', 'dtype'),
))
_WIDTH = 3 * 32 * 32


class _Recorder:
  """Stands for whatever the pickle makes; remembers what it was told."""

  def __init__(self, *args):
    self.args = args
    self.state = ()

  def __setstate__(self, state):
    self.state = state


class _Unpickler(pickle.Unpickler):

  def find_class(self, module, name):
    if (module, name) in _ALLOWED:
      return _Recorder
    raise pickle.UnpicklingError(f'it asks for {module}.{name}')


def cifar_pickle(blob: containers.Blob) -> containers.Images:
  """Reads a batch of the Python version of CIFAR-10.

  Guarantee: nothing that the file names is imported or called. A hostile file
  can still exhaust memory.

  Args:
    blob: a dictionary, pickled by Python 2 with protocol 2, in which b'data'
      is an array of bytes [n, 3072] and b'labels' a list of n integers.

  Raises:
    ValueError: for anything else.
  """
  try:
    found = _Unpickler(io.BytesIO(blob.content), encoding='bytes').load()
  except Exception as error:  # On bad bytes the unpickler raises anything.
    raise ValueError(f'{blob.where} is no batch of CIFAR: '
                     f'{errors.one_line(error)}') from None
  if not isinstance(found, dict) or not {b'data', b'labels'} <= set(found):
    raise ValueError(f'{blob.where} is no batch of CIFAR: no dictionary with '
                     f'data and labels')
  rows = _rows(found[b'data'], where=blob.where)
  labels = found[b'labels']
  if not (isinstance(labels, list) and all(type(k) is int for k in labels)):
    raise ValueError(f'{blob.where}: labels must be a list of integers')
  return containers.Images(containers.cifar_images(rows), np.asarray(labels))


def cifar_pickle_parts(*batches: containers.Blob) -> containers.Parts:
  """Reads training batches and, last, the test batch."""
  return containers.join([cifar_pickle(batch) for batch in batches])


def _rows(recorder, *, where) -> np.ndarray:
  """Returns [n, 3072] uint8 from the recorded state of an array."""
  # The state of an array: version, shape, dtype, Fortran order?, bytes.
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
