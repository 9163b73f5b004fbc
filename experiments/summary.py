"""Statistics of rows: means over seeds and paired tests between methods."""

from collections.abc import Iterable, Mapping, Sequence
import math
from typing import NamedTuple

import numpy as np
from scipy import stats

from dpjax.report import tables
from experiments import records

Key = tuple


class Summary(NamedTuple):
  """Summary statistics of values over seeds.

  Attributes:
    mean: mean of the values.
    standard_error: standard error of the mean (ddof=1); NaN for a single value.
    median: median of the values.
    count: number of values.
  """
  mean: float
  standard_error: float
  median: float
  count: int  # type: ignore[assignment]  # It hides tuple.count.


class Cost(NamedTuple):
  """Privacy cost and run time of runs with equal columns.

  Attributes:
    epsilon: largest epsilon spent by one of the runs.
    seconds: mean run time.
  """
  epsilon: float
  seconds: float


class SignedRank(NamedTuple):
  """Result of Wilcoxon's signed-rank test, two-sided and exact.

  Attributes:
    statistic: the smaller of the two rank sums.
    p_value: probability under the null hypothesis of a statistic at most as
      large.
    count: number of nonzero differences; zeros are dropped.
  """
  statistic: float
  p_value: float
  count: int  # type: ignore[assignment]  # It hides tuple.count.


def summarise(values: Iterable[float]) -> Summary:
  """Returns mean, standard error, median and count of at least one value.

  Examples:
    >>> from experiments import summary
    >>> of = summary.summarise([1.0, 2.0, 3.0, 6.0])
    >>> of.mean, round(of.standard_error, 4), of.median, of.count
    (3.0, 1.0801, 2.5, 4)
  """
  values = np.asarray(list(values), dtype=np.float64)
  if not values.size:
    raise ValueError('there must be at least one value')
  error = (values.std(ddof=1) / math.sqrt(values.size)
           if values.size > 1 else math.nan)
  return Summary(float(values.mean()), float(error),
                 float(np.median(values)), values.size)


def group(rows: Iterable[records.Row], keys: Sequence[str], *,
          metric: str) -> dict[Key, dict[int, float]]:
  """Groups the values of a metric by columns and seed.

  Args:
    rows: the rows.
    keys: columns that define the groups, e.g. ('dataset', 'method').
    metric: name of the metric; other rows are ignored.

  Returns:
    Dictionary (column values) -> seed -> value, sorted.

  Raises:
    ValueError: if a group has two values for a seed, because a mean would mix
      settings that `keys` does not distinguish.
  """
  unknown = sorted(set(keys) - set(records.COLUMNS))
  if unknown:
    raise ValueError(f'no column {", ".join(unknown)}; there are '
                     f'{", ".join(records.COLUMNS)}')
  groups: dict[Key, dict[int, float]] = {}
  for row in rows:
    if row.metric != metric:
      continue
    key = tuple(getattr(row, name) for name in keys)
    values = groups.setdefault(key, {})
    if row.seed in values:
      raise ValueError(f'seed {row.seed} of {metric} occurs twice for '
                       f'{dict(zip(keys, key, strict=True))}: {row.id}')
    values[row.seed] = row.value
  return {key: dict(sorted(groups[key].items())) for key in sorted(groups)}


def over_seeds(rows: Iterable[records.Row], keys: Sequence[str], *,
               metric: str) -> dict[Key, Summary]:
  """Returns the summary over seeds of a metric for each group of `group`."""
  groups = group(rows, keys, metric=metric)
  return {key: summarise(values.values()) for key, values in groups.items()}


def costs(rows: Iterable[records.Row], keys: Sequence[str], *,
          metric: str) -> dict[Key, Cost]:
  """Returns privacy cost and run time for each combination of columns.

  Args:
    rows: rows of any metrics.
    keys: columns that define the groups.
    metric: a metric of which each run has exactly one row.
  """
  groups: dict[Key, list[records.Row]] = {}
  for row in rows:
    if row.metric == metric:
      key = tuple(getattr(row, name) for name in keys)
      groups.setdefault(key, []).append(row)
  return {key: Cost(max(row.epsilon for row in runs),
                    float(np.mean([row.wall_s for row in runs])))
          for key, runs in groups.items()}


