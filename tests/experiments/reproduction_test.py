"""These tests check reproductions: what runs and what is compared."""

import dataclasses
import json
import os
import re
import sys

import pytest

from dpjax.runs import environment
from dpjax.runs import grouping
from experiments import engine
from experiments import records
from experiments import registry
from experiments import rendering
from experiments import selection
from experiments import verdicts
from experiments.reproduction import comparison
from experiments.reproduction import plans
from experiments.reproduction import pool
from experiments.reproduction import running
from experiments.reproduction import sections
from experiments.reproduction import working

_HERE = environment.Environment('cpu', '1', 'c0', {'jax': '1'})


@pytest.fixture
def planned(toy, monkeypatch):
  """Returns the toy experiment, planned; nothing asks for JAX."""
  monkeypatch.setattr(environment, 'commit', lambda: 'c0')
  monkeypatch.setattr(environment, 'current', lambda **_: _HERE)
  return plans.make('toy', quick=False)


def _row(metric='risk', value=1.0, **kwargs):
  return records.Row(**{**dict(
      experiment='x', id='x/a=1', seed=0, metric=metric, value=value, n=1,
      epsilon_requested=1.0, epsilon=1.0, epsilon_valid=True, delta=0.0,
      adjacency='-', accountant='-', method='-', dataset='-'), **kwargs})


@pytest.mark.slow
@pytest.mark.parametrize('paper', registry.PAPERS)
def test_every_paper_has_experiments(paper):
  names = plans.names(paper)
  assert len(names) >= 5 and set(names) <= set(plans.names(plans.ALL))


def test_quick_and_full_settings_are_some_of_the_sweep():
  for name in registry.EXPERIMENTS:
    experiment = registry.load(name)
    assert experiment.papers
    assert experiment.reproduce in (None, *experiment.tags)
    if experiment.reproduce:
      assert set(engine.select(experiment, tag=experiment.reproduce)) <= set(
          experiment.settings)
    if plans.QUICK in experiment.tags:
      smoke = experiment.quick_is_smoke
      settings = engine.select(experiment, smoke=smoke, tag=plans.QUICK)
      assert 0 < len(settings) < len(experiment.smoke if smoke
                                     else experiment.settings), name


@pytest.mark.every(2)
def test_times_are_metrics_that_there_are(kept):
  for name in registry.EXPERIMENTS:
    if times := registry.load(name).times:
      assert set(times) <= {row.metric for row in kept(name)}, name


def test_an_experiment_needs_papers_that_are_known(toy, monkeypatch):
  import toy.sweep as sweep
  monkeypatch.setattr(sweep, 'PAPERS', ())
  with pytest.raises(ValueError, match='toy: PAPERS must name at least one'):
    registry.load('toy')
  monkeypatch.setattr(sweep, 'PAPERS', ('009',))
  with pytest.raises(ValueError, match="one of 000, 001.*got '009'"):
    registry.load('toy')


def test_plans_choose_the_tag(toy, monkeypatch):
  import toy.sweep as sweep
  assert len(plans.make('toy', quick=True).settings) == 16
  monkeypatch.setitem(sweep.TAGS, 'quick', sweep.SETTINGS[:2])
  monkeypatch.setattr(sweep, 'REPRODUCE', 'first', raising=False)
  quick, full = (plans.make('toy', quick=quick) for quick in (True, False))
  assert (len(quick.settings), len(full.settings)) == (2, 3)
  assert quick.command.endswith('--tag=quick') and quick.folder == 'toy'
  monkeypatch.setattr(sweep, 'QUICK_IS_SMOKE', True, raising=False)
  monkeypatch.delitem(sweep.TAGS, 'quick')
  toys = plans.make('toy', quick=True)
  assert toys.smoke and toys.folder == 'toy_smoke'
  assert toys.command.endswith('--experiment=toy --smoke')
  monkeypatch.setitem(sweep.TAGS, 'quick', sweep.SMOKE[:1])
  assert plans.make('toy', quick=True).settings == sweep.SMOKE[:1]


