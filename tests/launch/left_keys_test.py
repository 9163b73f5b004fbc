"""These tests check that no secret key is left beside a finished release.

A planted key must not be used either.
"""

import dataclasses
import json
import os
import pathlib

import numpy as np
import pytest

from dpjax.runs import configuration
from dpjax.runs import interrupted
from dpjax.runs import running
from dpjax.runs import summary as summaries
from dpjax.runs import training

_CONFIGS = [configuration.TrainingConfig(
    dataset='breast_cancer', method='dp_sgd', accountant='rdp', num_steps=3,
    seed=seed) for seed in (0, 1)]


class _Killed(BaseException):
  pass


def _result(config):
  config = configuration.resolve(config, num_available=90)
  return training.TrainingResult(
      config=config, plan=training.make_plan(config), num_train=90, num_test=9,
      params={'kernel': np.ones(3)}, test_accuracy=0.75, epsilon=1.0,
      epsilon_valid=True, joint_noise_multiplier=2.0, l2_sensitivity=(1.0,),
      num_nonfinite=0, compile_seconds=1.0, train_seconds=1.0)


@pytest.fixture(name='keys_of')
def _keys_of(monkeypatch):
  """Returns (keys given to each training, faults), with training replaced.

  The replacement calls back as training does and fails where `fails` says.
  """
  used = []

  def train(batch, *, on_plans, on_progress, checkpoints, keys, **_):
    results = [_result(config) for config in batch]
    on_plans([(result.config, result.plan) for result in results])
    used.append(keys)
    if 'training' in train.fails:
      raise train.fails['training']
    if checkpoints is not None and train.fails.get('saves'):
      (pathlib.Path(checkpoints.folder) / '1').mkdir(parents=True)
    on_progress(1, 2)
    if 'step' in train.fails:
      raise train.fails['step']
    return results

  train.fails = {}
  used_and_fails = used, train.fails
  monkeypatch.setattr(running.training, 'train', train)
  return used_and_fails


def _run(folder, checkpoint_seconds, configs=tuple(_CONFIGS)):
  return running.run(
      [(configs, folder / interrupted.FOLDER)],
      {config: folder / f'seed={config.seed}' for config in configs},
      data_dir=None, checkpoint_seconds=checkpoint_seconds)


def _left(folder):
  return sorted(str(path.relative_to(folder)) for path in folder.rglob('*')
                if interrupted.FOLDER in path.parts)


@pytest.mark.parametrize('seconds', [0, 1000])
@pytest.mark.parametrize('where', ['training', 'step'])
@pytest.mark.parametrize('saves', [False, True])
def test_the_end_of_a_killed_run_leaves_no_key(seconds, where, saves, keys_of,
                                               tmp_path):
  """A killed run finishes with the keys it had and then leaves no key.

  This holds without further checkpoints, too.
  """
  used, fails = keys_of
  fails.update({where: _Killed(), 'saves': saves})
  with pytest.raises(_Killed):
    _run(tmp_path, 1000)
  assert 'checkpoints/keys.json' in _left(tmp_path)
  fails.clear()
  assert len(_run(tmp_path, seconds)) == 2
  assert _left(tmp_path) == []
  assert used[0] is not None and (used[0] == used[1]).all()


@pytest.mark.parametrize('seconds', [0, 1000])
def test_runs_that_are_there_already_keep_no_key(seconds, keys_of, tmp_path):
  """Finished runs keep no key, whether killed
  late or with an orphaned key file."""
  _run(tmp_path, 0)
  folder = tmp_path / interrupted.FOLDER
  for runs_file in (True, False):
    interrupted.keep_words(folder, _CONFIGS, interrupted.kept_words(
        folder, _CONFIGS))
    if runs_file:
      interrupted.start(folder, _CONFIGS)
    _run(tmp_path, seconds)
    assert _left(tmp_path) == []


@pytest.mark.parametrize('failure', [MemoryError('too much'),
                                     RuntimeError('RESOURCE_EXHAUSTED: a lot'),
                                     ValueError('bad')])
