"""The share of records with a value, or with a number between bounds.

A record is in one of two cells. Where n is public their counts say the same, so
that one is released; else both are, each with the whole budget, and no budget
goes to n. Intervals of the population invert the law of what is released, a
binomial count plus integer noise, or two of them (`two_counts`), and hold at
every n: no normal law is in them (item EST-BERN-LAP, EXT-GEOM,
EXT-BERN-SHRINK).
"""

from collections.abc import Callable, Iterable, Iterator
import dataclasses
import functools
import math

import numpy as np
from scipy import stats

from dpjax.release import combinations
from dpjax.release import lattice
from dpjax.release import noise
from dpjax.release import query as queries
from dpjax.release import two_counts
from dpjax.release.combinations import Combination
from dpjax.release.costs import Cost
from dpjax.release.meter import Meter
from dpjax.release.query import Query

# Standard deviations of a binomial law on either side that are summed.
_REACH = 12.0
_POPULATION = ('the probability of the value in the law that the records are '
               'independent draws from, where a missing value is another one; '
               'sampling and noise')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proportion(queries.Direct):
  """A noisy count, and one of all other records where n is private.

  Attributes:
    query: what is asked.
    reads: see `query.Plan`.
  """
  query: Query
  reads: str

  # Of both counts together: a record is in one cell, or in one if n is public.
  sensitivity = 1

  @functools.cached_property
  def noise(self) -> noise.Noise:
    """Of each count."""
    return noise.calibrated(self.query.cost(), l1_sensitivity=1,
                            l2_sensitivity_squared=1)

  @property
  def cost(self) -> Cost:
    """Of all that is released."""
    return self.noise.cost(l1_sensitivity=1, l2_sensitivity_squared=1)

  def facts(self) -> dict[str, object]:
    """What is public."""
    return {'unit': '1', 'missing': 'a record without a value is not positive',
            'noise': {'counts': {
                'l1_sensitivity': '1', 'l2_sensitivity_squared': '1',
                **self.noise.to_json()}}}

  def measure(self, fields: Iterable[object]) -> list[int]:
    """The exact counts: positive ones, and all others."""
    found = [0, 0]
    for positive in self._positive(fields):
      found[not positive] += 1
    return found

  def _positive(self, fields: Iterable[object]) -> Iterator[bool]:
    query = self.query
    if query.positive is not None:
      return (lattice.same(field, query.positive) for field in fields)
    return self._between(fields)

  def _between(self, fields: Iterable[object]) -> Iterator[bool]:
    for field in fields:
      value = lattice.number(field)
      yield value is not None and self.query.lower <= value <= self.query.upper

  def draw(self, measured: list[int], meter: Meter) -> dict[str, object]:
    """The share of the file, and that of the population."""
    released = measured[:1] if self.query.replacing else measured
    noisy = meter.noisy(released, self.noise, l1_sensitivity=1,
                        l2_sensitivity_squared=1)
    if self.query.replacing:
      number = sum(measured)
      return {**self._told(noisy[0], number, population_interval(
          noisy[0], number, self.noise, self.query.miss)),
              **self._of_file(noisy, number), 'num_records': number,
              'noisy_counts': {'positive': noisy[0]}}
    number = max(1, sum(noisy))
    return {**self._told(noisy[0], number, two_counts.interval(
        *noisy, self.noise, self.query.miss)),
            **self._of_file(noisy, number),
            'noisy_counts': {'positive': noisy[0], 'other': noisy[1]}}

  def _of_file(self, noisy: list[int], number: int) -> dict[str, object]:
    """The share of the file and its interval; noise only.

    Of no record there is no share: its interval is [0, 1].
    """
    if number < 1:
      return {'value': 0.5, 'interval': queries.interval(
          0, 1, level=self.query.confidence, covers='the share of the records '
          'of the file, which has none')}
    value = min(1.0, max(0.0, noisy[0] / number))
    if len(noisy) == 1:
      width = self.noise.half_width(self.query.miss)
      ends = [min(1.0, max(0, noisy[0] + side * width) / number)
              for side in (-1, 1)]
    else:
      # The positive less a share of all is noise alone, of a known combination.
      ends = combinations.ratio_interval(
          lambda share: ((1 - share) * noisy[0] - share * noisy[1],
                         Combination(law=self.noise,
                                     coefficients=(1 - share, -share))),
          value, (0.0, 1.0), self.query.miss)
    return {'value': value,
            'interval': queries.interval(
                *ends, level=self.query.confidence, covers='the share of the '
                'records of the file; noise only')}

  def _told(self, positive: int, number: int,
            ends: tuple[float, float]) -> dict[str, object]:
    """Estimate of the population, and its interval with these ends."""
    shrunk, risk = shrinkage(max(1, number), self.noise.deviation)
    shrunk = shrunk if number else 0.0  # of no record nothing is known
    value = min(1.0, max(0.0, .5 + shrunk * (positive / max(1, number) - .5)))
    return {
        'population_value': value, 'population_risk': {
            'root_mean_squared_error': math.sqrt(risk),
            'shrinkage': shrunk, 'rule': 'towards 1/2, so that the largest '
            'expected squared error over all probabilities is least'},
        'population_interval': queries.interval(
            *ends, level=self.query.confidence, covers=_POPULATION)}


