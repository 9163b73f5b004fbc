"""The benchmark measures every method against the first; never how fast."""

import pathlib
import subprocess
import sys

import pytest

from experiments import step_time

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_ratios_are_over_the_first_method():
  found = step_time.measure(
      num_examples=40, num_features=3, batch_size=10.0, depth=1, width=4,
      num_steps=40, rounds=1, methods=('sgd', 'dp_sgd'))
  assert [time.method for time in found] == ['sgd', 'dp_sgd']
  assert found[0].ratio == 1.0
  assert found[1].ratio == pytest.approx(
      found[1].microseconds / found[0].microseconds)


def test_unknown_methods_are_refused():
  # In a process of its own: its flags share names with those of training.
  done = subprocess.run(
      [sys.executable, '-m', 'launch.benchmark', '--methods=sgd,adamw'],
      cwd=_ROOT, capture_output=True, text=True, check=False)
  assert done.returncode == 2
  assert done.stderr.startswith('error: methods must be one of')
