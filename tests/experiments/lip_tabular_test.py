"""These tests check EXP-T5.4: settings, rows, table, figure and verdicts."""

import dataclasses
import math
import warnings

import numpy as np
import pytest

from dpjax.data import registry as registry_of_data
from dpjax.runs import configuration
from dpjax.runs import training
from experiments import papers
from experiments import records
from experiments import registry
from experiments import selection
from experiments import verdicts
from experiments.lip_search import selected
from experiments.lip_tabular import claims
from experiments.lip_tabular import report
from experiments.lip_tabular import run
from experiments.lip_tabular import strong
from experiments.lip_tabular import sweep


@pytest.fixture(scope='module')
def rows(smoke_rows):
  return smoke_rows('lip_tabular')


def test_the_sweep_covers_the_table_and_the_grid():
  experiment = registry.load('lip_tabular')
  table = selection.with_tag(experiment.settings, experiment.tags, 'table')
  assert len(table) == 7 * 11 * 10
  quick = selection.with_tag(experiment.settings, experiment.tags,
                             'quickstart')
  assert {s.epsilon for s in quick} == {0.5, 1, 2, 4, 8, 1.672, math.inf}
  assert {s.method for s in quick} == {'sgd', *sweep.METHODS}
  assert {s.dataset for s in quick} == {'breast_cancer'}
  assert {s.method for s in table} == {*sweep.METHODS, *sweep.OTHERS}


def test_rows_tell_the_truth(rows):
  realised = [row for row in rows
              if row.metric.startswith(('realised', 'signal'))]
  assert {row.method for row in realised} == {'lip_dp_sgd'}
  # They are measured on private records, so no finite epsilon covers them.
  assert all(math.isinf(row.epsilon) and 0 < row.value <= 1 + 1e-5
             for row in realised)
  private = [row for row in rows
             if row.method != 'sgd' and row not in realised]
  assert {row.metric for row in rows} == {
      'test_accuracy', 'noise_multiplier', 'step_microseconds',
      'realised_first', 'realised_last', 'realised_largest',
      'signal_first', 'signal_last'}
  assert all(row.epsilon <= row.epsilon_requested for row in private)
  assert all(row.epsilon > 0.99 * row.epsilon_requested for row in private)
  assert all(math.isinf(row.epsilon) for row in rows if row.method == 'sgd')
  assert {row.n for row in rows} == {455}


def test_runs_have_the_selected_hyperparameters(monkeypatch):
  setting, = (each for each in sweep.SETTINGS if each.seed == 1 and (
      each.kind, each.dataset, each.method) == ('table', 'nursery', 'dp_sgd'))
  asked = []
  monkeypatch.setattr(selected, 'fields', lambda *names, num_train: (
      asked.append((*names, num_train)) or dict(width=5, features='crossed')))
  config = run.config(setting)
  assert asked == [('nursery', 'dp_sgd', 12960 - 2592)]
  assert (config.width, config.features, config.seed) == (5, 'crossed', 1)
  assert (config.epsilon, config.delta) == (1.432, 1 / 12960)
  # Smoke runs do not depend on committed rows.
  assert run.config(sweep.SMOKE[0]).width is None


@pytest.mark.slow
@pytest.mark.parametrize('name', sweep.STRONG)
def test_strong_models_are_those_of_scikit_learn(name):
  settings = [setting for setting in sweep.SETTINGS if setting.seed < 2 and
              (setting.dataset, setting.method) == ('breast_cancer', name)]
  results = dict(run.run(settings, None, lambda *_: None))
  values = [row.value for setting in settings for row in results[setting]]
  assert len(values) == 2 and min(values) > 0.88
  assert {row.n for each in results.values() for row in each} == {455}
  assert all(math.isinf(row.epsilon)
             for each in results.values() for row in each)
  # The split of seed 1 is that of runs with this seed.
  dataset = registry_of_data.load('breast_cancer')
  assert sweep.SMOKE[1].seed == 1
  split = training.split_rows(configuration.resolve(
      run.config(sweep.SMOKE[1]), num_available=455), dataset)
  for ours, theirs in zip(strong._split(dataset, 1), split, strict=True):
    assert (ours == theirs).all()


