"""The jobs of the queue, as data, and the units that they are run in.

A unit is one command of `launch.sweep` or `launch.benchmark`. It runs settings
that share a process, and stores their rows when they are finished.
"""

from collections.abc import Sequence
import dataclasses
import pathlib
from typing import NamedTuple

from dpjax.runs import grouping
from experiments import engine
from experiments import registry
from experiments import selection
from experiments.benchmarks import sweep as benchmarks


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
  """Settings of one experiment, or of one suite of the benchmarks.

  Attributes:
    name: name of the job, for flags and folders.
    about: description of the job.
    experiment: name of the experiment; '' for a suite.
    only: filters 'key=value' of its settings.
    suite: suite of the benchmarks; '' for an experiment.
    flags: further flags of the command.
    together: fields in which the settings of a unit may differ; None for those
      of the experiment. Units are sorted by seed if seeds are not together.
    seconds: expected seconds of a setting where no rows have measured it.
    basis: where these seconds come from.
    images: True if settings are trainings of `lip_images`, whose seconds follow
      from the rows of suite step.
    start_seconds: seconds of starting, loading and compiling, once per unit.
    checkpoints: True if a unit that is stopped can go on where it was.
    smoke: True for the smoke settings, on any machine.
  """
  name: str
  about: str
  experiment: str = ''
  only: tuple[str, ...] = ()
  suite: str = ''
  flags: tuple[str, ...] = ()
  together: tuple[str, ...] | None = None
  seconds: float
  basis: str = 'guessed'
  images: bool = False
  start_seconds: float = 30.0
  checkpoints: bool = False
  smoke: bool = False

  @property
  def rows_folder(self) -> pathlib.Path:
    """Returns the folder of its rows, relative to a checkout or an output."""
    folder = (pathlib.Path('experiments', self.experiment, 'results')
              if self.experiment else
              pathlib.Path('experiments/benchmarks/results',
                           f'{self.suite}_gpu'))
    # Smoke rows are never copied over committed ones.
    return pathlib.Path('smoke') / folder if self.smoke else folder


JOBS = (
    Job(name='step', suite='step', seconds=25.0,
        about='training steps beside other libraries, usual batch sizes'),
    Job(name='models', suite='models', flags=('--timeout=300',), seconds=100.0,
        about='clipping of GPT-2 of 124 million parameters'),
    Job(name='de_et_al', experiment='lip_images',
        only=('profile=de_et_al',), together=(), images=True, seconds=3600.0,
        start_seconds=120.0, checkpoints=True,
        about='WRN-16-4 of De et al. (2022) on CIFAR-10, epsilon 1, then 8'),
    Job(name='lip_images', experiment='lip_images', only=('profile=full',),
        together=(), images=True, seconds=3600.0, start_seconds=120.0,
        checkpoints=True, about='Figure 5.3.1 with its own networks'),
    Job(name='lip_runtime', experiment='lip_runtime', only=('kind=gpu',),
        seconds=60.0, about='Figure 5.3.2 with its own networks'),
    Job(name='mia_sparsity', experiment='mia_sparsity', only=('profile=full',),
        seconds=3 * 3600.0 / 500, basis='its COST', start_seconds=120.0,
        checkpoints=True, about='Figure 1.1 with ResNet-20 on CIFAR-10'),
    Job(name='butterfly', suite='butterfly', seconds=4.0,
        about='products of square butterflies'),
)
"""The queue, most important first."""

SMOKE = (
    Job(name='step', suite='step', seconds=8.0, smoke=True,
        about='training steps of a tiny network'),
    Job(name='lip_images', experiment='lip_images', smoke=True,
        only=('method=layer_clipped',), seconds=5.0, start_seconds=20.0,
        checkpoints=True, about='two tiny private trainings'),
    Job(name='lip_runtime', experiment='lip_runtime', seconds=5.0, smoke=True,
        about='times of a tiny network'),
    Job(name='mia_sparsity', experiment='mia_sparsity', seconds=3.0,
        smoke=True, checkpoints=True, about='attacks on tiny networks'),
    Job(name='butterfly', suite='butterfly', seconds=3.0, smoke=True,
        about='products of small butterflies'),
)
"""A queue of tiny settings, to try the program without an accelerator."""


class Unit(NamedTuple):
  """Settings that one command runs.

  Attributes:
    job: its job.
    name: name of the job and the values that its settings share.
    settings: settings, with or without rows.
    filters: field -> text of the value that all of these settings share.
  """
  job: Job
  name: str
  settings: tuple[selection.Setting, ...]
  filters: dict[str, str]

  @property
  def ids(self) -> tuple[str, ...]:
    """Returns the ids of its settings."""
    experiment = self.job.experiment or benchmarks.NAME
    return tuple(selection.setting_id(experiment, setting)
                 for setting in self.settings)


def choose(jobs: Sequence[Job], names: Sequence[str]) -> tuple[Job, ...]:
  """Returns the jobs with these names, in the order of the queue; [] is all.

  Raises:
    ValueError: if a name is unknown.
  """
  known = [job.name for job in jobs]
  for name in names:
    if name not in known:
      raise ValueError(f'--jobs must be among {", ".join(known)}; got {name!r}')
  return tuple(job for job in jobs if not names or job.name in names)


def units(job: Job) -> tuple[list[Unit], list[str]]:
  """Returns the units of a job, and lines on settings that cannot run here."""
  if job.suite:
    settings, skipped = benchmarks.runnable(benchmarks.settings(
        job.suite, smoke=job.smoke, cpu=job.smoke))
    together = benchmarks.BATCHED
  else:
    experiment = registry.load(job.experiment)
    settings, skipped = engine.select(
        experiment, smoke=job.smoke, only=job.only), []
    together = experiment.batched
  if job.together is not None:
    together = job.together
    # One seed of everything comes before the second seed of anything.
    settings = sorted(settings, key=lambda setting: setting.seed)
  groups = grouping.groups(settings, together)
  common = _shared(settings)
  result = []
  for group in groups:
    filters = _shared(group)
    own = [f'{key}={value}' for key, value in filters.items()
           if key not in common or len(groups) == 1]
    result.append(Unit(job, f'{job.name}: {",".join(own)}', group, filters))
  return result, skipped


def _shared(settings: Sequence[selection.Setting]) -> dict[str, str]:
  """Returns field -> text of the value that all settings have in common."""
  first, *others = settings
  return {
      field.name: selection.format_value(getattr(first, field.name))
      for field in dataclasses.fields(first)
      if all(getattr(other, field.name) == getattr(first, field.name)
             for other in others)}


def words(unit: Unit, *, rows: pathlib.Path, state: pathlib.Path,
          data_dir: str | None) -> list[str]:
  """Returns the program of `launch` that runs a unit, and its flags.

  Args:
    unit: the unit.
    rows: folder of the rows.
    state: folder of the files that it resumes from.
    data_dir: folder of the data sets; None for the default.
  """
  job = unit.job
  smoke = ['--smoke'] if job.smoke else []
  if job.suite:
    return ['benchmark', f'--suite={job.suite}', *smoke,
            f'--models={unit.filters["model"]}',
            f'--batch_sizes={unit.filters["size"]}', *job.flags,
            f'--output_dir={rows}']
  return ['sweep', f'--experiment={job.experiment}', *smoke, *(
      f'--only={key}={value}' for key, value in unit.filters.items()),
          '--append_anyway', f'--output_dir={rows}', f'--state_dir={state}',
          *([f'--data_dir={data_dir}'] if data_dir else []), *job.flags]
