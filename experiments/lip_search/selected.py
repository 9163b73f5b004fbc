"""Writes the selected hyperparameters, for `dpjax.runs.recipes` to read.

  python -m experiments.lip_search.selected

The file is computed from the committed rows alone. Without it, recipes use the
same hyperparameters for all data sets.
"""

from collections.abc import Iterable
import json
import pathlib
import sys
from typing import Any

from dpjax.report import files
from dpjax.runs import recipes
from experiments import records

ROWS = pathlib.Path(__file__).parent / 'results' / 'rows.csv'

_INTEGERS = ('num_steps', 'depth', 'width')
_TEXTS = ('activation', 'optimizer', 'schedule', 'allocation')
_PREFIX = 'use_'

Selected = dict[str, dict[str, dict[str, Any]]]


def from_rows(rows: Iterable[records.Row]) -> Selected:
  """Returns data set -> method -> values of the selected hyperparameters.

  If several splits were searched, the first one is used.
  """
  results: Selected = {}
  owners: dict[tuple[str, str], str] = {}
  for row in records.sort(rows):
    if owners.setdefault((row.dataset, row.method), row.id) != row.id:
      continue
    values = results.setdefault(row.dataset, {}).setdefault(
        row.method, {'num_train': row.n})
    if row.metric == 'sampling_prob':
      values['sampling_prob'] = row.value
    elif row.metric.startswith(_PREFIX):
      name, value = _parse(row.metric.removeprefix(_PREFIX), row.value)
      values[name] = value
  return results


def _parse(text: str, value: float) -> tuple[str, Any]:
  for name in _TEXTS:
    if text.startswith(f'{name}_'):
      return name, text.removeprefix(f'{name}_')
  return text, int(value) if text in _INTEGERS else value


def render(rows: Iterable[records.Row]) -> str:
  """Returns the text of the file of selected hyperparameters."""
  return json.dumps(from_rows(rows), indent=2, sort_keys=True) + '\n'


def main() -> int:
  """Writes the file; returns the exit status."""
  if not ROWS.exists():
    print(f'{ROWS} is not there; run the sweep first', file=sys.stderr)
    return 2
  files.replace(recipes.SELECTED, render(records.read(ROWS)).encode())
  print(f'wrote {recipes.SELECTED}')
  return 0


if __name__ == '__main__':
  sys.exit(main())
