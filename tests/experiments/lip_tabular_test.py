"""The tabular experiment: its settings, rows, table, figure and verdicts."""

import dataclasses
import math

import pytest

from dpjax.report import records
from dpjax.report import verdicts
from experiments import papers
from experiments import registry
from experiments import selection
from experiments.lip_tabular import report
from experiments.lip_tabular import run
from experiments.lip_tabular import sweep


@pytest.fixture(scope='module')
def rows():
  """Rows of the smoke sweep, as the engine would complete them."""
  found = []
  for group in selection.groups(sweep.SMOKE, sweep.BATCHED):
    for setting, lines in run.run(group, None, lambda *_: None):
      found += [
          dataclasses.replace(
              line, experiment='lip_tabular',
              id=selection.setting_id('lip_tabular', setting))
          for line in lines
      ]
  return records.sort(found)


def test_the_sweep_covers_the_table_and_the_grid():
  experiment = registry.load('lip_tabular')
  table = selection.with_tag(experiment.settings, experiment.tags, 'table')
  assert len(table) == 7 * 3 * 10
  quick = selection.with_tag(experiment.settings, experiment.tags,
                             'quickstart')
  assert {s.epsilon for s in quick} == {0.5, 1, 2, 4, 8, 1.672, math.inf}
  assert {s.method for s in quick} == {'sgd', *sweep.METHODS}


def test_rows_tell_the_truth(rows):
  private = [row for row in rows if row.method != 'sgd']
  assert {row.metric for row in rows} == {
      'test_accuracy', 'noise_multiplier', 'step_microseconds'}
  assert all(row.epsilon <= row.epsilon_requested for row in private)
  assert all(row.epsilon > 0.99 * row.epsilon_requested for row in private)
  assert all(math.isinf(row.epsilon) for row in rows if row.method == 'sgd')
  assert {row.n for row in rows} == {455}


def test_table_has_a_line_for_each_budget(rows):
  lines = [line for line in report.table(rows).splitlines()
           if line.startswith('| breast_cancer')]
  assert len(lines) == 5
  assert 'sgd' in lines[0] and 'inf' in lines[0]


def test_figure_has_error_bars_and_the_ceiling(rows):
  pytest.importorskip('matplotlib')
  ax = report.figure(rows).axes[0]
  assert ax.get_title() == 'breast_cancer'
  assert len(ax.containers) == 2
  assert ax.get_xscale() == 'log'


def _table_rows(accuracy):
  line = papers.TABLE_5_4[2]
  return [
      records.Row(
          experiment='lip_tabular',
          id=f'lip_tabular/kind=table,dataset={line.dataset},'
             f'method={method},epsilon=1.672,seed={seed}',
          seed=seed, metric='test_accuracy', value=accuracy, n=455,
          epsilon_requested=line.epsilon, epsilon=line.epsilon,
          epsilon_valid=True, delta=line.delta,
          adjacency='add_or_remove_one', accountant='pld', method=method,
          dataset=line.dataset)
      for method in sweep.METHODS for seed in range(3)
  ]


def test_verdicts_compare_with_what_is_printed():
  found = verdicts.check(report.verdict(_table_rows(0.78)))
  by_claim = {verdict.claim: verdict for verdict in found}
  dp_sgd = by_claim['breast_cancer, dp_sgd at epsilon 1.672']
  assert (dp_sgd.printed, dp_sgd.verdict) == ('0.773', verdicts.AGREES)
  lip = by_claim['breast_cancer, lip_dp_sgd at epsilon 1.672']
  assert lip.verdict == verdicts.DIFFERS and lip.reason.startswith('-0.018')
  fix = by_claim['breast_cancer, fix_lip_dp_sgd at epsilon 1.672']
  assert fix.verdict == verdicts.NOT_COMPARABLE
  assert found[-1].verdict == verdicts.NOT_RUN and 'adult' in found[-1].claim


def test_every_data_set_is_printed_about():
  assert all(verdict.verdict == verdicts.NOT_RUN
             for verdict in verdicts.check(report.verdict([])))