def test_private_methods_are_compared_with_strong_models(make_row):
  def rows(method, values, **changes):
    return [make_row(dataset='nursery', method=method, seed=seed, value=value,
                     metric='test_accuracy', **changes)
            for seed, value in enumerate(values)]

  private = rows('dp_sgd', (.90, .92))
  near, = claims.near_strong_models(
      rows('crossed_logistic', (.91, .93)) + private)
  assert near.verdict == verdicts.AGREES and near.claim.startswith('nursery')
  far, = claims.near_strong_models(
      rows('crossed_logistic', (.97, .98)) + private)
  assert far.verdict == verdicts.DIFFERS
  assert not claims.near_strong_models(private)


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
  all_verdicts = verdicts.check(report.verdict(_table_rows(0.78)))
  by_claim = {verdict.claim: verdict for verdict in all_verdicts}
  dp_sgd = by_claim['breast_cancer, dp_sgd at epsilon 1.672']
  assert (dp_sgd.printed, dp_sgd.verdict) == ('0.773', verdicts.AGREES)
  lip = by_claim['breast_cancer, lip_dp_sgd at epsilon 1.672']
  assert lip.verdict == verdicts.DIFFERS and lip.reason.startswith('-0.018')
  fix = by_claim['breast_cancer, fix_lip_dp_sgd at epsilon 1.672']
  assert fix.verdict == verdicts.NOT_COMPARABLE
  last = all_verdicts[-1]
  assert last.verdict == verdicts.NOT_RUN and 'adult' in last.claim


def _rows_of(accuracies):
  """Returns rows at the printed budgets from
  {(dataset, method): accuracies}."""
  template = _table_rows(0.)[0]
  return [
      dataclasses.replace(
          template, dataset=dataset, method=method, seed=seed, value=value,
          id=f'lip_tabular/kind=table,dataset={dataset},method={method},'
             f'seed={seed}')
      for (dataset, method), values in accuracies.items()
      for seed, value in enumerate(values)
  ]


def test_families_are_represented_by_scores_on_folds(monkeypatch):
  """The method with the best accuracy on test records is not chosen."""
  scores = {'breast_cancer': {
      'dp_sgd': dict(score=0.9), 'layer_clipped': dict(score=0.8),
      'lip_dp_sgd': dict(score=0.7), 'lip_normalised': dict(score=0.6)}}
  monkeypatch.setattr(selected, '_read', lambda path: scores)
  values = [0.80, 0.81, 0.83]

  def judge(gap):
    *_, families = claims.overall(_rows_of({
        ('breast_cancer', 'dp_sgd'): values,
        ('breast_cancer', 'layer_clipped'): [0.9] * 3,
        ('breast_cancer', 'lip_dp_sgd'): [each + gap for each in values],
        ('breast_cancer', 'lip_normalised'): [0.95] * 3}), {'breast_cancer'})
    return families

  above, below = judge(0.01), judge(-0.01)
  assert above.verdict == verdicts.AGREES and above.ours == 'on 1 of 1'
  assert '0.0100 +- 0.0000 (lip_dp_sgd minus dp_sgd)' in above.reason
  assert below.verdict == verdicts.DIFFERS and below.ours == 'on 0 of 1'


def test_claims_over_the_data_sets():
  """Claims use ten paired accuracies, exact signed ranks and Holm (STAT-01)."""
  base = [0.80 + 0.001 * seed for seed in range(10)]
  rows = _rows_of({
      ('breast_cancer', 'dp_sgd'): base,
      ('breast_cancer', 'lip_dp_sgd'): [value - 0.02 for value in base],
      ('nursery', 'dp_sgd'): base,
      ('nursery', 'lip_dp_sgd'): [value + 0.02 for value in base],
      ('nursery', 'sgd'): base})
  best, near, ranks, _ = claims.overall(rows, {'breast_cancer', 'nursery'})
  assert best.ours == '1 of 2' and best.verdict == verdicts.DIFFERS
  assert ('nursery 0.8245 +- 0.0010 (lip_dp_sgd) against 0.931, '
          'without privacy 0.8045 +- 0.0010') in best.reason
  assert near.ours == '1 of 2' and 'breast_cancer 0.78' in near.reason
  # Holm doubles the least p-value of ten pairs, .00195.
  assert ranks.ours == 'better on 1, worse on 1 of 2'
  assert ranks.reason.count('0.004') == 2


def test_every_data_set_is_printed_about():
  assert all(verdict.verdict == verdicts.NOT_RUN
             for verdict in verdicts.check(report.verdict([])))


def test_trees_take_classes_of_few_records():
  x = np.random.default_rng(0).normal(size=(60, 2))
  y = np.int32([0, 1] * 29 + [2, 2])
  model = strong.MODELS['gradient_boosting']
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    trees = model.make().fit(x[:-1], y[:-1])
  assert trees.classes_.tolist() == [0, 1, 2] and trees.score(x, y) > 0.3
