"""The distribution function of a column, at all thresholds of a public grid."""

from collections.abc import Iterable, Mapping
import dataclasses
import functools
import math

import numpy as np

from dpjax.release import bands
from dpjax.release import grids
from dpjax.release import query as queries
from dpjax.release.costs import Cost
from dpjax.release.meter import Meter
from dpjax.release.query import Query
from dpjax.release.trees import Tree

BINS = 'bin j holds what is above threshold j - 1 and up to threshold j'


def grid_query(query: Query, thresholds: grids.Thresholds) -> Query:
  """The query with what it leaves open told: equal releases are one."""
  grid = {} if query.bins else {'thresholds': len(thresholds.points),
                                'grid': query.grid or 'uniform'}
  return dataclasses.replace(query, confidence=Query.confidence,
                             **grid)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curve:
  """Counts of the bins of a grid in a tree, and what is read off them.

  Attributes:
    query: what is asked.
    thresholds: public.
  """
  query: Query
  thresholds: grids.Thresholds

  reads = 'numbers'

  @property
  def asked(self) -> Query:
    """Of any confidence."""
    return grid_query(self.query, self.thresholds)

  @functools.cached_property
  def tree(self) -> Tree:
    """Of the bins."""
    return Tree(num_bins=len(self.thresholds.points), num_classes=1,
                cost=self.query.cost(), replacing=self.query.replacing,
                known=self.query.knows_size)

  @property
  def cost(self) -> Cost:
    """Of all nodes."""
    return self.tree.spent

  def facts(self) -> dict[str, object]:
    """What is public."""
    return {'clamping': 'values outside the public bounds are clamped to them',
            'missing': self.query.missing_text, 'bins': BINS,
            **self.tree.facts()}

  def measure(self, fields: Iterable[object]) -> list[int]:
    """The exact counts of bins."""
    counts = [0] * self.tree.num_bins
    for value in self.query.numbers(fields, self.thresholds.lower,
                                    self.thresholds.upper):
      counts[self.thresholds.bin(value)] += 1
    return counts

  def draw(self, measured: list[int], meter: Meter) -> dict[str, object]:
    """Noisy counts of nodes."""
    return drawn(self.tree, measured, meter)

  def view(self, released: Mapping[str, object]) -> dict[str, object]:
    """The curve, in shares and in numbers, with bands for the file."""
    fit, miss = bands.Fit(self.tree, released), self.query.miss
    band, inner = fit.bands(miss, miss / 2)
    # Of no record the curve says nothing: shares that are off by 1 at most.
    least = inner.lower[0, 0, -1] if fit.total is None else fit.total
    # Dvoretzky, Kiefer and Wolfowitz 1956; the constant: Massart 1990.
    far = math.sqrt(math.log(4 / miss) / (2 * least)) if least >= 1 else 1.0
    ends = zip(inner.shares(), (-far, far), strict=True)
    level = float(self.query.confidence)
    return {
        'thresholds': self.thresholds.floats, 'value': fit.shares()[0].tolist(),
        'interval': {
            **_ends(end[0] for end in band.shares()), 'level': level,
            'covers': 'for all thresholds at once: the share of the clamped '
                      'values of the file that is at or below; noise only'},
        'population_interval': {
            **_ends(np.clip(end[0] + shift, 0, 1) for end, shift in ends),
            'level': level,
            'covers': 'for all thresholds at once: the distribution function, '
                      'clamped, of what the records are independent draws '
                      'from; sampling and noise'
                      f'{self.query.missing_assumption}'},
        'ranks': {
            'value': fit.ranks[0].tolist(),
            'interval': {
                **_ends((band.lower[0, 0], band.upper[0, 0])), 'level': level,
                'covers': 'for all thresholds at once: how many values of the '
                          'file are at or below; noise only'},
            'standard_errors': self.tree.rank_deviations().tolist(),
            'standard_errors_are': 'of noise, before counts are made '
                                   'nonnegative, exact'},
        'simulations': simulations(miss / 2)}


def simulations(miss: float) -> dict[str, object]:
  """What a release says of the simulations of its bands."""
  return {'number': bands.num_runs(miss), 'seed': bands.SEED,
          'of': 'the law of the noise, which is public, for widths of bands'}


def drawn(tree: Tree, measured: list[int],
          meter: Meter) -> dict[str, object]:
  """The release of a tree: noisy counts, and n where it is public."""
  noisy = {'noisy_counts': tree.draw(measured, meter)}
  return {**noisy, 'num_records': sum(measured)} if tree.known else noisy


def _ends(ends: Iterable[np.ndarray]) -> dict[str, list[float]]:
  lower, upper = ends
  return {'lower': lower.tolist(), 'upper': upper.tolist()}


def ecdf(query: Query) -> Curve:
  """The share of values at or below each threshold."""
  bands.check_confidence(query)
  return Curve(query=query, thresholds=grids.of_query(query))


STATISTICS = (
    queries.Statistic(
        name='ecdf', help='share of the clamped values up to each threshold, '
        'for --bins, or for --thresholds between --lower and --upper',
        needs=('column',), takes=('lower', 'upper', 'thresholds', 'grid',
                                  'bins', 'missing'), plan=ecdf),
)
