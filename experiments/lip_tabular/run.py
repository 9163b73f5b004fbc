"""Runs settings in `sweep.py`: those that differ in seed or budget at once."""

from collections.abc import Iterator, Sequence
import math

from dpjax.runs import configuration
from dpjax.runs import run_keys
from dpjax.runs import training
from experiments import papers
from experiments import records
from experiments import rows
from experiments.lip_tabular import sweep

_PRINTED = {line.dataset: line for line in papers.TABLE_5_4}
_SMOKE_STEPS = 5


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  results = training.train(
      [config(setting) for setting in settings], data_dir=data_dir,
      on_progress=lambda done, total: progress(done / total,
                                               settings[0].method))
  for setting, result in zip(settings, results, strict=True):
    yield setting, rows.of_training(setting, result)


def config(setting: sweep.Setting) -> configuration.TrainingConfig:
  """Returns the training configuration, with delta = 1/n for the table."""
  private = math.isfinite(setting.epsilon)
  printed = _PRINTED[setting.dataset]
  return run_keys.reproducible(configuration.TrainingConfig(
      dataset=setting.dataset, method=setting.method, seed=setting.seed,
      epsilon=setting.epsilon if private else 1.0,
      delta=printed.delta if setting.kind == 'table' else None,
      num_steps=_SMOKE_STEPS if setting.kind == 'smoke' else None))
