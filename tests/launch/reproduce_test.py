"""These tests check that `launch.reproduce` makes one page whatever happens."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import pytest

from experiments import records
from experiments.reproduction import running
from experiments.reproduction import session
from launch import reproduce

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_ALL = ('reproduce', '--paper=all')


def _finish(process):
  out, err = process.communicate(timeout=60)
  return process.returncode, out, err


@pytest.mark.every(5)
def test_a_page_of_the_toy_and_again_without_work(start, tmp_path):
  words = (*_ALL, f'--output_dir={tmp_path}')
  status, out, err = _finish(start(*words))
  assert status == 0, err
  assert re.search(r'^\[1/1\] toy: 16 of 16 settings, 1 agrees, no row can be '
                   r'compared with a committed one, \d+ s \(\d+ of CPU\); 0:00:\d\d elapsed, '
                   r'about [\d:?]+ left$', err, re.M)
  assert f'open {tmp_path}/index.html' in out
  page = (tmp_path / 'index.html').read_text()
  assert 'Table 0 of no paper' in page and page.count('<svg') == 1
  assert 'python -m launch.reproduce --paper=all</code>' in page
  assert str(tmp_path) not in page
  rows = (tmp_path / 'toy' / 'rows.csv').read_bytes()
  status, _, err = _finish(start(*words, TOY_FAIL='toy'))  # nothing is run
  assert status == 0 and '16 of 16 settings' in err
  assert (tmp_path / 'toy' / 'rows.csv').read_bytes() == rows


@pytest.mark.parametrize('words, says', [
    (['--sample=0'], 'sample must be an integer >= 1'),
    (['--seed=3'], 'seed 3 draws a sample'),
    (['--sample=2', '--quick'], 'give one of the two'),
    (['--share=4/3'], 'a share is I/N')])
def test_samples_and_shares_that_make_no_sense_are_refused(toy, words, says):
  with pytest.raises(ValueError, match=says):
    reproduce.main(reproduce.parse([
        'reproduce', '--paper=all', '--list', *words]))


@pytest.mark.slow
def test_a_failure_is_on_the_page_and_in_the_status(start, tmp_path):
  status, out, err = _finish(start(
      *_ALL, f'--output_dir={tmp_path}', TOY_FAIL='dropout,method=lip_dp_sgd'))
  assert status == 1
  assert 'toy: FAILED (ValueError: planted), 12 of 16 settings' in err
  assert 'toy: ValueError: planted' in out
  assert 'ValueError: planted' in (tmp_path / 'index.html').read_text()
  status, _, err = _finish(start(*_ALL, f'--output_dir={tmp_path}',
                                 TOY_FAIL=''))
  assert status == 0 and '16 of 16 settings' in err


@pytest.mark.slow
def test_missing_data_are_no_failure(start, tmp_path):
  status, out, err = _finish(start(
      *_ALL, f'--output_dir={tmp_path}', '--data_dir=missing'))
  assert status == 0
  assert '0 of 16 settings, wanting adult, dropout' in err
  assert 'not run for want of adult: toy; no data set in missing' in out
  assert '8 settings not run: no data set in missing' in (
      tmp_path / 'index.html').read_text()


@pytest.mark.slow
@pytest.mark.parametrize('name', [
    signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_stop_loses_nothing_and_says_how_to_go_on(start, tmp_path, name):
  words = (*_ALL, f'--output_dir={tmp_path}')
  process = start(*words, TOY_SLEEP='.2')
  path = tmp_path / 'toy' / 'rows.csv'
  end = time.monotonic() + 30
  while not path.exists() and time.monotonic() < end:
    time.sleep(.02)
  process.send_signal(name)
  status, _, err = _finish(process)
  assert status == 130
  assert f'python -m launch.reproduce --paper=all --output_dir={tmp_path}' in err
  assert 'no finished row is lost' in err and 'Traceback' not in err
  assert 'not finished' in (tmp_path / 'index.html').read_text()
  before = len(records.ids(records.read(path)))
  assert 1 <= before < 16
  time.sleep(.5)  # no worker goes on
  assert len(records.ids(records.read(path))) == before
  status, _, err = _finish(start(*words, TOY_SLEEP='0'))
  assert status == 0 and '16 of 16 settings' in err


def test_list_prints_and_runs_nothing(toy, capsys):
  call = lambda *words: reproduce.main(reproduce.parse(['reproduce', *words]))
  assert call('--paper=barczewski_2025', '--list') == 0
  out = capsys.readouterr().out
  assert out.startswith(
      'toy, Barczewski (2025): 16 settings of 16; about 10 s; all of it: '
      '1 s on anything\n1 experiments')
  assert call('--paper=004', '--list') == 0
  assert capsys.readouterr().out.startswith('0 experiments')


@pytest.mark.parametrize('different', [0, 1])
def test_check_fails_for_a_row_that_is_not_the_committed_one(
    toy, tmp_path, monkeypatch, capsys, different):
  monkeypatch.setattr(session, 'run', lambda chosen, options: {
      name: running.Outcome(name, different=different) for name in chosen})
  call = lambda *words: reproduce.main(reproduce.parse(
      [*_ALL, f'--output_dir={tmp_path}', *words]))
  assert call() == 0
  assert call('--check') == different
  assert ('toy' in capsys.readouterr().err) == bool(different)


@pytest.mark.slow
def test_shares_are_all_and_about_equal(capsys):
  def listed(*words):
    reproduce.main(reproduce.parse([*_ALL, '--quick', '--list', *words]))
    *lines, last = capsys.readouterr().out.splitlines()
    return [line.split()[0].rstrip(',') for line in lines], float(last.split()[-5])
  everything, total = listed('--check')
  parts = [listed('--check', f'--share={i}/4') for i in range(1, 5)]
  assert sorted(name for part, _ in parts for name in part) == everything
  assert all(.15 * total < minutes < .35 * total for _, minutes in parts)
  # Rows of the toy experiment are never committed.
  assert 'conversions' in everything and 'lip_search' not in everything


@pytest.mark.every(1)
@pytest.mark.parametrize('words, says', [
    ([], '--paper must be one of lalanne_2023, '),
    (['--paper=all'], '--output_dir must be given'),
    (['--paper=005', '--output_dir=DIR'],
     "paper must be one of 000, 001, 002, 003, 004, all; got '005'"),
    (['--paper=all', '--output_dir=DIR', '--only=tot'],
     "no experiment 'tot'; there is toy"),
    (['--paper=004', '--output_dir=DIR', '--only=toy'],
     'toy is of Barczewski (2025), not of Barber and Duchi (2014)'),
    (['--paper=004', '--output_dir=DIR'],
     'no experiment to run for --paper=004'),
    (['--paper=all', '--output_dir=DIR', '--share=5/4'],
     "a share is I/N with 1 <= I <= N, such as 3/8, or rotating/N; got '5/4'"),
    (['--paper=all', '--output_dir=DIR', '--processes=0'],
     'processes must be an integer >= 1')])
def test_bad_input_is_refused(toy, tmp_path, words, says):
  folder = tmp_path / 'out'
  args = reproduce.parse(['reproduce', *(word.replace('DIR', str(folder))
                                         for word in words)])
  with pytest.raises(ValueError, match=re.escape(says)):
    reproduce.main(args)
  assert not folder.exists()


@pytest.mark.every(2)
def test_bad_input_is_one_line(start, tmp_path):
  status, out, err = _finish(start('reproduce', '--paper=004',
                                   f'--output_dir={tmp_path}'))
  assert (status, out, err) == (
    2, '', 'error: no experiment to run for --paper=004\n')


@pytest.mark.slow
def test_two_experiments_give_their_committed_rows(tmp_path):
  result = subprocess.run(
      [sys.executable, '-m', 'launch.reproduce', '--paper=all', '--quick',
       '--only=conversions,density_packings', '--processes=2',
       f'--output_dir={tmp_path}'], cwd=_ROOT, capture_output=True, text=True,
      check=False, env={**os.environ, 'PYTHONPATH': str(_ROOT)})
  assert result.returncode == 0, result.stderr
  assert '2 of 2 experiments without a row that differs' in result.stdout
  page = (tmp_path / 'index.html').read_text()
  assert page.count('<svg') == 2
  assert 'rows are those committed' in page


@pytest.mark.slow
def test_help_shows_worked_commands():
  result = subprocess.run(
      [sys.executable, '-m', 'launch.reproduce', '--help'], cwd=_ROOT,
      capture_output=True, text=True, check=False)
  assert result.stdout.count('python -m launch.reproduce') == 5
  for flag in ('--paper', '--quick', '--share', '--sample', '--check', '--only',
               '--processes', '--list', '--output_dir', '--data_dir'):
    assert flag in result.stdout
