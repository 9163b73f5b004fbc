"""Runs searches: trials, their scores, their privacy cost and one test.

Privacy (items HPO-01 and DP-21; erratum E30). A search uses only the training
part of one split.
  1. For each fold, a trial trains on the other folds and counts the correct
     answers on that fold. It releases this count with Gaussian noise.
  2. Each record is trained on in at most `_trainings` runs of a trial and is
     validated once. A trial therefore costs that many training events and one
     Gaussian release of sensitivity 1.
  3. The Gaussian process post-processes the noisy scores, at no cost.
  4. Each trial is chosen from earlier noisy scores. The cost of all trials that
     may be chosen is therefore that of `adaptive.adaptive_epsilon`.
"""

from collections.abc import Callable, Iterator, Sequence
import dataclasses
import zlib

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import tree
from dpjax.data import arrays
from dpjax.data import registry
from dpjax.privacy import accounting
from dpjax.privacy.additive import GaussianMechanism
from dpjax.privacy.adjacency import Adjacency
from dpjax.runs import configuration
from dpjax.runs import recipes
from dpjax.runs import run_keys
from dpjax.runs import training
from experiments import papers
from experiments import records
from experiments import search
from experiments import summary
from experiments.lip_search import space as spaces
from experiments.lip_search import sweep
from experiments.methods.mechanisms import adaptive

_DELTAS = {line.dataset: line.delta for line in papers.TABLE_5_4}
_ADJACENCY = Adjacency.ADD_OR_REMOVE_ONE
# Standard deviation in correct answers; small beside the chance variation.
_SCORE_NOISE = GaussianMechanism(record_norm=1.0, noise_multiplier=2.0,
                                 adjacency=_ADJACENCY)


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  for number, setting in enumerate(settings):
    dataset = registry.load(setting.dataset, data_dir=data_dir)
    trials = find(setting, dataset,
                  lambda share, n=number: progress(
                      (n + share) / len(settings), setting.method))
    yield setting, _rows(setting, dataset, trials)


def config(setting: sweep.Setting) -> configuration.TrainingConfig:
  """Returns the first trial on all training records, for fingerprints."""
  total = registry.DATASETS[setting.dataset].num_examples
  base = _config(setting)
  return dataclasses.replace(base, **_without_fixed(setting, recipes.recipe(
      base.method, num_train=total - round(base.test_fraction * total))))


def find(setting: sweep.Setting, dataset: arrays.Dataset,
         progress: Callable[[float], None]) -> list[search.Trial]:
  """Returns the trials of a search, in order; recipes come first.

  Private at a cost of `charged_epsilon`, because the scores are noisy.
  """
  space = _space(setting, dataset)
  trials = []
  while len(trials) < setting.num_trials:
    if len(trials) < len(starts(setting)):
      points = [spaces.to_point(space, _recipe(
          setting, dataset, **starts(setting)[len(trials)]))]
    else:
      points = search.suggest(space, trials, seed=setting.seed)
    for point in points:
      trials.append(search.Trial(point, _score(setting, dataset, point,
                                               number=len(trials))))
    progress(len(trials) / setting.num_trials)
    if not points:
      break
  return trials


def starts(setting: sweep.Setting) -> list[dict[str, str]]:
  """Returns the features and losses of the recipes that are tried first.

  These are each of the features with the first loss, and the last features
  with each other loss.
  """
  first, *others = sweep.losses(setting.dataset)
  return ([dict(features=name, loss=first) for name in setting.features] +
          [dict(features=setting.features[-1], loss=name) for name in others])


def charged_epsilon(setting: sweep.Setting,
                    dataset: arrays.Dataset) -> float:
  """Returns the epsilon of a whole search and one run of the selected trial."""
  return adaptive.adaptive_epsilon(
      [(_events(setting, dataset, fold=0),
        setting.num_trials * _trainings(setting)),
       ([_SCORE_NOISE.event], setting.num_trials),
       (_events(setting, dataset, fold=None), 1)],
      delta=_DELTAS[setting.dataset], adjacency=_ADJACENCY)


def _trainings(setting: sweep.Setting) -> int:
  """Returns the largest number of runs of a trial that train on one record."""
  left_out = 1 if setting.folds == setting.num_folds else 0
  return (setting.folds - left_out) * setting.repeats


def _events(setting, dataset, *, fold) -> list[accounting.DpEvent]:
  """Returns the possible events of a run: each batch size with each length."""
  sizes = spaces.batch_sizes(_num_train(setting, dataset, fold=0))
  return [
      training.make_plan(configuration.resolve(
          _config(setting, fold=fold, num_steps=steps, batch_size=_batch_size(
              setting, dataset, size, fold=fold)),
          num_available=_num_train(setting, dataset, fold=fold))).event
      for size in sizes for steps in setting.steps
  ]