def shrinkage(number: int, deviation: float) -> tuple[float, float]:
  """How far a noisy share goes towards 1/2 for the least worst-case risk.

  With variance v of the noise of the share, s times the share has a risk of
  s^2 (v + p (1 - p) / n) + (1 - s)^2 (p - 1/2)^2, largest at p = 1/2 or 0.

  Args:
    number: n.
    deviation: of the noise of the count.

  Returns:
    s, and the largest expected squared error, before clipping, which lowers it.
  """
  v = (deviation / number)**2
  s = min(math.sqrt(number) / (1 + math.sqrt(number)), .25 / (v + .25))
  return s, s * s * v + max((1 - s)**2, s * s / number) / 4


def population_interval(count: int, number: int, law: noise.Noise,
                        miss: float) -> tuple[float, float]:
  """Probabilities that a noisy count of so many records goes with.

  Those p for which Bin(n, p) plus noise is as large, and as small, with
  probability miss / 2 or more (Clopper and Pearson 1934, with noise). Coverage
  is 1 - miss at least, at every p and n.

  Args:
    count: noisy, of positive records.
    number: of records, n; public.
    law: of the noise.
    miss: in (0, 1).
  """
  return (
      _end(lambda p: _tail(count, number, p, law) <= miss / 2),
      1 - _end(lambda q: _tail(number - count, number, q, law) <= miss / 2))


def _tail(count: int, number: int, p: float, law: noise.Noise) -> float:
  """P(Bin(n, p) + z >= count), rounded up.

  Of n - Bin(n, p) - z, of the law of Bin(n, 1 - p) + z, it is the other tail.
  """
  middle, reach = number * p, _REACH * math.sqrt(number * p * (1 - p)) + 50
  successes = np.arange(max(0, math.floor(middle - reach)),
                        min(number, math.ceil(middle + reach)) + 1)
  probs = stats.binom.pmf(successes, number, p)
  return float(probs @ law.above(count - successes)) + 1e-12


def _end(refused: Callable[[float], bool]) -> float:
  """The largest p that is refused, nearly; 0 if none is."""
  if not refused(0.0):
    return 0.0
  if refused(1.0):
    return 1.0
  low, high = 0.0, 1.0
  for _ in range(50):
    middle = (low + high) / 2
    low, high = (middle, high) if refused(middle) else (low, middle)
  return low


def proportion(query: Query) -> Proportion:
  """Of a value of a column, or of the numbers between bounds."""
  bounds = query.lower, query.upper
  if (query.positive is None) == (None in bounds) or (
      query.positive is not None and bounds != (None, None)):
    raise ValueError('proportion needs either positive, or lower and upper')
  return Proportion(query=query, reads='texts' if query.positive is not None
                    else 'numbers')


STATISTICS = (
    queries.Statistic(
        name='proportion', help='share of the records with the value positive, '
        'or between the bounds', needs=('column',),
        takes=('positive', 'lower', 'upper'), plan=proportion),
)
