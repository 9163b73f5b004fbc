"""Runs the settings of a sweep that have no rows yet, and keeps their rows."""

from collections.abc import Iterable, Sequence
import dataclasses
import hashlib
import math
import os
import pathlib
import time
from typing import NamedTuple, TextIO

from dpjax.report import provenance
from dpjax.report import records
from experiments import environment as environments
from experiments import fingerprints
from experiments import mappings
from experiments import progress as progress_lib
from experiments import registry
from experiments import selection

ROWS = 'rows.csv'


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
  """How a sweep is run.

  Attributes:
    output_dir: folder of the rows.
    data_dir: folder of the data sets; None leaves it to their reader.
    smoke: whether the settings are those of the smoke sweep.
    resume: whether settings that have rows are skipped; if not, a folder
      that has some is refused.
    append_anyway: whether to add to rows of another configuration.
    command: how to make these rows, without the paths of a machine.
  """
  output_dir: str | os.PathLike
  data_dir: str | None = None
  smoke: bool = False
  resume: bool = True
  append_anyway: bool = False
  command: str = ''

  @property
  def rows_path(self) -> pathlib.Path:
    """The file of the rows."""
    return pathlib.Path(self.output_dir) / ROWS

  @property
  def state_dir(self) -> pathlib.Path:
    """The folder of what an experiment goes on from."""
    return pathlib.Path(self.output_dir) / 'state'

  @property
  def provenance_path(self) -> pathlib.Path:
    """The file that says where the rows come from."""
    return pathlib.Path(self.output_dir) / provenance.NAME


class Outcome(NamedTuple):
  """Settings selected: those that had rows before, and those run now."""
  skipped: int
  run: int


def select(experiment: registry.Experiment, *, smoke: bool = False,
           tag: str | None = None, only: Iterable[str] = (),
           shard: str | None = None) -> tuple[selection.Setting, ...]:
  """Returns the settings of a sweep that a command line asks for."""
  settings = experiment.smoke if smoke else experiment.settings
  if tag:
    settings = selection.with_tag(settings, experiment.tags, tag)
  settings = selection.only(settings, only)
  if shard:
    settings = selection.shard(settings, experiment.batched, shard)
  return settings


def configuration(experiment: registry.Experiment, *, smoke: bool) -> str:
  """Returns a digest of all settings of a sweep and of the columns of rows."""
  settings = experiment.smoke if smoke else experiment.settings
  ids = sorted(selection.setting_id(experiment.name, setting)
               for setting in settings)
  text = '\n'.join([*records.COLUMNS, *ids])
  return hashlib.sha256(text.encode()).hexdigest()


def _read_finished(experiment: registry.Experiment, options: Options,
                   commit: str, out: TextIO) -> frozenset[str]:
  """Returns the ids that have rows, or refuses the folder."""
  if not options.rows_path.exists():
    return frozenset()
  rows = records.read(options.rows_path)
  if not rows:
    return frozenset()
  if not options.resume:
    raise ValueError(f'{options.rows_path} has rows already; use another '
                     '--output_dir, or --resume')
  ours = configuration(experiment, smoke=options.smoke)
  theirs = provenance.read(options.provenance_path)['configuration']
  if theirs != ours and not options.append_anyway:
    raise ValueError(
        f'{options.rows_path} has rows of another configuration '
        f'({str(theirs)[:10]}, now {ours[:10]}); use another --output_dir, '
        'or --append_anyway')
  commits = {row.commit for row in rows} - {commit}
  if commits:
    print(f'note: rows there were made by code {", ".join(sorted(commits))}',
          file=out)
  return records.ids(rows)


def _complete(row: records.Row, name: str, id_: str, seconds: float,
              environment: environments.Environment,
              fingerprint: str) -> records.Row:
  """Returns a row with what the engine knows filled in."""
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
  """Refuses rows that are not those of this setting."""
  metrics = [row.metric for row in rows]
  if not rows or len(set(metrics)) < len(rows):
    raise ValueError(f'{id_} must have rows of different metrics, got '
                     f'{", ".join(metrics) or "none"}')
  for name in ('seed', 'method', 'dataset'):
    # A batched run that hands back its lanes in another order shows here.
    wrong = {getattr(row, name) for row in rows} - {
        getattr(setting, name, getattr(rows[0], name))}
    if wrong:
      raise ValueError(f'a row of {id_} has {name} {wrong.pop()}')


def _run_group(experiment: registry.Experiment,
               group: Sequence[selection.Setting], options: Options,
               environment: environments.Environment,
               progress: progress_lib.Progress) -> None:
  """Runs settings that go together; appends the rows of each as they come."""
  waiting = {selection.setting_id(experiment.name, setting)
             for setting in group}
  progress.start_group(len(group))
  start = time.monotonic()
  state = {'state_dir': options.state_dir} if experiment.keeps_state else {}
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
    options: how.
    out: where to tell of those that have.
    commit: of the code that runs now; None for this process's.

  Raises:
    ValueError: the folder must not be added to.
  """
  finished = _read_finished(experiment, options,
                            commit or environments.commit(), out)
  left = [setting for setting in settings
          if selection.setting_id(experiment.name, setting) not in finished]
  if len(left) < len(settings):
    print(f'{len(settings) - len(left)} of {len(settings)} settings have rows '
          'already', file=out)
  return left


def run_sweep(experiment: registry.Experiment,
              settings: Sequence[selection.Setting], options: Options,
              out: TextIO,
              environment: environments.Environment | None = None) -> Outcome:
  """Runs the settings that have no rows yet.

  Rows are kept as soon as a setting has them: whatever ends this early,
  calling it again does the rest.

  Args:
    experiment: the experiment.
    settings: some of its settings.
    options: how.
    out: where to show progress.
    environment: for the rows and `provenance.json`; None for this process's.

  Raises:
    ValueError: the folder has rows of another configuration, or `run` gave
      rows that are not those of its settings.
  """
  left = pending(experiment, settings, options, out,
                 environment.commit if environment else None)
  if left:
    environment = environment or environments.current()
    os.makedirs(options.output_dir, exist_ok=True)
    provenance.write(
        options.provenance_path, command=options.command,
        configuration=configuration(experiment, smoke=options.smoke),
        commit=environment.commit, device=environment.device,
        versions=environment.versions)
  progress = progress_lib.Progress(len(left), out)
  try:
    for group in selection.groups(left, experiment.batched):
      _run_group(experiment, group, options, environment, progress)
      mappings.drop_programs()
  finally:
    progress.close()
    if options.rows_path.exists():
      records.sort_file(options.rows_path)
  return Outcome(len(settings) - len(left), len(left))
