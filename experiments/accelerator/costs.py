"""Expected seconds of settings: measured ones where rows have them."""

from collections.abc import Callable, Sequence
import pathlib
from typing import Any, NamedTuple

from experiments import engine
from experiments import records
from experiments.accelerator import jobs
from experiments.benchmarks import sweep as benchmarks
from experiments.lip_images import hyperparameters

MEASURED, SCALED = 'measured', 'images per second of suite step'

# The network measured in results/step_gpu, and how much more work ours is, by
# numbers of parameters.
_MEASURED_AS = {'convnet': ('convnet', 'ours', 1.0),
                'wrn_16_4': ('wrn_16_4', 'ours_views', 1.0),
                'wrn_40_4': ('wrn_16_4', 'ours_views', 8_944_266 / 2_747_530)}


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
    per_image = _seconds_per_image(checkout)
    if per_image:
      return Cost(lambda setting: per_image[setting.model] * _images(setting),
                  SCALED)
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
  """Returns network -> seconds of a private step per image, {} if unknown."""
  step = next(job for job in jobs.JOBS if job.suite == 'step')
  path = checkout / step.rows_folder / engine.ROWS
  rows = records.read(path) if path.exists() else []
  result = {}
  for name, (model, method, factor) in _MEASURED_AS.items():
    sizes = [(setting, row.value) for row in rows if row.metric == 'wall_ms'
             and (setting := _size(row.id, model, method))]
    if not sizes:
      return {}
    size, milliseconds = max(sizes)  # the largest batch is the fastest
    result[name] = factor * milliseconds / 1e3 / size
  return result


def _size(id_: str, model: str, method: str) -> int:
  """Returns the batch size in the id of a row of this network, or 0."""
  fields = dict(part.split('=') for part in id_.removeprefix(
      f'{benchmarks.NAME}/').split(','))
  wanted = (fields['model'], fields['method']) == (model, method)
  return int(fields['size']) if wanted else 0


def _images(setting: Any) -> float:
  """Returns the number of images, with views, of a training of `lip_images`."""
  fields = hyperparameters.fields(setting)
  images: float = (fields['num_steps'] * fields['batch_size']
                   * fields.get('views', 1))
  return images