def _batch_size(setting, dataset, size: float, *, fold) -> float:
  """Returns the batch size that keeps the sampling rate on a fold's records."""
  if fold is not None:
    return size
  whole = _num_train(setting, dataset, fold=None)
  return min(size * whole / _num_train(setting, dataset, fold=0), float(whole))


def _config(setting: sweep.Setting, **fields) -> configuration.TrainingConfig:
  return run_keys.reproducible(configuration.TrainingConfig(
      dataset=setting.dataset, epsilon=setting.epsilon,
      delta=_DELTAS[setting.dataset], adjacency=_ADJACENCY.value,
      num_folds=setting.num_folds, split_seed=setting.split,
      **sweep.fixed(setting.method), **fields))


def _without_fixed(setting, fields: dict) -> dict:
  """Returns the fields that the method does not fix."""
  fixed = sweep.fixed(setting.method)
  return {name: value for name, value in fields.items() if name not in fixed}


def _num_train(setting, dataset, *, fold) -> int:
  return training.num_available(_config(setting, fold=fold), dataset)


def _recipe(setting, dataset, *, fold: int | None = 0, features: str = 'none',
            loss: str = 'cross_entropy'):
  """Returns the recipe for all data sets, free of any earlier search."""
  recipe = recipes.recipe(
      sweep.fixed(setting.method)['method'], features=features, loss=loss,
      num_train=_num_train(setting, dataset, fold=fold))
  return _without_fixed(setting, recipe) | dict(features=features, loss=loss)


def _space(setting, dataset):
  return spaces.space(setting.method, steps=setting.steps,
                      num_train=_num_train(setting, dataset, fold=0),
                      features=setting.features,
                      losses=sweep.losses(setting.dataset))


def _score(setting, dataset, point, *, number: int) -> float:
  """Returns the noisy share of correct answers in cross-validation."""
  results = training.train(
      [_config(setting, fold=fold, seed=seed, **spaces.to_config(point))
       for fold in range(setting.folds) for seed in range(setting.repeats)],
      dataset=dataset)
  right = sum(round(result.test_accuracy * result.num_test)
              for result in results) / setting.repeats
  digest = zlib.crc32(f'score {setting!r}'.encode())
  key = jax.random.fold_in(jax.random.key(setting.seed), digest)
  noisy = _SCORE_NOISE.release(jax.random.fold_in(key, number),
                               jnp.float32(right))
  return float(noisy) / (setting.folds * results[0].num_test)


def _test(setting, dataset, fields) -> list[training.TrainingResult]:
  """Trains on the whole training part, and evaluates on the held-out part."""
  return training.train([_config(setting, seed=seed, **fields)
                         for seed in range(setting.num_tests)],
                        dataset=dataset)


def selected_fields(setting: sweep.Setting, dataset: arrays.Dataset,
                    trials: Sequence[search.Trial]) -> tuple[int, dict]:
  """Returns the chosen trial's index, and its fields for all records."""
  chosen = search.best(_space(setting, dataset), trials, seed=setting.seed)
  fields = spaces.to_config(trials[chosen].point)
  return chosen, fields | dict(batch_size=_batch_size(
      setting, dataset, fields['batch_size'], fold=None))


def _rows(setting, dataset, trials) -> list[records.Row]:
  chosen, fields = selected_fields(setting, dataset, trials)
  ours = _test(setting, dataset, fields)
  theirs = _test(setting, dataset, _recipe(setting, dataset, fold=None))
  accuracies = [np.array([result.test_accuracy for result in results])
                for results in (ours, theirs)]
  metrics = {f'score_{number:03d}': trial.score
             for number, trial in enumerate(trials)}
  metrics |= {'selected_trial': chosen,
              'num_parameters': tree.count(ours[0].params),
              'epsilon_search_ignored': ours[0].epsilon,
              'sampling_prob': ours[0].plan.sampler.sampling_prob}
  for name, values in zip(('selected', 'recipe'), accuracies, strict=True):
    outcome = summary.summarise(values)
    metrics[f'{name}_test_accuracy'] = outcome.mean
    metrics[f'{name}_test_error'] = outcome.standard_error
  metrics['p_value'] = summary.wilcoxon(
      accuracies[0] - accuracies[1]).p_value
  for name, value in fields.items():
    if isinstance(value, str):
      metrics[f'use_{name}_{value}'] = 1.0
    elif name != 'batch_size':
      metrics[f'use_{name}'] = value
  epsilon = charged_epsilon(setting, dataset)
  return [
      records.Row(
          seed=setting.seed, metric=metric, value=float(value),
          n=ours[0].num_train, epsilon_requested=setting.epsilon,
          epsilon=epsilon, epsilon_valid=True, delta=ours[0].config.delta,
          adjacency=_ADJACENCY.value, accountant='rdp', method=setting.method,
          dataset=setting.dataset)
      for metric, value in metrics.items()
  ]
