"""These tests run `launch.audit` as users do: statuses, reports and errors."""

import dataclasses
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from dpjax.runs import configuration
from dpjax.runs import environment
from dpjax.runs import summary as summaries
from dpjax.runs import training

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_USER_MODULE = '''
import jax

def count(key, data):
  return data.sum() + jax.random.laplace(key)
'''


def _run(*words):
  """Runs the command and returns (exit status, stdout, stderr)."""
  process = subprocess.run(
      [sys.executable, '-m', 'launch.audit', *words], cwd=_ROOT,
      capture_output=True, text=True, check=False)
  return process.returncode, process.stdout, process.stderr


@pytest.fixture
def user_flags(tmp_path):
  """Returns flags that audit a function which a user wrote."""
  path = tmp_path / 'mine.py'
  path.write_text(_USER_MODULE)
  return (f'--target={path}:count', '--adjacency=add_or_remove_one',
          '--data=[1, 1]', '--num_runs=4000', f'--output={tmp_path}')


@pytest.mark.slow
def test_a_function_of_ones_own(user_flags, tmp_path):
  status, out, _ = _run(*user_flags, '--epsilon=1', '--neighbour=[]')
  assert status == 1 and 'FAILED: distinguishing event' in out
  audit = json.loads((tmp_path / 'count.json').read_text())
  assert audit['verdict'] == 'violated' and audit['epsilon_lower'] > 1
  assert (tmp_path / 'count.npz').exists()


@pytest.mark.slow
def test_scores_and_a_claim_that_they_cannot_reach(tmp_path):
  path = tmp_path / 'scores.npz'
  np.savez(path, with_canary=np.ones(50), without_canary=np.zeros(50))
  status, out, _ = _run(f'--scores={path}', '--epsilon=9')
  assert status == 3 and 'underpowered' in out
  before = path.read_bytes()
  status, _, err = _run(f'--scores={path}', '--epsilon=9',
                        f'--output={tmp_path}')
  assert status == 2 and 'another file than --scores' in err
  assert path.read_bytes() == before


@pytest.mark.every(4)
def test_bad_input_is_one_line(user_flags):
  status, _, err = _run(*user_flags)
  assert status == 2 and 'come together' in err
  assert len(err.strip().splitlines()) == 1


@pytest.fixture(scope='module')
def trained(tmp_path_factory):
  """Returns a folder of two finished runs with
  canaries; seed 1 claims too little."""
  root = tmp_path_factory.mktemp('trained')
  config = configuration.TrainingConfig(
      dataset='breast_cancer', method='dp_sgd', num_steps=5, width=4,
      num_canaries=100, accountant='rdp', noise_seed=0)
  machine = environment.Environment('cpu', '1', 'c0', {'jax': '1'})
  for result in training.train([dataclasses.replace(config, seed=seed)
                                for seed in (0, 1)]):
    summary = summaries.summarize(result, machine)
    assert summary['num_canaries'] == 100 and summary['n'] == 455
    assert summary['canary_kind'] == 'mislabelled'
    if result.config.seed:
      summary['epsilon'] /= 2
    summaries.write(root / f'seed={result.config.seed}', summary, result)
  return root


@pytest.mark.slow
def test_finished_runs_share_the_significance(trained, tmp_path):
  status, out, err = _run('--target=run', f'--run_dir={trained}',
                          f'--output={tmp_path}')
  assert status == 1, err
  assert 'seed=0: consistent' in out and 'seed=1: violated' in out
  assert 'FAILED: claim' in out
  audit = json.loads((tmp_path / 'seed=0.json').read_text())
  assert audit['significance'] == 0.025 and audit['seed'] == 0
  assert audit['num_canaries'] == 100 and audit['checks'][1]['level'] < 0.02
  assert json.loads((tmp_path / 'seed=1.json').read_text())['seed'] == 1
  assert (tmp_path / 'seed=0.npz').exists()


@pytest.mark.every(3)
@pytest.mark.parametrize('words, message', [
    (('--target=run', '--run_dir=nowhere'), 'no summary.json in or below'),
    pytest.param(('--target=run',), '--target=run and --run_dir come together',
                 marks=pytest.mark.slow),
    pytest.param(('--target=run', '--run_dir=nowhere', '--epsilon=1'),
                 'the claim of a run is in its summary',
                 marks=pytest.mark.slow)])
def test_what_is_asked_of_runs_is_checked(words, message):
  status, _, err = _run(*words)
  assert status == 2 and message in err
  assert len(err.strip().splitlines()) == 1
