"""The upper end of a uniform distribution, from a rank near the top.

The largest value depends on one record. So the exponential mechanism draws a
point near the rank j below the top. j is large enough that the empty range
above all values is hardly ever chosen, and the point is scaled up to theta.
Source: the exponential mechanism of ranks (Smith 2011; item EXT-UNIF-EXP); the
distribution of the rank and the interval are derived here.

Let q = e^-rate, so that a gap between values, k ranks from the wanted one, has
a weight of its length times q^|k|. Gaps of n uniform values are G_k / sum G
with independent exponential G_k, so a gap k ranks away is chosen with
probability

  E G_k q^|k| / sum_i G_i q^|i| = int_0^oo q^|k| / (1 + s q^|k|)
                                  prod_i 1 / (1 + s q^|i|) ds.

Leaving gaps out of the denominator, the probability of r ranks or more is at
most I_r sum_{k >= r} q^k, with I_r the integral of the product over |i| < r.
The range above theta adds (n + 1) (upper / theta - 1) q^j, and rounding to
cells of width u adds (n + 1) (u / theta) q^r, each times I_r. The order
statistics r ranks below and above have beta distributions.
"""

from collections.abc import Iterable
import dataclasses
import decimal
import fractions
import functools
import math

import numpy as np
from scipy import stats

from dpjax.release import costs
from dpjax.release import lattice as lattices
from dpjax.release import noise
from dpjax.release import quantiles
from dpjax.release import query as queries
from dpjax.release.costs import Cost
from dpjax.release.meter import Meter
from dpjax.release.query import Query

Decimal = decimal.Decimal
Fraction = fractions.Fraction

# The default granularity is that of other statistics times this, so small that
# hardly two values of the file are equal after rounding.
_FINER = Decimal('1e-6')
# Largest number of gaps on either side that the denominator includes.
_WINDOW = 1_000
# Share of the error probability `miss` for a private number of records.
_SIZE_MISS = 1 / 20
_POPULATION = ('the upper end theta, between the bounds, of the uniform '
               'distribution on [0, theta] that the records are independent '
               'draws from; sampling and noise')


