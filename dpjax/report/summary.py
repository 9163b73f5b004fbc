"""From rows to numbers: means over seeds, and paired tests between methods."""

from collections.abc import Iterable, Mapping, Sequence
import math
from typing import NamedTuple

import numpy as np
from scipy import stats

from dpjax.report import records

Key = tuple


class Summary(NamedTuple):
  """Values over seeds.

  Attributes:
    mean: their mean.
    standard_error: of the mean, with ddof=1; NaN for a single value.
    median: their median.
    count: how many.
  """
  mean: float
  standard_error: float
  median: float
  count: int


class Cost(NamedTuple):
  """What runs with the same columns cost.

  Attributes:
    epsilon: the largest that one of them spent.
    seconds: of one, on average.
  """
  epsilon: float
  seconds: float


class SignedRank(NamedTuple):
  """Wilcoxon's signed-rank test, two-sided and exact.

  Attributes:
    statistic: the smaller of the two rank sums.
    p_value: probability of a statistic at most as large by chance.
    count: differences that are not zero; zeros are dropped.
  """
  statistic: float
  p_value: float
  count: int


def summarise(values: Iterable[float]) -> Summary:
  """Returns mean, standard error, median and count of at least one value."""
  values = np.asarray(list(values), dtype=np.float64)
  if not values.size:
    raise ValueError('there must be at least one value')
  error = (values.std(ddof=1) / math.sqrt(values.size)
           if values.size > 1 else math.nan)
  return Summary(float(values.mean()), float(error),
                 float(np.median(values)), values.size)


def group(rows: Iterable[records.Row], keys: Sequence[str], *,
          metric: str) -> dict[Key, dict[int, float]]:
  """Returns values of a metric by seed, for each combination of columns.

  Args:
    rows: the rows.
    keys: columns to tell groups apart by, e.g. ('dataset', 'method').
    metric: rows of other metrics are left out.

  Returns:
    (column values) -> seed -> value, sorted.

  Raises:
    ValueError: a seed is there twice in a group, so that a mean would mix
      settings that `keys` does not tell apart.
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
      raise ValueError(f'seed {row.seed} of {metric} is there twice for '
                       f'{dict(zip(keys, key, strict=True))}: {row.id}')
    values[row.seed] = row.value
  return {key: dict(sorted(groups[key].items())) for key in sorted(groups)}


def over_seeds(rows: Iterable[records.Row], keys: Sequence[str], *,
               metric: str) -> dict[Key, Summary]:
  """Returns the summary of a metric for each combination of columns."""
  groups = group(rows, keys, metric=metric)
  return {key: summarise(values.values()) for key, values in groups.items()}


def costs(rows: Iterable[records.Row], keys: Sequence[str], *,
          metric: str) -> dict[Key, Cost]:
  """Returns the cost for each combination of columns.

  Args:
    rows: of any metrics.
    keys: names of the columns.
    metric: one that each run has one row of.
  """
  found: dict[Key, list[records.Row]] = {}
  for row in rows:
    if row.metric == metric:
      key = tuple(getattr(row, name) for name in keys)
      found.setdefault(key, []).append(row)
  return {key: Cost(max(row.epsilon for row in runs),
                    float(np.mean([row.wall_s for row in runs])))
          for key, runs in found.items()}


def differences(first: Mapping[int, float],
                second: Mapping[int, float]) -> list[float]:
  """Returns first - second for each seed that both have, by seed."""
  return [first[seed] - second[seed]
          for seed in sorted(first.keys() & second.keys())]


def _rank_sum_counts(doubled_ranks: Sequence[int]) -> list[int]:
  """Returns how many sign vectors give each doubled sum of positive ranks."""
  counts = [1]
  for rank in doubled_ranks:
    padding = [0] * rank
    counts = [skip + take for skip, take
              in zip(counts + padding, padding + counts, strict=True)]
  return counts


def wilcoxon(differences_: Iterable[float]) -> SignedRank:
  """Tests whether paired differences are symmetric about zero (STAT-01).

  The null distribution counts all sign vectors at the mid-ranks that were
  observed. Without ties it is that of `scipy.stats.wilcoxon(...,
  method='exact')`; with ties, which small test sets give, that one is not
  exact and this one is. Ten differences reject at 5 % if and only if the
  statistic is at most 8 (p = .0488; 9 gives .0645); their least p is 1/512.

  Raises:
    ValueError: a difference is not finite.

  Reference: Wilcoxon 1945; thesis 003, section 5.3.2, ten accuracies for each
  data set, without correction over the seven data sets: see `holm`.
  """
  values = np.asarray(list(differences_), dtype=np.float64)
  if not np.isfinite(values).all():
    raise ValueError(f'differences must be finite, got {values.tolist()}')
  values = values[values != 0]
  if not values.size:
    return SignedRank(0., 1., 0)
  # Equal differences of accuracies, .9 - .8 and .8 - .7, are equal only up to
  # rounding, and must still tie.
  sizes = np.abs(values)
  ranks = stats.rankdata(np.round(sizes / sizes.max(), 12))
  positive = ranks[values > 0].sum()
  statistic = float(min(positive, ranks.sum() - positive))
  counts = _rank_sum_counts([round(2 * rank) for rank in ranks])
  # Both tails are equal: the sum of the other signs is the total minus this.
  tail = sum(counts[:round(2 * statistic) + 1])
  return SignedRank(statistic, min(1., 2 * tail / 2**values.size),
                    values.size)


def spreads_are_disjoint(values: Iterable[float],
                         others: Iterable[float]) -> bool:
  """Whether mean +/- standard deviation of two sets do not meet.

  The rule of significance of thesis 000, Section 1.3 (MIA-11). With three
  values on either side of equal spread it is a t test of level .070, without
  correction for being made many times: for comparison with what is printed
  there, not for decisions.
  """
  values, others = (np.asarray(list(each), np.float64)
                    for each in (values, others))
  spread = values.std(ddof=1) + others.std(ddof=1)
  return bool(abs(values.mean() - others.mean()) > spread)


def holm(p_values: Sequence[float]) -> list[float]:
  """Returns p-values adjusted for being a family, in the order given.

  Rejecting those at most alpha keeps the probability of any false rejection
  in the family at most alpha.

  Reference: Holm 1979, A simple sequentially rejective multiple test
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
