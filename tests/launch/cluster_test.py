"""These tests check that `launch.sweep --submitit` runs shards as jobs.

The rows of all jobs end up in one folder.
"""

import dataclasses
import json
import os
import stat

import pytest

from experiments import engine
from experiments import records
from experiments import shards
from launch import sweep

pytest.importorskip('submitit')

_LOCAL = ('sweep', '--experiment=toy', '--submitit=local')


def _plain(path):
  """Returns the rows of a file without times and fingerprints.

  Tests replace fingerprints in one process only.
  """
  return records.sort(dataclasses.replace(row, wall_s=0., fingerprint='')
                      for row in records.read(path))


def _run(start, *words, **environ):
  process = start(*words, **environ)
  out, err = process.communicate(timeout=60)
  return process.returncode, out, err


@pytest.mark.slow
def test_jobs_give_the_rows_of_one_process(call, start, tmp_path):
  folder, whole = tmp_path / 'jobs', tmp_path / 'whole'
  assert call(sweep.main, '--experiment=toy', f'--output_dir={whole}') == 0
  # One of two jobs fails half way, and is named with the end of its log.
  words = (*_LOCAL, f'--output_dir={folder}')
  status, out, err = _run(start, *words, TOY_FAIL='dropout,method=lip_dp_sgd')
  assert status == 1 and not out
  assert 'shard 1/2 is done\n' in err
  failed, *log = err[err.index('shard 2/2 failed (job '):].splitlines()
  assert 'exit status 2' in failed and str(folder / 'shards/1/logs') in failed
  assert log[-1] == '  error: planted' and len(log) <= 5
  # Finished rows are kept, and each job wrote its own file.
  first, second = (records.ids(records.read(
    folder / f'shards/1/{index}_of_2' / engine.ROWS)) for index in (1, 2))
  assert (len(first), len(second), len(first & second)) == (8, 4, 0)
  assert records.ids(records.read(folder / engine.ROWS)) == first | second
  # The same command again submits the shard in which something is missing.
  status, out, err = _run(start, *words, TOY_FAIL='')
  assert status == 0 and 'has the rows of 16 settings' in out
  assert '12 of 16 settings have rows already' in err
  assert err.count('is job') == 1 and 'shard 2/2 is done\n' in err
  assert _plain(folder / engine.ROWS) == _plain(whole / engine.ROWS)
  runs = json.loads((folder / 'provenance.json').read_text())['runs']
  assert [run['command'].split('--')[-1] for run in runs] == [
    'shard=1/2', 'shard=2/2']
  # A third call finds nothing left and submits nothing.
  assert call(sweep.main, *words[1:]) == 0
  assert not (folder / 'shards/3').exists()


def _stub(folder, name, text):
  path = folder / name
  path.write_text(f'#!/bin/sh\n{text}\n')
  path.chmod(path.stat().st_mode | stat.S_IXUSR)


@pytest.mark.slow
def test_slurm_is_asked_for_what_the_flags_say(start, tmp_path):
  """Slurm gets the options that the flags name, by a stub of sbatch."""
  _stub(tmp_path, 'srun', 'exit 1')
  _stub(tmp_path, 'sbatch', f'cat "$1" >> {tmp_path}/given\n'
        'echo Submitted batch job 41')
  status, out, err = _run(
    start, 'sweep', '--experiment=toy', '--submitit=slurm', '--nowait',
    f'--output_dir={tmp_path}/rows', '--partition=short', '--account=us',
    '--time=90', '--gpus=2', '--cpus=3', '--memory=8', '--num_shards=1',
    PATH=f'{tmp_path}{os.pathsep}{os.environ["PATH"]}')
  assert status == 0, err
  assert 'when the jobs are done, the same command' in out
  assert 'shard 1/1 is job 41\n' in err
  given = (tmp_path / 'given').read_text()
  for line in ('--partition=short', '--account=us', '--time=90',
               '--gpus-per-node=2', '--cpus-per-task=3', '--mem=8GB',
               '--job-name=dpjax_toy'):
    assert f'#SBATCH {line}\n' in given


@pytest.mark.slow
@pytest.mark.parametrize('words, says', [
  (['--submitit=slurm'], 'srun was not found'),
  (['--submitit=local', '--shard=1/2'], '--shard is for jobs started'),
  (['--submitit=local', '--num_shards=0'], 'num_shards must be an integer'),
  (['--submitit=local', '--time=0'], 'time must be an integer'),
  (['--submitit=local', '--only=colour=1'], "no key 'colour'")])
def test_bad_input_is_one_line(start, tmp_path, words, says):
  status, out, err = _run(start, 'sweep', '--experiment=toy', *words,
                          f'--output_dir={tmp_path / "rows"}')
  assert status == 2 and not out
  line, = err.splitlines()
  assert line.startswith('error: ') and says in line
  assert not (tmp_path / 'rows').exists()


def test_collecting_keeps_what_is_there_and_the_latest_configuration(tmp_path,
                                                                     toy):
  options = engine.Options(output_dir=tmp_path, command='whole')
  with open(tmp_path / 'log', 'w', encoding='utf-8') as log:
    engine.run_sweep(toy, toy.settings[:3], options, log)
    folder = shards.new_submission(options)
    mine = shards.make(folder, '1/1', options)
    assert _plain(mine.rows_path) == _plain(options.rows_path)
    # A shard's result for a setting that already has rows does not count.
    changed = [dataclasses.replace(row, value=.5)
               for row in records.read(mine.rows_path)]
    records.write_sorted(mine.rows_path, changed)
    engine.run_sweep(toy, toy.smoke, dataclasses.replace(
      mine, smoke=True, append_anyway=True, command='a shard'), log)
  before = _plain(options.rows_path)
  shards.collect(options)
  after = _plain(options.rows_path)
  assert len(after) == len(before) + 2 * len(toy.smoke)
  assert set(before) <= set(after)
  said = json.loads(options.provenance_path.read_text())
  assert said['configuration'] == engine.configuration(toy, smoke=True)
  assert [run['command'] for run in said['runs']] == ['a shard', 'whole']
  assert shards.new_submission(options).name == '2'
