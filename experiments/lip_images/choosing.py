"""Chooses hyperparameters of the small networks on a validation fold.

  python -m experiments.lip_images.choosing --data_dir=data

For each data set and method of the profile 'cpu', nine candidates are trained
once on four fifths of the training records and scored on the last fifth: three
learning rates, times three sizes of what bounds a gradient, the clip norm or
the norm of weights. The publisher's test part is not read. The budget is the
middle one of the profile. The result is written to results/chosen.json with all
scores, and `hyperparameters` reads it. What is there already is kept, so that
an interrupted command can be repeated.
"""

import argparse
from collections.abc import Callable, Mapping
import dataclasses
import itertools
import json
import pathlib
import sys
from typing import Any

from absl import app
from absl.flags import argparse_flags

from dpjax.data import images
from dpjax.data import registry
from dpjax.report import files
from dpjax.report import progress as progress_lib
from dpjax.runs import training
from experiments.lip_images import hyperparameters
from experiments.lip_images import run
from experiments.lip_images import sweep

_FACTORS = (0.5, 1.0, 2.0)
_CLIP_NORMS = (0.1, 0.3, 1.0)
_FOLDS = 5


def cells() -> list[sweep.Setting]:
  """Returns one setting for each data set and method, at the middle budget."""
  by_cell: dict[tuple[str, str], list[sweep.Setting]] = {}
  for setting in sweep.SETTINGS:
    if setting.profile == 'cpu' and setting.seed == 0:
      by_cell.setdefault((setting.dataset, setting.method), []).append(setting)
  return [each[len(each) // 2] for each in by_cell.values()]


def candidates(setting: sweep.Setting) -> list[dict[str, float]]:
  """Returns the fields that are tried, around those of all data sets."""
  fields = hyperparameters.fields(setting, chosen={})
  rates = [factor * fields['learning_rate'] for factor in _FACTORS]
  if setting.method == 'sgd':
    return [dict(learning_rate=rate) for rate in rates]
  if 'weight_norm' in fields:
    name, values = 'weight_norm', [
        factor * fields['weight_norm'] for factor in _FACTORS]
  else:
    name, values = 'clip_norm', list(_CLIP_NORMS)
  return [{'learning_rate': rate, name: value}
          for rate, value in itertools.product(rates, values)]


def choose(setting: sweep.Setting, dataset: images.ImageDataset,
           on_progress: Callable[[float], None]) -> dict[str, Any]:
  """Trains the candidates; returns the best one's fields, and all scores."""
  scored: list[dict[str, Any]] = []
  tried = candidates(setting)
  for changes in tried:
    config = dataclasses.replace(
        run.config(setting, chosen={}), fold=0, num_folds=_FOLDS, **changes)
    result, = training.train([config], dataset=dataset)
    scored.append(dict(fields=changes, score=result.test_accuracy))
    on_progress(len(scored) / len(tried))
  best = max(scored, key=lambda each: each['score'])
  return dict(fields=best['fields'], candidates=scored)


def render(chosen: Mapping[str, Any]) -> str:
  """Returns the text of the file."""
  return json.dumps(chosen, indent=2, sort_keys=True) + '\n'


def main(args: argparse.Namespace) -> int:
  """Runs what is missing; returns the exit status."""
  path = pathlib.Path(args.output)
  chosen = json.loads(path.read_text()) if path.exists() else {}
  missing = [setting for setting in cells()
             if setting.method not in chosen.get(setting.dataset, {})]
  progress = progress_lib.Progress(len(missing), sys.stderr)
  for setting in missing:
    progress.start_group(1)
    dataset = registry.load(setting.dataset, data_dir=args.data_dir)
    chosen.setdefault(setting.dataset, {})[setting.method] = choose(
        setting, dataset, lambda share, name=setting.method: progress.fraction(
            share, name))
    files.replace(path, render(chosen).encode())
    progress.finish()
  progress.close()
  print(f'wrote {path}')
  return 0


def parse(argv: list[str]) -> argparse.Namespace:
  """Parses the words of a command line, of which the first is a name."""
  parser = argparse_flags.ArgumentParser(
      description=__doc__, allow_abbrev=False,
      formatter_class=argparse.RawDescriptionHelpFormatter)
  parser.add_argument('--data_dir', help='Folder with one folder for each data '
                      'set. Default: the environment variable DPJAX_DATA_DIR.')
  parser.add_argument('--output', default=str(hyperparameters.CHOSEN),
                      help='The file. Default: the committed one.')
  return parser.parse_args(argv[1:])


if __name__ == '__main__':
  app.run(lambda args: sys.exit(main(args)), flags_parser=parse)
