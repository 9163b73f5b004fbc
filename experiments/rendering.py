"""Table and figure of an experiment, made from its rows."""

from collections.abc import Sequence
import pathlib

from dpjax.report import files
from dpjax.report import plots
from dpjax.report import records
from dpjax.report import verdicts
from experiments import engine
from experiments import freshness
from experiments import registry
from experiments import selection

TABLE = 'table.md'
FIGURE = 'figure.svg'


def results_dir(root: pathlib.Path, name: str) -> pathlib.Path:
  """Returns the folder of the committed results of an experiment."""
  return root / 'experiments' / name / 'results'


def read(folder: pathlib.Path) -> list[records.Row]:
  """Returns the rows of a folder, sorted; none if it has no file of rows."""
  path = folder / engine.ROWS
  return records.sort(records.read(path)) if path.exists() else []


def coverage(experiment: registry.Experiment,
             rows: Sequence[records.Row]) -> str:
  """Returns how much of the sweep has rows, in words."""
  done = records.ids(rows)
  known = {selection.setting_id(experiment.name, setting)
           for setting in experiment.settings}
  text = f'{len(done & known)} of {len(known)} settings'
  others = len(done - known)
  text += f' and {others} not of this sweep' if others else ''
  old = sum(len(ids) for ids in freshness.older(experiment, rows).values())
  return text + (f', {old} of them by older code' if old else '')


def names(rows: Sequence[records.Row], column: str) -> str:
  """Returns what stands in a column, in words."""
  return ', '.join(sorted({getattr(row, column) for row in rows})) or '-'


def _older(experiment: registry.Experiment,
           rows: Sequence[records.Row]) -> str:
  """Returns a note on rows that the present code may not give any more."""
  return ''.join(
      f'\nOf older code, {len(ids)} settings: {reason}.\n'
      for reason, ids in freshness.older(experiment, rows).items())


def render_table(experiment: registry.Experiment,
                 rows: Sequence[records.Row]) -> str:
  """Returns the text of `table.md`."""
  found = verdicts.check(experiment.report.verdict(rows))
  return f'''# {experiment.artefact}

{experiment.report.table(rows).strip()}

## Claims

{verdicts.markdown(found)}
Rows: {coverage(experiment, rows)}, made on {names(rows, 'device')} with
JAX {names(rows, 'jax')} by code {names(rows, 'commit')};
sha256 {records.digest(rows)}.
{_older(experiment, rows)}
Made by `python -m launch.report --experiment={experiment.name}`.
'''


def write_table(experiment: registry.Experiment, folder: pathlib.Path,
                rows: Sequence[records.Row]) -> str:
  """Writes the table beside the rows; returns it."""
  table = render_table(experiment, rows)
  files.replace(folder / TABLE, table.encode())
  return table


def write_figure(experiment: registry.Experiment, folder: pathlib.Path,
                 rows: Sequence[records.Row], *, png: bool = False) -> bool:
  """Draws the figure beside the rows; whether the experiment has one."""
  if not hasattr(experiment.report, 'figure'):
    return False
  plots.save(experiment.report.figure(rows), folder / FIGURE,
             digest=records.digest(rows), png=png)
  return True
