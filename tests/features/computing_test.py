"""Tests that features are computed once, stored whole, and closed to others."""

import dataclasses
import os
import pathlib
import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.features import computing
from dpjax.features.combining import Composed
from dpjax.features.computing import computed
from dpjax.features.hog import Hog
from dpjax.features.normalisation import GroupNormalisation
from dpjax.report import files

pytestmark = pytest.mark.every(3)

_CALLS = []


@dataclasses.dataclass(frozen=True)
class _Scaled:
  """A feature that counts how often it is traced."""
  by: float

  def __call__(self, x):
    _CALLS.append(x.shape)
    return x * jnp.float32(self.by)


def _records(num=10):
  return np.random.default_rng(0).random((num, 3)).astype(np.float32)


@pytest.mark.parametrize('block', [1, 3, 5, 10, 99])
def test_blocks_do_not_change_features(block):
  x, done = _records(), []
  features = computed(_Scaled(2.0), x, block=block,
                      progress=lambda *step: done.append(step))
  np.testing.assert_array_equal(features, 2 * x)
  assert features.dtype == np.float32 and isinstance(features, np.ndarray)
  assert [step[0] for step in done] == [
    min(start + block, 10) for start in range(0, 10, block)]


def test_a_second_call_does_no_work(tmp_path):
  x = _records()
  first = computed(_Scaled(2.0), x, cache_dir=tmp_path / 'cache')
  _CALLS.clear()
  again = computed(_Scaled(2.0), x.copy(), block=3,
                   cache_dir=tmp_path / 'cache')
  np.testing.assert_array_equal(first, again)
  assert not _CALLS
  # What the file holds is returned, and nothing is computed.
  path, = (tmp_path / 'cache').iterdir()
  stored = first + 1
  with open(path, 'wb') as file:
    np.save(file, stored)
  np.testing.assert_array_equal(
    computed(_Scaled(2.0), x, cache_dir=tmp_path / 'cache'), stored)


def test_what_changes_features_changes_the_file(tmp_path):
  x = _records()
  other = x.copy()
  # One bit of the last record.
  other.view(np.uint32)[-1, -1] ^= 1
  for function, records, dtype in (
      (_Scaled(2.0), x, 'float32'), (_Scaled(2.5), x, 'float32'),
      (_Scaled(2.0), other, 'float32'), (_Scaled(2.0), x, 'float16'),
      (_Scaled(2.0), x[:9], 'float32'), (_Scaled(2.0), x.T, 'float32'),
      (_Scaled(2.0), x.reshape(5, 6), 'float32'),
      (Composed((_Scaled(2.0),)), x, 'float32')):
    before = len(list(tmp_path.iterdir()))
    wanted = np.asarray(records, np.float32) * np.float32(
      getattr(function, 'by', 2.0))
    np.testing.assert_allclose(
      computed(function, records, dtype=dtype, cache_dir=tmp_path), wanted,
      rtol=1e-3)
    assert len(list(tmp_path.iterdir())) == before + 1


@pytest.mark.parametrize('dtype', ['float32', 'float16', 'bfloat16'])
def test_types_are_kept_by_files(dtype, tmp_path):
  first, again = (computed(_Scaled(1.0), _records(), dtype=dtype,
                           cache_dir=tmp_path) for _ in range(2))
  assert first.dtype == again.dtype == jnp.dtype(dtype)
  np.testing.assert_array_equal(first.astype(np.float32),
                                again.astype(np.float32))


def test_large_records_are_hashed_in_parts(monkeypatch):
  x = _records(1000)
  whole = computing._digest('text', x)
  monkeypatch.setattr(computing, '_HASHED', 100)
  assert computing._digest('text', x) == whole
  assert computing._digest('text', x[::-1]) != whole


def test_files_are_closed_to_others(tmp_path):
  folder = tmp_path / 'cache'
  computed(_Scaled(2.0), _records(), cache_dir=folder)
  path, = folder.iterdir()
  assert folder.stat().st_mode & 0o777 == 0o700
  assert path.stat().st_mode & 0o777 == 0o600
  path.chmod(0o644)
  with pytest.raises(PermissionError, match='other users') as refused:
    computed(_Scaled(2.0), _records(), cache_dir=folder)
  # The name is a digest of the records, and a message may be published.
  assert path.stem not in str(refused.value)
  path.unlink()
  path.symlink_to(tmp_path / 'elsewhere')
  with pytest.raises(OSError) as refused:
    computed(_Scaled(2.0), _records(), cache_dir=folder)
  assert path.stem not in str(refused.value)


