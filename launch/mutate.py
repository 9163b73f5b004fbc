r"""Plants small faults in one room of the package and runs its tests on each.

Thirty faults in one room, by hand, on a machine with time to spare:
  python -m launch.mutate --room=privacy --num=30

Tests are run once without a fault to learn which lines each one executes; a
fault is shown to the tests that execute its line, until one fails. Sources are
changed in a scratch copy only. After tests have been added, those that no test
noticed are tried again by:
  python -m launch.mutate --room=privacy --again

Outcomes are in --mutants_dir; survivors are listed in --table. A survivor that
changes nothing is explained in mutants.toml, beside the table:
  [[mutant]]
  file = "dpjax/privacy/additive.py"
  before = "the line as it is"
  after = "the line with the fault"
  reason = "why no test can notice it"

Ends with 1 if more than 5 % of the mutants that are not equivalent survive.
"""

import argparse
from collections.abc import Callable, Sequence
import concurrent.futures
import contextlib
import pathlib
import queue
import sys
from typing import Any

from launch import errors
from launch.mutation import coverage
from launch.mutation import drawing
from launch.mutation import operators
from launch.mutation import outcomes
from launch.mutation import places
from launch.mutation import pool
from launch.mutation import table

_FLAGS = (
    ('room', None, 'Subpackage, or module directly in the package, to mutate.'),
    ('num', 30, 'How many mutants to draw, each of another line.'),
    ('seed', 0, 'Of the drawing; another seed gives other mutants.'),
    ('tests', '', 'Files or folders of tests, separated by commas, to run '
     'besides tests/ROOM.'),
    ('minutes', 5., 'A mutant survives when its tests pass for that long.'),
    ('num_workers', 1, 'How many processes run tests at the same time.'),
    ('mutants_dir', 'results/mutants', 'Folder for outcomes, for which test '
     'executes which line, and for scratch copies; made when it is not there.'),
    ('table', 'tests/MUTANTS.md', 'Table whose section of the room is '
     'replaced; empty for none.'),
    ('package', 'dpjax', 'Package to mutate.'),
    ('root', '.', 'Git repository that has the package and its tests.'))


def parse(argv: Sequence[str]) -> argparse.Namespace:
  """Parses a command line."""
  parser = errors.ArgumentParser(
      description=__doc__, allow_abbrev=False, conflict_handler='resolve',
      formatter_class=argparse.RawDescriptionHelpFormatter)
  for name, default, text in _FLAGS:
    parser.add_argument(
        f'--{name}', default=default, type=type(default or ''),
        help=f'{text} Default: {default!r}.' if default else text)
  parser.add_argument(
      '--again', action='store_true', help='Try the survivors of the last run '
      'in --mutants_dir instead of drawing.')
  return parser.parse_args(list(argv[1:]))


class _Workers:
  """Workers that share the items of a list among them."""

  def __init__(self, place: places.Place, folder: pathlib.Path):
    self._place, self._folder = place, folder
    self._idle = queue.Queue()
    self.all = []

  def start(self, name: str) -> None:
    self.all.append(pool.Worker(self._place, self._folder / name))
    self._idle.put(self.all[-1])

  def close(self) -> None:
    for worker in self.all:
      worker.close()

  def each(self, function: Callable[[pool.Worker, Any], Any],
           items: Sequence[Any]) -> list[Any]:
    """Returns what the function of a worker and an item returns, in order."""
    def call(item):
      worker = self._idle.get()
      try:
        return function(worker, item)
      finally:
        self._idle.put(worker)
    with concurrent.futures.ThreadPoolExecutor(len(self.all)) as executor:
      return list(executor.map(call, items))


@contextlib.contextmanager
def _workers(place: places.Place, folder: pathlib.Path, number: int):
  workers = _Workers(place, folder)
  try:
    for k in range(number):
      workers.start(f'worker_{k}')
    yield workers
  finally:
    workers.close()


def _choose(place: places.Place, mutants: Sequence[operators.Mutant],
            path: pathlib.Path, args: argparse.Namespace
            ) -> tuple[list[outcomes.Outcome], list[operators.Mutant]]:
  """Returns outcomes that stand, and the mutants to be tried."""
  if not args.again:
    return [], drawing.draw(place, mutants, num=args.num, seed=args.seed)
  if not path.exists():
    raise ValueError(f'--again: there is no earlier run in {path}')
  earlier = outcomes.read(path)
  return [one for one in earlier if one.is_noticed()], drawing.find_again(
      mutants, [one.mutant for one in earlier if not one.is_noticed()])


def _examine(place: places.Place, folder: pathlib.Path,
             chosen: Sequence[operators.Mutant],
             args: argparse.Namespace) -> list[outcomes.Outcome]:
  def examine(worker, mutant):
    outcome = outcomes.examine(worker, mutant, covered,
                               limit_s=60 * args.minutes)
    print(outcome.line(), flush=True)
    return outcome
  with _workers(place, folder, args.num_workers) as workers:
    # Of the copy: the tree may have been edited since.
    copied = place._replace(root=workers.all[0].root)
    covered = coverage.collect(copied, folder / 'lines', workers.each)
    for test in covered.failed:
      print(f'not used, since it fails or is skipped: {test}', file=sys.stderr)
    outcomes.check_baseline(workers.all[0], covered)
    return workers.each(examine, chosen)


def _place(args: argparse.Namespace) -> places.Place:
  """Returns the room that the flags name; refuses flags that make no sense."""
  if not args.room:
    raise ValueError('--room must be given, e.g. --room=privacy')
  for name in ('num', 'num_workers', 'minutes'):
    if not getattr(args, name) > 0:
      raise ValueError(f'--{name} must be > 0, got {getattr(args, name)}')
  place = places.Place(pathlib.Path(args.root).resolve(), args.package,
                       args.room, list(filter(None, args.tests.split(','))))
  # What is not there is refused before anything is copied.
  place.sources()
  place.tests()
  return place


def main(args: argparse.Namespace) -> int:
  """Draws and tries mutants; 1 if too many survive."""
  place = _place(args)
  folder = place.root / args.mutants_dir
  listed = place.root / args.table if args.table else None
  errors.check_folder(str(folder))
  equivalents = []
  if listed:
    errors.check_file(str(listed))
    equivalents = table.read_equivalents(listed.with_name('mutants.toml'))
  path = folder / f'{place.room}.json'
  mutants = drawing.every(place)
  standing, chosen = _choose(place, mutants, path, args)
  found = standing + _examine(place, folder, chosen, args)
  seed = outcomes.read_seed(path) if args.again else args.seed
  outcomes.write(path, found, seed)
  section = table.section(place.room, found, equivalents,
                          num_all=len(mutants), seed=seed)
  print(section)
  if listed:
    table.update(listed, place.room, section)
  bad, harmful = table.survivors(found, equivalents)
  return int(bad > table.MOST_SURVIVORS * harmful)


if __name__ == '__main__':
  errors.run_main(main, parse)
