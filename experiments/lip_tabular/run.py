"""Runs settings in `sweep.py`: those that differ in seed or budget at once."""

from collections.abc import Iterator, Sequence
import dataclasses
import math

from dpjax.data import registry
from dpjax.privacy.adjacency import Adjacency
from dpjax.runs import configuration
from dpjax.runs import run_keys
from dpjax.runs import training
from experiments import papers
from experiments import records
from experiments import rows
from experiments.lip_search import selected
from experiments.lip_search import sweep as searches
from experiments.lip_tabular import strong
from experiments.lip_tabular import sweep
from experiments.methods.training import diagnostics

_PRINTED = {line.dataset: line for line in papers.TABLE_5_4}
_SMOKE_STEPS = 5
# Training records whose contributions are compared with their bounds.
_PROBE_SIZE = 100
# The noisy radii of lip_adaptive are not among the results of a run.
_PROBED = tuple(method for method in sweep.LIPSCHITZ
                if method != 'lip_adaptive')


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  if settings[0].kind == 'strong':
    yield from _strong(settings, data_dir, progress)
    return
  first = settings[0]
  dataset = registry.load(first.dataset, data_dir=data_dir)
  results = training.train(
      [config(setting) for setting in settings], dataset=dataset,
      on_progress=lambda done, total: progress(done / total, first.method))
  realised: list[list[records.Row]] = [[] for _ in settings]
  if first.method in _PROBED:
    realised = [
        diagnostics.realised_rows(setting, result, diagnosis)
        for setting, result, diagnosis in zip(
            settings, results, diagnostics.diagnose(
                results, dataset, probe_size=_PROBE_SIZE), strict=True)]
  for setting, result, more in zip(settings, results, realised, strict=True):
    yield setting, [*rows.of_training(setting, result), *more]


def _strong(settings: Sequence[sweep.Setting], data_dir: str | None, progress
            ) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields settings of models of scikit-learn with their rows."""
  dataset = registry.load(settings[0].dataset, data_dir=data_dir)
  scores = strong.accuracies(settings[0].method, dataset,
                             [setting.seed for setting in settings])
  for number, (setting, scored) in enumerate(zip(settings, scores,
                                                 strict=True)):
    progress((number + 1) / len(settings), setting.method)
    yield setting, [records.Row(
        seed=setting.seed, metric='test_accuracy', value=scored.accuracy,
        n=scored.num_train, epsilon_requested=math.inf, epsilon=math.inf,
        epsilon_valid=True, delta=0.0,
        adjacency=Adjacency.ADD_OR_REMOVE_ONE.value, accountant='-',
        method=setting.method, dataset=setting.dataset,
        wall_s=scored.seconds)]


def config(setting: sweep.Setting) -> configuration.TrainingConfig | None:
  """Returns the training configuration, with delta = 1/n for the table.

  None for a model of scikit-learn.
  """
  if setting.kind == 'strong':
    return None
  config = run_keys.reproducible(configuration.TrainingConfig(
      dataset=setting.dataset, seed=setting.seed, **searches.fixed(
          setting.method),
      epsilon=setting.epsilon if math.isfinite(setting.epsilon) else 1.0,
      delta=_PRINTED[setting.dataset].delta if setting.kind == 'table' else
      None))
  if setting.kind == 'smoke':
    return dataclasses.replace(config, num_steps=_SMOKE_STEPS)
  total = registry.DATASETS[setting.dataset].num_examples
  return dataclasses.replace(config, **selected.fields(
      setting.dataset, setting.method,
      num_train=total - round(config.test_fraction * total)))
