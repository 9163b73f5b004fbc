"""Compares rows that were made again with the committed rows."""

from collections.abc import Iterable, Mapping, Sequence
import math
import re
import types
from typing import NamedTuple

from experiments import records
from experiments import verdicts

TOLERANCE = 1e-6
"""Relative tolerance: compilers and processors differ in the last few bits."""
TRAINED = 1e-3
"""Relative tolerance of training results: steps amplify early differences.
An accuracy may differ by one test record."""
_NOISE = 1e-12
_CELL = re.compile(r'(?<!\\)\|')


class Comparison(NamedTuple):
  """Counts from comparing rows with committed rows of the same id and metric.

  Attributes:
    same: number of rows that agree in value and epsilon, within `TOLERANCE`,
      or `TRAINED` for training.
    different: number of rows that do not.
    times: number of rows that measure time, which are not compared.
    unknown: number of rows without a committed row.
    largest: largest relative difference among the compared rows.
    where: 'id metric' of the largest difference; '' if all are equal.
    commits: commits of the committed rows that differ, sorted.
  """
  same: int
  different: int
  times: int
  unknown: int
  largest: float
  where: str
  commits: tuple[str, ...] = ()


def compare(rows: Iterable[records.Row], committed: Iterable[records.Row],
            times: Sequence[str] = (),
            held_out: Mapping[str, int] = types.MappingProxyType({})
            ) -> Comparison:
  """Returns the comparison of rows with committed rows.

  Args:
    rows: new rows.
    committed: committed rows, of any settings.
    times: metrics that measure time, which are left out.
    held_out: id -> number of test records, for settings that train; the
      tolerance `TRAINED` applies to them.
  """
  by_key = {(row.id, row.metric): row for row in committed}
  same = different = timed = unknown = 0
  largest, where = 0.0, ''
  commits = set()
  for row in rows:
    kept = by_key.get((row.id, row.metric))
    if kept is None:
      unknown += 1
    elif row.metric in times:
      timed += 1
    else:
      gap = max(difference(row.value, kept.value),
                difference(row.epsilon, kept.epsilon))
      if gap <= TOLERANCE or row.id in held_out and _is_near(
          row, kept, held_out[row.id]):
        same += 1
      else:
        different += 1
        commits.add(kept.commit)
      if gap > largest:
        largest, where = gap, f'{row.id} {row.metric}'
  return Comparison(same, different, timed, unknown, largest, where,
                    tuple(sorted(commits)))


def _is_near(row: records.Row, kept: records.Row, held_out: int) -> bool:
  """Returns whether two training results agree within the tolerances."""
  if difference(row.epsilon, kept.epsilon) > TOLERANCE:
    return False
  return (difference(row.value, kept.value) <= TRAINED or
          row.metric == 'test_accuracy' and
          abs(row.value - kept.value) * held_out <= 1 + TRAINED)


def difference(first: float, second: float) -> float:
  """Returns the relative difference of two numbers.

  It is 0 for numbers that differ by at most 1e-12, and for two NaN. It is
  infinite if exactly one number is not finite, or the two are unequal and not
  finite.
  """
  if first == second or (math.isnan(first) and math.isnan(second)):
    return 0.0
  gap = abs(first - second)
  if not math.isfinite(gap):
    return math.inf
  return 0.0 if gap <= _NOISE else gap / max(abs(first), abs(second))


def describe(result: Comparison) -> str:
  """Returns a comparison as text: '12 of 12 rows are those committed'."""
  compared = result.same + result.different
  if not compared:
    text = 'no row can be compared with a committed one'
  else:
    text = f'{result.same} of {compared} rows are those committed'
  if result.largest:
    text += f', largest relative difference {result.largest:.1e}'
  if result.different:
    text += (f' ({result.where}), of rows committed by code '
             f'{", ".join(result.commits)}')
  text += f'; {result.times} that measure time left out' if result.times else ''
  return text + (f'; {result.unknown} of other settings' if result.unknown
                 else '')


def outcomes(table: str) -> dict[str, str]:
  """Returns claim -> verdict, from the text of a committed `table.md`."""
  _, _, claims = table.partition('\n## Claims\n')
  lines = [[cell.strip().replace(r'\|', '|') for cell in _CELL.split(line)]
           for line in claims.splitlines() if line.startswith('| ')]
  return {line[1]: line[4] for line in lines[2:]}


def changed(present: Iterable[verdicts.Verdict],
            committed: Mapping[str, str]) -> list[str]:
  """Returns a line for each verdict that differs from the committed one.

  Claims that were not run, or have no committed verdict, are left out.
  """
  return [f'{verdict.claim}: {verdict.verdict}, of all settings '
          f'{committed[verdict.claim]}' for verdict in present
          if verdict.verdict != verdicts.NOT_RUN
          and committed.get(verdict.claim, verdict.verdict) != verdict.verdict]
