"""These tests check how records of accuracy are chosen, tested and audited."""

import ast
import dataclasses
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.privacy import accounting
from dpjax.train import plan as plans
from experiments import selection
from experiments.accuracy_records import ablations
from experiments.accuracy_records import choosing
from experiments.accuracy_records import data
from experiments.accuracy_records import entries
from experiments.accuracy_records import evaluation
from experiments.accuracy_records import fitting
from experiments.accuracy_records import run
from experiments.accuracy_records import sweep
from tests.experiments import accuracy_rows
from tests.experiments.accuracy_rows import ENTRY
from tests.experiments.accuracy_rows import NAME
from tests.experiments.accuracy_rows import RECIPES
from tests.experiments.accuracy_rows import scored
from tests.experiments.accuracy_rows import settings

FOLDER = pathlib.Path(run.__file__).parent
SOURCES = data.Sources()


@pytest.fixture
def tiny(monkeypatch):
  """Makes `ENTRY` the only entry."""
  yield from accuracy_rows.only_entry(monkeypatch)


def _rows(group):
  """Returns the rows of settings of a group, named as the engine does."""
  return [row for setting, rows in run.run(group, None, lambda *_: None)
          for row in selection.named(NAME, setting, rows)]


@pytest.fixture
def chosen(monkeypatch, make_row):
  """Lets the second recipe be the best one."""
  rows = scored(make_row)
  monkeypatch.setattr(run, 'rows_of_choice', lambda entry, folder: rows)
  return rows


def test_names_tell_all_recipes_apart():
  one = RECIPES[0]
  names = {one.name}
  for field in dataclasses.fields(one):
    value = getattr(one, field.name)
    other = value + 1 if not isinstance(value, str) else f'{value}_other'
    changed = dataclasses.replace(one, **{field.name: other})
    assert changed.name not in names
    names.add(changed.name)
  for entry in entries.ENTRIES.values():
    assert len({each.name for each in entry.recipes}) == len(entry.recipes)
    assert 3 <= len(entry.recipes)


def test_a_longer_list_has_other_finalsettings():
  longer = dataclasses.replace(ENTRY, recipes=(*RECIPES, dataclasses.replace(
      RECIPES[0], num_steps=9)))
  more = dataclasses.replace(ENTRY, choice_seeds=3)
  assert len({ENTRY.choice, longer.choice, more.choice}) == 3
  old, new = (set(sweep.settings_of(each)) for each in (ENTRY, longer))
  assert {each.part for each in old & new} == {'choose'}


class _Sealed:
  """A data set whose test part must not be touched."""

  def __init__(self, dataset):
    self._dataset = dataset

  @property
  def test(self):
    raise AssertionError('the test set was opened')

  def __getattr__(self, name):
    return getattr(self._dataset, name)


@pytest.fixture
def sealed(tiny, monkeypatch):
  """Seals the test set."""
  dataset = _Sealed(data.load('digits', None))
  monkeypatch.setattr(data, 'load', lambda name, data_dir: dataset)


@pytest.mark.sound
@pytest.mark.parametrize('part', ['choose', 'ablation', 'audit'])
def test_only_the_final_part_opens_the_test_set(sealed, chosen, part):
  group = settings(part=part, variant=sweep.UNCHANGED)
  assert _rows([each for each in group if each.recipe == group[0].recipe])


@pytest.mark.sound
def test_the_final_part_opens_the_test_set(sealed, chosen):
  with pytest.raises(AssertionError, match='test set was opened'):
    _rows(settings(part='final'))


@pytest.mark.sound
def test_a_choice_by_test_accuracy_is_noticed(sealed, monkeypatch):
  monkeypatch.setattr(
      evaluation, 'on_rows', lambda fit, records, rows:
      evaluation.evaluate_on_test(ENTRY, RECIPES[0], fit, SOURCES))
  with pytest.raises(AssertionError, match='test set was opened'):
    _rows(settings(part='choose')[:2])


