"""Times settings of `sweep.py`: all methods of one data set and batch size."""

from collections.abc import Iterator, Sequence
import math
import statistics

import jax
import numpy as np

from dpjax.data import containers
from dpjax.data import images
from dpjax.data import registry
from dpjax.runs import configuration
from dpjax.runs import recipes
from experiments import records
from experiments.lip_runtime import sweep
from experiments.lip_runtime import timing

_UNIT = 'sgd'
_CLASSES = 10
_DISTINCT = 2048


def run(settings: Sequence[sweep.Setting], data_dir: str | None,
        progress) -> Iterator[tuple[sweep.Setting, list[records.Row]]]:
  """Yields each setting with its rows; see `experiments.registry`.

  Raises:
    ValueError: for work of an accelerator without one.
  """
  first = settings[0]
  if first.kind == 'gpu' and jax.default_backend() == 'cpu':
    raise ValueError('settings of kind gpu are for an accelerator, this is a '
                     'CPU: --tag=cpu')
  work, how = sweep.WORK[first.kind, first.dataset], sweep.TIMING[first.kind]
  dataset, real = _images(first.dataset, work, data_dir)
  batches = timing.sampler(_num_examples(work, dataset, real),
                           first.batch_size, how.most_rows)
  data = dataset.records
  rows = timing.row_numbers(batches.num_examples, dataset.train.y.shape[0])
  programs = {}
  # Ratios need the unit's time from the same process: it is always timed.
  names = dict.fromkeys([_UNIT, *(setting.method for setting in settings)])
  for done, name in enumerate(names):
    progress(done / len(names) / 2, f'compiling {name}')
    programs[name] = timing.compile_step(
        _config(first, work, name), dataset, data, rows, batches)
  per_epoch = round(batches.num_examples / first.batch_size)
  result = timing.time_in_turn(
      programs, unit=_UNIT, num_rounds=how.num_rounds,
      sample_seconds=how.sample_seconds, steps_per_epoch=per_epoch,
      on_round=lambda done: progress(
          0.5 + done / how.num_rounds / 2, first.dataset))
  for setting in settings:
    metrics = _metrics(programs[setting.method], result[setting.method],
                       result[_UNIT], per_epoch)
    metrics |= dict(physical_rows=batches.part_size, synthetic=not real)
    yield setting, [_row(setting, metric, value, batches, real)
                    for metric, value in metrics.items()]


def _images(name: str, work: sweep.Work, data_dir: str | None
            ) -> tuple[images.ImageDataset, bool]:
  """Returns images and whether they are real; without a folder, noise."""
  if data_dir is not None:
    return registry.load(name, data_dir=data_dir), True
  rng = np.random.default_rng(0)
  count = min(_DISTINCT, work.num_examples)
  part = containers.Images(
      rng.integers(0, 256, (count, *work.image_shape), np.uint8),
      rng.integers(0, _CLASSES, count).astype(np.int32))
  test = containers.Images(part.x[:1], part.y[:1])
  return images.ImageDataset(name, part, test,
                             tuple(map(str, range(_CLASSES))), 255), False


def _num_examples(work: sweep.Work, dataset: images.ImageDataset,
                  real: bool) -> int:
  return dataset.train.y.shape[0] if real else work.num_examples


def _config(setting: sweep.Setting, work: sweep.Work,
            method: str) -> configuration.TrainingConfig:
  """Returns a configuration; hyperparameters are equal and do not cost time."""
  values = recipes.recipe(method, num_train=work.num_examples, images=True)
  values |= dict(depth=work.depth, width=work.width, weight_norm=1.0,
                 batch_size=float(setting.batch_size))
  return configuration.check(configuration.TrainingConfig(
      dataset=setting.dataset, method=method, model=work.model,
      num_groups=work.num_groups, num_examples=work.num_examples, **values))


def _metrics(program: timing.Program, samples: timing.Samples,
             unit: timing.Samples, per_epoch: int) -> dict[str, float]:
  """Returns medians over rounds; a ratio is of times in the same round."""
  epochs = samples.step_seconds * per_epoch
  return dict(
      epoch_seconds=statistics.median(epochs), fastest_epoch=min(epochs),
      slowest_epoch=max(epochs),
      ratio_to_sgd=statistics.median(samples.step_seconds /
                                     unit.step_seconds),
      compile_seconds=program.compile_seconds, megabytes=program.megabytes,
      steps_timed=samples.num_steps * len(epochs),
      epochs_timed=samples.num_steps * len(epochs) / per_epoch)


def _row(setting: sweep.Setting, metric: str, value: float, batches,
         real: bool) -> records.Row:
  """Returns a row; a time on real images is exact, hence not private."""
  epsilon = math.inf if real else 0.0
  return records.Row(
      seed=0, metric=metric, value=float(value),
      n=batches.num_examples if real else 0, epsilon_requested=epsilon,
      epsilon=epsilon, epsilon_valid=True, delta=0.0,
      adjacency='add_or_remove_one', accountant='-', method=setting.method,
      dataset=setting.dataset)
