"""Runs settings in `sweep.py`: those that differ in seed or budget at once."""

from collections.abc import Iterator, Sequence
import functools
import math
import pathlib
from typing import Any

import jax

from dpjax.data import registry
from dpjax.runs import configuration
from dpjax.runs import recipes
from dpjax.runs import run_keys
from dpjax.runs import training
from experiments import fold_choices
from experiments import records
from experiments import rows
from experiments.lip_depth import laws
from experiments.lip_depth import sweep
from experiments.methods.training import diagnostics

CHOSEN = pathlib.Path(__file__).parent / 'results' / 'chosen.json'
"""Written by `choosing`: data set -> method -> the chosen fields and scores."""

Results = Iterator[tuple[sweep.Setting, list[records.Row]]]

_NOISE_MULTIPLIER, _BATCH_SIZE = 1.3, 100.0
_ORDINARY = 5000


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Results:
  """Yields each setting with its rows; see `experiments.registry`."""
  if settings[0].kind in sweep.TRAINING:
    yield from _trained(settings, data_dir, progress)
    return
  metrics = {'bounds': _bounds, 'noise': _noise}[settings[0].kind]
  for setting in settings:
    yield setting, rows.exact(setting, metrics(setting))


def _network(setting: sweep.Setting) -> laws.Bounds:
  if setting.method in ('plain', 'averaged'):
    return laws.residual(setting.depth, averaged=setting.method == 'averaged',
                         weight_norm=setting.weight_norm)
  return laws.chain(setting.depth, weight_norm=setting.weight_norm)


def _bounds(setting: sweep.Setting) -> dict[str, float]:
  """Returns bounds at both ends, and the noise that each split needs."""
  result = _network(setting)
  return dict(
      num_layers=len(result.sizes), num_blocks=result.num_blocks,
      sensitivity_first=result.first, sensitivity_last=result.last,
      energy_optimal=laws.noise_energy(result, 'optimal'),
      energy_equal=laws.noise_energy(result, 'equal'),
      energy_single=laws.single_energy(result))


def _noise(setting: sweep.Setting) -> dict[str, float]:
  """Returns the measured noise of the privatizer; the method is the split."""
  result = _network(setting)
  measured = laws.measure_noise(
      jax.random.key(setting.depth), result, rule=setting.method,
      noise_multiplier=_NOISE_MULTIPLIER, batch_size=_BATCH_SIZE)
  return dict(num_layers=len(result.sizes), **measured._asdict())


def config(setting: sweep.Setting, *,
           chosen: fold_choices.Choices | None = None
           ) -> configuration.TrainingConfig | None:
  """Returns the training configuration of a setting; None if it trains nothing.

  Steps, batch size and width are those of the sweep; other hyperparameters are
  the defaults of the method, or what `choosing` found.

  Args:
    setting: a setting.
    chosen: what `choosing` found; None for the committed file.
  """
  if setting.kind not in sweep.TRAINING:
    return None
  shared = sweep.TRAINING[setting.kind]
  network: dict[str, Any] = {}
  if setting.kind in sweep.ORTHOGONAL:
    network = dict(model='orthogonal', features='binned')
  values = recipes.recipe(setting.method, num_train=_ORDINARY, **network)
  if network and setting.depth > 1:
    values['branch_share'] = 1 / (2 * setting.depth)
  if setting.kind == 'orthogonal':
    choices = _committed() if chosen is None else chosen
    values |= fold_choices.fields(choices, setting.dataset, setting.method)
  values |= network | dict(
      num_steps=shared.num_steps, depth=setting.depth,
      weight_norm=setting.weight_norm, batch_size=float(min(
          shared.batch_size, (setting.num_examples or _ORDINARY) // 2)))
  if setting.kind.startswith('smoke'):
    values['batch_size'] = 100.0
  return run_keys.reproducible(configuration.TrainingConfig(
      dataset=setting.dataset, method=setting.method, seed=setting.seed,
      epsilon=setting.epsilon if math.isfinite(setting.epsilon) else 1.0,
      num_examples=setting.num_examples, **values))


@functools.cache
def _committed() -> fold_choices.Choices:
  """Returns the committed choices; nothing before the first was made."""
  return fold_choices.read(CHOSEN)


def _trained(settings: Sequence[sweep.Setting], data_dir: str | None,
             progress) -> Results:
  first = settings[0]
  dataset = registry.load(first.dataset, data_dir=data_dir)
  results = training.train(
      [config(setting) for setting in settings], dataset=dataset,
      on_progress=lambda done, total: progress(done / total, first.method))
  outcome = [None] * len(results)
  if results[0].plan.noise_multiplier is not None:
    outcome = diagnostics.diagnose(
        results, dataset, probe_size=sweep.TRAINING[first.kind].probe_size)
  for setting, result, diagnosis in zip(settings, results, outcome,
                                        strict=True):
    yield setting, _rows(setting, result, diagnosis)


def _rows(setting: sweep.Setting, result: training.TrainingResult,
          diagnosis: diagnostics.Diagnostics | None) -> list[records.Row]:
  """Returns rows: accuracy at the run's epsilon, diagnostics at infinity."""
  accuracy = rows.trained(setting, result,
                          {'test_accuracy': result.test_accuracy})
  if diagnosis is None:
    return accuracy
  bounds = diagnosis.sensitivities
  released = rows.trained(setting, result, dict(
      noise_multiplier=result.plan.noise_multiplier, num_layers=len(bounds),
      sensitivity_first=bounds[0], sensitivity_last=bounds[-1],
      noise_norm=diagnosis.noise_norm))
  return [*accuracy, *released,
          *diagnostics.realised_rows(setting, result, diagnosis)]
