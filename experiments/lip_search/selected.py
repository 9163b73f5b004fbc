"""Writes and reads the hyperparameters that searches selected.

  python -m experiments.lip_search.selected

writes a file that is computed from the committed rows alone. Other experiments
read it with `fields`.
"""

from collections.abc import Iterable, Sequence
import functools
import json
import pathlib
import sys
from typing import Any

from dpjax.report import files
from experiments import records
from experiments.lip_search import sweep

_RESULTS = pathlib.Path(__file__).parent / 'results'
ROWS = _RESULTS / 'rows.csv'
FILE = _RESULTS / 'selected.json'

_INTEGERS = ('num_steps', 'depth', 'width')
_TEXTS = ('activation', 'optimizer', 'schedule', 'allocation', 'features',
          'loss')
_PREFIX = 'use_'

Selected = dict[str, dict[str, dict[str, Any]]]


def from_rows(rows: Iterable[records.Row]) -> Selected:
  """Returns data set -> method -> values of the selected hyperparameters.

  'score' is the accuracy in cross-validation, with the noise of the search. If
  several splits were searched, the first one is used.
  """
  results: Selected = {}
  owners: dict[tuple[str, str], str] = {}
  chosen: dict[str, str] = {}
  for row in records.sort(rows):
    if row.metric == 'selected_trial':
      chosen[row.id] = f'score_{int(row.value):03d}'
  for row in records.sort(rows):
    if owners.setdefault((row.dataset, row.method), row.id) != row.id:
      continue
    values = results.setdefault(row.dataset, {}).setdefault(
        row.method, {'num_train': row.n})
    if row.metric == 'sampling_prob':
      values['sampling_prob'] = row.value
    elif row.metric == chosen[row.id]:
      values['score'] = row.value
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


def fields(dataset: str, method: str, *, num_train: int) -> dict[str, Any]:
  """Returns the selected fields of a `TrainingConfig`, for as many records.

  Empty if no search was made for this method on this data set.

  Args:
    dataset: name of the data set.
    method: name of the method.
    num_train: training records of a run, which sampling rates refer to.
  """
  values = _read(FILE).get(dataset, {}).get(method)
  if values is None:
    return {}
  chosen = {name: value for name, value in values.items()
            if name not in ('num_train', 'sampling_prob', 'score')}
  batch_size = max(1, round(values['sampling_prob'] * num_train))
  return {**chosen, 'batch_size': float(batch_size)}


def best_by_score(dataset: str, methods: Sequence[str]) -> str | None:
  """Returns the method whose selected trial has the best score, if any has.

  Args:
    dataset: name of the data set.
    methods: names to choose from; those without a search are left out.
  """
  searched = _read(FILE).get(dataset, {})
  return max((method for method in methods if method in searched),
             key=lambda method: searched[method]['score'], default=None)


def datasets() -> list[str]:
  """Returns the names of the data sets for which every method was searched."""
  return [name for name, by_method in sorted(_read(FILE).items())
          if by_method.keys() == set(sweep.METHODS)]


@functools.cache
def _read(path: pathlib.Path) -> Selected:
  """Reads a file of selected hyperparameters; nothing if it is not there."""
  return json.loads(path.read_text()) if path.exists() else {}


def main() -> int:
  """Writes the file; returns the exit status."""
  if not ROWS.exists():
    print(f'{ROWS} is not there; run the sweep first', file=sys.stderr)
    return 2
  files.replace(FILE, render(records.read(ROWS)).encode())
  print(f'wrote {FILE}')
  return 0


if __name__ == '__main__':
  sys.exit(main())
