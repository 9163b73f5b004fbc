"""These tests check that a killed `launch.train` resumes to the same result."""

import contextlib
import dataclasses
import io
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from absl.testing import flagsaver
import jax
import numpy as np
import pytest

from dpjax.cli import errors
from dpjax.cli import train
from dpjax.privacy import keys
from dpjax.runs import configuration
from dpjax.runs import interrupted
from dpjax.runs import summary as summaries
from dpjax.train import checkpoint
from dpjax.train import loop

_ROOT = pathlib.Path(__file__).resolve().parents[2]
# Tests that compare runs have reproducible ones.
_LONG = ('--noise_seed=0', '--method=lip_dp_sgd', '--average=ema', '--num_steps=6000',
         '--batch_size=20', '--width=4', '--accountant=rdp')
_TINY = ('--noise_seed=0', '--method=dp_sgd', '--num_steps=40', '--batch_size=20', '--width=4',
         '--accountant=rdp', '--checkpoint_seconds=1e-6')


def _start(*words):
  return subprocess.Popen(
      [sys.executable, '-m', 'launch.train', *words], cwd=_ROOT, text=True,
      stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
      env={**os.environ, 'JAX_DISABLE_MOST_OPTIMIZATIONS': '1'})


def _params(folder):
  with np.load(folder / 'params.npz') as params:
    return {name: (params[name].dtype, params[name].shape,
                   params[name].tobytes()) for name in params}


def _claim(folder):
  """Returns the summary of a run without its measured times."""
  summary = json.loads((folder / 'summary.json').read_text())
  return {name: value for name, value in summary.items()
          if not name.endswith('_seconds')}


@pytest.mark.slow
def test_kill_nine_and_resume(tmp_path):
  whole = _start(*_LONG, f'--output_dir={tmp_path / "whole"}',
                 '--checkpoint_seconds=0')
  out, _ = whole.communicate()
  assert whole.returncode == 0, out
  words = (*_LONG, f'--output_dir={tmp_path / "killed"}',
           '--checkpoint_seconds=1e-6')
  killed = _start(*words)
  folder = tmp_path / 'killed' / 'checkpoints'
  while not list(folder.glob('steps/*/checksums')):
    assert killed.poll() is None, killed.stdout.read()
    time.sleep(0.005)
  os.kill(killed.pid, signal.SIGKILL)
  assert killed.wait() == -signal.SIGKILL
  killed.stdout.close()
  assert not (tmp_path / 'killed' / 'summary.json').exists()
  saved = checkpoint.saved_steps(folder / 'steps')
  assert saved and saved[0] < 6000

  resumed = _start(*words)
  out, _ = resumed.communicate()
  assert resumed.returncode == 0 and 'resuming at step ' in out, out
  assert _params(tmp_path / 'killed') == _params(tmp_path / 'whole')
  assert _claim(tmp_path / 'killed') == _claim(tmp_path / 'whole')
  assert sorted(path.name for path in (tmp_path / 'killed').iterdir()) == [
      'params.npz', 'private_diagnostics.json', 'summary.json']


def _call(*words):
  """Runs main with flags and returns what it printed."""
  out = io.StringIO()
  with flagsaver.flagsaver(), contextlib.redirect_stdout(out), \
      contextlib.redirect_stderr(out):
    assert train.main(train.parse(['train', *map(str, words)])) == 0
  return out.getvalue()


class _Killed(BaseException):
  pass


def _call_killed(monkeypatch, owner, name, after, *words):
  """Calls `_call` and kills it at call number `after` + 1 of a function."""
  honest, calls = getattr(owner, name), []

  def killing(*args, **kwargs):
    calls.append(1)
    if len(calls) > after:
      raise _Killed
    return honest(*args, **kwargs)

  with monkeypatch.context() as patch, pytest.raises(_Killed):
    patch.setattr(owner, name, killing)
    _call(*words)


@pytest.fixture(name='whole', scope='module')
def _whole(tmp_path_factory):
  """Returns the folder of seeds 0 and 1, trained together and never killed."""
  folder = tmp_path_factory.mktemp('whole')
  _call(*_TINY, '--seed=0,1', f'--output_dir={folder}')
  assert sorted(path.name for path in folder.iterdir()) == ['seed=0', 'seed=1']
  return folder


def _assert_as_whole(folder, whole):
  for name in ('seed=0', 'seed=1'):
    assert _params(folder / name) == _params(whole / name)
    assert _claim(folder / name) == _claim(whole / name)
  assert not (folder / 'checkpoints').exists()


@pytest.mark.slow
def test_killed_between_the_results_of_a_group(whole, tmp_path, monkeypatch):
  """A group killed between its results resumes as a group.

  Trained alone, the other seed would have other bits.
  """
  words = (*_TINY, '--seed=0,1', f'--output_dir={tmp_path}')
  _call_killed(monkeypatch, summaries, 'write', 1, *words)
  assert sorted(path.parent.name for path in tmp_path.glob('*/summary.json')
                ) == ['seed=0']
  first = (tmp_path / 'seed=0' / 'summary.json').read_bytes()
  out = _call(*words)
  assert '1 of 2 runs are finished already' in out
  assert 'resuming at step 40' in out
  assert (tmp_path / 'seed=0' / 'summary.json').read_bytes() == first
  _assert_as_whole(tmp_path, whole)


