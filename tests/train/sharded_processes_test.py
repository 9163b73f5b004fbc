"""Two processes of four devices train a model that is divided over all."""

import os
import pathlib
import socket
import subprocess
import sys

import numpy as np
import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def _trained(path, count):
  with socket.socket() as probe:
    probe.bind(('localhost', 0))
    port = probe.getsockname()[1]
  environ = {name: value for name, value in os.environ.items()
             if name != 'XLA_FLAGS'}
  started = [subprocess.Popen(
      [sys.executable, '-m', 'tests.train.sharded_processes', str(index),
       str(count), str(port), path], cwd=_ROOT, env=environ, text=True,
      stdout=subprocess.PIPE, stderr=subprocess.PIPE)
             for index in range(count)]
  ended = [process.communicate(timeout=300) for process in started]
  for process, (_, err) in zip(started, ended, strict=True):
    assert process.returncode == 0, err
  with np.load(path) as arrays:
    return dict(arrays)


@pytest.mark.slow
def test_two_processes_train_what_one_trains(tmp_path):
  one, two = (_trained(tmp_path / f'{count}.npz', count) for count in (1, 2))
  for name, values in one.items():
    np.testing.assert_allclose(two[name], values, 1e-3, 5e-4)
