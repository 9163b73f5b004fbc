"""These tests check the search experiment: space, visibility, cost, recipes."""

import dataclasses
import functools
import itertools
import json
import types
from typing import NamedTuple

import jax
import pytest

from dpjax.data import registry as data_registry
from dpjax.lipschitz import losses
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.runs import configuration
from dpjax.runs import options
from dpjax.runs import recipes
from dpjax.runs import training
from experiments import papers
from experiments import records
from experiments import registry
from experiments import search
from experiments import selection
from experiments import verdicts
from experiments.lip_search import report
from experiments.lip_search import run
from experiments.lip_search import selected
from experiments.lip_search import space
from experiments.lip_search import sweep

_SETTING = sweep.SMOKE[0]


@pytest.fixture(scope='module')
def dataset():
  return data_registry.load('breast_cancer')


@pytest.fixture(scope='module')
def smoke():
  """Returns (rows of the smoke sweep, the runs that it trained)."""
  ran = []
  train = training.train

  def spy(configs, **options):
    return train(configs, on_plans=lambda plans: ran.extend(
        (config.fold, plan.event) for config, plan in plans), **options)

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(training, 'train', spy)
    with jax.numpy_dtype_promotion('standard'):  # optax.adam is not strict
      results = list(run.run(sweep.SMOKE, None, lambda *_: None))
  return records.sort(
      row for setting, lines in results
      for row in selection.named('lip_search', setting, lines)), ran


@pytest.fixture(scope='module')
def rows(smoke):
  """Returns the rows of the smoke sweep."""
  return smoke[0]


def _value(rows, metric):
  row, = [row for row in rows if row.metric == metric]
  return row.value


@pytest.fixture
def small_search(monkeypatch):
  """Replaces scores by a formula and returns the scored points."""
  seen = []

  def score(setting, dataset, point, *, number):
    del setting, dataset
    assert number == len(seen)
    seen.append(point)
    return -abs(point['sgd_learning_rate'] - 2) - .1 * point['depth']

  monkeypatch.setattr(run, '_score', score)
  return seen


@pytest.mark.parametrize('method', sweep.METHODS)
@pytest.mark.parametrize('num_train', [364, 640, 3539, 31256])
def test_recipes_lie_in_the_space(method, num_train):
  """Recipes lie in the search space, which never includes noise (EXP-T5.2)."""
  kinds = ('none', 'unit', 'binned', 'crossed')
  dimensions = space.space(method, num_train=num_train, features=kinds,
                           losses=options.LOSSES, steps=(100, 200, 400, 800))
  names = {each.name for each in dimensions}
  assert 'noise_multiplier' not in names and 'epsilon' not in names
  for features, loss in itertools.product(kinds, options.LOSSES):
    if features == 'none' and loss == 'ordinal':
      continue  # Not tried.
    kind = dict(features=features, loss=loss)
    recipe = recipes.recipe(sweep.fixed(method)['method'], num_train=num_train,
                            **kind) | kind
    fields = space.to_config(space.to_point(dimensions, recipe))
    for name, value in fields.items():
      assert value == pytest.approx(recipe[name]), name
    assert names - {'sgd_learning_rate'} <= recipe.keys()


def test_every_point_is_a_configuration_that_trains(dataset):
  del dataset
  for method in sweep.METHODS:
    dimensions = space.space(method, num_train=364, steps=(20,),
                             features=('none', 'unit', 'binned'),
                             losses=options.LOSSES)
    for point in search.suggest(dimensions, [], seed=0, count=16,
                                num_initial=16):
      fields = space.to_config(point)
      resolved = configuration.resolve(configuration.TrainingConfig(
          dataset='breast_cancer', fold=0, **sweep.fixed(method), **fields),
          num_available=364)
      assert all(getattr(resolved, name) == value
                 for name, value in fields.items())


