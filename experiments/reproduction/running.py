"""Runs what is planned of one experiment, and reports on its rows."""

from collections.abc import Sequence
import dataclasses
import os
import pathlib
import time
from typing import Any, TextIO

from dpjax import errors
from dpjax.report import plots
from dpjax.report import records
from dpjax.report import verdicts
from experiments import engine
from experiments import environment
from experiments import freshness
from experiments import registry
from experiments import rendering
from experiments import selection
from experiments.reproduction import comparison
from experiments.reproduction import plans

LOG = 'progress.log'


@dataclasses.dataclass
class Outcome:
  """What came of one experiment; plain values, so that it passes as JSON.

  Attributes:
    name: of the experiment.
    done: settings of the plan that have rows now.
    planned: settings of the plan.
    missing: (data set or 'a package', how many settings want it, what to do)
      of those that are not there.
    error: why it failed, a line; '' if it did not.
    seconds: that it took now.
    cpu_seconds: of all threads meanwhile.
    verdicts: five texts of each.
    compared: in words, what the committed rows say.
    different: rows that are not those committed.
    changed: verdicts that are not those committed, a line each.
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
  """Runs the settings that have no rows yet; writes table and figure.

  Args:
    plan: what to run.
    output_dir: a folder in it gets rows, table, figure and provenance.
    data_dir: folder of the data sets; None leaves it to their reader.
    root: of the committed rows.

  Returns:
    What came of it, also if it failed: nothing but an interrupt is raised.
  """
  start, cpu_start = time.monotonic(), time.process_time()
  folder = pathlib.Path(output_dir) / plan.folder
  found = Outcome(plan.name, planned=len(plan.settings))
  try:
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOG, 'a', encoding='utf-8') as log:
      found.missing = _run(plan, folder, data_dir, log)
  except Exception as error:  # whatever it is, other experiments go on
    found.error = f'{type(error).__name__}: {errors.one_line(error)}'
  try:
    _report(plan, folder, root, found)
  except Exception as error:
    found.error = found.error or (f'report: {type(error).__name__}: '
                                  f'{errors.one_line(error)}')
  found.seconds = time.monotonic() - start
  found.cpu_seconds = time.process_time() - cpu_start
  return found


def _run(plan: plans.Plan, folder: pathlib.Path, data_dir: str | None,
         log: TextIO) -> list[list[Any]]:
  """Runs all but what wants a data set or a package that is not there."""
  missing = []
  options = engine.Options(output_dir=folder, data_dir=data_dir,
                           smoke=plan.smoke, command=plan.command)
  left = engine.pending(plan.experiment, plan.settings, options, log)
  for dataset, settings in _by_dataset(left).items():
    try:
      engine.run_sweep(plan.experiment, settings, options, log)
    except FileNotFoundError as error:
      missing.append([dataset, len(settings), errors.one_line(error)])
    except ImportError:
      missing += _one_by_one(plan, settings, options, log)
  return missing


def _one_by_one(plan: plans.Plan, settings: Sequence[selection.Setting],
                options: engine.Options, log: TextIO) -> list[list[Any]]:
  """Runs groups of settings by themselves: some want no other package."""
  missing = []
  left = engine.pending(plan.experiment, settings, options, log)
  for group in selection.groups(left, plan.experiment.batched):
    try:
      engine.run_sweep(plan.experiment, group, options, log)
    except ImportError as error:
      wanting = engine.pending(plan.experiment, group, options, log)
      missing.append(['a package', len(wanting), errors.one_line(error)])
  return missing


def _by_dataset(settings: Sequence[selection.Setting]
                ) -> dict[str, list[selection.Setting]]:
  found: dict[str, list[selection.Setting]] = {}
  for setting in settings:
    found.setdefault(getattr(setting, 'dataset', ''), []).append(setting)
  return found


def _report(plan: plans.Plan, folder: pathlib.Path, root: pathlib.Path,
            found: Outcome) -> None:
  """Verdicts, table and figure of the rows there are, and how they compare."""
  rows = rendering.read(folder)
  ours = {selection.setting_id(plan.name, setting)
          for setting in plan.settings}
  found.done = len(ours & records.ids(rows))
  kept = rendering.results_dir(root, plan.name)
  committed = rendering.read(kept)
  old = {id_ for ids in freshness.older(plan.experiment, committed).values()
         for id_ in ids}
  compared = freshness.compare(
      plan.experiment, rows, [row for row in committed if row.id not in old])
  found.compared = comparison.describe(compared)
  found.different = compared.different
  if not rows:
    return
  judged = verdicts.check(plan.experiment.report.verdict(rows))
  found.verdicts = [list(verdict) for verdict in judged]
  table = kept / rendering.TABLE
  if table.exists():
    found.changed = comparison.changed(judged, comparison.outcomes(
        table.read_text(encoding='utf-8')))
  rendering.write_table(registry.with_new_rows(plan.experiment), folder, rows)
  if not _is_fresh(folder / rendering.FIGURE, rows):
    rendering.write_figure(plan.experiment, folder, rows)


def _is_fresh(figure: pathlib.Path, rows: Sequence[records.Row]) -> bool:
  return (figure.exists()
          and plots.read_digest(figure) == records.digest(rows))