def test_a_plan_knows_what_its_committed_rows_took(toy, tmp_path):
  setting = toy.settings[3]
  folder = tmp_path / 'experiments' / 'toy' / 'results'
  folder.mkdir(parents=True)
  records.append(folder / 'rows.csv', [_row(
      experiment='toy', id=selection.setting_id('toy', setting), wall_s=70.0)])
  assert plans.make('toy', quick=False, root=tmp_path).seconds == 70.0


@pytest.fixture
def committed(toy, tmp_path):
  """Returns a root with rows of the toy experiment, 2 s for each setting."""
  folder = rendering.results_dir(tmp_path, 'toy')
  folder.mkdir(parents=True)
  for group in grouping.groups(toy.settings, toy.batched):
    for setting, rows in toy.run(group, None, lambda *_: None):
      records.append(folder / 'rows.csv', [
          dataclasses.replace(row, wall_s=2.0, commit='c0')
          for row in selection.named('toy', setting, rows)])
  return tmp_path


def _sampled(root, size, seed):
  return plans.make('toy', quick=False, sample=plans.Sample(size, seed),
                    root=root).settings


def test_a_sample_is_drawn_by_its_seed_from_all_methods(toy, committed):
  samples = [_sampled(committed, 4, seed) for seed in range(20)]
  assert samples == [_sampled(committed, 4, seed) for seed in range(20)]
  for settings in samples:
    assert sorted(setting.method for setting in settings) == [
        'dp_sgd', 'dp_sgd', 'lip_dp_sgd', 'lip_dp_sgd']
  # 20 samples of a quarter miss a setting with probability 0.003.
  assert {setting for settings in samples
          for setting in settings} == set(toy.settings)
  assert len(_sampled(committed, 99, 0)) == 16


def test_a_sample_leaves_out_what_has_no_rows_or_older_ones(
    toy, committed, tmp_path, monkeypatch):
  import toy.sweep as sweep
  monkeypatch.setattr(sweep, 'OLDER', {
      'why not': lambda setting: setting.method == 'dp_sgd'}, raising=False)
  settings = _sampled(committed, 99, 0)
  assert {setting.method for setting in settings} == {'lip_dp_sgd'}
  assert _sampled(tmp_path / 'none', 99, 0) == ()


def test_what_is_trained_together_for_long_is_no_sample(toy, committed,
                                                        monkeypatch):
  monkeypatch.setattr(plans, '_MOST_SECONDS', 7.9)  # a group of four takes 8
  assert _sampled(committed, 99, 0) == ()


def test_shares_are_all_experiments_each_once():
  toy_plans = {name: plans.Plan(None, (), False, None, seconds)._replace(
      experiment=registry.load('polls')._replace(name=name))
               for name, seconds in (
                   ('a', 30.0), ('b', 20.0), ('c', 20.0), ('d', 9.0))}
  shares = [plans.share(toy_plans, number, 2) for number in (1, 2)]
  assert [sorted(share) for share in shares] == [['a', 'd'], ['b', 'c']]
  assert sorted(plans.share(toy_plans, 1, 1)) == ['a', 'b', 'c', 'd']


def test_experiments_of_another_paper_are_refused(toy):
  with pytest.raises(ValueError, match=re.escape(
      'polls is of lecture notes, chapter 7, not of Barczewski (2025)')):
    plans.names('003', ['polls'])
  with pytest.raises(ValueError, match="no experiment 'tot'"):
    plans.names('all', ['tot'])
  assert plans.names('003', ['toy']) == ['toy']


def test_rows_are_compared():
  committed = [_row(), _row('seconds', 5.0), _row('bias', 0.0),
               _row('none', float('nan'))]
  compared = comparison.compare(
      [_row(value=1.0 + 1e-9), _row('seconds', 9.0), _row('bias', 1e-14),
       _row('none', float('nan')), _row('new')], committed, ('seconds',))
  assert compared[:4] == (3, 0, 1, 1)
  assert compared.largest == pytest.approx(1e-9, rel=1e-6)
  assert comparison.describe(compared) == (
      '3 of 3 rows are those committed, largest relative difference 1.0e-09; '
      '1 that measure time left out; 1 of other settings')


