"""These tests check what the benchmark command writes and what it refuses."""

import json
import pathlib
import subprocess
import sys

import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def _run(*words):
  # The command runs in its own process: its flags have names of training's.
  return subprocess.run([sys.executable, '-m', 'launch.benchmark', *words],
                        cwd=_ROOT, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_rows_table_and_provenance_are_written(tmp_path):
  done = _run('--suite=sampling', '--smoke', '--methods=threefry',
              f'--output_dir={tmp_path}')
  assert done.returncode == 0, done.stderr
  table = (tmp_path / 'table.md').read_text()
  assert done.stdout.strip() == table.strip()
  assert '| threefry |' in table
  (entry,) = json.loads((tmp_path / 'provenance.json').read_text())['runs']
  assert entry['command'] in table
  assert entry['command'] == (
      'python -m launch.benchmark --suite=sampling --methods=threefry --smoke')
  assert 'core' in entry['device'] and entry['device'] in table
  assert 'ratio_high,1.0,' in (tmp_path / 'rows.csv').read_text()


@pytest.mark.every(4)
def test_unknown_methods_are_refused():
  done = _run('--methods=ours,adamw')
  assert done.returncode == 2
  assert done.stderr.startswith('error: methods of --suite=step must be among')


@pytest.mark.slow
def test_ways_to_norms_are_checked():
  done = _run('--suite=norms', '--check', '--models=tiny_dense',
              '--methods=gram,kept')
  assert done.returncode == 0, done.stderr
  lines = [[cell.strip() for cell in line.split('|')[1:-1]]
           for line in done.stdout.splitlines() if line]
  assert lines[0] == ['model', 'method', 'error of norms', 'of the sum',
                      'right']
  assert [(line[1], line[-1]) for line in lines[2:]] == [
      ('gram', 'yes'), ('kept', 'yes')]
