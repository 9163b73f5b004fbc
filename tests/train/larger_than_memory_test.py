"""Tests of training on records that are ten times larger than memory may be."""

import json
import pathlib
import signal
import subprocess
import sys

import pytest

from tests.train import larger_than_memory_main as main

pytestmark = pytest.mark.slow
_LARGE = 10 * main.LIMIT // (4 * main.FEATURES)


def _ran(kind, size, folder, last_step=0):
  """Returns what a process printed; None if it killed itself."""
  folder.mkdir(exist_ok=True)
  process = subprocess.run(
      [sys.executable, '-m', 'tests.train.larger_than_memory_main', kind,
       str(size), str(folder), str(last_step)], text=True, check=False,
      capture_output=True, cwd=pathlib.Path(__file__).parents[2])
  if last_step and process.returncode == -signal.SIGKILL:
    return None
  assert process.returncode == 0, process.stderr
  return json.loads(process.stdout)


@pytest.mark.parametrize('kind', ['computed', 'mapped'])
def test_a_killed_run_resumes_within_a_tenth_of_the_memory(tmp_path, kind):
  """The data limit of the process is 2 GB, and the records have 20 GB."""
  whole = _ran(kind, _LARGE, tmp_path / 'whole')
  assert whole['limited']  # Records in memory would not fit.
  assert _ran(kind, _LARGE, tmp_path / 'killed', 30) is None
  resumed = _ran(kind, _LARGE, tmp_path / 'killed')
  assert resumed['params'] == whole['params']


def test_memory_does_not_grow_with_the_number_of_records(tmp_path):
  peaks = [_ran('computed', size, tmp_path / str(size))['peak_kib']
           for size in (_LARGE // 10, _LARGE)]
  assert peaks[1] < 1.05 * peaks[0]