def test_lip_unclipped_clips_no_gradient():
  """Its bound of cotangents is the constant of the loss, at every temperature.

  A bound of 1 clips.
  """
  dimensions = {each.name: each for each in space.space(
      'lip_unclipped', num_train=364, steps=(20,), features=('none',))}
  assert 'logit_clip' not in dimensions and 'clip_norm' not in dimensions
  clip = sweep.fixed('lip_unclipped')['logit_clip']
  for temperature in (dimensions['temperature'].low,
                      dimensions['temperature'].high):
    for name, make in (('cross_entropy', losses.cross_entropy), (
        'ordinal', functools.partial(losses.ordinal, num_classes=5))):
      point = dict(temperature=temperature, loss=name, features='none',
                   optimizer='sgd', sgd_learning_rate=1.0)
      used = space.to_config(point)['temperature']
      assert make(temperature=used, logit_clip=clip).lipschitz == make(
          temperature=used).lipschitz
  assert losses.cross_entropy(temperature=0.1, logit_clip=1.0).lipschitz == 1.0


def test_the_best_method_is_that_of_the_best_selected_score(
    make_row, monkeypatch, tmp_path):
  """Scores that were not selected do not count, whatever their size."""
  def search(method, scores, chosen):
    return [make_row(id=method, method=method, metric=metric, value=value)
            for metric, value in (
                *((f'score_{k:03d}', score) for k, score in enumerate(scores)),
                ('sampling_prob', 0.5), ('selected_trial', float(chosen)))]

  file = tmp_path / 'selected.json'
  file.write_text(selected.render(
      search('dp_sgd', [0.9, 0.6], 1) + search('layer_clipped', [0.7], 0)))
  monkeypatch.setattr(selected, 'FILE', file)
  methods = ('dp_sgd', 'layer_clipped', 'lip_dp_sgd')
  assert selected.best_by_score('adult', methods) == 'layer_clipped'
  assert selected.best_by_score('adult', methods[::2]) == 'dp_sgd'
  assert selected.best_by_score('adult', ('lip_dp_sgd',)) is None
  assert 'score' not in selected.fields('adult', 'dp_sgd', num_train=9)


def test_rates_are_those_of_the_optimizer():
  point = dict(sgd_learning_rate=2., optimizer='adam', depth=1, features='none')
  assert space.to_config(point) == dict(learning_rate=.04, optimizer='adam',
                                        depth=1, features='none')
  # A score of the ordinal loss stands for one that is 8 times as large.
  scores = space.to_config(dict(
      sgd_learning_rate=2., optimizer='momentum', depth=1, features='none',
      loss='ordinal', temperature=.4, clip_norm=.5, logit_clip=.25))
  assert scores == dict(learning_rate=.025, optimizer='momentum', depth=1,
                        features='none', loss='ordinal', temperature=.05,
                        clip_norm=4., logit_clip=2.)
  point = dict(sgd_learning_rate=2., optimizer='momentum', features='unit',
               input_radius=3., depth=0)
  assert space.to_config(point) == dict(
      learning_rate=8., optimizer='momentum', features='unit', input_radius=1.,
      depth=0)
  assert space.to_config(point | dict(depth=1))['learning_rate'] == .2


def test_settings_have_the_budgets_of_the_table():
  experiment = registry.load('lip_search')
  assert len(experiment.settings) == 7 * len(sweep.METHODS)
  assert {(s.dataset, s.epsilon) for s in experiment.settings} == {
      (line.dataset, line.epsilon) for line in papers.TABLE_5_4}
  tagged = [selection.with_tag(experiment.settings, experiment.tags, tag)
            for tag in ('small', 'large')]
  assert sorted(map(len, tagged)) == [33, 44]


@pytest.mark.slow
def test_a_search_sees_the_training_part_only(dataset):
  """The held-out fifth of the records changes no score of a search (HPO-01)."""
  point = space.to_point(run._space(_SETTING, dataset),
                         run._recipe(_SETTING, dataset))
  held_out = training.split_rows(configuration.TrainingConfig(
      dataset='breast_cancer', method='dp_sgd', num_examples=455,
      seed=_SETTING.split), dataset).test
  # NaN in the held-out records would show if they were read.
  poisoned = dataset._replace(
      x=dataset.x.at[held_out].set(float('nan')),
      y=dataset.y.at[held_out].set(1 - dataset.y[held_out]))
  scores = [run._score(_SETTING, each, point, number=0)
            for each in (dataset, poisoned)]
  assert scores[0] == scores[1] > 0.5


class _Result(NamedTuple):
  """Holds the part of a training result that a score needs."""
  num_test: int
  test_accuracy: float


