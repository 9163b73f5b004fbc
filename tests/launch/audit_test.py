"""`launch.audit` as users run it: exit statuses, reports, refusals."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_MINE = '''
import jax

def count(key, data):
  return data.sum() + jax.random.laplace(key)
'''


def _run(*words):
  """(exit status, stdout, stderr)."""
  done = subprocess.run([sys.executable, '-m', 'launch.audit', *words],
                        cwd=_ROOT, capture_output=True, text=True, check=False)
  return done.returncode, done.stdout, done.stderr


@pytest.fixture
def mine(tmp_path):
  path = tmp_path / 'mine.py'
  path.write_text(_MINE)
  return (f'--target={path}:count', '--adjacency=add_or_remove_one',
          '--data=[1, 1]', '--num_runs=4000', f'--output={tmp_path}')


def test_a_function_of_ones_own(mine, tmp_path):
  status, out, _ = _run(*mine, '--epsilon=1', '--neighbour=[]')
  assert status == 1 and 'FAILED: told apart' in out
  found = json.loads((tmp_path / 'count.json').read_text())
  assert found['verdict'] == 'violated' and found['epsilon_lower'] > 1
  assert (tmp_path / 'count.npz').exists()


def test_scores_and_a_claim_that_they_cannot_reach(tmp_path):
  path = tmp_path / 'scores.npz'
  np.savez(path, with_canary=np.ones(50), without_canary=np.zeros(50))
  status, out, _ = _run(f'--scores={path}', '--epsilon=9')
  assert status == 3 and 'underpowered' in out


def test_bad_input_is_one_line(mine):
  status, _, err = _run(*mine)
  assert status == 2 and 'come together' in err
  assert len(err.strip().splitlines()) == 1
