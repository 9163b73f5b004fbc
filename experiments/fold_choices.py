"""Chooses hyperparameters on validation folds and stores the choice.

A cell is a data set and a method. Each of its candidates trains once on four
fifths of the training records and is scored on the last fifth; test records are
not read. The result is a file with all scores: data set -> method -> the fields
of the best candidate, and the candidates. Cells that the file has are kept, so
that an interrupted command can be repeated.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
import dataclasses
import json
import pathlib
import sys
from typing import Any

from absl.flags import argparse_flags

from dpjax.data import registry
from dpjax.report import files
from dpjax.report import progress as progress_lib
from dpjax.runs import building
from dpjax.runs import configuration
from dpjax.runs import training

_FOLDS = 5

Choices = Mapping[str, Mapping[str, Mapping[str, Any]]]


@dataclasses.dataclass(frozen=True)
class Cell:
  """Candidates for one method on one data set.

  Attributes:
    method: name of the method in the file.
    config: configuration that the candidates change.
    candidates: fields of a `TrainingConfig` and their values, one mapping for
      each candidate.
  """
  method: str
  config: configuration.TrainingConfig
  candidates: Sequence[Mapping[str, float]]


def choose(cell: Cell, dataset: building.Dataset,
           on_progress: Callable[[float], None]) -> dict[str, Any]:
  """Trains the candidates; returns the fields of the best, and all scores."""
  scored: list[dict[str, Any]] = []
  for changes in cell.candidates:
    config = dataclasses.replace(cell.config, fold=0, num_folds=_FOLDS,
                                 **changes)
    result, = training.train([config], dataset=dataset)
    scored.append(dict(fields=dict(changes), score=result.test_accuracy))
    on_progress(len(scored) / len(cell.candidates))
  best = max(scored, key=lambda each: each['score'])
  return dict(fields=best['fields'], candidates=scored)


def read(path: pathlib.Path) -> Choices:
  """Returns the content of a file; nothing if it is not there."""
  return json.loads(path.read_text()) if path.exists() else {}


def fields(choices: Choices, dataset: str, method: str) -> Mapping[str, Any]:
  """Returns the chosen fields; nothing if none were chosen."""
  return choices.get(dataset, {}).get(method, {}).get('fields', {})


def render(choices: Choices) -> str:
  """Returns the text of the file."""
  return json.dumps(choices, indent=2, sort_keys=True) + '\n'


def main(cells: Sequence[Cell], args: argparse.Namespace) -> int:
  """Chooses for the cells that the file lacks; returns the exit status."""
  path = pathlib.Path(args.output)
  chosen = json.loads(path.read_text()) if path.exists() else {}
  missing = [cell for cell in cells
             if cell.method not in chosen.get(cell.config.dataset, {})]
  progress = progress_lib.Progress(len(missing), sys.stderr)
  for cell in missing:
    progress.start_group(1)
    name = cell.config.dataset
    dataset = registry.load(name, data_dir=args.data_dir)
    chosen.setdefault(name, {})[cell.method] = choose(
        cell, dataset, lambda share, method=cell.method: progress.fraction(
            share, method))
    files.replace(path, render(chosen).encode())
    progress.finish()
  progress.close()
  print(f'wrote {path}')
  return 0


def parse(argv: list[str], *, description: str, output: pathlib.Path
          ) -> argparse.Namespace:
  """Parses the words of a command line, of which the first is a name.

  Args:
    argv: the words.
    description: text for --help.
    output: the committed file, the default of --output.
  """
  # Flags of the same names are taken over from absl where a caller has imported
  # a module that defines them.
  parser = argparse_flags.ArgumentParser(
      description=description, allow_abbrev=False, conflict_handler='resolve',
      formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument('--data_dir', help='Folder with one folder for each data '
                      'set. Default: the environment variable DPJAX_DATA_DIR.')
  parser.add_argument('--output', default=str(output),
                      help='The file. Default: the committed one.')
  return parser.parse_args(argv[1:])
