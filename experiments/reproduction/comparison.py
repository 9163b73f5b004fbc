"""Whether rows that were made anew are those that are committed."""

from collections.abc import Iterable, Mapping, Sequence
import math
import re
import types
from typing import NamedTuple

from dpjax.report import records
from dpjax.report import verdicts

TOLERANCE = 1e-6
"""Relative; what compilers and processors differ in is a few last bits."""
TRAINED = 1e-3
"""The same of what training gives: its steps pass on what the first differ in.
An accuracy may differ by one of the records it is of."""
_NOISE = 1e-12
_CELL = re.compile(r'(?<!\\)\|')


class Comparison(NamedTuple):
  """Rows beside those of the same setting and metric that are committed.

  Attributes:
    same: how many are equal within `TOLERANCE`, or `TRAINED`, in value and
      epsilon.
    different: how many are not.
    times: how many measure time and are not compared.
    unknown: how many have no committed row.
    largest: relative difference of the compared.
    where: 'id metric' of the largest; '' where all are equal.
    commits: of the code that made the committed rows which differ, sorted.
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
  """Compares rows with committed ones.

  Args:
    rows: made anew.
    committed: rows of whichever settings.
    times: metrics that are left out.
    held_out: ids of settings that train, which `TRAINED` is for, with the
      number of records that their accuracies are of.
  """
  known = {(row.id, row.metric): row for row in committed}
  same = different = timed = unknown = 0
  largest, where = 0.0, ''
  commits = set()
  for row in rows:
    other = known.get((row.id, row.metric))
    if other is None:
      unknown += 1
    elif row.metric in times:
      timed += 1
    else:
      gap = max(difference(row.value, other.value),
                difference(row.epsilon, other.epsilon))
      if gap <= TOLERANCE or row.id in held_out and _is_near(
          row, other, held_out[row.id]):
        same += 1
      else:
        different += 1
        commits.add(other.commit)
      if gap > largest:
        largest, where = gap, f'{row.id} {row.metric}'
  return Comparison(same, different, timed, unknown, largest, where,
                    tuple(sorted(commits)))


def _is_near(row: records.Row, other: records.Row, held_out: int) -> bool:
  """Whether two results of training differ no more than machines may."""
  if difference(row.epsilon, other.epsilon) > TOLERANCE:
    return False
  return (difference(row.value, other.value) <= TRAINED or
          row.metric == 'test_accuracy' and
          abs(row.value - other.value) * held_out <= 1 + TRAINED)


def difference(first: float, second: float) -> float:
  """Returns the relative difference of two numbers.

  Numbers that differ by 1e-12 or less, and two NaN, do not differ; of numbers
  of which one is not finite the difference is infinite.
  """
  if first == second or (math.isnan(first) and math.isnan(second)):
    return 0.0
  gap = abs(first - second)
  if not math.isfinite(gap):
    return math.inf
  return 0.0 if gap <= _NOISE else gap / max(abs(first), abs(second))


def describe(found: Comparison) -> str:
  """Returns e.g. '12 of 12 rows are those committed'."""
  compared = found.same + found.different
  if not compared:
    text = 'no row can be compared with a committed one'
  else:
    text = f'{found.same} of {compared} rows are those committed'
  if found.largest:
    text += f', largest relative difference {found.largest:.1e}'
  if found.different:
    text += (f' ({found.where}), of rows committed by code '
             f'{", ".join(found.commits)}')
  text += f'; {found.times} that measure time left out' if found.times else ''
  return text + (f'; {found.unknown} of other settings' if found.unknown
                 else '')


def outcomes(table: str) -> dict[str, str]:
  """Returns claim -> outcome, of the text of a committed `table.md`."""
  _, _, claims = table.partition('\n## Claims\n')
  lines = [[cell.strip().replace(r'\|', '|') for cell in _CELL.split(line)]
           for line in claims.splitlines() if line.startswith('| ')]
  return {line[1]: line[4] for line in lines[2:]}


def changed(found: Iterable[verdicts.Verdict],
            committed: Mapping[str, str]) -> list[str]:
  """Returns a line for each verdict that is not the committed one.

  Claims that are not run, or not known, are left out.
  """
  return [f'{verdict.claim}: {verdict.verdict}, of all settings '
          f'{committed[verdict.claim]}' for verdict in found
          if verdict.verdict != verdicts.NOT_RUN
          and committed.get(verdict.claim, verdict.verdict) != verdict.verdict]