def test_scores_are_noisy_counts_of_right_answers(dataset, monkeypatch):
  """Scores are noisy counts of sensitivity 1 with fresh noise (DP-21).

  A count is averaged over repeats first.
  """
  right, seen = {0: 80, 1: 85}, []
  monkeypatch.setattr(training, 'train', lambda configs, dataset: [
      _Result(91, (right[config.fold] + (-1)**config.seed) / 91)
      for config in configs])

  def release(key, value):
    seen.append((tuple(jax.random.key_data(key).tolist()), float(value)))
    return value

  monkeypatch.setattr(run, '_SCORE_NOISE',
                      types.SimpleNamespace(release=release))
  point = space.to_point(run._space(_SETTING, dataset),
                         run._recipe(_SETTING, dataset))
  for setting, number in (
      (_SETTING, 0), (_SETTING, 1),
      (dataclasses.replace(_SETTING, repeats=2), 0),
      (dataclasses.replace(_SETTING, split=1), 0)):
    score = run._score(setting, dataset, point, number=number)
    assert score == pytest.approx(seen[-1][1] / 182)
  assert [value for _, value in seen] == [167, 167, 165, 167]
  assert len({key for key, _ in seen}) == 4
  monkeypatch.undo()
  assert run._SCORE_NOISE.l2_sensitivity == 1
  assert run._SCORE_NOISE.stddev == 2


@pytest.mark.slow
def test_a_search_starts_with_the_recipe_and_can_be_replayed(
    dataset, small_search):
  setting = dataclasses.replace(_SETTING, num_trials=12)
  trials = run.find(setting, dataset, lambda share: None)
  assert len(trials) == 12 and small_search == [t.point for t in trials]
  assert trials[0].point['sgd_learning_rate'] == .6
  assert [trial.point['features'] for trial in trials[:2]] == ['none', 'unit']
  replayed = search.suggest(run._space(setting, dataset), trials[:10],
                            seed=setting.seed)
  assert replayed == [trials[10].point]
  chosen, fields = run.selected_fields(setting, dataset, trials)
  assert trials[chosen].score > trials[0].score
  share = trials[chosen].point['batch_size'] / 364
  assert fields['batch_size'] == pytest.approx(share * 455)
  assert fields['batch_size'] <= 455


def test_recipes_of_each_feature_and_each_loss_are_tried_first():
  of = lambda name: run.starts(next(
      each for each in sweep.SETTINGS if each.dataset == name))
  assert of('adult') == [dict(features=name, loss='cross_entropy')
                         for name in ('none', 'unit', 'binned')]
  assert of('nursery') == [
      *(dict(features=name, loss='cross_entropy')
        for name in ('none', 'unit', 'binned', 'crossed')),
      dict(features='crossed', loss='ordinal')]


def _charged(dataset, **changes):
  return run.charged_epsilon(dataclasses.replace(_SETTING, **changes), dataset)


@pytest.mark.slow
def test_the_search_is_charged(dataset):
  """The search is charged for all trials,
  scores and the final run (DP-21, E30)."""
  # A record of the third fold is trained on in both runs of three trials.
  event = run._events(_SETTING, dataset, fold=0)[-1]
  by_hand = accounting.epsilon(
      accounting.composed_event([event] * 7 + [
          accounting.gaussian_event(noise_multiplier=2.)] * 3),
      delta=1 / 569, adjacency=Adjacency.ADD_OR_REMOVE_ONE, accountant='rdp')
  charged = _charged(dataset)
  assert by_hand * (1 - 1e-6) <= charged < 1.1 * by_hand
  assert charged > 3 * 1.672
  assert charged < _charged(dataset, num_trials=4)
  assert charged < _charged(dataset, repeats=2)
  # With all five folds each record is left out once.
  assert run._trainings(dataclasses.replace(_SETTING, folds=5)) == 4
  assert run._trainings(dataclasses.replace(_SETTING, folds=4)) == 4


def test_every_run_of_a_search_is_among_those_charged(dataset, smoke):
  """Every run of a search is in the list that the accountant charges."""
  in_folds = [event for fold, event in smoke[1] if fold is not None]
  whole = [event for fold, event in smoke[1] if fold is None]
  assert len(in_folds) == _SETTING.num_trials * _SETTING.folds
  assert all(e in run._events(_SETTING, dataset, fold=0) for e in in_folds)
  # The recipe's runs, the later half, are for comparison only.
  ours = whole[:_SETTING.num_tests]
  assert len(whole) == 2 * _SETTING.num_tests
  assert all(e in run._events(_SETTING, dataset, fold=None) for e in ours)