@pytest.mark.sound
@pytest.mark.parametrize('part', ['choose', 'ablation'])
def test_scores_are_of_records_that_no_run_trained_on(
    tiny, chosen, monkeypatch, part):
  seen, fit, score = [], fitting.fit, evaluation.on_rows

  def seen_fit(entry, recipe, records, rows, **others):
    seen.append(np.asarray(rows))
    return fit(entry, recipe, records, rows, **others)

  def seen_score(fit, records, rows):
    seen.append(np.asarray(rows))
    return score(fit, records, rows)

  monkeypatch.setattr(fitting, 'fit', seen_fit)
  monkeypatch.setattr(evaluation, 'on_rows', seen_score)
  group = settings(part=part, variant=sweep.UNCHANGED)
  rows = _rows([each for each in group if each.recipe == group[0].recipe])
  trained, validated = seen
  assert (trained == trained[0]).all() and len(validated) == 240
  assert set(trained[0].tolist()) | set(validated.tolist()) == set(range(1437))
  assert {row.n for row in rows} == {trained.shape[1]} == {1437 - 240}


def _calls(name):
  """Returns file and function of each call of a function with a name."""
  found = []
  for path in [*FOLDER.glob('*.py'),
               FOLDER.parents[1] / 'launch' / 'records.py']:
    for function in ast.walk(ast.parse(path.read_text())):
      if isinstance(function, ast.FunctionDef):
        found += [(path.stem, function.name) for node in ast.walk(function)
                  if isinstance(node, ast.Call) and
                  ast.unparse(node.func).split('.')[-1] == name]
  return found


@pytest.mark.sound
def test_one_function_evaluates_on_the_test_set_and_one_place_calls_it():
  assert _calls('evaluate_on_test') == [('run', '_final')]
  assert _calls('test_set') == [('evaluation', 'evaluate_on_test')]


def test_the_best_mean_on_the_validation_part_wins(make_row):
  rows = scored(make_row)
  assert choosing.best(ENTRY, rows) == RECIPES[1]
  # Other parts and metrics do not count, however good they are.
  setting = settings(part='final')[0]
  tested = [make_row(id=selection.setting_id(NAME, dataclasses.replace(
      setting, part=part, recipe=RECIPES[0].name, seed=5)), seed=5,
                     metric=metric, value=1.0)
            for part, metric in (('final', 'test_accuracy'),
                                 ('ablation', choosing.SCORE))]
  assert choosing.best(ENTRY, rows + tested) == RECIPES[1]
  with pytest.raises(ValueError, match=f'no score of {RECIPES[1].name}'):
    choosing.best(ENTRY, rows[:3])


@pytest.mark.sound
def test_epsilon_is_that_of_the_event_that_ran(tiny, chosen):
  rows = {row.metric: row for row in _rows(settings(part='final'))
          if row.seed == 3}
  noise = rows['noise_multiplier'].value
  event = accounting.poisson_gaussian_event(
      sampling_prob=round(300 / 1437 * 2**32) / 2**32, num_steps=8,
      noise_multiplier=noise)
  claim = dict(delta=1e-5, adjacency=fitting.ADJACENCY)
  epsilon = accounting.epsilon(event, **claim)
  assert {row.epsilon for row in rows.values()} == {epsilon}
  assert {row.n for row in rows.values()} == {1437}
  assert epsilon <= 4.0 < accounting.epsilon(
      accounting.poisson_gaussian_event(
          sampling_prob=300 / 1437, num_steps=8,
          noise_multiplier=0.99 * noise), **claim)
  assert rows['chosen'].value == 1 and rows['num_runs_of_choice'].value == 4
  assert 0.2 < rows['test_accuracy'].value < 1
  # All runs one by one, not each recipe at once as in the code.
  one = plans.private_plan(num_examples=1437 - 240, batch_size=300, num_steps=8,
                           epsilon=4.0, delta=1e-5,
                           adjacency=fitting.ADJACENCY).event
  price = accounting.epsilon(accounting.composed_event([one] * 4 + [event]),
                             **claim)
  assert rows['epsilon_with_choice'].value == pytest.approx(price, rel=1e-3)
  assert price > 1.5 * epsilon