def test_a_failure_without_a_checkpoint_leaves_no_key(failure, keys_of,
                                                      tmp_path):
  _, fails = keys_of
  fails.update({'step': failure})
  with pytest.raises((MemoryError, ValueError)):
    _run(tmp_path, 1000)
  assert _left(tmp_path) == []
  # The same command resumes from a checkpoint, for example with less memory.
  fails.update({'saves': True})
  with pytest.raises((MemoryError, ValueError)):
    _run(tmp_path, 1000)
  assert {'checkpoints/keys.json', 'checkpoints/steps/1'} <= set(
      _left(tmp_path))


def test_a_failure_after_the_first_release_leaves_no_key(keys_of, tmp_path,
                                                         monkeypatch):
  """A full disk after the first result leaves
  no key; later runs get new keys."""
  used, fails = keys_of
  fails.update({'saves': True})
  honest, written = summaries.write, []

  def write(folder, *rest):
    if written:
      raise OSError('No space left on device')
    written.append(folder)
    honest(folder, *rest)

  with monkeypatch.context() as patch, pytest.raises(OSError, match='space'):
    patch.setattr(summaries, 'write', write)
    _run(tmp_path, 1000)
  assert (tmp_path / 'seed=0' / summaries.NAME).exists()
  assert _left(tmp_path) == []
  first = (tmp_path / 'seed=0' / summaries.NAME).read_bytes()
  assert len(_run(tmp_path, 1000)) == 2
  assert (tmp_path / 'seed=0' / summaries.NAME).read_bytes() == first
  assert not (used[0] == used[1]).all()


def _plant(folder, mode=0o600):
  """Writes keys that an attacker knows into the folder of keys."""
  folder.mkdir(parents=True, mode=0o700)
  keys = folder / 'keys.json'
  keys.write_text(json.dumps([[c.seed, c.epsilon, '00' * 32]
                              for c in _CONFIGS]))
  keys.chmod(mode)
  return keys


def _readable(folder):
  _plant(folder, 0o644)


def _writable(folder):
  _plant(folder)
  folder.chmod(0o777)


def _linked(folder):
  keys = _plant(folder)
  keys.rename(folder.parent / 'theirs.json')
  keys.symlink_to(folder.parent / 'theirs.json')


def _linked_folder(folder):
  _plant(folder.parent / 'theirs')
  folder.symlink_to(folder.parent / 'theirs')


@pytest.mark.parametrize('seconds', [0, 1000])
@pytest.mark.parametrize('plant', [_readable, _writable, _linked,
                                   _linked_folder])
def test_planted_keys_are_refused(plant, seconds, keys_of, tmp_path):
  used, _ = keys_of
  plant(tmp_path / interrupted.FOLDER)
  before = _left(tmp_path)
  with pytest.raises(PermissionError, match='is not used as a private f'):
    _run(tmp_path, seconds)
  assert used == [] and _left(tmp_path) == before
  assert not list(tmp_path.rglob(summaries.NAME))


def test_keys_of_another_user_are_refused(keys_of, tmp_path, monkeypatch):
  used, _ = keys_of
  _plant(tmp_path / interrupted.FOLDER)
  user = os.geteuid()
  monkeypatch.setattr(os, 'geteuid', lambda: user + 1)
  with pytest.raises(PermissionError, match=f'belongs to user {user}, not'):
    _run(tmp_path, 1000)
  assert used == []


@pytest.mark.parametrize('mask', [0o000, 0o002, 0o077])
def test_folders_are_private_whatever_the_umask(mask, keys_of, tmp_path):
  _, fails = keys_of
  fails.update({'saves': True, 'step': _Killed()})
  configs = [dataclasses.replace(config, noise_seed=0) for config in _CONFIGS]
  before = os.umask(mask)
  try:
    with pytest.raises(_Killed):
      running.run(
          [(configs, tmp_path / interrupted.FOLDER / 'depth=0')],
          {config: tmp_path / f'seed={config.seed}' for config in configs},
          data_dir=None, checkpoint_seconds=1000)
  finally:
    os.umask(before)
  for name in (interrupted.FOLDER, f'{interrupted.FOLDER}/depth=0'):
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o700
