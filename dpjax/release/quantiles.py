"""Quantiles by the exponential mechanism over the points of a lattice.

'independent' draws a point for each quantile level with an equal part of the
budget. 'recursive' splits records and levels (`splitting`); m levels cost as
much as ceil(log2(m + 1)) exponential mechanisms. Both have public bounds of
their rank errors, so the method with the smaller one can be chosen for free.
"""

import collections
from collections.abc import Iterable
import dataclasses
import fractions
import functools
import math

from dpjax.release import query as queries
from dpjax.release import splitting
from dpjax.release.costs import Cost
from dpjax.release.lattice import Lattice
from dpjax.release.meter import Meter
from dpjax.release.query import Query

Fraction = fractions.Fraction


def runs(values: list[int], lattice: Lattice, spare: int = 0
         ) -> list[tuple[int, int, int, int]]:
  """Returns runs of points of equal ranks: (first, count, # below, # up to).

  Args:
    values: indices of the records' values on the lattice.
    lattice: lattice of the points.
    spare: number of public values added at each bound; they are counted, not
      listed, because there are many of them where the noise is large.
  """
  counts = collections.Counter(values)
  if spare:
    counts.update({lattice.low: spare})
    counts.update({lattice.high: spare})
  rank_runs, start, rank = [], lattice.low, 0
  for value, count in sorted(counts.items()):
    if value > start:
      rank_runs.append((start, value - start, rank, rank))
    upto = rank + count
    rank_runs.append((value, 1, rank, upto))
    start, rank = value + 1, upto
  if start <= lattice.high:
    rank_runs.append((start, lattice.high + 1 - start, rank, rank))
  return rank_runs