def test_the_price_covers_earlier_runs():
  # Steps on all records are Gaussian, so shifts add up in squares.
  whole = dataclasses.replace(RECIPES[0], batch_size=10**9)
  entry = dataclasses.replace(ENTRY, recipes=(whole,) * 3, choice_seeds=1,
                              earlier_runs=((2.0, 5), (4.0, 2)))
  shift = lambda epsilon: accounting.gaussian_shift(epsilon=epsilon,
                                                    delta=entry.delta)
  wanted = accounting.gaussian_epsilon(
      shift=np.sqrt(6 * shift(4.0)**2 + 5 * shift(2.0)**2), delta=entry.delta)
  assert choosing.price(entry, whole, 1000) == pytest.approx(wanted, rel=1e-3)
  assert choosing.num_runs(entry) == 10


def test_noise_of_scores_costs_what_is_left():
  stddev = choosing.score_stddev(ENTRY, 4.0, 6.0)
  weight, places = 2.0 / 4, np.arange(-200, 201)
  masses = np.exp(-weight * np.abs(places))
  assert stddev == pytest.approx(
      np.sqrt(masses @ places**2 / masses.sum()), rel=1e-9)


@pytest.mark.slow
def test_seeds_run_together_as_they_would_alone(tiny, chosen):
  pair = settings(part='choose')[:2]
  together, alone = _rows(pair), _rows(pair[1:])
  assert [row.value for row in together[2:]] == [row.value for row in alone]
  assert together[0].value != together[2].value


@pytest.mark.slow
def test_random_allocation_is_accounted_as_such(tiny):
  recipe = ablations.changed(RECIPES[0], 'random_allocation')
  plan = fitting.plan(ENTRY, recipe, 1437)
  assert plan.sampler.steps_per_epoch == 5
  assert plan.epsilon(1e-5) <= 4.0
  noisier = fitting.plan(ENTRY, ablations.changed(RECIPES[0], 'rdp_noise'),
                         1437)
  exact = fitting.plan(ENTRY, RECIPES[0], 1437)
  assert noisier.noise_multiplier > exact.noise_multiplier
  assert noisier.epsilon(1e-5) < exact.epsilon(1e-5)


def test_ablations_change_one_thing():
  recipe = RECIPES[0]
  assert ablations.changed(recipe, sweep.UNCHANGED) == recipe
  for variant in sweep.VARIANTS[1:]:
    other = ablations.changed(recipe, variant)
    different = [field.name for field in dataclasses.fields(recipe)
                 if getattr(other, field.name) != getattr(recipe, field.name)]
    assert len(different) == 1
    assert f'{different[0]}: ' in ablations.described(recipe, variant)
    assert str(other) != str(recipe)
  grouped = entries.Recipe(batch_size=1, num_steps=1, learning_rate=1.0)
  pixels = ablations.changed(grouped, 'features')
  assert (pixels.features, pixels.num_groups) == ('pixels', 1)


@pytest.mark.sound
@pytest.mark.parametrize('changes, shape', [
    (dict(num_groups=0), (8, 8, 1)), (dict(num_groups=1), (8, 8, 1)),
    (dict(features='scattering', num_groups=27), (2, 2, 81)),
    (dict(features='scattering', num_groups=0, upright=True, mirrored=True,
          logarithm=0.01), (2, 2, 81))])