def test_rows_tell_the_truth(rows):
  assert {row.n for row in rows} == {455}
  charged, = {row.epsilon for row in rows}
  alone = _value(rows, 'epsilon_search_ignored')
  assert .99 * 1.672 < alone <= 1.672 < charged
  assert {row.delta for row in rows} == {1 / 569}
  assert len([r for r in rows if r.metric.startswith('score_')]) == 3
  for name in ('selected', 'recipe'):
    assert 0.3 < _value(rows, f'{name}_test_accuracy') <= 1
    assert _value(rows, f'{name}_test_error') >= 0
  assert 0 < _value(rows, 'p_value') <= 1


def test_rows_become_fields(rows, tmp_path, monkeypatch):
  path = tmp_path / 'selected.json'
  path.write_text(selected.render(rows))
  monkeypatch.setattr(selected, 'FILE', path)
  fields = selected.fields('breast_cancer', 'lip_dp_sgd', num_train=455)
  assert fields['num_steps'] == 20 and isinstance(fields['depth'], int)
  assert fields['learning_rate'] == _value(rows, 'use_learning_rate')
  assert fields['batch_size'] == round(455 * _value(rows, 'sampling_prob'))
  assert _value(rows, f'use_optimizer_{fields["optimizer"]}') == 1
  assert _value(rows, f'use_features_{fields["features"]}') == 1
  config = configuration.resolve(configuration.TrainingConfig(
      dataset='breast_cancer', method='lip_dp_sgd', **fields),
      num_available=455)
  assert config.weight_norm == fields['weight_norm']
  # The rate is kept on fewer records.
  few = selected.fields('breast_cancer', 'lip_dp_sgd', num_train=91)
  assert few['batch_size'] == pytest.approx(fields['batch_size'] / 5, abs=1)
  assert selected.fields('adult', 'lip_dp_sgd', num_train=455) == {}
  monkeypatch.setattr(selected, 'FILE', tmp_path / 'nothing')
  assert selected.fields('breast_cancer', 'lip_dp_sgd', num_train=455) == {}


def test_committed_rows_select_for_every_method():
  text = selected.render(records.read(selected.ROWS))
  settings = json.loads(text)
  assert settings.keys() == sweep.BUDGETS.keys()
  assert all(methods.keys() == set(sweep.METHODS)
             for methods in settings.values())
  for dataset, methods in settings.items():
    for values in methods.values():
      assert values['num_steps'] in sweep.BUDGETS[dataset]['steps']
  assert selected.FILE.read_text() == text


def test_table_has_both_spaces_and_both_epsilons(rows):
  """The table shows both spaces and both epsilons (EXP-T5.2, E30)."""
  table = report.table(rows)
  for line in papers.TABLE_5_2:
    assert f'| {line.name} ' in table
    assert f'[{line.low:g}, {line.high:g}]' in table
  result, = [line for line in table.splitlines()
             if line.startswith('| breast_cancer | lip_dp_sgd | 3 ')]
  charged = f'{rows[0].epsilon:.4g}'
  assert '1.672' in result and charged in result
  for method in sweep.METHODS:
    for name in space.NAMES[method]:
      shown = name.removeprefix('sgd_')
      assert f'| {shown} ' in table


def test_figure_has_a_line_for_each_search(rows):
  pytest.importorskip('matplotlib')
  ax = report.figure(rows).axes[0]
  assert ax.get_title() == 'breast_cancer'
  line, = ax.get_lines()
  ys = line.get_ydata()
  assert len(ys) == 3 and ys[2] >= ys[0]


def test_verdicts(rows):
  all_verdicts = verdicts.check(report.verdict(rows))
  by_claim = {each.claim: each for each in all_verdicts}
  assert len(all_verdicts) == 8
  best = by_claim['breast_cancer, best of the table at epsilon 1.672']
  assert best.printed == '0.798'
  cost = by_claim['privacy loss by the search (E30)']
  assert cost.printed == 'small' and cost.verdict == verdicts.DIFFERS
  assert all(each.verdict == verdicts.NOT_RUN
             for each in verdicts.check(report.verdict([])))
