r"""Makes one line of the table of records of private accuracy, from nothing.

The entries, the figures they are compared with, and what has rows:
  python -m launch.records --list

One entry: tries its recipes on a validation part of the training set, trains
the best one on the whole training set, tests it once with five seeds, changes
one thing at a time, audits a run by canaries, and prints what it found. Minutes
for the embedded digits:
  python -m launch.records --entry=digits_4
  python -m launch.records --entry=fashion_mnist_3 --data_dir=data

Repeating a command resumes an interrupted one, and takes seconds after a
finished one. Rows are written to --output_dir. The page of all entries there,
and their claims in the form of a leaderboard:
  python -m launch.report --experiment=accuracy_records \
    --rows_dir=results/accuracy_records

To tune an entry, add recipes to its list in
experiments/accuracy_records/entries.py and try them alone:
  python -m launch.records --entry=mnist_2.5 --data_dir=data --part=choose

Hyperparameters are in the ids of rows, so a longer list adds rows; it also has
other final runs. --output_dir=experiments/accuracy_records/results makes the
rows that are committed.
"""

import argparse
from collections.abc import Sequence
import pathlib
import shlex
import signal
import sys
import types

from absl.flags import argparse_flags

from dpjax import errors as checks
from dpjax.cli import errors
from dpjax.report import tables
from experiments import engine
from experiments import records
from experiments import registry
from experiments import rendering
from experiments.accuracy_records import blocks
from experiments.accuracy_records import entries
from experiments.accuracy_records import published

NAME = 'accuracy_records'
PARTS = ('choose', 'final', 'ablation', 'audit')


def parse(argv: Sequence[str]) -> argparse.Namespace:
  """Parses a command line."""
  parser = argparse_flags.ArgumentParser(
      description=__doc__, allow_abbrev=False, conflict_handler='resolve',
      formatter_class=argparse.RawDescriptionHelpFormatter)
  for name, default, text in (
      ('entry', None, f'One of {", ".join(entries.ENTRIES)}.'),
      ('part', None, f'Run only this part, one of {", ".join(PARTS)}. '
       'Default: all of them.'),
      ('output_dir', f'results/{NAME}', 'Folder of the rows; created if '
       f'missing. Default: results/{NAME}.'),
      ('data_dir', None, 'Folder with one folder for each data set. Default: '
       'the environment variable DPJAX_DATA_DIR.')):
    parser.add_argument(f'--{name}', default=default, help=text)
  parser.add_argument('--list', action='store_true', help='Print the entries '
                      'and what has rows, and run nothing.')
  return parser.parse_args(list(argv[1:]))


def _interrupt(signum: int, frame: types.FrameType | None) -> None:
  """Turns a signal into an interrupt."""
  raise KeyboardInterrupt


def _list(rows: Sequence[records.Row]) -> str:
  """Returns a table of the entries."""
  return tables.markdown(
      ('entry', 'data set', 'epsilon', 'best published', 'rows'),
      [(entry.name, entry.dataset, f'{entry.epsilon:g}',
        published.best(entry.dataset, entry.epsilon, entry.delta) or '-',
        blocks.missing(entry, rows)) for entry in entries.ENTRIES.values()])


def _run(args: argparse.Namespace) -> None:
  """Runs the settings of an entry that have no rows yet."""
  experiment = registry.load(NAME)
  only = [f'entry={args.entry}'] + ([f'part={args.part}'] if args.part else [])
  words = ['python', '-m', 'launch.records', f'--entry={args.entry}']
  words += [f'--part={args.part}'] if args.part else []
  engine.run_sweep(
      experiment, engine.select(experiment, only=only),
      engine.Options(
          output_dir=args.output_dir, data_dir=args.data_dir,
          # Ids state all hyperparameters, so rows of a shorter list are valid.
          append_anyway=True, command=shlex.join(words)), sys.stderr)


def main(args: argparse.Namespace) -> int:
  """Makes or lists entries as the flags ask; returns the exit status."""
  folder = pathlib.Path(args.output_dir)
  if args.list:
    print(_list(rendering.read(folder)))
    return 0
  if not args.entry:
    raise ValueError(f'--entry must be one of {", ".join(entries.ENTRIES)}; '
                     '--list shows them')
  checks.check_choice('entry', args.entry, entries.ENTRIES)
  if args.part:
    checks.check_choice('part', args.part, PARTS)
  errors.check_folder(args.output_dir)
  signal.signal(signal.SIGTERM, _interrupt)
  try:
    _run(args)
  except KeyboardInterrupt:
    print('interrupted; no finished row is lost. The same command goes on:\n'
          f'  python -m launch.records {shlex.join(sys.argv[1:])}',
          file=sys.stderr)
    return errors.INTERRUPTED
  print(blocks.block(entries.ENTRIES[args.entry], rendering.read(folder)))
  return 0


if __name__ == '__main__':
  errors.run_main(main, parse)
