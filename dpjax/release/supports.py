"""The upper end of a uniform law, from a rank near the top.

The largest value tells of one record. So a point is drawn by the exponential
mechanism around the rank j below the top, far enough that the empty range above
all values is hardly ever chosen, and scaled by what that rank falls short.
Source: item EXT-UNIF-EXP; the law of the rank, and the interval, are ours.

Let q = e^-rate, so that a gap between values k ranks from the wanted one weighs
its length times q^|k|. Gaps of n uniform values are G_k / sum G with G_k
independent and exponential, so that a gap k away is chosen with probability

  E G_k q^|k| / sum_i G_i q^|i| = int_0^oo q^|k| / (1 + s q^|k|)
                                  prod_i 1 / (1 + s q^|i|) ds.

Leaving gaps out of the denominator, the chance of r ranks or more is at most
I_r sum_{k >= r} q^k, I_r the integral of the product over |i| < r; the range
above theta adds (n + 1) (upper / theta - 1) q^j, and rounding to cells of width
u adds (n + 1) (u / theta) q^r, each times I_r. Between r ranks below and above,
order statistics of a uniform law have beta laws.
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

Decimal, Fraction = decimal.Decimal, fractions.Fraction

# Of a millionth of the range: cells so small that hardly any hold two values.
_FINER = Decimal('1e-6')
# Gaps of the denominator on either side, at most.
_WINDOW = 1_000
# Of what may go wrong: the number of records.
_SIZE_MISS = 1 / 20
_POPULATION = ('the upper end theta, between the bounds, of the uniform law on '
               '[0, theta] that the records are independent draws from; '
               'sampling and noise')


@dataclasses.dataclass(frozen=True, kw_only=True)
class SupportMax(queries.Direct):
  """A point of the lattice near the rank j below the top.

  The score of a point is how far j lies from the numbers of values above it and
  not below it: one record more, or another, moves it by 1 at most.

  Attributes:
    query: what is asked; its bounds are those of theta.
    lattice: of the values, from 0 to the upper bound.
  """
  query: Query
  lattice: lattices.Lattice

  reads = 'numbers'

  @property
  def cost(self) -> Cost:
    """Of the number of records, if it is private, and of the point."""
    point = Cost(choices=(2 * self.rate,))
    return point if self.query.knows_size else point + self.count_law.cost(
        l1_sensitivity=1, l2_sensitivity_squared=1)

  @functools.cached_property
  def count_law(self) -> noise.Noise:
    """The noise of the number of records, where it is private."""
    return noise.calibrated(self.query.cost().part(costs.SIZE_SHARE),
                            l1_sensitivity=1, l2_sensitivity_squared=1)

  @functools.cached_property
  def rate(self) -> Fraction:
    """What a score of 1 costs in log-probability."""
    beside = None if self.query.knows_size else self.count_law.cost(
        l1_sensitivity=1, l2_sensitivity_squared=1)
    point, = self.query.choices(1, beside).choices
    return point / 2

  def facts(self) -> dict[str, object]:
    """What is public."""
    return {
        'clamping': 'values are clamped between 0 and the upper bound',
        'missing': self.query.missing_text,
        'granularity': str(self.lattice.granularity),
        'rounding': 'each value to the nearest multiple of the granularity',
        'noise': {'point': {
            'law': 'multiples of the granularity from 0 to the upper bound, '
                   'probability proportional to exp(-rate * score)',
            'score': 'distance of rank_below_top from the numbers of values '
                     'above the point and at or above it',
            'score_sensitivity': '1', 'rate': str(self.rate)}}}

  def measure(self, fields: Iterable[object]) -> list[int]:
    """All values as multiples, sorted."""
    return sorted(map(self.lattice.index, self.query.numbers(
        fields, self.query.lower, self.query.upper)))

  def scores(self, values: list[int], rank: int
             ) -> tuple[list[tuple[int, int]], list[int]]:
    """Runs of points, first and how many, and the score of each run."""
    runs = quantiles.runs(values, self.lattice)
    top = len(values) - rank
    return ([run[:2] for run in runs],
            [max(0, top - upto, under - top) for _, _, under, upto in runs])

  def draw(self, measured: list[int],
           meter: Meter) -> dict[str, object]:
    """The point, and what it says of theta."""
    number, width, told, miss = len(measured), 0, {}, self.query.miss
    if not self.query.knows_size:
      law = self.count_law
      noisy, = meter.noisy([number], law, l1_sensitivity=1,
                           l2_sensitivity_squared=1)
      number = max(1, noisy)
      width, miss = law.half_width(_SIZE_MISS * miss), (1 - _SIZE_MISS) * miss
      told['number'] = {'noisy_count': number, **law.to_json()}
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
    return {**released, 'stages': told}

  def _inside(self, value: float) -> float:
    return min(max(value, float(self.query.lower)), float(self.query.upper))

  def _ranks(self, rank: int) -> dict[str, object]:
    """P(score >= s) <= |points| e^(-rate s), whatever the values."""
    far = math.floor(math.log((self.lattice.high + 1) / self.query.miss)
                     / float(self.rate))
    return queries.interval(
        max(0, rank - far), rank + far, level=self.query.confidence,
        covers='a number between those of the values of the file above the '
               'point, and at or above it; noise only')

  def rank(self, number: int) -> int:
    """j: the least that makes the range above theta as rare as need be.

    Half of the records at most.
    """
    wanted = self.query.miss / 8
    most = max(1, number // 2)
    least = 0
    while most - least > 1:
      middle = (least + most) // 2
      if self._excess(number) * self._inverse(
          middle, number - middle, middle) * math.exp(
              -float(self.rate) * middle) > wanted:
        least = middle
      else:
        most = middle
    return most

  def _excess(self, number: int) -> float:
    """(n + 1) (upper / theta - 1), at most."""
    return (number + 1) * float(self.query.upper / self.query.lower - 1)

  def _inverse(self, r: int, left: int, right: int) -> float:
    """I_r, of gaps within r ranks, and no more on either side than there are.

    The integral in ln s; its integrand is smooth and falls off at both ends.
    """
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
    """Ranks by which the point lies too high, or too low, but with `miss`.

    None if the law does not say, as where there may be fewer records than j:
    the point is then anywhere between the bounds.

    Args:
      miss: of this side.
      sizes: the least and the largest number of records.
      rank: j.
      above: which side.
    """
    rate, (least, number) = float(self.rate), sizes
    cells = (number + 1) * float(self.lattice.unit / Fraction(self.query.lower))
    side = rank if above else number - rank
    outside = self._excess(number) * math.exp(-rate * rank) if above else 0.0

    def chance(r):
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
    """Ends of theta that a point goes with.

    Args:
      point: as drawn.
      rank: j.
      sizes: the least and the largest number of records.
      miss: of both ends.
    """
    least, most = sizes
    half = float(self.lattice.unit) / 2
    up = self.off(miss / 4, sizes, rank, above=True)
    down = self.off(miss / 4, sizes, rank, above=False)
    low, high = float(self.query.lower), float(self.query.upper)
    # So many values are above the order statistics on either side.
    if up is not None:
      low = (point - half) / stats.beta.isf(miss / 4, most - rank + up,
                                            rank - up + 1)
    if down is not None and rank + down <= least:
      high = (point + half) / stats.beta.ppf(
          miss / 4, least - rank - down + 1, rank + down)
    return self._inside(low), self._inside(high)


def support_max(query: Query) -> SupportMax:
  """Of a uniform law from 0 on, whose end is between the bounds."""
  if query.lower <= 0:
    raise ValueError('lower must be positive: theta, the end of a law from 0 '
                     f'on, lies between the bounds, got {query.lower}')
  granularity = query.spacing(0 * query.upper, query.upper)
  if query.granularity is None:
    granularity *= _FINER
  return SupportMax(query=query, lattice=lattices.Lattice(
      lower=Decimal(0), upper=query.upper, granularity=granularity))


STATISTICS = (
    queries.Statistic(
        name='support_max', help='upper end of a uniform law from 0 on, itself '
        'between the bounds', needs=('column', 'lower', 'upper'),
        takes=('granularity', 'missing'), plan=support_max),
)