@pytest.mark.slow
def test_a_group_that_grows_is_finished_as_it_was_begun(whole, tmp_path,
                                                        monkeypatch):
  words = (*_TINY, f'--output_dir={tmp_path}')
  # The run is killed after six chunks of two steps.
  _call_killed(monkeypatch, checkpoint.Saver, 'after_chunk', 6, *words,
               '--seed=0,1')
  with pytest.raises(ValueError, match='the checkpoint of seed = 0, epsilon'):
    _call(*words, '--seed=1,2')
  with pytest.raises(ValueError, match='configuration: clip_norm = 0.5, now 2'):
    _call(*words, '--seed=0,1', '--clip_norm=2')
  out = _call(*words, '--seed=2,1,0')
  assert out.count('resuming at step 12') == 1
  assert (tmp_path / 'seed=2' / 'summary.json').exists()
  _assert_as_whole(tmp_path, whole)


_CONFIGS = [configuration.TrainingConfig(
    dataset='breast_cancer', method='dp_sgd', seed=seed, epsilon=epsilon)
    for seed in (0, 1) for epsilon in (0.1, 2.)]


def _save_something(folder):
  (interrupted.steps_folder(folder) / '5').mkdir(parents=True)


def test_what_was_begun_together_is_finished_together(tmp_path):
  a, b, c, d = _CONFIGS
  folder = tmp_path / interrupted.FOLDER / 'depth=1'
  batches = lambda group, pending: interrupted.batches(folder, group, pending)
  assert batches(_CONFIGS, [a, d]) == [[a, d]]
  assert batches(_CONFIGS, []) == [] and not folder.exists()
  interrupted.start(folder, [c, a])
  _save_something(folder)
  # A kill during writing leaves this file.
  (folder / '.runs.json.123').write_text('[')
  assert batches(_CONFIGS, _CONFIGS) == [[c, a], [b, d]]
  assert batches([a, b, c], [b, c]) == [[c, a], [b]]
  assert batches([a, c], [a]) == [[c, a]]
  with pytest.raises(ValueError, match='of seed = 1, epsilon = 0.1, which is'):
    batches([a, b], [a, b])
  # All runs that began have their results; the kill came before the clean-up.
  assert batches(_CONFIGS, [b]) == [[b]]
  assert not list(tmp_path.iterdir())


def test_what_cannot_be_read_is_no_reason_to_remove_checkpoints(tmp_path):
  a, b, *_ = _CONFIGS
  _save_something(tmp_path)
  for text in ('', '[[0, 0', '7', '[1, 2]', '[["x", 1]]'):
    (tmp_path / 'runs.json').write_text(text)
    assert interrupted.batches(tmp_path, [a, b], [b]) == [[b]]
  assert (tmp_path / 'steps' / '5').exists()


def test_runs_begun_without_a_checkpoint_bind_nobody(tmp_path):
  a, b, c, d = _CONFIGS
  interrupted.start(tmp_path, [a, b])
  assert interrupted.batches(tmp_path, [c, d], [c, d]) == [[c, d]]


def test_groups_keep_their_checkpoints_apart(tmp_path):
  configs = [dataclasses.replace(config, depth=depth)
             for depth in (0, 1) for config in _CONFIGS]
  groups = train._groups(configs, str(tmp_path))
  assert [group for group, _ in groups] == [tuple(configs[:4]),
                                            tuple(configs[4:])]
  root = tmp_path / 'checkpoints'
  assert [folder for _, folder in groups] == [root / 'depth=0',
                                              root / 'depth=1']
  (_, folder), = train._groups(configs[:4], str(tmp_path))
  assert folder == root


@pytest.mark.slow
@pytest.mark.parametrize('where', ['_compile', '_train'])
def test_out_of_memory_names_the_flags(where, tmp_path, monkeypatch, capsys):
  def exhausted(*args, **kwargs):
    raise jax.errors.JaxRuntimeError(
        'RESOURCE_EXHAUSTED: Out of memory allocating 99999999999 bytes.\nmore')

  monkeypatch.setattr(loop, where, exhausted)
  monkeypatch.setattr(errors.app, 'run', lambda main, **_: statuses.append(main(
      train.parse(['train', *_TINY[1:], f'--output_dir={tmp_path}']))))
  statuses = []
  with flagsaver.flagsaver():
    errors.run_main(train.main)
  assert statuses == [errors.BAD_INPUT]
  error = capsys.readouterr().err
  assert error.startswith('error: out of memory: ') and error.count('\n') == 1
  assert '--microbatch_size' in error and '--max_batch_size' in error


@pytest.mark.slow
def test_other_errors_of_the_runtime_are_not_of_memory(tmp_path, monkeypatch):
  def failing(*args, **kwargs):
    raise jax.errors.JaxRuntimeError('INTERNAL: a bug')

  monkeypatch.setattr(loop, '_train', failing)
  with pytest.raises(RuntimeError, match='INTERNAL: a bug'):
    _call(*_TINY, f'--output_dir={tmp_path}')


