"""These tests check what `launch.sweep` runs, refuses and how it stops."""

import dataclasses
import json
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from experiments import engine
from experiments import records
from launch import sweep

ROOT = pathlib.Path(__file__).resolve().parents[2]
_TOY = '--experiment=toy'


def _plain(path):
  return records.sort(dataclasses.replace(row, wall_s=0.)
                      for row in records.read(path))


def _wait_for_rows(path, count):
  """Waits until a sweep in another process has that many settings."""
  end = time.monotonic() + 30
  while time.monotonic() < end:
    if path.exists() and len(records.ids(records.read(path))) >= count:
      return
    time.sleep(.02)
  raise AssertionError(f'no {count} settings in {path}')


def test_smoke_runs_and_says_what_is_next(call, tmp_path, capsys):
  assert call(sweep.main, _TOY, '--smoke', f'--output_dir={tmp_path}') == 0
  assert len(records.ids(records.read(tmp_path / 'rows.csv'))) == 2
  captured = capsys.readouterr()
  assert f'--experiment=toy --rows_dir={tmp_path}' in captured.out
  assert '2/2 settings' in captured.err
  assert 'the choice of the best of these 2 private runs' in captured.out


def test_flags_select_settings(call, tmp_path):
  path = tmp_path / 'rows.csv'
  assert call(sweep.main, _TOY, f'--output_dir={tmp_path}', '--tag=adult',
              '--only=seed=1', '--only=epsilon=.5,8',
              '--shard=1/2') == 0
  assert records.ids(records.read(path)) == {
      f'toy/dataset=adult,method=dp_sgd,epsilon={epsilon},seed=1'
      for epsilon in ('0.5', '8')}
  assert call(sweep.main, _TOY, f'--output_dir={tmp_path}') == 0
  assert len(records.ids(records.read(path))) == 16


def test_provenance_has_the_command_without_folders(call, tmp_path):
  call(sweep.main, _TOY, f'--output_dir={tmp_path}', '--data_dir=secret',
       '--smoke', '--only=seed=7', '--shard=1/1')
  text = (tmp_path / 'provenance.json').read_text()
  assert json.loads(text)['runs'][0]['command'] == (
      'python -m launch.sweep --experiment=toy --smoke --only=seed=7 '
      '--shard=1/1')
  assert str(tmp_path) not in text and 'secret' not in text


def test_list_prints_ids_and_runs_nothing(call, tmp_path, capsys):
  call(sweep.main, _TOY, '--list', '--only=seed=0', '--tag=first',
       f'--output_dir={tmp_path}')
  assert capsys.readouterr().out.splitlines() == [
      'toy/dataset=adult,method=dp_sgd,epsilon=0.5,seed=0',
      'toy/dataset=adult,method=dp_sgd,epsilon=8,seed=0']
  assert not list(tmp_path.iterdir())


def test_list_without_a_name_prints_experiments(call, capsys):
  call(sweep.main, '--list')
  assert capsys.readouterr().out == (
      'toy: Table 0 of no paper; 16 settings; tags: adult, first, none; '
      'cost: 1 s on anything\n')


def test_resume_and_append_anyway(call, tmp_path):
  folder = f'--output_dir={tmp_path}'
  assert call(sweep.main, _TOY, folder, '--smoke') == 0
  with pytest.raises(ValueError, match='has rows already'):
    call(sweep.main, _TOY, folder, '--smoke', '--noresume')
  with pytest.raises(ValueError, match='another configuration'):
    call(sweep.main, _TOY, folder)
  assert call(sweep.main, _TOY, folder, '--append_anyway') == 0


@pytest.mark.every(5)
@pytest.mark.parametrize('words, says', [
    ([], '--experiment must be one of toy'),
    (['--experiment=tot'], "no experiment 'tot'; there is toy"),
    ([_TOY], '--output_dir must be given'),
    ([_TOY, '--output_dir=DIR', 'seed=1'], 'unexpected seed=1; see --help'),
    ([_TOY, '--output_dir=DIR', '--only=colour=1'], "no key 'colour'"),
    ([_TOY, '--output_dir=DIR', '--shard=9/8'], '--shard must be i/n'),
    ([_TOY, '--output_dir=DIR', '--tag=x'], "no tag 'x'"),
    ([_TOY, '--output_dir=DIR', '--data_dir=missing'],
     'no data set in missing')])
