"""Tests dpjax.data.pickles: which pickles are read, and that none are run."""

import pickle
import struct
import sys
import types

import numpy as np
import pytest

from dpjax.data import containers
from dpjax.data import pickles

ROWS = np.random.default_rng(0).integers(0, 256, (2, 3072), dtype=np.uint8)


def _text(text):
  return b'U' + bytes([len(text)]) + text


def _array(rows, *, kind=b'u1', fortran=False, shape=None):
  """Returns the pickle of an array as NumPy under Python 2 writes it."""
  content = rows.tobytes(order='F' if fortran else 'C')
  first, second = shape or rows.shape
  return b''.join((
    b'cnumpy.core.multiarray\n_reconstruct\n',
    b'(cnumpy\nndarray\nK\x00\x85', _text(b'b'), b'tR',  # arguments, call
    b'(K\x01', b'J', struct.pack('<i', first), b'J', struct.pack('<i', second),
    b'\x86',
    b'cnumpy\ndtype\n(', _text(kind), b'K\x00K\x01tR',
    b'(K\x03', _text(b'|'), b'NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb',
    b'\x88' if fortran else b'\x89',
    b'T', struct.pack('<i', len(content)), content, b'tb'))


def _labels(*labels):
  return b'](' + b''.join(b'K' + bytes([k]) for k in labels) + b'e'


def _batch(data=None, labels=None):
  data = _array(ROWS) if data is None else data
  labels = _labels(6, 9) if labels is None else labels
  return b''.join((
    b'\x80\x02}(', _text(b'batch_label'), _text(b'training batch 1 of 5'),
    _text(b'labels'), labels, _text(b'data'), data, b'u.'))


def _read(content):
  return pickles.cifar_pickle(containers.Blob('toy', content))


def test_handwritten_pickle_is_what_numpy_reads():
  """NumPy's own reader accepts the handwritten pickle, so
  the fixture is right."""
  for fortran in (False, True):
    content = _batch(_array(ROWS, fortran=fortran))
    # Under NumPy 2 the module has moved; the old name warns.
    modern = content.replace(b'numpy.core.', b'numpy._core.')
    batch = pickle.loads(modern, encoding='bytes')
    np.testing.assert_array_equal(batch[b'data'], ROWS)
    assert batch[b'labels'] == [6, 9]


@pytest.mark.parametrize('fortran', [False, True])
def test_batch_is_read_as_the_binary_version(fortran):
  split = _read(_batch(_array(ROWS, fortran=fortran)))
  binary = containers.cifar_binary(containers.Blob(
    '', b'\x06' + ROWS[0].tobytes() + b'\x09' + ROWS[1].tobytes()))
  np.testing.assert_array_equal(split.x, binary.x)
  np.testing.assert_array_equal(split.y, binary.y)


def test_parts():
  blob = containers.Blob('', _batch())
  train, test = pickles.cifar_pickle_parts(*[blob] * 6)
  assert train.x.shape == (10, 32, 32, 3) and test.x.shape == (2, 32, 32, 3)
  np.testing.assert_array_equal(train.y, [6, 9] * 5)


@pytest.fixture
def called(monkeypatch):
  """Installs a module that a hostile pickle may name; returns its calls."""
  calls = []
  module = types.ModuleType('hostile')
  module.run = calls.append
  monkeypatch.setitem(sys.modules, 'hostile', module)
  return calls


@pytest.mark.parametrize('program', [
  b'chostile\nrun\nK\x01\x85R.',  # GLOBAL and REDUCE
  b'(K\x01ihostile\nrun\n.',  # INST
  b'(chostile\nrun\nK\x01o.',  # OBJ
  b'chostile\nrun\nK\x01\x85\x81.',  # NEWOBJ
  b'\x80\x04\x8c\x07hostile\x8c\x03run\x93K\x01\x85R.',  # STACK_GLOBAL
])
def test_no_function_named_by_the_file_runs(program, called):
  with pytest.raises(ValueError, match=(
      'toy is not a CIFAR batch: it asks for hostile.run$')):
    _read(program)
  assert not called
  # The fixture would notice, since the usual reader runs the program.
  try:
    pickle.loads(program)
  except (TypeError, pickle.UnpicklingError):
    return  # NEWOBJ, OBJ and INST need a class.
  assert called == [1]


@pytest.mark.parametrize('name', [
  b'cnumpy\nload\n', b'cnumpy.core.multiarray\nfromfile\n',
  b'cbuiltins\neval\n', b'c__builtin__\neval\n', b'cos\nsystem\n',
  b'cnumpy\nndarray.tofile\n', b'c_codecs\nencode\n'])
def test_other_names_are_refused(name):
  with pytest.raises(ValueError, match='it asks for '):
    _read(b'\x80\x02' + name + b'.')


@pytest.mark.parametrize('program', [
  # The state is set on the recorder's class instead of on an instance.
  b'cnumpy\ndtype\n}(' + _text(b'x') + b'K\x01ub.',
  b'cnumpy\ndtype\n(N}(' + _text(b'__init__') + b'K\x01utb.',
  b'cnumpy\ndtype\n)RK\x01\x85R.',  # This calls an instance.
  b'cnumpy\ndtype\n)R}b.',  # no dictionary
  b'Pid\n.', b'\x82\x01.', b'', b'\x80\x02', b'\x80\x63.', b'junk',
  _batch()[:-1], _batch()[:100], b'K\x01.', b'}.',
])
def test_damage_is_one_line_and_leaves_no_trace(program):
  with pytest.raises(ValueError, match='toy is not a CIFAR batch: ') as caught:
    _read(program)
  assert '\n' not in str(caught.value)
  assert _read(_batch()).x.shape == (2, 32, 32, 3)


@pytest.mark.parametrize('content, message', [
  (_batch(data=b'K\x01'), 'data must be an array$'),
  (_batch(data=b'cnumpy\ndtype\n)R'), 'data must be an array$'),
  (_batch(data=b'cnumpy\ndtype\n)R(K\x01NNNNtb'), 'data must be an array of bytes$'),
  (_batch(data=_array(ROWS, kind=b'O8')), 'data must be an array of bytes$'),
  (_batch(data=_array(ROWS, kind=b'f8')), 'data must be an array of bytes$'),
  (_batch(data=_array(ROWS, shape=(4, 3072))),
   r'data must be \[n, 3072\], got \(4, 3072\) in 6144 bytes$'),
  (_batch(data=_array(ROWS[:, :-1])), 'data must be .* in 6142 bytes$'),
  (_batch(labels=b'K\x01'), 'labels must be a list of integers$'),
  (_batch(labels=b'](G' + bytes(8) + b'e'), 'labels must be a list of integers'),
])
def test_other_contents_are_refused(content, message):
  with pytest.raises(ValueError, match=f'^toy: {message}'):
    _read(content)
