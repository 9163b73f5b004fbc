"""What the rows of an entry say: accuracy, privacy, price and audit."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from experiments import records
from experiments import summary
from experiments.accuracy_records.entries import Entry
from experiments.accuracy_records.entries import Recipe
from experiments.summary import Summary


class Audit(NamedTuple):
  """The audited run of an entry.

  Attributes:
    epsilon_lower: lower bound on epsilon at confidence 95 %.
    largest: the bound that perfect guesses would have given.
    num_canaries: number of canaries.
    num_guesses: number of guesses of the best bound.
    num_correct: number of correct ones.
  """
  epsilon_lower: float
  largest: float
  num_canaries: int
  num_guesses: int
  num_correct: int


class Result(NamedTuple):
  """The final runs of an entry.

  Attributes:
    entry: the entry.
    recipe: the recipe of the final runs.
    accuracy: test accuracy over seeds.
    epsilon: largest epsilon of a run, of the event that ran.
    noise_multiplier: of each run.
    num_records: number of training records.
    adjacency: the neighbouring relation.
    seconds: training time of a run, without compilation.
    device: where it ran.
    num_runs: number of runs of the choice, with the earlier ones.
    price: epsilon if the choice is charged.
    audit: the audited run; None if there is none yet.
  """
  entry: Entry
  recipe: Recipe
  accuracy: Summary
  epsilon: float
  noise_multiplier: float
  num_records: int
  adjacency: str
  seconds: float
  device: str
  num_runs: int
  price: float
  audit: Audit | None


def fields(row: records.Row) -> dict[str, str]:
  """Returns the fields of the setting of a row, as they are in its id."""
  return dict(pair.split('=', 1)
              for pair in row.id.split('/', 1)[1].split(','))


def of_part(entry: Entry, rows: Iterable[records.Row], part: str,
            **others: str) -> dict[str, list[records.Row]]:
  """Returns metric -> rows of a part of an entry, in the order of seeds.

  Args:
    entry: the entry.
    rows: rows of any entries.
    part: name of the part.
    **others: further fields of the settings.
  """
  wanted = dict(others, entry=entry.name, part=part)
  result: dict[str, list[records.Row]] = {}
  for row in sorted(rows, key=lambda row: row.seed):
    if wanted.items() <= fields(row).items():
      result.setdefault(row.metric, []).append(row)
  return result


def of(entry: Entry, rows: Sequence[records.Row]) -> Result | None:
  """Returns the result of an entry; None without final runs of its list."""
  final = of_part(entry, rows, 'final', recipe=entry.choice)
  if not final:
    return None
  runs = final['test_accuracy']
  return Result(
      entry=entry, recipe=entry.recipes[int(_first(final, 'chosen'))],
      accuracy=summary.summarise(row.value for row in runs),
      epsilon=max(row.epsilon for row in runs),
      noise_multiplier=_first(final, 'noise_multiplier'),
      num_records=runs[0].n, adjacency=runs[0].adjacency,
      seconds=sum(row.wall_s for row in runs) / len(runs),
      device=runs[0].device,
      num_runs=int(_first(final, 'num_runs_of_choice')),
      price=_first(final, 'epsilon_with_choice'), audit=_audit(entry, rows))


def _audit(entry: Entry, rows: Sequence[records.Row]) -> Audit | None:
  """Returns the audit of the final recipe, if it has rows."""
  found = of_part(entry, rows, 'audit', recipe=entry.choice)
  if not found:
    return None
  return Audit(
      _first(found, 'epsilon_lower'), _first(found, 'largest_epsilon_lower'),
      *(int(_first(found, name))
        for name in ('num_canaries', 'num_guesses', 'num_correct')))


def _first(metrics: Mapping[str, Sequence[records.Row]], name: str) -> float:
  """Returns a metric that is the same for all seeds."""
  return metrics[name][0].value