def test_a_file_that_is_not_whole_is_never_read(tmp_path, monkeypatch):
  """A crash while a file is written leaves nothing under its name."""
  save = np.save

  def dies(file, array, **options):
    save(file, array, **options)
    file.truncate(150)
    raise KeyboardInterrupt
  monkeypatch.setattr(np, 'save', dies)
  with pytest.raises(KeyboardInterrupt):
    computed(_Scaled(2.0), _records(), cache_dir=tmp_path)
  assert not list(tmp_path.iterdir())
  monkeypatch.setattr(np, 'save', save)
  # So does one that is killed: the name of its file is another one.
  monkeypatch.setattr(os, 'replace', lambda *names: None)
  monkeypatch.setattr(pathlib.Path, 'unlink', lambda *_, **__: None)
  computed(_Scaled(2.0), _records(), cache_dir=tmp_path)
  monkeypatch.undo()
  left, = tmp_path.iterdir()
  left.write_bytes(left.read_bytes()[:150])
  np.testing.assert_array_equal(
    computed(_Scaled(2.0), _records(), cache_dir=tmp_path), 2 * _records())


def test_replacing_keeps_the_old_file_if_the_block_raises(tmp_path):
  path = tmp_path / 'file'
  files.replace(path, b'old')
  with pytest.raises(RuntimeError):
    with files.replacing(path) as file:
      file.write(b'new')
      raise RuntimeError
  assert path.read_bytes() == b'old' and list(tmp_path.iterdir()) == [path]


def test_descriptions_tell_functions_apart():
  array = np.arange(2000.0)
  changed = array.copy()
  changed[1000] += 1e-9  # `repr` would leave this out.

  @dataclasses.dataclass(frozen=True)
  class Weighted:
    weights: np.ndarray

  texts = [computing.description(function) for function in (
    Hog(image_shape=(32, 32, 1)), Hog(image_shape=(32, 32, 1), cell=4),
    GroupNormalisation(groups=1), GroupNormalisation(groups=2),
    Composed((GroupNormalisation(groups=1),)),
    Composed((GroupNormalisation(groups=1), GroupNormalisation(groups=1))),
    Composed((_Scaled(1.0), _Scaled(2.0))),
    Composed((_Scaled(2.0), _Scaled(1.0))),
    Weighted(array), Weighted(changed), Weighted(array.astype(np.float32)))]
  assert len(set(texts)) == len(texts)


def test_descriptions_are_those_of_other_processes():
  code = ('from dpjax.features import computing, Hog; '
          'print(computing.description(Hog(image_shape=(32, 32, 1))))')
  there = subprocess.run([sys.executable, '-c', code], check=True, text=True,
                         capture_output=True).stdout.strip()
  assert there == computing.description(Hog(image_shape=(32, 32, 1)))


@dataclasses.dataclass
class _Changing:
  by: float = 1.0

  def __call__(self, x):
    return x


@pytest.mark.parametrize('function', [
  lambda x: x, _Changing(), Composed((lambda x: x,)), _Scaled])
def test_functions_without_a_description_are_not_stored(function, tmp_path):
  with pytest.raises(ValueError, match='leave cache_dir out'):
    computed(function, _records(), cache_dir=tmp_path / 'cache')
  assert not (tmp_path / 'cache').exists()


def test_refusals():
  for options, message in ((dict(block=0), 'block must be an integer >= 1'),
                           (dict(dtype='int8'), 'dtype must be one of')):
    with pytest.raises(ValueError, match=message):
      computed(_Scaled(1.0), _records(), **options)
  with pytest.raises(ValueError, match='n >= 1, got'):
    computed(_Scaled(1.0), _records()[:0])
  with pytest.raises(ValueError, match='a row for each of 10 records'):
    computed(lambda x: x[:2], _records())
