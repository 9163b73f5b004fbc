"""Makes a private choice of hyperparameters, and writes the chosen run alone.
"""

from collections.abc import Sequence
import dataclasses
import pathlib
import sys
from typing import Any

import jax
import jax.numpy as jnp

from dpjax.runs import building
from dpjax.runs import environment as environments
from dpjax.runs import interrupted
from dpjax.runs import run_sampling
from dpjax.runs import running
from dpjax.runs import selection
from dpjax.runs import settings
from dpjax.runs import summary as summaries
from dpjax.runs import training
from dpjax.runs.configuration import TrainingConfig
from dpjax.train import evaluate

_TIME = ('The time that the search takes is not hidden. It grows with the '
         'number of runs, which must stay secret, and so must any log of it.')


def run(candidates: Sequence[TrainingConfig], mean_runs: float,
        folder: pathlib.Path, *, data_dir: str | None) -> dict[str, Any]:
  """Makes the choice and writes the chosen run; returns its summary.

  Nothing is released before the end. After an interrupt or an error, the same
  command starts again, with new keys.

  Args:
    candidates: see `selection.check`.
    mean_runs: mean number of runs, above 1.
    folder: output folder; a finished choice in it is not made again.
    data_dir: folder of the data sets; None for the default folder.

  Raises:
    ValueError, OSError: in one line, before the first run.
    MemoryError: names the flags that reduce the memory needed.
  """
  selection.check(candidates, mean_runs)
  summary = _find(folder, candidates, mean_runs)
  if summary is not None:
    print('the choice is finished already')
    return summary
  dataset = building.load(candidates[0], data_dir=data_dir)
  search = selection.plan(candidates, mean_runs, dataset)
  _announce(search)
  fresh = selection.fresh_keys(candidates[0].noise_seed)

  def train(config: TrainingConfig) -> training.TrainingResult:
    with running.explained_memory():
      return training.train([config], dataset=dataset)[0]

  index, score, result = selection.best_run(search, train, fresh)
  result = _tested(result, building.prepare(candidates[0], dataset))
  summary = _summarize(search, candidates, index, score, result)
  summaries.write(folder, summary, result)
  return summary


def _tested(result: training.TrainingResult,
            dataset: building.Dataset) -> training.TrainingResult:
  """Returns the result with the accuracy on the test part, not on the fold."""
  config = result.config
  rows = training.split_rows(dataclasses.replace(config, fold=None),
                             dataset).test
  model = building.make_model(config, dataset)
  accuracy = evaluate.accuracies(
      building.make_predictor(config, model, dataset),
      jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], result.params),
      dataset.records, rows[None])[0]
  return result._replace(num_test=rows.shape[0], test_accuracy=float(accuracy))


def _announce(search: selection.Search) -> None:
  """Prints the guarantee; nothing else is printed until the end."""
  config = search.runs[0]
  print(f'private choice among {len(search.runs)} candidates for '
        f'{config.method} on {config.dataset}: at most ({search.target:g}, '
        f'{search.delta:.3g})-DP, {config.adjacency}; a secret number of runs, '
        f'{search.stopping.mean:g} in the mean, each at most '
        f'({config.epsilon:.4g}, {search.delta:.3g})-DP on '
        f'{config.num_examples} records; {search.num_held} records held out '
        'for the scores')
  if config.noise_seed is not None:
    print(running.SEED_WARNING.format(config.noise_seed), file=sys.stderr)
  if search.delta >= 1 / (settings.known(config.num_examples) +
                          search.num_held):
    print(f'warning: delta = {search.delta:.3g} is not below 1/n: publishing '
          'one record at random would satisfy it', file=sys.stderr)
  print('searching; progress is not shown, because it would reveal the number '
        'of runs', file=sys.stderr)


def _summarize(search: selection.Search, candidates: Sequence[TrainingConfig],
               index: int, score: int, result: training.TrainingResult
               ) -> dict[str, Any]:
  """Returns the summary of the chosen run, with the cost of the choice."""
  summary = summaries.summarize(result, environments.current())
  runs = [{**selection.values(config, selection.TUNED),
           'sampling_prob': run_sampling.sampling_prob(each.sampler),
           'noise_multiplier': each.noise_multiplier,
           'noise_variation': each.noise_variation, 'event': repr(each.event)}
          for config, each in zip(search.runs, search.plans, strict=True)]
  return summary | {
      'epsilon_requested': search.target, 'epsilon': search.epsilon,
      'epsilon_rdp': None, 'epsilon_run': result.epsilon,
      # A short compilation would reveal that the program was compiled before.
      'compile_seconds': None, 'train_seconds': None, 'wall_seconds': None,
      'falls_short': [_TIME if each == summaries.TIME else each
                      for each in summary['falls_short']],
      'selection': {
          **_request(candidates, search.stopping.mean),
          'stopping': 'truncated negative binomial', 'shape': selection.SHAPE,
          'score': score, 'score_noise': 'discrete Laplace',
          'score_epsilon': search.score_epsilon, 'num_held': search.num_held,
          'chosen': index, 'runs': runs}}


def _request(candidates: Sequence[TrainingConfig],
             mean_runs: float) -> dict[str, Any]:
  """Returns what a command asks a choice for, besides the other options."""
  differing = [name for name in selection.TUNED
               if len({getattr(each, name) for each in candidates}) > 1]
  return {'mean_runs': mean_runs, 'noise_seed': candidates[0].noise_seed,
          'candidates': [selection.values(each, differing)
                         for each in candidates]}


def _find(folder: pathlib.Path, candidates: Sequence[TrainingConfig],
          mean_runs: float) -> dict[str, Any] | None:
  """Returns the summary of this choice, or None if the folder has no run.

  Raises:
    ValueError: if the folder holds another choice or run.
  """
  if interrupted.is_begun(folder / interrupted.FOLDER):
    raise ValueError(f'{folder} holds an interrupted run; use another '
                     '--output_dir')
  if not (folder / summaries.NAME).exists():
    return None
  summary = summaries.read(folder)
  stored = summary.get('selection')
  request = _request(candidates, mean_runs)
  if (stored is None or
      request != {name: stored.get(name) for name in request} or
      summary['epsilon_requested'] != candidates[0].epsilon):
    raise ValueError(f'{folder / summaries.NAME} is of another run or choice; '
                     'use another --output_dir')
  ran = summary['config']
  return summaries.find(folder, dataclasses.replace(
      candidates[stored['chosen']], epsilon=ran['epsilon'],
      noise_seed=ran['noise_seed'], fold=0), chosen=True)
