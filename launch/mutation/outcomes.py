"""Runs tests on mutants, and stores whether they notice them."""

from collections.abc import Sequence
import json
import pathlib
from typing import NamedTuple

from launch.mutation import coverage
from launch.mutation import operators
from launch.mutation import pool

KILLED = 'killed'
HUNG = 'hung'
SURVIVED = 'survived'
NOT_EXECUTED = 'not executed'


class Outcome(NamedTuple):
  """The result of testing one mutant.

  Attributes:
    mutant: the fault.
    outcome: 'killed' by a failing test; 'hung' if a test took far longer than
      without the fault; 'survived'; or 'not executed' by any test.
    test: id of the test that failed or hung; '' for survivors.
    num_run: number of tests that were started.
    num_tests: number of tests that execute the line; fewer are started if one
      fails or time is up.
    seconds: run time of the tests.
  """
  mutant: operators.Mutant
  outcome: str
  test: str
  num_run: int
  num_tests: int
  seconds: float

  def is_noticed(self) -> bool:
    """Returns whether the tests notice the fault."""
    return self.outcome in (KILLED, HUNG)

  def line(self) -> str:
    """Returns the result in words, with the line before and after."""
    what = {KILLED: f'killed by {self.test}', HUNG: f'hung in {self.test}',
            SURVIVED: f'survived {self.num_run} of {self.num_tests} tests',
            NOT_EXECUTED: 'no test executes it'}[self.outcome]
    mutant = self.mutant
    return (f'{mutant.file}:{mutant.line}: {mutant.operator}: {what} '
            f'({self.seconds:.0f} s)\n  - {mutant.before}\n  + {mutant.after}')


def examine(worker: pool.Worker, mutant: operators.Mutant,
            covered: coverage.Coverage, *, limit_s: float) -> Outcome:
  """Plants a mutant and runs the tests that execute its line.

  A crashing process or tests that cannot be collected also kill the mutant.

  Args:
    worker: runs the tests.
    mutant: the fault.
    covered: the tests that execute each line.
    limit_s: seconds for all tests, after which the mutant survives.
  """
  tests = (covered.of(mutant.file, mutant.line)
           or covered.of(mutant.file, mutant.statement))
  if not tests:
    return Outcome(mutant, NOT_EXECUTED, '', 0, 0, 0.)
  with worker.mutated(mutant):
    answer = worker.watch(tests, covered.seconds, limit_s=limit_s)
  outcome = {'failed': KILLED, 'broken': KILLED, 'hung': HUNG,
             'passed': SURVIVED, 'limit': SURVIVED}[answer['outcome']]
  test = '' if outcome == SURVIVED else answer['test'] or '(a crash)'
  return Outcome(mutant, outcome, test, answer['started'], len(tests),
                 round(answer['seconds'], 1))


def check_baseline(worker: pool.Worker, covered: coverage.Coverage) -> None:
  """Raises a ValueError unless the quickest tests pass without a fault."""
  quickest = sorted(covered.seconds, key=lambda test: covered.seconds[test])[:3]
  if not quickest:
    raise ValueError('no test passes without a fault')
  answer = worker.watch(quickest, covered.seconds, limit_s=600)
  if answer['outcome'] != 'passed':
    raise ValueError(f'without a fault {answer["test"] or quickest[0]} '
                     f'{answer["outcome"]}: {worker.log()[-1000:]}')


def write(path: pathlib.Path, tried: Sequence[Outcome], seed: int) -> None:
  """Writes outcomes and the seed of the draw to a JSON file."""
  path.write_text(json.dumps({'seed': seed, 'outcomes': [
      {**one._asdict(), 'mutant': one.mutant._asdict()} for one in tried]},
      indent=1), encoding='utf-8')


def read(path: pathlib.Path) -> list[Outcome]:
  """Reads outcomes from a file written by `write`."""
  rows = json.loads(path.read_text(encoding='utf-8'))['outcomes']
  return [Outcome(**{**row, 'mutant': operators.Mutant(**row['mutant'])})
          for row in rows]


def read_seed(path: pathlib.Path) -> int:
  """Reads the seed from a file written by `write`."""
  return json.loads(path.read_text(encoding='utf-8'))['seed']
