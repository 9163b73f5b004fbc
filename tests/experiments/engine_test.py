"""These tests check that an interrupted sweep ends with the same rows."""

import dataclasses
import io
import itertools
import math
import re

import pytest

from dpjax.report import progress as progress_lib
from dpjax.runs import environment
from experiments import engine
from experiments import provenance
from experiments import records
from experiments import selection

_ENVIRONMENT = environment.Environment('cpu', '1', 'c0', {'jax': '1'})


class _Stop(BaseException):
  """Stops a sweep as KeyboardInterrupt does, without ending the tests."""


def _sweep(experiment, folder, settings=None, env=_ENVIRONMENT, **options):
  out = io.StringIO()
  options = engine.Options(output_dir=folder, **options)
  settings = engine.select(experiment) if settings is None else settings
  outcome = engine.run_sweep(experiment, settings, options, out, env)
  return outcome, out.getvalue()


def _stopping(experiment, after):
  """Returns the experiment, stopped once it gave so many results."""
  left = itertools.count(after, -1)

  def run(settings, data_dir, progress):
    for result in experiment.run(settings, data_dir, progress):
      if not next(left):
        raise _Stop
      yield result
  return experiment._replace(run=run)


def _bytes(folder):
  """Returns the file without its wall times."""
  rows = [dataclasses.replace(row, wall_s=0.)
          for row in records.read(folder / 'rows.csv')]
  records.append(folder / 'plain.csv', rows)
  return (folder / 'plain.csv').read_bytes()


def test_rows_are_complete(toy, tmp_path):
  outcome, _ = _sweep(toy, tmp_path / 'new' / 'folder')
  assert outcome == engine.Outcome(skipped=0, run=16)
  rows = records.read(tmp_path / 'new' / 'folder' / 'rows.csv')
  assert records.ids(rows) == {
      selection.setting_id('toy', setting) for setting in toy.settings}
  assert len(rows) == 32 and rows == records.sort(rows)
  for row in rows:
    assert (row.experiment, row.device, row.jax, row.commit) == (
        'toy', 'cpu', '1', 'c0')
    assert math.isfinite(row.wall_s)


@pytest.mark.slow
@pytest.mark.parametrize('after', [0, 1, 4, 6, 15])
@pytest.mark.parametrize('tear', [0, 3, 150])
def test_interrupted_then_resumed_is_uninterrupted(toy, tmp_path, after,
                                                   tear):
  whole, broken = tmp_path / 'whole', tmp_path / 'broken'
  _sweep(toy, whole)
  with pytest.raises(_Stop):
    _sweep(_stopping(toy, after), broken)
  path = broken / 'rows.csv'
  assert path.exists() == bool(after)
  if after:
    assert len(records.ids(records.read(path))) == after, 'a row was lost'
    path.write_bytes(path.read_bytes()[:path.stat().st_size - tear])
  left = len(records.ids(records.read(path))) if after else 0
  outcome, _ = _sweep(toy, broken)
  assert outcome == engine.Outcome(skipped=left, run=16 - left)
  assert _bytes(whole) == _bytes(broken)
  # A third time there is nothing to do.
  before = path.read_bytes()
  assert _sweep(toy, broken)[0] == engine.Outcome(skipped=16, run=0)
  assert path.read_bytes() == before


def test_shards_in_one_folder_are_the_whole(toy, tmp_path):
  for index in (2, 3, 1):
    _sweep(toy, tmp_path / 'shards', engine.select(toy, shard=f'{index}/3'))
  _sweep(toy, tmp_path / 'whole')
  assert _bytes(tmp_path / 'shards') == _bytes(tmp_path / 'whole')


def test_a_group_is_run_together_without_what_has_rows(toy, tmp_path):
  _sweep(toy, tmp_path, toy.settings[1:2])
  seen = []

  def run(settings, data_dir, progress):
    seen.append(settings)
    return toy.run(settings, data_dir, progress)
  _sweep(toy._replace(run=run), tmp_path, data_dir='d')
  assert [len(group) for group in seen] == [3, 4, 4, 4]
  assert toy.settings[1] not in seen[0]


def test_provenance_is_beside_the_rows(toy, tmp_path):
  _sweep(toy, tmp_path, command='the command')
  stored = provenance.read(tmp_path / 'provenance.json')
  assert stored['configuration'] == engine.configuration(toy, smoke=False)
  run, = stored['runs']
  assert (run['command'], run['commit'], run['versions']) == (
      'the command', 'c0', {'jax': '1'})


def test_rows_of_another_configuration_are_refused(toy, tmp_path):
  _sweep(toy, tmp_path, toy.smoke, smoke=True)
  before = (tmp_path / 'rows.csv').read_bytes()
  with pytest.raises(ValueError, match='another configuration') as caught:
    _sweep(toy, tmp_path)
  assert '\n' not in str(caught.value)
  assert (tmp_path / 'rows.csv').read_bytes() == before
  outcome, _ = _sweep(toy, tmp_path, append_anyway=True)
  assert outcome.run == 16
  assert len(records.read(tmp_path / 'rows.csv')) == 36


