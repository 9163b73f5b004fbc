"""Expected seconds of settings: measured ones where rows have them."""

from collections.abc import Callable, Sequence
import dataclasses
import pathlib
from typing import Any, NamedTuple

from experiments import engine
from experiments import records
from experiments.accelerator import jobs
from experiments.lip_images import hyperparameters

MEASURED, SCALED = 'measured', 'images per second of suite step'

# The network measured in results/step_gpu, the method that does the same work,
# and the one that forms the gradient of every record, as dp_sgd must for
# standardised kernels.
_MEASURED_AS = {'convnet': ('convnet', 'ours', 'vmap'),
                'wrn': ('wrn_16_4', 'ours_views', 'jax_privacy_microbatch')}
_TIMES_WRN_16_4 = 8_944_266 / 2_747_530
"""Work of a WRN-40-4 over that of a WRN-16-4, by numbers of parameters."""


class Cost(NamedTuple):
  """Expected seconds of a setting, and where they come from."""
  seconds: Callable[[Any], float]
  source: str


def of(job: jobs.Job, rows: Sequence[records.Row],
       checkout: pathlib.Path) -> Cost:
  """Returns the expected seconds of the settings of a job.

  Args:
    job: the job.
    rows: rows of its experiment or suite.
    checkout: folder with the committed rows.
  """
  if job.images:
    per_image, per_step = _seconds_per_image(checkout), _seconds_per_step(rows)
    if per_image:
      return Cost(lambda setting: _training_seconds(
          setting, per_image, per_step), SCALED)
  seconds = _mean_seconds(job, rows)
  if seconds is None:
    return Cost(lambda setting: job.seconds, job.basis)
  return Cost(lambda setting: seconds, MEASURED)


def _mean_seconds(job: jobs.Job, rows: Sequence[records.Row]) -> float | None:
  """Returns the mean seconds of settings in rows of accelerators, or None.

  The settings of a group are timed from one row to the next, so only their mean
  is meaningful.
  """
  # Rows of a suite are of accelerators by their folder.
  wanted = None if job.suite else {
      id_ for unit in jobs.units(job)[0] for id_ in unit.ids}
  seconds = {row.id: row.wall_s for row in rows
             if wanted is None or (row.id in wanted and row.device != 'cpu')}
  return sum(seconds.values()) / len(seconds) if seconds else None


def _seconds_per_image(checkout: pathlib.Path) -> dict[str, float]:
  """Returns method of `_MEASURED_AS` -> seconds per image; {} if unknown."""
  step = next(job for job in jobs.JOBS if job.suite == 'step')
  path = checkout / step.rows_folder / engine.ROWS
  rows = records.read(path) if path.exists() else []
  result = {}
  for model, *methods in _MEASURED_AS.values():
    for method in methods:
      sizes = [(size, row.value) for row in rows if row.metric == 'wall_ms'
               and (size := _size(row.id, model, method))]
      if not sizes:
        return {}
      size, milliseconds = max(sizes)  # the largest batch is the fastest
      result[method] = milliseconds / 1e3 / size
  return result


def _seconds_per_step(rows: Sequence[records.Row]) -> dict[str, float]:
  """Returns kind of a training, see `_kind` -> measured seconds of a step."""
  return {_kind(_fields(row.id)): row.value / 1e6 for row in rows
          if row.metric == 'step_microseconds' and row.device != 'cpu'}


def _kind(fields: dict[str, str]) -> str:
  """Returns what the time of a step depends on: not on epsilon and seed."""
  return ','.join(fields[name] for name in (
      'profile', 'dataset', 'model', 'method'))


def _fields(id_: str) -> dict[str, str]:
  """Returns field -> text of the id of a row."""
  return dict(part.split('=') for part in id_.partition('/')[2].split(','))


def _size(id_: str, model: str, method: str) -> int:
  """Returns the batch size in the id of a row of this network, or 0."""
  fields = _fields(id_)
  wanted = (fields['model'], fields['method']) == (model, method)
  return int(fields['size']) if wanted else 0


def _training_seconds(setting: Any, per_image: dict[str, float],
                      per_step: dict[str, float]) -> float:
  """Returns the expected seconds of a training of `lip_images`."""
  fields = hyperparameters.fields(setting)
  measured = per_step.get(_kind(dataclasses.asdict(setting)))
  if measured is not None:
    return measured * int(fields['num_steps'])
  images = fields['num_steps'] * fields['batch_size'] * fields.get('views', 1)
  formed = fields.get('weights') == 'standardised'
  method = _MEASURED_AS[setting.model.split('_')[0]][1 + formed]
  factor = _TIMES_WRN_16_4 if setting.model == 'wrn_40_4' else 1.0
  seconds: float = factor * images * per_image[method]
  return seconds
