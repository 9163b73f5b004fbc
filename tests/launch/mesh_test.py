"""These tests run `launch.train --mesh`, which divides parameters."""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from dpjax.train import checkpoint
from tests.launch.train_test import _call

_ROOT = pathlib.Path(__file__).resolve().parents[2]
# Two kernels of 2^14 numbers or more are divided.
_WORDS = ('--method=dp_sgd', '--accountant=rdp', '--depth=2', '--width=128',
          '--num_steps=4', '--noise_seed=0', '--average=ema')


def _params(folder):
  with np.load(folder / 'params.npz') as params:
    return dict(params)


def _check_equal(one, two):
  one, two = _params(one), _params(two)
  assert one.keys() == two.keys()
  for name, values in one.items():
    assert values.shape == two[name].shape
    np.testing.assert_allclose(two[name], values, rtol=1e-3, atol=1e-4)


def test_both_flags_are_refused(tmp_path):
  status, _, err = _call('--mesh=data:2', '--num_devices=2',
                         f'--output_dir={tmp_path}')
  assert status == 2 and err.startswith('--mesh and --num_devices exclude')


@pytest.mark.slow
def test_a_divided_run_resumes_on_its_mesh_only(tmp_path, monkeypatch):
  words = (*_WORDS, '--noise=lattice_gaussian', '--checkpoint_seconds=1e-6')
  for name, mesh in (('one', ()), ('two', ('--mesh=data:1,model:2',))):
    status, _, err = _call(*words, *mesh, f'--output_dir={tmp_path / name}')
    assert status == 0, err
  _check_equal(tmp_path / 'one', tmp_path / 'two')

  monkeypatch.setattr('dpjax.train.loop.chunk_lengths', lambda _: [2, 2])
  honest = checkpoint.Saver.after_chunk

  def killed(self, *args):
    honest(self, *args)
    raise KeyboardInterrupt

  monkeypatch.setattr(checkpoint.Saver, 'after_chunk', killed)
  folder = f'--output_dir={tmp_path / "killed"}'
  with pytest.raises(KeyboardInterrupt):
    _call(*words, '--mesh=data:1,model:2', folder)
  monkeypatch.setattr(checkpoint.Saver, 'after_chunk', honest)
  status, _, err = _call(*words, '--num_devices=2', folder)
  assert status == 2 and 'of another configuration: devices = ' in err
  status, _, err = _call(*words, '--mesh=data:1,model:2', folder)
  assert status == 0 and 'resuming at step 2' in err
  _check_equal(tmp_path / 'two', tmp_path / 'killed')


@pytest.mark.slow
def test_eight_devices_train_what_one_trains(tmp_path):
  environ = os.environ | {
      'XLA_FLAGS': '--xla_force_host_platform_device_count=8'}
  for name, words in (('one', ()), ('eight', ('--mesh=data:2,model:4',))):
    done = subprocess.run(
        [sys.executable, '-m', 'launch.train', *_WORDS, *words,
         f'--output_dir={tmp_path / name}'], cwd=_ROOT, env=environ,
        capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
  _check_equal(tmp_path / 'one', tmp_path / 'eight')