def test_features_are_functions_of_single_records(tiny, tmp_path, changes,
                                                  shape):
  recipe = dataclasses.replace(RECIPES[0], **changes)
  sources = data.Sources(cache_dir=tmp_path / 'state' / 'features')
  dataset = data.load('digits', None)
  whole = np.asarray(data.training_set(ENTRY, recipe, sources).x)
  assert whole.shape == (1437, *shape)
  few = data._features(dataset, data.containers.Images(
      dataset.train.x[5:8], dataset.train.y[5:8]), data._kind(recipe), sources)
  np.testing.assert_allclose(few.x, whole[5:8], atol=1e-5)
  if recipe.num_groups:
    groups = whole.reshape(1437, shape[0] * shape[1], recipe.num_groups, -1)
    np.testing.assert_allclose(groups.mean((1, 3)), 0, atol=1e-4)


def test_each_choice_of_features_changes_them(tiny):
  plain = dataclasses.replace(RECIPES[0], features='scattering')
  x = lambda recipe: np.asarray(data.training_set(ENTRY, recipe, SOURCES).x)
  first = x(plain)
  for changes in (dict(upright=True), dict(mirrored=True), dict(logarithm=0.1),
                  dict(num_groups=1), dict(features='pixels')):
    other = x(dataclasses.replace(plain, **changes))
    assert other.shape != first.shape or np.abs(other - first).max() > 0.01


@pytest.mark.slow
def test_initial_parameters_are_those_of_the_first_step(tiny):
  """A step of length almost zero leaves them where they were."""
  recipe = dataclasses.replace(RECIPES[0], num_steps=1, learning_rate=1e-12)
  rows = jnp.arange(1437, dtype=jnp.int32)[None]
  fit = fitting.fit(
      ENTRY, recipe, data.training_set(ENTRY, recipe, SOURCES), rows,
      num_classes=10, run_keys=fitting.keys('one', [0]),
      init_keys=fitting.keys('two', [0]))
  jax.tree.map(lambda one, two: np.testing.assert_allclose(one, two, atol=1e-8),
               fit.initial, fit.params)


@pytest.mark.sound
def test_the_budget_covers_whitening_and_training():
  recipe = dataclasses.replace(RECIPES[0], whitening=10.0, num_steps=20)
  planned = fitting.plan(ENTRY, recipe, 1437)
  alone = fitting.plan(ENTRY, dataclasses.replace(recipe, whitening=0.0), 1437)
  assert planned.noise_multiplier > alone.noise_multiplier
  three = accounting.repeated_event(
      accounting.gaussian_event(noise_multiplier=10.0), 3)
  assert planned.event == accounting.composed_event(
      [three, planned.steps_event])
  spent = accounting.epsilon(planned.event, delta=ENTRY.delta,
                             adjacency=fitting.ADJACENCY)
  assert 0.99 * ENTRY.epsilon < spent <= ENTRY.epsilon


@pytest.mark.every(2)
def test_each_run_is_whitened_by_the_moments_of_its_own_records(
    tiny, monkeypatch):
  """Runs have different keys, and see no record of the validation part."""
  recipe = dataclasses.replace(RECIPES[0], whitening=10.0, num_steps=2)
  training = data.training_set(ENTRY, recipe, SOURCES)
  # Records that no run trains on would make all moments NaN or differ.
  rows = jnp.arange(1000, dtype=jnp.int32)
  spoiled = training._replace(x=training.x.at[1000:].set(1e6))
  fits = [fitting.fit(
      ENTRY, recipe, each, jnp.tile(rows, (2, 1)), num_classes=10,
      run_keys=fitting.keys('whitened', [0, 1]),
      init_keys=fitting.keys('initial', [0, 1])) for each in (
          training, spoiled)]
  for one, two in zip(*map(lambda fit: jax.tree.leaves(fit.params), fits),
                      strict=True):
    np.testing.assert_array_equal(one, two)
    assert one.shape[0] == 2 and (one[0] != one[1]).any()
  first, second = (prepare(training.x[:5]) for prepare in fits[0].prepared)
  assert np.abs(first - second).max() > 1e-3
  np.testing.assert_allclose(np.square(first).mean(1), 1, rtol=1e-4)