def test_bad_input_is_one_line(start, tmp_path, words, says):
  process = start('sweep', *(word.replace('DIR', str(tmp_path))
                             for word in words))
  out, err = process.communicate(timeout=30)
  assert process.returncode == 2
  assert not out
  line, = err.splitlines()
  assert line.startswith('error: ') and says in line
  assert not (tmp_path / 'rows.csv').exists()


@pytest.mark.every(2)
def test_traceback_is_shown_when_asked_for(start):
  process = start('sweep', '--experiment=tot', '--traceback')
  _, err = process.communicate(timeout=30)
  assert process.returncode == 1
  assert 'Traceback' in err and "no experiment 'tot'" in err


@pytest.mark.every(2)
def test_an_unknown_flag_is_no_traceback(start):
  process = start('sweep', '--colour=red')
  _, err = process.communicate(timeout=30)
  assert process.returncode == 2
  assert err == "error: unknown flag --colour (see --help)\n"


@pytest.mark.slow
@pytest.mark.parametrize('name', [signal.SIGINT, signal.SIGTERM])
def test_a_stop_loses_nothing_and_says_how_to_go_on(start, tmp_path, name):
  words = ('sweep', _TOY, f'--output_dir={tmp_path}')
  process = start(*words, TOY_SLEEP='.1')
  path = tmp_path / 'rows.csv'
  _wait_for_rows(path, 3)
  process.send_signal(name)
  _, err = process.communicate(timeout=30)
  assert process.returncode == 130
  assert f'python -m launch.sweep {_TOY} --output_dir={tmp_path}\n' in err
  assert 'no finished row is lost' in err and 'Traceback' not in err
  assert 3 <= len(records.ids(records.read(path))) < 16
  process = start(*words, TOY_SLEEP='0')
  assert process.wait(timeout=30) == 0
  assert len(records.ids(records.read(path))) == 16


@pytest.mark.slow
def test_killed_then_resumed_is_uninterrupted(start, tmp_path):
  broken, whole = tmp_path / 'broken', tmp_path / 'whole'
  process = start('sweep', _TOY, f'--output_dir={broken}', TOY_SLEEP='.1')
  path = broken / 'rows.csv'
  _wait_for_rows(path, 2)
  process.kill()
  process.wait()
  with open(path, 'ab') as file:  # and in the middle of a line
    file.write(b'toy,"toy/dataset=adult,meth')
  for folder in (broken, whole):
    process = start('sweep', _TOY, f'--output_dir={folder}', TOY_SLEEP='0')
    assert process.wait(timeout=30) == 0
  assert _plain(path) == _plain(whole / 'rows.csv')
  assert len(_plain(path)) == 32


@pytest.mark.slow
def test_two_shards_at_once_in_one_folder(start, tmp_path):
  processes = [start('sweep', _TOY, f'--output_dir={tmp_path}',
                     f'--shard={index}/2', TOY_SLEEP='.01')
               for index in (1, 2)]
  assert [process.wait(timeout=30) for process in processes] == [0, 0]
  rows = records.read(tmp_path / engine.ROWS)
  assert len(records.ids(rows)) == 16 and len(rows) == 32
  runs = json.loads((tmp_path / 'provenance.json').read_text())['runs']
  assert len(runs) == 2


@pytest.mark.every(3)
@pytest.mark.parametrize('script, count', [('sweep', 3), ('report', 4)])
def test_help_shows_some_commands(script, count):
  result = subprocess.run(
      [sys.executable, '-m', f'launch.{script}', '--help'], cwd=ROOT,
      capture_output=True, text=True, check=False)
  assert result.stdout.count(f'python -m launch.{script}') == count
  for flag in ('--experiment', '--[no]traceback'):
    assert flag in result.stdout
  assert 'Traceback' not in result.stderr
