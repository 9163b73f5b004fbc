"""Runs the settings of a sweep that have no rows yet, and stores their rows."""

from collections.abc import Iterable, Sequence
import dataclasses
import hashlib
import math
import os
import pathlib
import time
from typing import NamedTuple, TextIO

from dpjax.report import progress as progress_lib
from dpjax.runs import environment as environments
from dpjax.runs import grouping
from experiments import fingerprints
from experiments import mappings
from experiments import provenance
from experiments import records
from experiments import registry
from experiments import selection

ROWS = 'rows.csv'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
  """Options of a sweep.

  Attributes:
    output_dir: folder that the rows are written to.
    data_dir: folder of the data sets; None uses the default of the loaders.
    smoke: True for the smoke sweep: small settings that take seconds.
    resume: True skips settings that have rows; False rejects a folder that
      has any rows.
    append_anyway: True adds to rows of another configuration.
    command: command line that makes these rows, without the paths of a
      machine.
    state_dir: folder of the files that an experiment resumes from; None for
      `state` in the output folder.
  """
  output_dir: str | os.PathLike
  data_dir: str | None = None
  smoke: bool = False
  resume: bool = True
  append_anyway: bool = False
  command: str = ''
  state_dir: str | os.PathLike | None = None

  @property
  def rows_path(self) -> pathlib.Path:
    """Returns the path of the file of rows."""
    return pathlib.Path(self.output_dir) / ROWS

  @property
  def state_path(self) -> pathlib.Path:
    """Returns the folder of the files that an experiment resumes from."""
    return (pathlib.Path(self.output_dir) / 'state' if self.state_dir is None
            else pathlib.Path(self.state_dir))

  @property
  def provenance_path(self) -> pathlib.Path:
    """Returns the path of the file that records how the rows were made."""
    return pathlib.Path(self.output_dir) / provenance.NAME


class Outcome(NamedTuple):
  """Numbers of settings that a sweep skipped and ran.

  `skipped` settings had rows already; `run` settings were run now.
  """
  skipped: int
  run: int


def select(experiment: registry.Experiment, *, smoke: bool = False,
           tag: str | None = None, only: Iterable[str] = (),
           shard: str | None = None) -> tuple[selection.Setting, ...]:
  """Returns the settings of a sweep that a command line selects.

  Args:
    experiment: the experiment.
    smoke: True selects from the smoke sweep.
    tag: name of a tag of the experiment; None for all settings.
    only: filters 'key=value[,value]'.
    shard: 'i/n' for part i of n.
  """
  settings = experiment.smoke if smoke else experiment.settings
  if tag:
    settings = selection.with_tag(settings, experiment.tags, tag)
  settings = selection.only(settings, only)
  if shard:
    settings = selection.shard(settings, experiment.batched, shard)
  return settings


def configuration(experiment: registry.Experiment, *, smoke: bool) -> str:
  """Returns a SHA-256 digest of the settings of a sweep and the row columns."""
  settings = experiment.smoke if smoke else experiment.settings
  ids = sorted(selection.setting_id(experiment.name, setting)
               for setting in settings)
  text = '\n'.join([*records.COLUMNS, *ids])
  return hashlib.sha256(text.encode()).hexdigest()


def _read_finished(experiment: registry.Experiment, options: Options,
                   commit: str, out: TextIO) -> frozenset[str]:
  """Returns the ids that have rows; raises if no rows may be added."""
  if not options.rows_path.exists():
    return frozenset()
  rows = records.read(options.rows_path)
  if not rows:
    return frozenset()
  if not options.resume:
    raise ValueError(f'{options.rows_path} has rows already; use another '
                     '--output_dir, or --resume')
  wanted = configuration(experiment, smoke=options.smoke)
  recorded = provenance.read(options.provenance_path)['configuration']
  if recorded != wanted and not options.append_anyway:
    raise ValueError(
        f'{options.rows_path} has rows of another configuration '
        f'({str(recorded)[:10]}, now {wanted[:10]}); use another --output_dir, '
        'or --append_anyway')
  commits = {row.commit for row in rows} - {commit}
  if commits:
    print(f'note: rows there were made by code {", ".join(sorted(commits))}',
          file=out)
  return records.ids(rows)