def differences(first: Mapping[int, float],
                second: Mapping[int, float]) -> list[float]:
  """Returns first - second for each common seed, in the order of seeds."""
  return [first[seed] - second[seed]
          for seed in sorted(first.keys() & second.keys())]


def _rank_sum_counts(doubled_ranks: Sequence[int]) -> list[int]:
  """Counts the sign vectors with each doubled sum of positive ranks.

  Ranks are doubled to be integers, since mid-ranks of ties are half-integers.
  """
  counts = [1]
  for rank in doubled_ranks:
    padding = [0] * rank
    counts = [skip + take for skip, take
              in zip(counts + padding, padding + counts, strict=True)]
  return counts


def wilcoxon(differences_: Iterable[float]) -> SignedRank:
  """Tests whether paired differences are symmetric about zero (STAT-01).

  The null distribution is uniform over all signs of the observed mid-ranks.
  Without ties the result equals `scipy.stats.wilcoxon(..., method='exact')`.
  With ties, which small test sets cause, SciPy's is not exact and this one is.
  Ten differences without ties reject at 5 % if and only if the statistic is at
  most 8 (p = .0488; 9 gives .0645); their smallest p-value is 1/512.

  Raises:
    ValueError: if a difference is not finite.

  Reference: Wilcoxon (1945). Barczewski (2025, section 5.3.2) uses it with ten
  accuracies per data set and no correction over the seven data sets; `holm`
  gives one.
  """
  values = np.asarray(list(differences_), dtype=np.float64)
  if not np.isfinite(values).all():
    raise ValueError(f'differences must be finite, got {values.tolist()}')
  values = values[values != 0]
  if not values.size:
    return SignedRank(0., 1., 0)
  # Differences such as .9 - .8 and .8 - .7 differ by floating-point rounding
  # but must tie, hence the rounding to 12 digits.
  sizes = np.abs(values)
  ranks = stats.rankdata(np.round(sizes / sizes.max(), 12))
  positive = ranks[values > 0].sum()
  statistic = float(min(positive, ranks.sum() - positive))
  counts = _rank_sum_counts([round(2 * rank) for rank in ranks])
  # Flipping all signs turns the sum into the total minus it, so both tails are
  # equal.
  tail = sum(counts[:round(2 * statistic) + 1])
  return SignedRank(statistic, min(1., 2 * tail / 2**values.size),
                    values.size)


def spreads_are_disjoint(values: Iterable[float],
                         others: Iterable[float]) -> bool:
  """Returns whether the intervals mean +- standard deviation are disjoint.

  This is the significance rule of Lalanne (2023, section 1.3; MIA-11). For two
  sets of three values with equal standard deviations it is a t test of level
  .070, without correction for multiple tests. Use it to compare with the
  printed results only, not to decide.
  """
  values, others = (np.asarray(list(each), np.float64)
                    for each in (values, others))
  spread = values.std(ddof=1) + others.std(ddof=1)
  return bool(abs(values.mean() - others.mean()) > spread)


def holm(p_values: Sequence[float]) -> list[float]:
  """Returns Holm-adjusted p-values of a family of tests, in the given order.

  Rejecting the hypotheses with adjusted p-values at most alpha keeps the
  probability of any false rejection in the family at most alpha.

  Reference: Holm (1979), A simple sequentially rejective multiple test
  procedure.
  """
  if not all(0 <= p_value <= 1 for p_value in p_values):
    raise ValueError(f'p-values must lie in [0, 1], got {list(p_values)}')
  adjusted = [0.] * len(p_values)
  largest = 0.
  order = sorted(range(len(p_values)), key=p_values.__getitem__)
  for place, index in enumerate(order):
    largest = max(largest, (len(p_values) - place) * p_values[index])
    adjusted[index] = min(1., largest)
  return adjusted


def cell(ours: Summary | None, *, digits: int = 3) -> str:
  """Returns 'mean +- standard error'; '-' if `ours` is None."""
  if ours is None:
    return '-'
  mean = tables.number(ours.mean, digits=digits)
  if math.isnan(ours.standard_error):
    return mean
  return f'{mean} +- {tables.number(ours.standard_error, digits=digits)}'
