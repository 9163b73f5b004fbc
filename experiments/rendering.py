"""Makes the table and the figure of an experiment from its rows."""

from collections.abc import Mapping, Sequence
import pathlib

from dpjax.report import files
from dpjax.report import plots
from experiments import engine
from experiments import freshness
from experiments import records
from experiments import registry
from experiments import selection
from experiments import verdicts

TABLE = 'table.md'
FIGURE = 'figure.svg'


def results_dir(root: pathlib.Path, name: str) -> pathlib.Path:
  """Returns the folder of the committed results of an experiment."""
  return root / 'experiments' / name / 'results'


def read(folder: pathlib.Path) -> list[records.Row]:
  """Returns the rows of a folder, sorted; [] if it has no file of rows."""
  path = folder / engine.ROWS
  return records.sort(records.read(path)) if path.exists() else []


def coverage(experiment: registry.Experiment,
             rows: Sequence[records.Row]) -> str:
  """Returns text that says how many settings of the sweep have rows."""
  finished = records.ids(rows)
  declared = {selection.setting_id(experiment.name, setting)
              for setting in experiment.settings}
  text = f'{len(finished & declared)} of {len(declared)} settings'
  num_unknown = len(finished - declared)
  text += f' and {num_unknown} not of this sweep' if num_unknown else ''
  num_older = sum(len(ids)
                  for ids in freshness.older(experiment, rows).values())
  return text + (f', {num_older} of them by older code' if num_older else '')


def names(rows: Sequence[records.Row], column: str) -> str:
  """Returns the distinct values of a column as text, separated by commas."""
  return ', '.join(sorted({getattr(row, column) for row in rows})) or '-'


def _older(experiment: registry.Experiment,
           rows: Sequence[records.Row]) -> str:
  """Returns a note on rows that the present code may not reproduce."""
  return ''.join(
      f'\nOf older code, {len(ids)} settings: {reason}.\n'
      for reason, ids in freshness.older(experiment, rows).items())


def render_table(experiment: registry.Experiment,
                 rows: Sequence[records.Row]) -> str:
  """Returns the text of `table.md`."""
  checked = verdicts.check(experiment.report.verdict(rows))
  return f'''# {experiment.artefact}

{experiment.report.table(rows).strip()}

## Claims

{verdicts.markdown(checked)}
Rows: {coverage(experiment, rows)}, made on {names(rows, 'device')} with
JAX {names(rows, 'jax')} by code {names(rows, 'commit')};
sha256 {records.digest(rows)}.
{_older(experiment, rows)}
Made by `python -m launch.report --experiment={experiment.name}`.
'''


def write_table(experiment: registry.Experiment, folder: pathlib.Path,
                rows: Sequence[records.Row]) -> str:
  """Writes the table into the folder of the rows, and returns its text."""
  table = render_table(experiment, rows)
  files.replace(folder / TABLE, table.encode())
  return table


def documents(experiment: registry.Experiment,
              rows: Sequence[records.Row]) -> Mapping[str, str]:
  """Returns name -> text of further files of a report; mostly none."""
  make = getattr(experiment.report, 'documents', lambda rows: {})
  return make(rows)


def write_figure(experiment: registry.Experiment, folder: pathlib.Path,
                 rows: Sequence[records.Row], *, png: bool = False) -> bool:
  """Draws the figure into the folder of the rows; False if there is none."""
  if not hasattr(experiment.report, 'figure'):
    return False
  plots.save(experiment.report.figure(rows), folder / FIGURE,
             digest=records.digest(rows), png=png)
  return True