@dataclasses.dataclass(frozen=True, kw_only=True)
class Quantiles(queries.Direct):
  """Points o drawn with probability ~ e^(-rate score(o)), one for each level.

  The score of a point for the quantile level a/b measures the distance of a n
  from b times the numbers of records at or below and strictly below the point:
  max(0, a n - b #{x <= o}, b #{x < o} - a n). It is an integer, and 0 for a
  sample quantile. The budget is divided evenly.

  With `value_interval` two more points are drawn for each level, at ranks that
  lie `spare` below and above: a draw rarely misses its rank by more. So that
  these ranks exist, `spare` public values are added at either bound.

  Attributes:
    query: public parameters of the release.
    lattice: the candidate points.
  """
  query: Query
  lattice: Lattice

  reads = 'numbers'
  method = 'independent'
  limits = 'noise only'

  def sensitivity(self, order: Fraction) -> int:
    """Returns the largest change of any score between neighbours."""
    # One more record moves a n by a, and b times a rank by 0 or b. A replaced
    # one keeps n and moves a rank by 1 at most, or n falls as if it had left.
    a, b = order.numerator, order.denominator
    return b if self.query.replacing else max(a, b - a)

  def rate(self, order: Fraction) -> Fraction:
    """Returns the factor of the score in the log-probability."""
    epsilon, *_ = self.budget.choices
    return epsilon / (2 * self.sensitivity(order))

  @functools.cached_property
  def budget(self) -> Cost:
    """Returns the budget, divided evenly among all points that are drawn."""
    parts = 3 if self.query.value_interval else 1
    return self.query.choices(parts * len(self.query.quantiles))

  @property
  def cost(self) -> Cost:
    """Returns the cost of all points, from the rates they are drawn with."""
    parts = 3 if self.query.value_interval else 1
    return Cost(choices=tuple(2 * self.sensitivity(order) * self.rate(order)
                              for order in self.query.quantiles) * parts)

  def facts(self) -> dict[str, object]:
    """Returns public facts: rules for values, method and noise."""
    return {
        'clamping': 'values outside the public bounds are clamped to them',
        'missing': self.query.missing_text,
        'granularity': str(self.lattice.granularity),
        'rounding': 'each value to the nearest multiple of the granularity',
        'method': self.method, 'noise': self._noise()}

  def _noise(self) -> dict[str, object]:
    """Returns the distribution of the point of each level."""
    return {str(order): {
        'distribution': 'multiples of the granularity between the bounds, '
                        'probability proportional to exp(-rate * score)',
        'score': 'distance of the quantile level times n from the ranks of '
                 'the point, times the denominator of the level',
        'score_sensitivity': str(self.sensitivity(order)),
        'rate': str(self.rate(order))} for order in self.query.quantiles}

  def measure(self, fields: Iterable[object]) -> list[int]:
    """Returns the indices of all values on the lattice, sorted."""
    return sorted(map(self.lattice.index, self.query.numbers(
        fields, self.lattice.lower, self.lattice.upper)))

  def groups(self, values: list[int], spare: int = 0
             ) -> list[tuple[int, int, int, int]]:
    """Returns runs of points of equal ranks, see `runs`."""
    return runs(values, self.lattice, spare)

  def scores(self, groups: list[tuple[int, int, int, int]], order: Fraction,
             number: int, shift: int = 0) -> list[int]:
    """Returns the score of each run, for the rank level * number + shift."""
    b = order.denominator
    target = order.numerator * number + b * shift
    return [max(0, target - b * upto, b * rank - target)
            for _, _, rank, upto in groups]

  def _point(self, values: list[int], order: Fraction, number: int,
             meter: Meter, spare: int = 0, shift: int = 0) -> int:
    """Draws one point; see `scores` for `shift` and `runs` for `spare`."""
    groups = self.groups(values, spare)
    return meter.point([group[:2] for group in groups],
                       self.scores(groups, order, number, shift),
                       rate=self.rate(order),
                       sensitivity=self.sensitivity(order))

  def draw(self, measured: list[int], meter: Meter) -> dict[str, object]:
    """Returns one point for each level, increasing, and their rank errors."""
    number = len(measured)
    values = [float(point * self.lattice.unit)
              for point in self._points(measured, meter)]
    released: dict[str, object] = {'value': dict(zip(
        map(str, self.query.quantiles), values, strict=True))}
    if self.query.knows_size:
      released['num_records'] = number
    if self.query.value_interval:
      released['value_interval'] = self._between(measured, meter)
    return {**released, 'interval': self._ranks(
        number if self.query.knows_size else None)}

  def _points(self, measured: list[int], meter: Meter) -> list[int]:
    """Returns one point for each level, sorted."""
    # Sorting is post-processing, and does not increase the largest rank error.
    return sorted(self._point(measured, order, len(measured), meter)
                  for order in self.query.quantiles)

  def spare(self, order: Fraction) -> int:
    """Returns a bound on the rank error of an interval's end."""
    # There are two ends for each level; all hold at once except with `miss`.
    miss = self.query.miss / (2 * len(self.query.quantiles))
    return math.ceil(self._rank_error(order, miss))

  def _between(self, measured: list[int],
               meter: Meter) -> dict[str, object]:
    """Returns two points for each level, which bracket the sample quantile."""
    brackets = {}
    for order in self.query.quantiles:
      spare = self.spare(order)
      # With `spare` more values below all, the rank of the quantile is p n +
      # `spare`; these points aim `spare` below and above it.
      points = sorted(self._point(measured, order, len(measured), meter, spare,
                                  shift) for shift in (0, 2 * spare))
      brackets[str(order)] = [float(point * self.lattice.unit)
                              for point in points]
    return {'ends': brackets, 'level': float(self.query.confidence),
            'covers': 'for all orders at once: a quantile of the clamped '
                      'values of the file'}

  def _rank_error(self, order: Fraction, miss: float) -> float:
    """Returns a bound of the rank error: P(score >= s) <= |points| e^(-rate s).
    """
    # Some point has the score 0, so the weights sum to 1 or more.
    size = self.lattice.high + 1 - self.lattice.low
    return math.log(size / miss) / float(self.rate(order)) / order.denominator

  def errors(self, number: int | None = None) -> list[float]:
    """Returns bounds [m] on rank errors; P(one is wrong) <= `query.miss`.

    Args:
      number: n if it is public, else None.
    """
    del number
    miss = self.query.miss / len(self.query.quantiles)
    # The largest for all levels, because sorting may exchange points.
    return [max(self._rank_error(order, miss)
                for order in self.query.quantiles)] * len(self.query.quantiles)

  def _ranks(self, number: int | None) -> dict[str, object]:
    """Returns the bound of the rank errors for the release JSON."""
    rank_errors = self.errors(number)
    ranks: dict[str, object] = {
        'rank_error': max(rank_errors), 'level': float(self.query.confidence),
        'covers': 'for all orders p at once: at least p n - rank_error of the '
                  'clamped values of the file are at or below the released '
                  f'one, and at most p n + rank_error below it; {self.limits}'}
    if number is not None:
      number = max(1, number)
      ranks['orders'] = {str(p): [max(0.0, float(p) - error / number),
                                  min(1.0, float(p) + error / number)]
                         for p, error in zip(self.query.quantiles, rank_errors,
                                             strict=True)}
    return ranks


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecursiveQuantiles(Quantiles):
  """Quantiles by recursive splitting of records and levels; see `splitting`."""

  method = 'recursive'
  limits = f'noise only; for files of at most {splitting.PARTS} records'

  @functools.cached_property
  def tree(self) -> splitting.Splitting:
    """Returns the tree of the quantile levels."""
    levels = len(self.query.quantiles).bit_length()
    return splitting.Splitting(
        orders=self.query.quantiles,
        epsilon=sum(self.query.choices(levels).choices, Fraction(0)),
        replacing=self.query.replacing,
        size=self.lattice.high + 1 - self.lattice.low)

  @property
  def cost(self) -> Cost:
    """Returns the cost of all tree levels, each an exponential mechanism."""
    # The nodes of a tree level share each record, so the ranges of their
    # log-ratios add up to that of one mechanism (`splitting`).
    return Cost(choices=self.tree.level_costs)

  def errors(self, number: int | None = None) -> list[float]:
    """Returns bounds [m] of the rank errors, from the tree."""
    return self.tree.errors(self.query.miss, number)

  def _noise(self) -> dict[str, object]:
    """Returns the distribution of the cut of each node."""
    names = ['lower', *map(str, self.query.quantiles), 'upper']
    return {names[node.place]: {
        'distribution': 'cuts between parts of multiples of the granularity, '
                        'probability proportional to exp(-rate * score); the '
                        'multiple that is cut is released',
        'parts': self.tree.parts,
        'between': [names[node.left], names[node.right]],
        'score': 'distance of the parts of records below the cut from '
                 'relative_order of those between, times its denominator',
        'relative_order': str(node.share),
        'score_sensitivity': str(self.tree.sensitivity(node)),
        'rate': str(self.tree.rate(node))} for node in self.tree.nodes}

  def _points(self, measured: list[int], meter: Meter) -> list[int]:
    low = self.lattice.low
    return [low + point for point in self.tree.draw(
        [value - low for value in measured], meter.charged(self.cost))]


def quantiles(query: Query) -> Quantiles:
  """Returns the plan of sample quantiles at given levels.

  Without `quantile_method` it is the one with the smaller bound of rank errors,
  which is public. `value_interval` exists for the independent method only.
  """
  orders = query.quantiles
  if (not all(0 < order < 1 for order in orders) or
      any(a >= b for a, b in zip(orders, orders[1:]))):
    raise ValueError('quantiles must lie strictly between 0 and 1, increasing, '
                     f'got {", ".join(map(str, orders))}')
  method = query.quantile_method or 'auto'
  if query.value_interval and method == 'recursive':
    raise ValueError('value_interval needs quantile_method=independent')
  plans = [plan_class(query=query, lattice=query.lattice())
           for plan_class in (Quantiles, RecursiveQuantiles)]
  if query.value_interval:
    return plans[0]
  if method != 'auto':
    return plans[queries.METHODS.index(method)]
  return min(plans, key=lambda plan: max(plan.errors()))


STATISTICS = (
    queries.Statistic(
        name='quantiles', help='quantiles of the clamped values',
        needs=('column', 'lower', 'upper', 'quantiles'),
        takes=('granularity', 'missing', 'value_interval', 'quantile_method'),
        plan=quantiles),
)
