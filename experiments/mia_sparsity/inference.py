"""Tests and intervals over pairs of networks, in closed form or enumerated."""

import collections
from collections.abc import Callable, Mapping, Sequence
import itertools
import math
from typing import NamedTuple

import numpy as np
from scipy import stats

from experiments import summary

CONFIDENCE = 0.95
LEVEL = 0.05

WIDEST_GAP = 0.1
"""Largest difference of accuracies between which defences are interpolated."""

BySeed = Mapping[int, float]
"""Seed -> value of a pair of networks, which all kinds share."""


class Interval(NamedTuple):
  """An estimate with limits.

  Attributes:
    value: the estimate.
    low: lower limit; NaN if there is none.
    high: upper limit; NaN if there is none.
  """
  value: float
  low: float
  high: float

  def text(self, form: str = '{:.2f}') -> str:
    """Returns the value and its limits as text, each in this format."""
    value, low, high = map(form.format, self)
    return value if math.isnan(self.low) else f'{value} [{low}, {high}]'


def t_interval(values: Sequence[float]) -> Interval:
  """Returns the mean with Student's limits; no limits for one value."""
  result = summary.summarise(values)
  if result.count < 2:
    return Interval(result.mean, math.nan, math.nan)
  half = (stats.t.isf((1 - CONFIDENCE) / 2, result.count - 1)
          * result.standard_error)
  return Interval(result.mean, result.mean - half, result.mean + half)


def p_value(differences: Sequence[float], *, one_sided: bool) -> float:
  """Returns the p-value of Student's test that paired differences average 0.

  Args:
    differences: paired differences, one for each seed.
    one_sided: True if only a positive mean is evidence against it.

  Returns:
    The p-value; 1 for fewer than two seeds.
  """
  if len(differences) < 2:
    return 1.0
  mean, error, _, count = summary.summarise(differences)
  if not error:
    ratio = math.copysign(math.inf, mean) if mean else 0.0
  else:
    ratio = mean / error
  if one_sided:
    return float(stats.t.sf(ratio, count - 1))
  return float(2 * stats.t.sf(abs(ratio), count - 1))


def are_disjoint(first: Sequence[float], second: Sequence[float]) -> bool:
  """Returns `summary.spreads_are_disjoint`; False for a single value."""
  return (min(len(first), len(second)) >= 2
          and summary.spreads_are_disjoint(first, second))


def slope(xs: Sequence[float], ys: Sequence[float]) -> float:
  """Returns the least-squares slope of a line through 0; NaN if all x are 0."""
  xs, ys = np.asarray(xs, np.float64), np.asarray(ys, np.float64)
  return float(xs @ ys / (xs @ xs)) if xs.any() else math.nan


def bootstrap(statistic: Callable[[Sequence[int]], float],
              seeds: Sequence[int]) -> Interval:
  """Returns a statistic with its exact bootstrap interval over seeds.

  Every multiset of as many seeds is weighted by its probability, so nothing is
  random. Three seeds have ten multisets, too few: their limits are too narrow.

  Args:
    statistic: function of seeds, which may repeat.
    seeds: the seeds to resample, at most 8.
  """
  if len(seeds) > 8:
    raise ValueError(f'there must be at most 8 seeds, got {len(seeds)}')
  value = statistic(seeds)
  if len(seeds) < 2:
    return Interval(value, math.nan, math.nan)
  result = sorted(
      (statistic(drawn), _multinomial(drawn)) for drawn
      in itertools.combinations_with_replacement(seeds, len(seeds)))
  mass = np.cumsum([weight for _, weight in result])
  tails = (1 - CONFIDENCE) / 2 * mass[-1]
  low = result[int(np.searchsorted(mass, tails))][0]
  high = result[int(np.searchsorted(mass, mass[-1] - tails))][0]
  return Interval(value, low, high)


def _multinomial(drawn: Sequence[int]) -> int:
  """Returns the number of distinct orders of these values."""
  return math.factorial(len(drawn)) // math.prod(
      math.factorial(count) for count in collections.Counter(drawn).values())


class Excess(NamedTuple):
  """An attack on private networks, compared with its ceiling.

  Attributes:
    mean: mean accuracy of the attack over pairs of networks.
    ceiling: upper bound of its expectation.
    standard_error: standard error of the mean.
    p_value: one-sided p-value of the mean, if the expectation is the ceiling.
  """
  mean: float
  ceiling: float
  standard_error: float
  p_value: float


def excess(values: Sequence[float], ceiling: float,
           num_attacked: float) -> Excess:
  """Tests that an expected accuracy is at most its ceiling.

  In a fixed split the m records are m / 2 pairs of a member and a non-member,
  each in random order. A pair that is classified correctly with probability at
  most c adds at most c (1 - c) to the variance of the count. So the mean over K
  equal networks has a standard error of sqrt(c (1 - c) / (m K / 2)). If the
  observed standard error is larger, it is used instead. The two roles of a pair
  count as one network. The tail is that of a normal distribution.

  Args:
    values: one for each pair of networks.
    ceiling: upper bound of the expected accuracy, in [0, 1].
    num_attacked: m, the number of attacked records: members and non-members.
  """
  result = summary.summarise(values)
  sampling = math.sqrt(ceiling * (1 - ceiling)
                       / (num_attacked / 2 * result.count))
  scatter = 0.0 if result.count < 2 else result.standard_error
  error = max(sampling, scatter)
  ratio = (result.mean - ceiling) / error if error else 0.0
  return Excess(result.mean, ceiling, error, float(stats.norm.sf(ratio)))


class Matched(NamedTuple):
  """A network, compared with networks of another kind at its accuracy.

  Attributes:
    differences: seed -> its value minus that of the others.
    gap: the mean of the differences.
  """
  differences: dict[int, float]
  gap: float


def matched(accuracy: float, values: BySeed,
            others: Sequence[tuple[float, BySeed]]) -> Matched | None:
  """Returns a value minus the interpolated value of other networks.

  Args:
    accuracy: accuracy of the network, mean over seeds.
    values: seed -> the compared value of the network, e.g. its defence.
    others: (mean accuracy, seed -> value) of each other network.

  Returns:
    None if the accuracy is outside the range of the others, or between two that
    are more than `WIDEST_GAP` apart, or if no seed is shared.
  """
  places = sorted(others, key=lambda other: other[0])
  for (low, below), (high, above) in itertools.pairwise(places):
    shared = sorted(values.keys() & below.keys() & above.keys())
    if not (low <= accuracy <= high <= low + WIDEST_GAP and shared):
      continue
    weight = (accuracy - low) / (high - low) if high > low else 0.5
    results = {seed: values[seed] - (1 - weight) * below[seed]
             - weight * above[seed] for seed in shared}
    return Matched(results, float(np.mean(list(results.values()))))
  return None
