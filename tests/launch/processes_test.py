"""These tests run `launch.train` in two processes of four devices each."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from dpjax.train import checkpoint

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_WORDS = ('--method=lip_dp_sgd', '--accountant=rdp', '--width=4')
_LONG = (*_WORDS, '--noise_seed=0', '--average=ema', '--num_steps=200', '--batch_size=20')

pytestmark = pytest.mark.slow


def _environ(num_devices):
  return {**os.environ, 'JAX_DISABLE_MOST_OPTIMIZATIONS': '1',
          'XLA_FLAGS': '--xla_cpu_use_fusion_emitters=false '
          f'--xla_force_host_platform_device_count={num_devices}'}


def _alone(folder, *words):
  subprocess.run([sys.executable, '-m', 'launch.train', *words,
                  f'--output_dir={folder}'], cwd=_ROOT, check=True,
                 capture_output=True, env=_environ(1))


def _start(folders, *words):
  """Starts two processes, each with its own folder; only the first writes."""
  with socket.socket() as probe:
    probe.bind(('localhost', 0))
    port = probe.getsockname()[1]
  return [subprocess.Popen(
      [sys.executable, '-m', 'launch.train', *words, f'--output_dir={folder}',
       f'--process_id={index}', f'--coordinator_address=localhost:{port}',
       '--num_processes=2'],
      cwd=_ROOT, env=_environ(4), text=True, stdout=subprocess.PIPE,
      stderr=subprocess.PIPE) for index, folder in enumerate(folders)]


def _together(folders, *words):
  """Runs both processes and returns [(status, stdout, stderr)]."""
  started = _start(folders, *words)
  ended = [process.communicate(timeout=300) for process in started]
  return [(process.returncode, out, err)
          for process, (out, err) in zip(started, ended, strict=True)]


def _params(folder):
  with np.load(folder / 'params.npz') as params:
    return dict(params)


def _summary(folder):
  return json.loads((folder / 'summary.json').read_text())


def test_two_processes_train_what_one_trains(tmp_path):
  words = (*_WORDS, '--seed=0,1', '--num_steps=5', '--noise_seed=0')
  folders = [tmp_path / '0', tmp_path / '1']
  _alone(tmp_path / 'one', *words)
  (status, out, err), (status_1, out_1, err_1) = _together(folders, *words)
  assert status == status_1 == 0, err + err_1
  # The first process prints and writes.
  assert 'at most (1, ' in out and 'written to' in out
  assert 'at most' not in out_1 and 'written' not in out_1
  assert 'settings' in err and 'settings' not in err_1
  assert not folders[1].exists()
  for run in ('seed=0', 'seed=1'):
    one, two = (_params(tmp_path / name / run) for name in ('one', '0'))
    for name, values in one.items():
      np.testing.assert_allclose(two[name], values, rtol=1e-3, atol=1e-5)
    assert _summary(folders[0] / run)['device'] == '8 x cpu'
  # All processes find what exists, and all refuse together.
  (status, out, _), (status_1, _, _) = _together(folders, *words)
  assert status == status_1 == 0 and '2 of 2 runs are finished already' in out
  for status, _, err in _together(folders, *words, '--clip_norm=2'):
    assert status == 2 and 'of another configuration: clip_norm' in err


def test_two_processes_divide_parameters(tmp_path):
  """They train what one trains, and the first writes whole arrays."""
  words = ('--method=dp_sgd', '--accountant=rdp', '--seed=0,1', '--depth=2',
           '--width=128', '--num_steps=4', '--noise_seed=0')
  folders = [tmp_path / '0', tmp_path / '1']
  _alone(tmp_path / 'one', *words)
  for status, _, err in _together(
      folders, *words, '--mesh=data:2,model:4', '--checkpoint_seconds=1e-6'):
    assert status == 0, err
  assert not folders[1].exists()
  for run in ('seed=0', 'seed=1'):
    one, two = (_params(tmp_path / name / run) for name in ('one', '0'))
    for name, values in one.items():
      np.testing.assert_allclose(two[name], values, rtol=1e-3, atol=1e-4)
  for status, _, err in _together(folders, *words, '--mesh=data:2,model:2'):
    assert status == 2 and 'the sizes of --mesh multiply to 4' in err


def test_two_processes_share_the_secret_keys_of_a_release(tmp_path):
  """Two processes train with the same secret keys.

  JAX would refuse keys that differ between processes.
  """
  folders = [tmp_path / '0', tmp_path / '1']
  for status, _, err in _together(folders, *_WORDS, '--num_steps=5'):
    assert status == 0, err
  summary = _summary(folders[0])
  assert summary['epsilon_valid'] and not folders[1].exists()
  assert 'travelled from the first process' in summary['falls_short'][-1]
  assert sorted(path.name for path in folders[0].iterdir()) == [
      'params.npz', 'private_diagnostics.json', 'summary.json']


@pytest.mark.parametrize('more', [
    (), ('--mesh=data:2,model:4', '--width=128', '--depth=2')])
def test_killed_and_resumed_they_give_the_same_bits(tmp_path, more):
  whole = [tmp_path / 'whole', tmp_path / 'other']
  for status, _, err in _together(whole, *_LONG, *more,
                                  '--checkpoint_seconds=0'):
    assert status == 0, err
  folders = [tmp_path / '0', tmp_path / '1']
  words = (*_LONG, *more, '--checkpoint_seconds=1e-6')
  started = _start(folders, *words)
  saved = folders[0] / 'checkpoints' / 'steps'
  while not list(saved.glob('*/checksums')):
    assert started[0].poll() is None, started[0].stderr.read()
    time.sleep(0.005)
  for process in started:
    process.send_signal(signal.SIGKILL)
    process.communicate()
  steps = checkpoint.saved_steps(saved)
  assert steps and steps[0] < 200 and not folders[1].exists()

  # A checkpoint of something else is refused by both.
  for status, _, err in _together(folders, *words, '--learning_rate=0.01'):
    assert status == 2 and 'of another configuration: learning_rate' in err
  (status, _, err), (status_1, _, err_1) = _together(folders, *words)
  assert status == status_1 == 0, err + err_1
  assert 'resuming at step' in err and 'resuming' not in err_1
  first, second = _params(whole[0]), _params(folders[0])
  assert first.keys() == second.keys()
  for name, values in first.items():
    assert values.tobytes() == second[name].tobytes()
  assert _summary(whole[0])['epsilon'] == _summary(folders[0])['epsilon']
  assert not folders[1].exists()
  assert sorted(path.name for path in folders[0].iterdir()) == [
      'params.npz', 'private_diagnostics.json', 'summary.json']