def _complete(row: records.Row, name: str, id_: str, seconds: float,
              environment: environments.Environment,
              fingerprint: str) -> records.Row:
  """Returns the row with id, time, environment and fingerprint filled in."""
  if row.experiment not in ('', name) or row.id not in ('', id_):
    raise ValueError(f'a row of {id_} says that it is of {row.experiment} '
                     f'{row.id}')
  return dataclasses.replace(
      row, experiment=name, id=id_,
      wall_s=seconds if math.isnan(row.wall_s) else row.wall_s,
      device=row.device or environment.device,
      jax=row.jax or environment.jax,
      commit=row.commit or environment.commit,
      fingerprint=row.fingerprint or fingerprint)


def _check_rows(id_: str, setting: selection.Setting,
                rows: Sequence[records.Row]) -> None:
  """Checks that rows are of this setting, one for each metric, and raises."""
  metrics = [row.metric for row in rows]
  if not rows or len(set(metrics)) < len(rows):
    raise ValueError(f'{id_} must have rows of different metrics, got '
                     f'{", ".join(metrics) or "none"}')
  for name in ('seed', 'method', 'dataset'):
    # Catches a batched run that returns its settings in another order.
    wrong = {getattr(row, name) for row in rows} - {
        getattr(setting, name, getattr(rows[0], name))}
    if wrong:
      raise ValueError(f'a row of {id_} has {name} {wrong.pop()}')


def _run_group(experiment: registry.Experiment,
               group: Sequence[selection.Setting], options: Options,
               environment: environments.Environment,
               progress: progress_lib.Progress) -> None:
  """Runs settings that are batched together; appends rows as they come."""
  waiting = {selection.setting_id(experiment.name, setting)
             for setting in group}
  progress.start_group(len(group))
  start = time.monotonic()
  state = {'state_dir': options.state_path} if experiment.keeps_state else {}
  for setting, rows in experiment.run(group, options.data_dir,
                                      progress.fraction, **state):
    id_ = selection.setting_id(experiment.name, setting)
    if id_ not in waiting:
      raise ValueError(f'run gave {id_}, twice or without being asked')
    waiting.remove(id_)
    _check_rows(id_, setting, rows)
    seconds = time.monotonic() - start
    fingerprint = fingerprints.of(experiment, setting,
                                  num_examples=rows[0].n)
    records.append(options.rows_path, [
        _complete(row, experiment.name, id_, seconds, environment, fingerprint)
        for row in rows])
    start = time.monotonic()
    progress.finish()
  if waiting:
    raise ValueError(f'run gave no rows for {min(waiting)}')


def pending(experiment: registry.Experiment,
            settings: Sequence[selection.Setting], options: Options,
            out: TextIO, commit: str | None = None
            ) -> list[selection.Setting]:
  """Returns the settings that have no rows yet.

  Args:
    experiment: the experiment.
    settings: some of its settings.
    options: options of the sweep.
    out: stream for a note on the settings that have rows.
    commit: commit of the code that runs now; None asks git.

  Raises:
    ValueError: no rows may be added to the folder.
  """
  finished = _read_finished(experiment, options,
                            commit or environments.commit(), out)
  unfinished = [setting for setting in settings
          if selection.setting_id(experiment.name, setting) not in finished]
  if len(unfinished) < len(settings):
    print(f'{len(settings) - len(unfinished)} of {len(settings)} settings have '
          'rows already', file=out)
  return unfinished


def run_sweep(experiment: registry.Experiment,
              settings: Sequence[selection.Setting], options: Options,
              out: TextIO,
              environment: environments.Environment | None = None) -> Outcome:
  """Runs the settings that have no rows yet, and appends their rows.

  Rows are stored as soon as a setting is finished. If the process ends early,
  call this again to run the rest.

  Args:
    experiment: the experiment.
    settings: some of its settings.
    options: options of the sweep.
    out: stream for progress.
    environment: device, versions and commit, for the rows and
      `provenance.json`; None detects them.

  Raises:
    ValueError: the folder has rows of another configuration, or `run` gave
      rows that are not those of its settings.
  """
  unfinished = pending(experiment, settings, options, out,
                 environment.commit if environment else None)
  if unfinished:
    environment = environment or environments.current(
        optional=experiment.packages)
    os.makedirs(options.output_dir, exist_ok=True)
    provenance.write(
        options.provenance_path, command=options.command,
        configuration=configuration(experiment, smoke=options.smoke),
        commit=environment.commit, device=environment.device,
        versions=environment.versions)
  progress = progress_lib.Progress(len(unfinished), out)
  try:
    for group in grouping.groups(unfinished, experiment.batched):
      _run_group(experiment, group, options, environment, progress)
      mappings.drop_programs()
  finally:
    progress.close()
    if options.rows_path.exists():
      records.sort_file(options.rows_path)
  return Outcome(len(settings) - len(unfinished), len(unfinished))
