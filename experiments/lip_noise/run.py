"""Runs settings in `sweep.py`: those that differ in the seed at once."""

from collections.abc import Iterator, Sequence
import functools
import pathlib

from dpjax.data import registry
from dpjax.runs import configuration
from dpjax.runs import run_keys
from dpjax.runs import training
from experiments import fold_choices
from experiments import records
from experiments import rows
from experiments.lip_noise import sweep

CHOSEN = pathlib.Path(__file__).parent / 'results' / 'chosen.json'
"""Written by `choosing`: data set -> `cell_name` -> fields and scores."""

_RATE = 3.0
# The bound of a record's gradient: of all records of norm 1, whatever clips.
_BOUND = 0.3


def run(settings: Sequence[sweep.Setting], data_dir: str | None, progress
        ) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`."""
  first = settings[0]
  results = training.train(
      [config(setting) for setting in settings],
      dataset=registry.load(first.dataset, data_dir=data_dir),
      on_progress=lambda done, total: progress(done / total, first.method))
  for setting, result in zip(settings, results, strict=True):
    yield setting, rows.of_training(setting, result)


def cell_name(setting: sweep.Setting) -> str:
  """Returns the name under which `choosing` stores its choice."""
  return f'{setting.method}, {setting.schedule}, {setting.noise}'


def config(setting: sweep.Setting, *,
           chosen: fold_choices.Choices | None = None,
           num_examples: int | None = None) -> configuration.TrainingConfig:
  """Returns the training configuration of a setting.

  Args:
    setting: a setting.
    chosen: what `choosing` found; None for the committed file.
    num_examples: number of training records; None for that of the setting.
  """
  count = num_examples or setting.num_examples
  schedule = sweep.SCHEDULES[setting.schedule]
  choices = _committed() if chosen is None else chosen
  fields = {'learning_rate': _RATE, **fold_choices.fields(
      choices, setting.dataset, cell_name(setting))}
  return run_keys.reproducible(configuration.TrainingConfig(
      dataset=setting.dataset, method=setting.method, seed=setting.seed,
      epsilon=setting.epsilon, num_examples=count, features='binned', depth=0,
      batch_size=count / schedule.num_groups, num_steps=schedule.num_steps,
      optimizer='momentum', logit_clip=_BOUND, clip_norm=_BOUND, **fields,
      **sweep.NOISE[setting.noise]))


@functools.cache
def _committed() -> fold_choices.Choices:
  """Returns the committed choices; nothing before the first was made."""
  return fold_choices.read(CHOSEN)
