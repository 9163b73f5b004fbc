"""The proportion of records with a value, or with a number between bounds.

A record is in one of two cells, positive or other. If n is public, either count
determines the other, so only one is released. Else both are released, each with
the whole budget, and no budget is spent on n. Intervals for the population
invert the exact distribution of the release, a binomial count plus integer
noise, or two such counts (`two_counts`). They hold at every n and use no normal
approximation (items EST-BERN-LAP, EXT-GEOM, EXT-BERN-SHRINK).
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

# Half-width, in standard deviations, of the binomial counts that are summed.
_HALF_RANGE = 12.0
_POPULATION = ('the probability of the value in the distribution that the '
               'records are independent draws from, where a missing value is '
               'another one; sampling and noise')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Proportion(queries.Direct):
  """A noisy count, and a noisy count of other records if n is private.

  Attributes:
    query: public parameters of the release.
    reads: fields that `measure` takes, see `query.Plan`.
  """
  query: Query
  reads: str

  # Sensitivity of all released counts: a record is in one cell; if n is public,
  # replacing a record changes the one released count by at most 1.
  sensitivity = 1

  @functools.cached_property
  def noise(self) -> noise.Noise:
    """Returns the noise of each count."""
    return noise.calibrated(self.query.cost(), l1_sensitivity=1,
                            l2_sensitivity_squared=1)

  @property
  def cost(self) -> Cost:
    """Returns the cost of the release."""
    return self.noise.cost(l1_sensitivity=1, l2_sensitivity_squared=1)

  def facts(self) -> dict[str, object]:
    """Returns public facts: unit, rule for missing values and noise."""
    return {'unit': '1', 'missing': 'a record without a value is not positive',
            'noise': {'counts': {
                'l1_sensitivity': '1', 'l2_sensitivity_squared': '1',
                **self.noise.to_json()}}}

  def measure(self, fields: Iterable[object]) -> list[int]:
    """Returns the exact counts [2]: positive records, and all others."""
    counts = [0, 0]
    for positive in self._positive(fields):
      counts[not positive] += 1
    return counts

  def _positive(self, fields: Iterable[object]) -> Iterator[bool]:
    """Yields whether each record is positive."""
    query = self.query
    if query.positive is not None:
      return (lattice.same(field, query.positive) for field in fields)
    return self._between(fields)

  def _between(self, fields: Iterable[object]) -> Iterator[bool]:
    """Yields whether each field is a number between the bounds."""
    lower, upper = self.query.bounds
    for field in fields:
      value = lattice.number(field)
      yield value is not None and lower <= value <= upper

  def draw(self, measured: list[int], meter: Meter) -> dict[str, object]:
    """Returns the proportions of the file and of the population."""
    # If n is public, it gives the other count for free.
    released = measured[:1] if self.query.replacing else measured
    noisy = meter.noisy(released, self.noise, l1_sensitivity=1,
                        l2_sensitivity_squared=1)
    if self.query.replacing:
      number = sum(measured)
      return {**self._of_population(noisy[0], number, population_interval(
          noisy[0], number, self.noise, self.query.miss)),
              **self._of_file(noisy, number), 'num_records': number,
              'noisy_counts': {'positive': noisy[0]}}
    number = max(1, sum(noisy))
    return {**self._of_population(noisy[0], number, two_counts.interval(
        *noisy, self.noise, self.query.miss)),
            **self._of_file(noisy, number),
            'noisy_counts': {'positive': noisy[0], 'other': noisy[1]}}

  def _of_file(self, noisy: list[int], number: int) -> dict[str, object]:
    """Returns the proportion of the file with its interval; noise only.

    A file without records has no proportion: its interval is [0, 1].
    """
    if number < 1:
      return {'value': 0.5, 'interval': queries.interval(
          0, 1, level=self.query.confidence, covers='the share of the records '
          'of the file, which has none')}
    value = min(1.0, max(0.0, noisy[0] / number))
    if len(noisy) == 1:
      width = self.noise.half_width(self.query.miss)
      low, high = (min(1.0, max(0, noisy[0] + side * width) / number)
                   for side in (-1, 1))
    else:
      # (1 - p) A - p B is noise alone for the file's proportion p: a known
      # combination of the noise of the two counts.
      low, high = combinations.ratio_interval(
          lambda share: ((1 - share) * noisy[0] - share * noisy[1],
                         Combination(noise=self.noise,
                                     coefficients=(1 - share, -share))),
          value, (0.0, 1.0), self.query.miss)
    return {'value': value,
            'interval': queries.interval(
                low, high, level=self.query.confidence, covers='the share of '
                'the records of the file; noise only')}

  def _of_population(self, positive: int, number: int,
                     interval: tuple[float, float]) -> dict[str, object]:
    """Returns the estimate for the population with the given interval."""
    factor, risk = shrinkage(max(1, number), self.noise.deviation)
    factor = factor if number else 0.0  # Without records nothing is known.
    value = min(1.0, max(0.0, .5 + factor * (positive / max(1, number) - .5)))
    return {
        'population_value': value, 'population_risk': {
            'root_mean_squared_error': math.sqrt(risk),
            'shrinkage': factor, 'rule': 'towards 1/2, so that the largest '
            'expected squared error over all probabilities is least'},
        'population_interval': queries.interval(
            *interval, level=self.query.confidence, covers=_POPULATION)}


def shrinkage(number: int, deviation: float) -> tuple[float, float]:
  """Returns the factor that shrinks a noisy proportion towards 1/2.

  It minimises the largest mean squared error over all p.

  Args:
    number: n, public or noisy, at least 1.
    deviation: standard deviation of the noise of the count.

  Returns:
    s, and the largest mean squared error before clipping, which lowers it.
  """
  # With variance v of the noise of the proportion, the factor s has the error
  # s^2 (v + p (1 - p) / n) + (1 - s)^2 (p - 1/2)^2, largest at p = 1/2 or 0.
  v = (deviation / number)**2
  s = min(math.sqrt(number) / (1 + math.sqrt(number)), .25 / (v + .25))
  return s, s * s * v + max((1 - s)**2, s * s / number) / 4


def population_interval(count: int, number: int, count_noise: noise.Noise,
                        miss: float) -> tuple[float, float]:
  """Returns the confidence interval for p of a noisy count of n records.

  It contains all p for which Bin(n, p) plus noise is as large as the count with
  probability at least miss / 2, and as small likewise (Clopper and Pearson
  1934, with noise). The coverage is at least 1 - miss, at every p and n.

  Args:
    count: noisy number of positive records.
    number: n, the public number of records.
    count_noise: distribution of the noise of the count.
    miss: probability of missing p, in (0, 1).
  """
  # A count far outside [0, n] refuses every p, and the interval is one point, 0
  # or 1. Every p has such counts with probability at most miss / 2, so they are
  # among those that may miss p.
  def end(positive: int) -> float:
    return _end(lambda p: _tail(positive, number, p, count_noise) <= miss / 2)

  # The upper end is that of the other value, whose probability is 1 - p.
  return end(count), 1 - end(number - count)


def _tail(count: int, number: int, p: float, count_noise: noise.Noise) -> float:
  """Returns P(Bin(n, p) + z >= count), rounded up.

  The lower tail follows by symmetry: n - Bin(n, p) - z has the distribution of
  Bin(n, 1 - p) + z.
  """
  # 50 more for a p near 0 or 1; 1e-12 for counts left out and for rounding.
  middle = number * p
  half_range = _HALF_RANGE * math.sqrt(number * p * (1 - p)) + 50
  successes = np.arange(max(0, math.floor(middle - half_range)),
                        min(number, math.ceil(middle + half_range)) + 1)
  probs = stats.binom.pmf(successes, number, p)
  return float(probs @ count_noise.above(count - successes)) + 1e-12


def _end(refused: Callable[[float], bool]) -> float:
  """Returns nearly the largest p that is refused; 0 if p = 0 is not."""
  if not refused(0.0):
    return 0.0
  if refused(1.0):
    return 1.0
  low, high = 0.0, 1.0
  for _ in range(50):
    middle = (low + high) / 2
    # `low` stays refused, so no p that is not refused is cut off.
    low, high = (middle, high) if refused(middle) else (low, middle)
  return low


def proportion(query: Query) -> Proportion:
  """Returns the plan of a proportion: of a value, or of a range of numbers."""
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
