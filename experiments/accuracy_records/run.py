"""Runs the parts of an entry: all seeds of a recipe in one program."""

from collections.abc import Callable, Iterator, Mapping, Sequence
import pathlib
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dpjax.runs import environment
from dpjax.typing import Array, Batch
from experiments import records
from experiments import rendering
from experiments.accuracy_records import ablations
from experiments.accuracy_records import audits
from experiments.accuracy_records import choosing
from experiments.accuracy_records import data
from experiments.accuracy_records import entries
from experiments.accuracy_records import evaluation
from experiments.accuracy_records import fitting
from experiments.accuracy_records import sweep
from experiments.accuracy_records.entries import Entry
from experiments.accuracy_records.entries import Recipe

NAME = 'accuracy_records'

Values = Mapping[str, np.ndarray | float]
"""Metric -> a value for each seed, or one for all."""


class Group(NamedTuple):
  """Settings that differ in their seed only, and what they need.

  Attributes:
    settings: the settings.
    entry: their entry.
    sources: where records come from.
    folder: folder of the sweep, with the rows so far; None without.
    on_progress: called with (steps done, steps in total).
  """
  settings: Sequence[sweep.Setting]
  entry: Entry
  sources: data.Sources
  folder: pathlib.Path | None
  on_progress: Callable[[int, int], None]


def run(settings: Sequence[sweep.Setting], data_dir: str | None, progress, *,
        state_dir: pathlib.Path | None = None
        ) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  first = settings[0]
  what = f'{first.entry} {first.part}'
  state = None if state_dir is None else pathlib.Path(state_dir)
  group = Group(
      settings, entries.ENTRIES[first.entry],
      data.Sources(data_dir, None if state is None else state / 'features'),
      None if state is None else state.parent,
      lambda done, total: progress(done / total, what))
  fit, values = _PARTS[first.part](group)
  for place, setting in enumerate(settings):
    yield setting, [records.Row(
        seed=setting.seed, metric=metric,
        value=float(np.broadcast_to(value, len(settings))[place]),
        n=fit.plan.sampler.num_examples, epsilon_requested=setting.epsilon,
        epsilon=fit.epsilon, epsilon_valid=True, delta=group.entry.delta,
        adjacency=fitting.ADJACENCY.value, accountant='pld', method='dp_sgd',
        dataset=setting.dataset, wall_s=fit.seconds)
                    for metric, value in values.items()]


def rows_of_choice(entry: Entry, folder: pathlib.Path | None
                   ) -> list[records.Row]:
  """Returns rows with scores of an entry: of a folder, or the committed ones.
  """
  rows = [] if folder is None else rendering.read(folder)
  if choosing.scores(entry, rows):
    return rows
  return rendering.read(rendering.results_dir(environment.ROOT, NAME))


def _choose(group: Group) -> tuple[fitting.Fit, Values]:
  """Scores a recipe on the validation part."""
  name = group.settings[0].recipe
  return _validated(group, next(each for each in group.entry.recipes
                                if each.name == name))


def _ablation(group: Group) -> tuple[fitting.Fit, Values]:
  """Scores the best recipe with one thing changed, on the validation part."""
  return _validated(group, ablations.changed(
      _chosen(group), group.settings[0].variant))


def _validated(group: Group, recipe: Recipe) -> tuple[fitting.Fit, Values]:
  """Trains without the validation part, and scores on it."""
  training = data.training_set(group.entry, recipe, group.sources)
  split = data.validation_split(len(training.y))
  fit = _fit(group, recipe, training, split.train)
  return fit, {
      choosing.SCORE: evaluation.on_rows(fit, training, split.test),
      'noise_multiplier': _noise(fit)}


def _final(group: Group) -> tuple[fitting.Fit, Values]:
  """Trains the best recipe on the whole training set, and tests it."""
  recipe = _chosen(group)
  training = data.training_set(group.entry, recipe, group.sources)
  size = len(training.y)
  fit = _fit(group, recipe, training, jnp.arange(size, dtype=jnp.int32))
  del training
  return fit, {
      'test_accuracy': evaluation.evaluate_on_test(
          group.entry, recipe, fit, group.sources),
      'noise_multiplier': _noise(fit),
      'chosen': group.entry.recipes.index(recipe),
      'num_runs_of_choice': choosing.num_runs(group.entry),
      'epsilon_with_choice': choosing.price(group.entry, recipe, size)}


def _audit(group: Group) -> tuple[fitting.Fit, Values]:
  """Trains the best recipe with canaries, and bounds its epsilon."""
  recipe, entry = _chosen(group), group.entry
  key, = fitting.keys(f'canaries {entry.name}',
                      [group.settings[0].seed])
  joined, rows, canaries = audits.with_canaries(
      key, data.training_set(entry, recipe, group.sources),
      entry.num_canaries, data.num_classes(entry, group.sources))
  fit = _fit(group, recipe, joined, rows)
  found = audits.judge(entry, fit, canaries)
  return fit, {'epsilon_lower': found.epsilon_lower,
               'largest_epsilon_lower': found.largest,
               'num_canaries': entry.num_canaries,
               'num_guesses': found.num_guesses,
               'num_correct': found.num_correct}


_PARTS: Mapping[str, Callable[[Group], tuple[fitting.Fit, Values]]] = {
    'choose': _choose, 'final': _final, 'ablation': _ablation, 'audit': _audit}


def _chosen(group: Group) -> Recipe:
  """Returns the recipe that is best on the validation part."""
  return choosing.best(group.entry,
                       rows_of_choice(group.entry, group.folder))


def _fit(group: Group, recipe: Recipe, training: Batch, rows: Array
         ) -> fitting.Fit:
  """Trains all seeds of a group on the same rows."""
  first, entry = group.settings[0], group.entry
  seeds = [setting.seed for setting in group.settings]
  stream = f'{first.entry} {first.part} {recipe.name}'
  return fitting.fit(
      entry, recipe, training, jnp.tile(rows, (len(seeds), 1)),
      num_classes=data.num_classes(entry, group.sources),
      run_keys=fitting.keys(stream, seeds),
      init_keys=fitting.keys(f'initial {entry.name}', seeds),
      on_progress=group.on_progress)


def _noise(fit: fitting.Fit) -> float:
  """Returns the noise multiplier of the plan, which is private."""
  multiplier = fit.plan.noise_multiplier
  assert multiplier is not None
  return multiplier