def test_configuration_is_that_of_all_settings(toy):
  digest = engine.configuration(toy, smoke=False)
  fewer = toy._replace(settings=toy.settings[1:])
  assert engine.configuration(fewer, smoke=False) != digest
  turned = toy._replace(settings=toy.settings[::-1])
  assert engine.configuration(turned, smoke=False) == digest
  assert engine.configuration(toy, smoke=True) != digest


def test_rows_without_provenance_are_refused(toy, tmp_path):
  _sweep(toy, tmp_path)
  (tmp_path / 'provenance.json').unlink()
  with pytest.raises(ValueError, match='another configuration'):
    _sweep(toy, tmp_path)


def test_other_columns_are_refused_even_anyway(toy, tmp_path):
  (tmp_path / 'rows.csv').write_text('a,b\n')
  with pytest.raises(ValueError, match='the columns must be'):
    _sweep(toy, tmp_path, append_anyway=True)


def test_noresume_refuses_a_folder_with_rows(toy, tmp_path):
  _sweep(toy, tmp_path, resume=False)
  with pytest.raises(ValueError, match='has rows already'):
    _sweep(toy, tmp_path, resume=False)


def test_rows_of_other_code_are_noted(toy, tmp_path):
  _sweep(toy, tmp_path, toy.settings[:1])
  _, out = _sweep(toy, tmp_path, toy.settings[:2])
  assert 'made by code' not in out
  _, out = _sweep(toy, tmp_path, env=_ENVIRONMENT._replace(commit='c1'))
  assert 'rows there were made by code c0\n' in out


def _changed(experiment, change):
  """Returns the experiment with its (setting, rows) results changed."""
  def run(settings, data_dir, progress):
    yield from change(list(experiment.run(settings, data_dir, progress)))
  return experiment._replace(run=run)


def _replace_rows(**changes):
  return lambda results: [
      (setting, [dataclasses.replace(row, **changes) for row in rows])
      for setting, rows in results]


@pytest.mark.parametrize('change, says', [
    (lambda results: results[1:], 'run gave no rows for toy/'),
    (lambda results: results + results[:1], 'twice or without being asked'),
    (lambda results: [(results[0][0], [])], 'got none'),
    (_replace_rows(metric='same'), 'got same, same'),
    (_replace_rows(id='toy/x'), 'says that it is of'),
    (_replace_rows(experiment='tic'), 'says that it is of tic'),
    (_replace_rows(method='other'), 'has method other'),
    (lambda results: [(setting, rows) for (setting, _), (_, rows)
                      in zip(results, results[::-1], strict=True)],
     'has seed 1')])
def test_results_that_are_not_of_their_setting_are_refused(
    toy, tmp_path, change, says):
  with pytest.raises(ValueError, match=says):
    _sweep(_changed(toy, change), tmp_path)


def test_what_run_measured_is_kept(toy, tmp_path):
  change = _replace_rows(wall_s=2., device='H200', jax='9', commit='mine')
  _sweep(_changed(toy, change), tmp_path)
  row = records.read(tmp_path / 'rows.csv')[0]
  assert (row.wall_s, row.device, row.jax, row.commit) == (
      2., 'H200', '9', 'mine')


def test_progress_says_how_far_and_how_long():
  now = iter(range(0, 1000, 30))
  out = io.StringIO()
  progress = progress_lib.Progress(8, out, clock=lambda: next(now))
  progress.start_group(4)
  progress.fraction(.5, 'step 10')  # 2 of 8 after 30 s
  progress.finish()  # 1 of 8 after 60 s
  progress.fraction(0.)  # still 1 of 8, after 90 s
  assert out.getvalue().splitlines() == [
      '0/8 settings, 0:00:30 elapsed, 0:01:30 left; step 10',
      '1/8 settings, 0:01:00 elapsed, 0:07:00 left',
      '1/8 settings, 0:01:30 elapsed, 0:10:30 left']


def test_progress_without_a_terminal_is_not_a_line_for_each_step():
  now = itertools.count(0, 1)
  out = io.StringIO()
  progress = progress_lib.Progress(100, out, clock=lambda: next(now))
  for _ in range(100):
    progress.finish()
  lines = out.getvalue().splitlines()
  assert len(lines) == 11
  assert lines[-1].startswith('100/100 settings')
  assert re.search('0:00:00 left', lines[-1])


def test_progress_on_a_terminal_is_one_line(monkeypatch):
  out = io.StringIO()
  monkeypatch.setattr(out, 'isatty', lambda: True)
  progress = progress_lib.Progress(2, out, clock=lambda: 0.)
  progress.fraction(0., 'a long note')
  progress.finish()
  progress.close()
  first, second = out.getvalue().removesuffix('\n').split('\r')[1:]
  assert len(second) >= len(first), 'the rest of the longer line would stay'
  assert '\n' not in first + second
