r"""Mutation testing: plants small faults in a package and runs its tests.

Thirty faults in one package, started by hand on a machine with time to
spare:
  python -m launch.mutate --package=privacy --num=30

Tests are run once without a fault to learn which lines each one executes. For
each fault, the tests that execute its line are run until one fails. Sources are
changed in a scratch copy only. After adding tests, retry the faults that no
test noticed:
  python -m launch.mutate --package=privacy --again

Outcomes are written to --mutants_dir, and survivors are listed in --table. A
survivor that changes nothing is explained in mutants.toml, beside the table:
  [[mutant]]
  file = "dpjax/privacy/additive.py"
  before = "the line as it is"
  after = "the line with the fault"
  reason = "why no test can notice it"

The exit status is 1 if more than 5 % of the mutants that are not equivalent
survive.
"""

import argparse
from collections.abc import Callable, Sequence
import concurrent.futures
import contextlib
import pathlib
import queue
import sys
from typing import Any, NoReturn

from absl.flags import argparse_flags

from dpjax.cli import errors
from launch.mutation import coverage
from launch.mutation import drawing
from launch.mutation import operators
from launch.mutation import outcomes
from launch.mutation import places
from launch.mutation import pool
from launch.mutation import table

_FLAGS = (
    ('package', None, 'Package of the library, or module directly in it, to '
     'mutate.'),
    ('num', 30, 'Number of mutants to draw, each of another line.'),
    ('seed', 0, 'Seed of the draw; another seed gives other mutants.'),
    ('tests', '', 'Files or folders of tests, separated by commas, to run '
     'besides tests/PACKAGE.'),
    ('minutes', 5., 'Minutes after which a mutant counts as surviving if no '
     'test has failed.'),
    ('num_workers', 1, 'Number of processes that run tests in parallel.'),
    ('mutants_dir', 'results/mutants', 'Folder for outcomes, line coverage of '
     'tests and scratch copies; created if missing.'),
    ('table', 'tests/MUTANTS.md', 'Table in which the section of PACKAGE is '
     'replaced; empty for none.'),
    ('library', 'dpjax', 'Name of the library, a folder in --root.'),
    ('root', '.', 'Git repository with the library and its tests.'))


class _Parser(argparse_flags.ArgumentParser):
  """An argument parser whose errors are one line."""

  def error(self, message: str) -> NoReturn:
    """Prints the error and ends the program."""
    print(f'error: {message} (see --help)', file=sys.stderr)
    sys.exit(errors.BAD_INPUT)


def parse(argv: Sequence[str]) -> argparse.Namespace:
  """Parses a command line."""
  parser = _Parser(
      description=__doc__, allow_abbrev=False, conflict_handler='resolve',
      formatter_class=argparse.RawDescriptionHelpFormatter)
  for name, default, text in _FLAGS:
    parser.add_argument(
        f'--{name}', default=default, type=type(default or ''),
        help=f'{text} Default: {default!r}.' if default else text)
  parser.add_argument(
      '--again', action='store_true', help='Retry the survivors of the last '
      'run in --mutants_dir instead of drawing mutants.')
  return parser.parse_args(list(argv[1:]))


class _Workers:
  """A pool of workers that process the items of a list."""

  def __init__(self, place: places.Place, folder: pathlib.Path):
    self._place, self._folder = place, folder
    self._idle: queue.Queue[pool.Worker] = queue.Queue()
    self.all: list[pool.Worker] = []

  def start(self, name: str) -> None:
    """Starts a worker in a folder of its own."""
    self.all.append(pool.Worker(self._place, self._folder / name))
    self._idle.put(self.all[-1])

  def close(self) -> None:
    """Ends all workers."""
    for worker in self.all:
      worker.close()

  def each(self, function: Callable[[pool.Worker, Any], Any],
           items: Sequence[Any]) -> list[Any]:
    """Calls function(worker, item) for all items; returns results in order."""
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
  """Yields a pool of workers, and closes them at the end of the context."""
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
  """Returns outcomes kept from the last run, and the mutants to try."""
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
  """Runs the tests on each mutant and returns the outcomes."""
  def examine(worker, mutant):
    outcome = outcomes.examine(worker, mutant, covered,
                               limit_s=60 * args.minutes)
    print(outcome.line(), flush=True)
    return outcome
  with _workers(place, folder, args.num_workers) as workers:
    # Coverage is of the copy, since the tree may have been edited meanwhile.
    copied = place._replace(root=workers.all[0].root)
    covered = coverage.collect(copied, folder / 'lines', workers.each)
    for test in covered.failed:
      print(f'not used, since it fails or is skipped: {test}', file=sys.stderr)
    outcomes.check_baseline(workers.all[0], covered)
    return workers.each(examine, chosen)


def _place(args: argparse.Namespace) -> places.Place:
  """Returns the package and tests of the flags; raises for bad flags."""
  if not args.package:
    raise ValueError('--package must be given, e.g. --package=privacy')
  for name in ('num', 'num_workers', 'minutes'):
    if not getattr(args, name) > 0:
      raise ValueError(f'--{name} must be > 0, got {getattr(args, name)}')
  place = places.Place(pathlib.Path(args.root).resolve(), args.library,
                       args.package, list(filter(None, args.tests.split(','))))
  # Raises for missing sources or tests before anything is copied.
  place.sources()
  place.tests()
  return place


def main(args: argparse.Namespace) -> int:
  """Draws and tries mutants; returns 1 if too many survive."""
  place = _place(args)
  folder = place.root / args.mutants_dir
  listed = place.root / args.table if args.table else None
  errors.check_folder(str(folder))
  equivalents = []
  if listed:
    errors.check_file(str(listed))
    equivalents = table.read_equivalents(listed.with_name('mutants.toml'))
  path = folder / f'{place.package}.json'
  mutants = drawing.every(place)
  standing, chosen = _choose(place, mutants, path, args)
  tried = standing + _examine(place, folder, chosen, args)
  seed = outcomes.read_seed(path) if args.again else args.seed
  outcomes.write(path, tried, seed)
  section = table.section(place.package, tried, equivalents,
                          num_all=len(mutants), seed=seed)
  print(section)
  if listed:
    table.update(listed, place.package, section)
  bad, harmful = table.survivors(tried, equivalents)
  return int(bad > table.MOST_SURVIVORS * harmful)


if __name__ == '__main__':
  errors.run_main(main, parse)