@pytest.mark.parametrize('changed', [
    _row(value=1.001), _row(value=float('nan')), _row(value=float('inf')),
    _row(epsilon=1.1)])
def test_a_changed_row_is_found(changed):
  compared = comparison.compare([changed], [_row(commit='c9')])
  assert (compared.same, compared.different) == (0, 1)
  assert compared.where == 'x/a=1 risk' and compared.largest > 9e-4
  assert comparison.describe(compared).endswith(
      '(x/a=1 risk), of rows committed by code c9')


@pytest.mark.every(1)
@pytest.mark.parametrize('metric, value, same', [
    ('noise_norm', 1 + 0.9e-3, True), ('noise_norm', 1 + 1.1e-3, False),
    ('test_accuracy', 0.99, True), ('test_accuracy', 0.98, False),
    ('test_accuracy', float('nan'), False), ('noise_norm', 0.99, False)])
def test_training_may_differ_by_a_record(metric, value, same):
  compared = comparison.compare([_row(metric, value)], [_row(metric)],
                                held_out={'x/a=1': 100})
  assert (compared.same, compared.different) == (int(same), int(not same))
  # This difference is too large for rows without training, and for epsilon.
  assert comparison.compare([_row(metric, value)], [_row(metric)]).same == 0
  assert comparison.compare(
      [_row(metric, value, epsilon=1.001)], [_row(metric)],
      held_out={'x/a=1': 100}).same == 0


def test_older_rows_are_not_compared(planned, committed, tmp_path):
  folder = rendering.results_dir(committed, 'toy')
  records.write_sorted(folder / 'rows.csv', [
      dataclasses.replace(row, value=9.0) if row.method == 'dp_sgd' else row
      for row in records.read(folder / 'rows.csv')])
  assert running.run(planned, tmp_path, root=committed).different == 16
  planned = planned._replace(experiment=planned.experiment._replace(older={
      'why not': lambda setting: setting.method == 'dp_sgd'}))
  result = running.run(planned, tmp_path, root=committed)
  assert result.different == 0 and result.compared == (
      '16 of 16 rows are those committed; 16 of other settings')


def test_rows_table_figure_and_verdicts_come_of_a_run(planned, tmp_path):
  result = running.run(planned, tmp_path)
  assert (result.done, result.planned, result.error) == (16, 16, '')
  assert result.missing == [] and result.verdicts[0][3] == verdicts.AGREES
  folder = tmp_path / 'toy'
  assert {path.name for path in folder.iterdir()} == {
      'rows.csv', 'provenance.json', 'table.md', 'figure.svg',
      'progress.log'}
  json.dumps(dataclasses.asdict(result))
  # A second run has nothing left to do, and its rows are the committed ones.
  committed = tmp_path / 'experiments' / 'toy'
  committed.mkdir(parents=True)
  (committed / 'results').symlink_to(folder)
  drawn = (folder / 'figure.svg').stat().st_mtime_ns
  result = running.run(planned, tmp_path, root=tmp_path)
  assert result.compared == '32 of 32 rows are those committed'
  assert (folder / 'figure.svg').stat().st_mtime_ns == drawn


@pytest.mark.every(2)
def test_a_failure_is_a_line_and_keeps_what_is_done(planned, tmp_path,
                                                    monkeypatch):
  monkeypatch.setenv('TOY_FAIL', 'dropout,method=lip_dp_sgd')
  result = running.run(planned, tmp_path)
  assert (result.error, result.done) == ('ValueError: planted', 12)
  assert result.verdicts and (tmp_path / 'toy' / 'figure.svg').exists()
  assert sections.brief(result).startswith('FAILED (ValueError: planted)')


def test_a_report_that_fails_is_a_line(planned, tmp_path, monkeypatch):
  monkeypatch.setattr(planned.experiment.report, 'verdict', lambda rows: 1 / 0)
  result = running.run(planned, tmp_path)
  assert result.error == 'report: ZeroDivisionError: division by zero'
  assert result.done == 16