@pytest.mark.slow
def test_switched_off_writes_nothing(tmp_path, monkeypatch):
  monkeypatch.setattr(checkpoint, '_save', None)
  monkeypatch.setattr(interrupted, 'start', None)
  monkeypatch.setattr(interrupted, 'keep_words', None)
  _call(*_TINY[1:], '--checkpoint_seconds=0', f'--output_dir={tmp_path}')
  with pytest.raises(ValueError, match='every_seconds must be a number'):
    _call(*_TINY, '--checkpoint_seconds=nan', f'--output_dir={tmp_path / "n"}')


def _known_words(monkeypatch, first):
  """Makes the system's random source return
  words that count up from `first`."""
  monkeypatch.setattr(keys, 'system_words', lambda num: np.arange(
      first, first + 8 * num, dtype=np.uint32).reshape(num, 8))


@pytest.mark.every(6)
@pytest.mark.parametrize('words, after, file', [
    # The kill comes in the third of twenty chunks, before any checkpoint.
    (('--checkpoint_seconds=1000',), 2, 'keys.json'),
    pytest.param((), 6, 'steps', marks=pytest.mark.slow),
    pytest.param(('--num_canaries=30',), 6, 'steps', marks=pytest.mark.slow)])
def test_a_release_goes_on_with_its_keys(words, after, file, tmp_path,
                                         monkeypatch):
  """A killed release resumes with its own keys, which only the owner may read.

  New words of the random source go to other runs.
  """
  words = (*_TINY[1:], '--seed=0,1', *words)
  _known_words(monkeypatch, 100)
  _call(*words, f'--output_dir={tmp_path / "whole"}')
  words = (*words, f'--output_dir={tmp_path / "killed"}')
  _call_killed(monkeypatch, checkpoint.Saver, 'after_chunk', after, *words)
  folder = tmp_path / 'killed' / 'checkpoints'
  assert (folder / file).exists()
  assert folder.stat().st_mode & 0o777 == 0o700
  assert {path.stat().st_mode & 0o077 for path in folder.rglob('*')} == {0}
  assert (folder / 'keys.json').stat().st_mode & 0o777 == 0o600
  # Words that the source gives from now on belong to other runs.
  _known_words(monkeypatch, 900)
  _call(*words)
  _assert_as_whole(tmp_path / 'killed', tmp_path / 'whole')
  for name in ('seed=0', 'seed=1'):
    if '--num_canaries=30' in words:
      whole, killed = (np.load(tmp_path / where / name / 'canaries.npz')
                       for where in ('whole', 'killed'))
      for part in whole:
        np.testing.assert_array_equal(whole[part], killed[part])
  one, other = (_params(tmp_path / 'whole' / f'seed={seed}') for seed in (0, 1))
  assert one != other


def test_kept_words_are_those_of_their_run(tmp_path, monkeypatch):
  a, b, c, d = _CONFIGS
  _known_words(monkeypatch, 100)
  words = interrupted.kept_words(tmp_path, [a, b])
  assert not list(tmp_path.iterdir())
  interrupted.keep_words(tmp_path, [a, b], words)
  _known_words(monkeypatch, 900)
  kept = interrupted.kept_words(tmp_path, [c, b, a])
  np.testing.assert_array_equal(kept[1:], words[::-1])
  assert set(kept[0]) == set(range(900, 908))
  for text in ('', '[[0, 0.1', '7', '[[0, 0.1, "zz"]]', '[[0, 0.1, "00"]]'):
    (tmp_path / 'keys.json').write_text(text)
    assert not {*interrupted.kept_words(tmp_path, [a, b]).ravel().tolist()} & {
        *words.ravel().tolist()}
  interrupted.keep_words(tmp_path, [d], words[:1])
  (tmp_path / '.keys.json.123').write_text('[')
  interrupted.finish(tmp_path)
  assert not tmp_path.exists()


@pytest.mark.slow
def test_canaries_are_resumed(tmp_path, monkeypatch):
  words = (*_TINY, '--num_canaries=30', '--seed=0,1')
  _call(*words, f'--output_dir={tmp_path / "whole"}')
  words = (*words, f'--output_dir={tmp_path / "killed"}')
  _call_killed(monkeypatch, checkpoint.Saver, 'after_chunk', 6, *words)
  with pytest.raises(ValueError, match='canary_seed = None, now 9|other rows'):
    _call(*words, '--canary_seed=9')
  assert 'resuming at step 12' in _call(*words)
  _assert_as_whole(tmp_path / 'killed', tmp_path / 'whole')
  for name in ('seed=0', 'seed=1'):
    whole, killed = (tmp_path / where / name / 'canaries.npz'
                     for where in ('whole', 'killed'))
    with np.load(whole) as first, np.load(killed) as second:
      assert set(first) == {'x', 'y', 'included'}
      for part in first:
        np.testing.assert_array_equal(first[part], second[part])