@dataclasses.dataclass(frozen=True, kw_only=True)
class SupportMax(queries.Direct):
  """A point of the lattice near the rank j below the top.

  The score of a point is the distance of j from the numbers of values above it
  and at or above it.

  Attributes:
    query: public parameters of the release, with the bounds of theta.
    lattice: lattice of the values, from 0 to the upper bound.
  """
  query: Query
  lattice: lattices.Lattice

  reads = 'numbers'

  @property
  def cost(self) -> Cost:
    """Returns the cost of the point, and of a private number of records."""
    # One more or one replaced record moves the score by at most 1: ranks count
    # from the top, so n does not matter.
    point = Cost(choices=(2 * self.rate,))
    return point if self.query.knows_size else point + self.count_noise.cost(
        l1_sensitivity=1, l2_sensitivity_squared=1)

  @functools.cached_property
  def count_noise(self) -> noise.Noise:
    """Returns the noise of the number of records, if it is private."""
    return noise.calibrated(self.query.cost().part(costs.SIZE_SHARE),
                            l1_sensitivity=1, l2_sensitivity_squared=1)

  @functools.cached_property
  def rate(self) -> Fraction:
    """Returns the factor of the score in the log-probability."""
    beside = None if self.query.knows_size else self.count_noise.cost(
        l1_sensitivity=1, l2_sensitivity_squared=1)
    point, = self.query.choices(1, beside).choices
    return point / 2

  def facts(self) -> dict[str, object]:
    """Returns public facts: rules for values and noise of the point."""
    return {
        'clamping': 'values are clamped between 0 and the upper bound',
        'missing': self.query.missing_text,
        'granularity': str(self.lattice.granularity),
        'rounding': 'each value to the nearest multiple of the granularity',
        'noise': {'point': {
            'distribution': 'multiples of the granularity from 0 to the upper '
                            'bound, probability proportional to '
                            'exp(-rate * score)',
            'score': 'distance of rank_below_top from the numbers of values '
                     'above the point and at or above it',
            'score_sensitivity': '1', 'rate': str(self.rate)}}}

  def measure(self, fields: Iterable[object]) -> list[int]:
    """Returns the indices of all values on the lattice, sorted."""
    return sorted(map(self.lattice.index, self.query.numbers(
        fields, *self.query.bounds)))

  def scores(self, values: list[int], rank: int
             ) -> tuple[list[tuple[int, int]], list[int]]:
    """Returns runs of points of equal score, and the score of each run.

    Args:
      values: sorted indices of the records on the lattice.
      rank: j.

    Returns:
      (first index, number of points) of each run, and its score.
    """
    runs = quantiles.runs(values, self.lattice)
    # A point has `below` values below it, and `upto` at or below it.
    target = len(values) - rank
    return ([run[:2] for run in runs],
            [max(0, target - upto, below - target)
             for _, _, below, upto in runs])

  def draw(self, measured: list[int],
           meter: Meter) -> dict[str, object]:
    """Returns the point, with an estimate and an interval for theta."""
    number, width, stages, miss = len(measured), 0, {}, self.query.miss
    if not self.query.knows_size:
      noisy, = meter.noisy([number], self.count_noise, l1_sensitivity=1,
                           l2_sensitivity_squared=1)
      number = max(1, noisy)
      width = self.count_noise.half_width(_SIZE_MISS * miss)
      miss *= 1 - _SIZE_MISS
      stages['number'] = {'noisy_count': number, **self.count_noise.to_json()}
    sizes = max(0, number - width), number + width
    rank = self.rank(sizes[1])
    runs, scores = self.scores(measured, rank)
    point = meter.point(runs, scores, rate=self.rate, sensitivity=1)
    unit = float(self.lattice.unit)
    value = point * unit * (number + 1) / max(1, number - rank + .5)
    released = {'value': self._inside(value), 'point': point * unit,
                'rank_below_top': rank, 'interval': self._ranks(rank),
                'population_interval': queries.interval(
                    *self.interval(point * unit, rank, sizes, miss),
                    level=self.query.confidence,
                    covers=_POPULATION + self.query.missing_assumption)}
    if self.query.knows_size:
      return {**released, 'num_records': number}
    return {**released, 'stages': stages}

  def _inside(self, value: float) -> float:
    """Returns a value clamped to the bounds of theta."""
    lower, upper = self.query.bounds
    return min(max(value, float(lower)), float(upper))

  def _ranks(self, rank: int) -> dict[str, object]:
    """Returns the interval of the point's rank below the top.

    By P(score >= s) <= (number of points) e^(-rate s).
    """
    rank_error = math.floor(math.log(
        (self.lattice.high + 1) / self.query.miss) / float(self.rate))
    return queries.interval(
        max(0, rank - rank_error), rank + rank_error,
        level=self.query.confidence,
        covers='a number between those of the values of the file above the '
               'point, and at or above it; noise only')

  def rank(self, number: int) -> int:
    """Returns j: the least rank for which points above theta are rarely drawn.

    Their probability is at most `miss` / 8. j is at most half of the number of
    records.
    """
    most = max(1, number // 2)
    least = 0
    while most - least > 1:
      middle = (least + most) // 2
      if self._excess(number) * self._inverse(
          middle, number - middle, middle) * math.exp(
              -float(self.rate) * middle) > self.query.miss / 8:
        least = middle
      else:
        most = middle
    return most

  def _excess(self, number: int) -> float:
    """Returns an upper bound of (n + 1) (upper / theta - 1)."""
    lower, upper = self.query.bounds
    return (number + 1) * float(upper / lower - 1)

  def _inverse(self, r: int, left: int, right: int) -> float:
    """Returns I_r for a rank with `left` gaps below it and `right` above it."""
    # Over ln s the integrand is smooth and falls off at both ends, so that
    # equal weights are accurate.
    rate, most = float(self.rate), min(r, _WINDOW)
    sides = [np.arange(1, min(most - 1, side) + 1) for side in (left, right)]
    ranks = np.concatenate([[0], *sides])
    if len(ranks) < 3:
      return math.inf
    s = np.linspace(-45, 45, 721)
    logs = s - sum(np.logaddexp(0, s - rate * k) for k in ranks)
    return float(np.sum(np.exp(logs)) * (s[1] - s[0]))

  def off(self, miss: float, sizes: tuple[int, int], rank: int, *, above: bool
          ) -> int | None:
    """Returns by how many ranks at most the point lies above or below rank j.

    None if there is no such bound, as where there may be fewer than j records.

    Args:
      miss: probability that the bound is wrong.
      sizes: the least and the largest number of records.
      rank: j.
      above: True for a point above rank j, False for one below.
    """
    rate, (least, number) = float(self.rate), sizes
    lower, _ = self.query.bounds
    cells = (number + 1) * float(self.lattice.unit / Fraction(lower))
    # Gaps on this side of rank j.
    side = rank if above else number - rank
    outside = self._excess(number) * math.exp(-rate * rank) if above else 0.0

    def chance(r: int) -> float:
      """Bounds the probability of a point r ranks away or more."""
      total = -math.expm1(-rate * (side - r + 1)) / -math.expm1(-rate)
      return self._inverse(r, least - rank, rank) * (
          (total + cells) * math.exp(-rate * r) + outside)

    if side < 2 or least < rank or chance(side) > miss:
      return None
    low, high = 1, side
    while high - low > 1:
      middle = (low + high) // 2
      low, high = (low, middle) if chance(middle) <= miss else (middle, high)
    return high

  def interval(self, point: float, rank: int, sizes: tuple[int, int],
               miss: float) -> tuple[float, float]:
    """Returns the confidence interval for theta from the released point.

    Args:
      point: the released point, in the unit of the column.
      rank: j.
      sizes: the least and the largest number of records.
      miss: probability of missing theta, for both ends together.
    """
    least, most = sizes
    half = float(self.lattice.unit) / 2
    too_high = self.off(miss / 4, sizes, rank, above=True)
    too_low = self.off(miss / 4, sizes, rank, above=False)
    low, high = map(float, self.query.bounds)
    # The point lies between these order statistics, counted from the top.
    if too_high is not None:
      low = (point - half) / stats.beta.isf(miss / 4, most - rank + too_high,
                                            rank - too_high + 1)
    if too_low is not None and rank + too_low <= least:
      high = (point + half) / stats.beta.ppf(
          miss / 4, least - rank - too_low + 1, rank + too_low)
    return self._inside(low), self._inside(high)


def support_max(query: Query) -> SupportMax:
  """Returns the plan of the upper end of a uniform distribution on [0, theta].
  """
  lower, upper = query.bounds
  if lower <= 0:
    raise ValueError('lower must be positive: it bounds theta, the upper end '
                     f'of a distribution on [0, theta], got {lower}')
  granularity = query.spacing(0 * upper, upper)
  if query.granularity is None:
    granularity *= _FINER
  return SupportMax(query=query, lattice=lattices.Lattice(
      lower=Decimal(0), upper=upper, granularity=granularity))


STATISTICS = (
    queries.Statistic(
        name='support_max', help='upper end, between the bounds, of a uniform '
        'distribution from 0', needs=('column', 'lower', 'upper'),
        takes=('granularity', 'missing'), plan=support_max),
)