def test_a_data_set_that_is_not_there_costs_no_other(planned, tmp_path):
  def run(settings, data_dir, progress):
    if settings[0].dataset == 'adult':
      raise FileNotFoundError('adult: not found; get it from there')
    yield from planned.experiment.run(settings, data_dir, progress)
  plan = planned._replace(experiment=planned.experiment._replace(run=run))
  result = running.run(plan, tmp_path)
  assert (result.error, result.done) == ('', 8)
  assert result.missing == [['adult', 8, 'adult: not found; get it from there']]
  text = sections.render({'toy': plan}, {'toy': result}, tmp_path, 'command')
  assert text.count('get it from there') == 3
  assert 'not run for want of adult: toy; adult: not found' in '\n'.join(
      sections.summary({'toy': result}))


@pytest.mark.every(2)
def test_a_package_that_is_not_there_costs_no_other_setting(planned, tmp_path):
  def run(settings, data_dir, progress):
    there = [setting for setting in settings
             if setting.method != 'dp_sgd' or setting.seed == 0]
    yield from planned.experiment.run(there, data_dir, progress)
    if len(there) < len(settings):
      raise ImportError('dp_sgd left out: no solver')
  plan = planned._replace(experiment=planned.experiment._replace(run=run))
  result = running.run(plan, tmp_path)
  assert (result.error, result.done) == ('', 16 - 2 * 2)
  assert result.missing == [['a package', 2, 'dp_sgd left out: no solver']] * 2


_SERVER = '''
import dataclasses, os, sys, time
from experiments.reproduction import working
@dataclasses.dataclass
class Answer:
  task: str
  process: int
def do(task):
  print('noise of a library')
  if task == 'die':
    os._exit(3)
  if task == 'wait':
    time.sleep(60)
  return Answer(task, os.getpid())
try:
  working.serve(do)
except KeyboardInterrupt:
  sys.exit(130)
'''


@pytest.fixture
def make(tmp_path):
  """Returns a function that makes a worker."""
  environ = {**os.environ, 'PYTHONPATH': str(environment.ROOT)}
  return lambda index: working.Worker(
      [sys.executable, '-c', _SERVER], tmp_path / f'{index}.log', environ)


def test_a_worker_does_many_tasks_and_one_that_dies_is_replaced(make, tmp_path):
  events = list(pool.run(['a', 'b', 'die', 'c'], 1, make))
  done = [event for event in events if event.kind == pool.FINISHED]
  assert [event.task for event in done] == ['a', 'b', 'die', 'c']
  first, second, dead, last = done
  assert first.answer['process'] == second.answer['process']
  assert dead.answer is None and 'status 3' in dead.error
  assert last.answer['process'] != first.answer['process']
  assert (tmp_path / '0.log').read_text().count('noise of a library') >= 3


def test_tasks_are_shared_and_stopped_early(make):
  events = pool.run(['a', 'wait', 'wait', 'b'], 2, make)
  for event in events:
    if event.kind == pool.FINISHED:
      break
  assert event.task == 'a'
  events.close()  # returns, though each would wait a minute


def test_cores_are_shared():
  shared = pool.environ(2, 8, {'A': '1', 'PJRT_NPROC': '3'})
  assert shared == {'A': '1', 'PJRT_NPROC': '3', 'OMP_NUM_THREADS': '4',
                    'OPENBLAS_NUM_THREADS': '4'}
  assert pool.environ(1, 8, {'A': '1'}) == {'A': '1'}


def test_verdicts_are_compared_with_those_of_the_table(toy):
  rows = [_row(seed=seed, metric='accuracy', dataset='adult')
          for seed in (0, 1)]
  committed = comparison.outcomes(rendering.render_table(toy, rows))
  assert committed == {'numbers are random': 'agrees'}
  of = lambda claim, outcome: verdicts.Verdict(claim, '-', '-', outcome, 'x')
  assert comparison.changed([
      of('numbers are random', 'agrees'), of('unknown', 'differs'),
      of('numbers are random', 'not run')], committed) == []
  assert comparison.changed([of('numbers are random', 'differs')],
                            committed) == [
      'numbers are random: differs, of all settings agrees']
