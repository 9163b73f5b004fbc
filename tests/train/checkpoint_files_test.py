"""These tests check that damaged or unfinished checkpoints are not used."""

import math
import os
import shutil
import types
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.train import checkpoint
from dpjax.train.checkpoint import Checkpoints
from dpjax.train.checkpoint import Part
from dpjax.train.checkpoint import Saver


class _State(NamedTuple):
  weights: jax.Array
  key: jax.Array


class _Info(NamedTuple):
  batch_size: np.ndarray


_VALUES = {'method': 'toy'}


def _toy(step):
  return Part(_State(jnp.full((2, 3), step, jnp.float32),
                     jax.random.split(jax.random.key(step), 2)),
              (_Info(np.full((step, 2), step, np.int32)),))


def _saver(folder, said=None, values=_VALUES, **changes):
  return Saver(Checkpoints(folder=folder, **{
    'every_seconds': 0, 'say': (said if said is not None else []).append,
    **changes}), values)


def _restored(saver):
  part = _toy(1)
  parts = saver.restore(part.state, jax.tree.structure((part.state, part.info)))
  return parts[0].num_steps if parts else None


@pytest.fixture(name='saved', scope='module')
def _saved(tmp_path_factory):
  """Returns a folder with checkpoints at steps
  3 and 5, which tests must copy."""
  folder = tmp_path_factory.mktemp('saved')
  saver = _saver(folder)
  for step in (1, 3, 5):
    saver.after_chunk(step, [_toy(step)], 0.5)
  assert checkpoint.saved_steps(folder) == [5, 3]
  return folder


def _files(folder, step):
  return sorted(str(path.relative_to(folder))
                for path in (folder / str(step)).rglob('*') if path.is_file())


def _flip(path, index):
  content = bytearray(path.read_bytes())
  content[index] ^= 1 << index % 8
  path.write_bytes(content)


_DAMAGES = {
  'a bit in the middle': lambda path: _flip(path, path.stat().st_size // 2),
  'last bit': lambda path: _flip(path, path.stat().st_size - 1),
  'cut in half': lambda path: path.write_bytes(
    path.read_bytes()[:path.stat().st_size // 2]),
  'gone': lambda path: path.unlink(),
  'a file more': lambda path: path.with_name('more').touch(0o600),
}


@pytest.mark.slow
@pytest.mark.parametrize('damage', _DAMAGES)
def test_a_damaged_checkpoint_is_not_used_the_one_before_is(
    saved, damage, tmp_path):
  names = _files(saved, 5)
  assert len(names) >= 8
  for name in names:
    folder = tmp_path / name.replace('/', '_')
    shutil.copytree(saved, folder)
    _DAMAGES[damage](folder / name)
    said = []
    saver = _saver(folder, said)
    assert _restored(saver) == 3, name
    assert said == [
      f'warning: checkpoint {folder / "5"} is damaged or unfinished, and not '
      'used', f'resuming at step 3, from {folder / "3"}']
    # The run saves step 5 again as if the damaged folder had never existed.
    if name == names[0]:
      saver.after_chunk(5, [_toy(5)], 0.)
      assert _restored(_saver(folder)) == 5


def test_none_usable_starts_from_the_beginning(saved, tmp_path):
  folder = tmp_path / 'c'
  shutil.copytree(saved, folder)
  for step in (3, 5):
    (folder / str(step) / 'checksums').unlink()
  said = []
  assert _restored(_saver(folder, said)) is None
  assert said[-1] == 'no checkpoint is usable: starting from the beginning'
  assert len(said) == 3 and not list(folder.iterdir())


def test_what_a_kill_leaves_of_a_write_is_ignored_and_removed(saved, tmp_path):
  folder = tmp_path / 'c'
  shutil.copytree(saved, folder)
  # One folder is named as Orbax names unfinished writes; step 3 is half
  # removed.
  shutil.copytree(folder / '5', folder / '7.orbax-checkpoint-tmp')
  shutil.rmtree(folder / '3' / 'arrays')
  said = []
  saver = _saver(folder, said)
  assert _restored(saver) == 5
  assert said == [f'resuming at step 5, from {folder / "5"}']
  saver.after_chunk(7, [_toy(7)], 0.)
  assert sorted(path.name for path in folder.iterdir()) == ['5', '7']


def test_bits_of_odd_values_and_keys_survive(tmp_path):
  odd = jnp.asarray(np.array([[math.nan, -0., math.inf], [1e-45, 3., 7.]],
                             np.float32))
  part = _toy(2)._replace(state=_State(odd, jax.random.split(
    jax.random.key(5, impl='rbg'), 2)))
  _saver(tmp_path).after_chunk(2, [part, part], 0.)
  restored = _saver(tmp_path).restore(
    part.state, jax.tree.structure((part.state, part.info)))
  assert len(restored) == 2
  for each in restored:
    assert each.state.key.dtype == part.state.key.dtype
    for a, b in zip(jax.tree.leaves(each), jax.tree.leaves(part),
                    strict=True):
      assert checkpoint._to_host(a).tobytes() == checkpoint._to_host(
        b).tobytes()


def test_saves_no_more_often_than_said(tmp_path, monkeypatch):
  now = [100.]
  monkeypatch.setattr(checkpoint, 'time', types.SimpleNamespace(
    monotonic=lambda: now[0]))
  saver = _saver(tmp_path, every_seconds=10.)
  for step, at in enumerate((100., 109.9, 110., 111., 119.9, 121.), 1):
    now[0] = at
    saver.after_chunk(step, [_toy(step)], at)
  assert checkpoint.saved_steps(tmp_path) == [6, 3]
  assert _saver(tmp_path).seconds == 121.
  with pytest.raises(ValueError, match='every_seconds must be a number >= 0'):
    Checkpoints(folder=tmp_path, every_seconds=-1.)


def _linked(path):
  path.rename(path.with_name('theirs'))
  path.symlink_to(path.with_name('theirs'))


@pytest.mark.parametrize('name', ['.', '5', '5/checksums', '3/arrays'])
@pytest.mark.parametrize('plant', [
  _linked, lambda path: path.chmod(path.stat().st_mode | 0o020)])
def test_what_others_may_have_written_is_refused(saved, plant, name, tmp_path):
  """A checkpoint that others may have written
  is refused, not treated as damaged.

  Others may know the keys in it.
  """
  folder = tmp_path / 'c'
  shutil.copytree(saved, folder)
  plant(folder / name)
  before, said = sorted(tmp_path.rglob('*')), []
  with pytest.raises(PermissionError, match='is not used as a private f'):
    _saver(folder, said)
  assert not said and sorted(tmp_path.rglob('*')) == before


def test_a_checkpoint_of_another_user_is_refused(saved, monkeypatch):
  user = os.geteuid()
  monkeypatch.setattr(os, 'geteuid', lambda: user + 1)
  with pytest.raises(PermissionError, match=f'belongs to user {user}, not'):
    _saver(saved)


def test_checkpoints_are_the_folders_named_by_a_step(tmp_path):
  """Saved steps are the folders named by a step, newest first by number."""
  for name in ('9', '10', '100', 'x1', '7.orbax-checkpoint-tmp', '-3'):
    (tmp_path / name).mkdir()
  (tmp_path / '11').touch()
  assert checkpoint.saved_steps(tmp_path) == [100, 10, 9]
  assert checkpoint.saved_steps(tmp_path / 'none') == []
