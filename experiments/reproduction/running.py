"""Runs the plan of one experiment, and reports on its rows."""

from collections.abc import Sequence
import dataclasses
import os
import pathlib
import time
from typing import Any, TextIO

from dpjax import errors
from dpjax.runs import environment
from dpjax.runs import grouping
from experiments import engine
from experiments import figures
from experiments import freshness
from experiments import records
from experiments import registry
from experiments import rendering
from experiments import selection
from experiments import verdicts
from experiments.reproduction import comparison
from experiments.reproduction import plans

LOG = 'progress.log'


@dataclasses.dataclass
class Outcome:
  """Result of one experiment: plain values, so that it converts to JSON.

  Attributes:
    name: name of the experiment.
    done: number of planned settings that have rows now.
    planned: number of planned settings.
    missing: [data set or 'a package', number of settings that need it, how to
      get it], for each one that is not installed.
    error: error message in one line; '' if it did not fail.
    seconds: wall time of this run.
    cpu_seconds: CPU time of all threads of this run.
    verdicts: the five texts of each verdict.
    compared: comparison with the committed rows, as text.
    different: number of rows that differ from the committed ones.
    changed: a line for each verdict that differs from the committed one.
  """
  name: str
  done: int = 0
  planned: int = 0
  missing: list[list[Any]] = dataclasses.field(default_factory=list)
  error: str = ''
  seconds: float = 0.0
  cpu_seconds: float = 0.0
  verdicts: list[list[str]] = dataclasses.field(default_factory=list)
  compared: str = ''
  different: int = 0
  changed: list[str] = dataclasses.field(default_factory=list)


def run(plan: plans.Plan, output_dir: str | os.PathLike,
        data_dir: str | None = None,
        root: pathlib.Path = environment.ROOT) -> Outcome:
  """Runs the settings that have no rows yet; writes the table and the figure.

  Args:
    plan: plan of the experiment.
    output_dir: the folder `plan.folder` in it gets rows, table, figure and
      provenance.
    data_dir: folder of the data sets; None uses the default of the loaders.
    root: root of the repository, with the committed rows.

  Returns:
    The outcome, also of a failure: only an interrupt is raised.
  """
  start, cpu_start = time.monotonic(), time.process_time()
  folder = pathlib.Path(output_dir) / plan.folder
  outcome = Outcome(plan.name, planned=len(plan.settings))
  try:
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOG, 'a', encoding='utf-8') as log:
      outcome.missing = _run(plan, folder, data_dir, log)
  except Exception as error:  # any error: the other experiments must go on
    outcome.error = f'{type(error).__name__}: {errors.one_line(error)}'
  try:
    _report(plan, folder, root, outcome)
  except Exception as error:
    outcome.error = outcome.error or (f'report: {type(error).__name__}: '
                                  f'{errors.one_line(error)}')
  outcome.seconds = time.monotonic() - start
  outcome.cpu_seconds = time.process_time() - cpu_start
  return outcome


def _run(plan: plans.Plan, folder: pathlib.Path, data_dir: str | None,
         log: TextIO) -> list[list[Any]]:
  """Runs all settings, except those whose data set or package is missing."""
  missing = []
  options = engine.Options(output_dir=folder, data_dir=data_dir,
                           smoke=plan.smoke, command=plan.command)
  unfinished = engine.pending(plan.experiment, plan.settings, options, log)
  for dataset, settings in _by_dataset(unfinished).items():
    try:
      engine.run_sweep(plan.experiment, settings, options, log)
    except FileNotFoundError as error:
      missing.append([dataset, len(settings), errors.one_line(error)])
    except ImportError:
      missing += _one_by_one(plan, settings, options, log)
  return missing


def _one_by_one(plan: plans.Plan, settings: Sequence[selection.Setting],
                options: engine.Options, log: TextIO) -> list[list[Any]]:
  """Runs each group of settings alone: only some need the missing package."""
  missing = []
  unfinished = engine.pending(plan.experiment, settings, options, log)
  for group in grouping.groups(unfinished, plan.experiment.batched):
    try:
      engine.run_sweep(plan.experiment, group, options, log)
    except ImportError as error:
      wanting = engine.pending(plan.experiment, group, options, log)
      missing.append(['a package', len(wanting), errors.one_line(error)])
  return missing


def _by_dataset(settings: Sequence[selection.Setting]
                ) -> dict[str, list[selection.Setting]]:
  """Returns data set -> settings; '' for settings without one."""
  groups: dict[str, list[selection.Setting]] = {}
  for setting in settings:
    groups.setdefault(getattr(setting, 'dataset', ''), []).append(setting)
  return groups


def _report(plan: plans.Plan, folder: pathlib.Path, root: pathlib.Path,
            outcome: Outcome) -> None:
  """Fills in verdicts and comparisons, and writes the table and the figure."""
  rows = rendering.read(folder)
  planned = {selection.setting_id(plan.name, setting)
          for setting in plan.settings}
  outcome.done = len(planned & records.ids(rows))
  results = rendering.results_dir(root, plan.name)
  committed = rendering.read(results)
  outdated = {
      id_ for ids in freshness.older(plan.experiment, committed).values()
      for id_ in ids}
  compared = freshness.compare(
      plan.experiment, rows,
      [row for row in committed if row.id not in outdated])
  outcome.compared = comparison.describe(compared)
  outcome.different = compared.different
  if not rows:
    return
  judged = verdicts.check(plan.experiment.report.verdict(rows))
  outcome.verdicts = [list(verdict) for verdict in judged]
  table = results / rendering.TABLE
  if table.exists():
    outcome.changed = comparison.changed(judged, comparison.outcomes(
        table.read_text(encoding='utf-8')))
  rendering.write_table(registry.with_new_rows(plan.experiment), folder, rows)
  if not _is_fresh(folder / rendering.FIGURE, rows):
    rendering.write_figure(plan.experiment, folder, rows)


def _is_fresh(figure: pathlib.Path, rows: Sequence[records.Row]) -> bool:
  """Returns whether the figure exists and was drawn from these rows."""
  return (figure.exists()
          and figures.read_digest(figure) == records.digest(rows))
