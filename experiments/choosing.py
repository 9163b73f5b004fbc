"""States what a choice from the private runs of a sweep would cost."""

from collections.abc import Sequence
import math

from dpjax.privacy import tuning
from dpjax.privacy.notions import ApproxDP
from experiments import records


def lines(rows: Sequence[records.Row]) -> list[str]:
  """Returns a sentence for each data set on which several runs were private.

  Rows have the epsilon of each run by itself. Whoever keeps the best run, or
  publishes all of them, releases all: the composition of their guarantees. A
  random number of runs is cheaper, see `dpjax.privacy.tuning`.

  Args:
    rows: rows of a sweep; those of one setting share an id and a guarantee.
  """
  runs: dict[tuple[str, str], dict[str, ApproxDP]] = {}
  for row in rows:
    if row.epsilon_valid and 0 < row.epsilon < math.inf and row.delta < 1:
      runs.setdefault((row.dataset, row.adjacency), {})[row.id] = ApproxDP(
          epsilon=row.epsilon, delta=row.delta)
  return [_line(dataset, list(each.values()))
          for (dataset, _), each in sorted(runs.items())
          if len(each) > 1 and sum(run.delta for run in each.values()) < 1]


def _line(dataset: str, runs: Sequence[ApproxDP]) -> str:
  """Returns the sentence for the runs on one data set."""
  total = tuning.all_runs_guarantee(runs)
  most = max(run.epsilon for run in runs)
  return (f'{dataset or "all records"}: the choice of the best of these '
          f'{len(runs)} private runs, of epsilon up to {most:.3g} each, would '
          f'cost epsilon {total.epsilon:.3g} at delta {total.delta:.2g} in all;'
          ' rows report each run as if the others had not been made')
