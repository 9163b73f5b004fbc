"""Releases the distribution function of a column on a public grid."""

from collections.abc import Iterable, Mapping
import dataclasses
import functools
import math
from typing import Any

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
  """Returns the query with defaults filled in, so equal releases compare equal.
  """
  plain = dataclasses.replace(query, confidence=Query.confidence)
  return plain if query.bins else dataclasses.replace(
      plain, thresholds=len(thresholds.points), grid=query.grid or 'uniform')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curve:
  """Plan of a distribution function, from a tree of noisy counts of bins.

  Attributes:
    query: public parameters of the release.
    thresholds: public thresholds of the curve.
  """
  query: Query
  thresholds: grids.Thresholds

  reads = 'numbers'

  @property
  def asked(self) -> Query:
    """Returns the query that curves of all confidences share."""
    return grid_query(self.query, self.thresholds)

  @functools.cached_property
  def tree(self) -> Tree:
    """Returns the tree over the bins."""
    return Tree(num_bins=len(self.thresholds.points), num_classes=1,
                cost=self.query.cost(), replacing=self.query.replacing,
                known=self.query.knows_size)

  @property
  def cost(self) -> Cost:
    """Returns the cost of the noise of all nodes."""
    return self.tree.spent

  def facts(self) -> dict[str, object]:
    """Returns public facts: rules for values, bins, tree and noise."""
    return {'clamping': 'values outside the public bounds are clamped to them',
            'missing': self.query.missing_text, 'bins': BINS,
            **self.tree.facts()}

  def measure(self, fields: Iterable[object]) -> list[int]:
    """Returns the exact, private counts of the bins."""
    counts = [0] * self.tree.num_bins
    for value in self.query.numbers(fields, self.thresholds.lower,
                                    self.thresholds.upper):
      counts[self.thresholds.bin(value)] += 1
    return counts

  def draw(self, measured: list[int], meter: Meter) -> dict[str, object]:
    """Returns noisy counts of all nodes, and n if it is public."""
    return drawn(self.tree, measured, meter)

  def view(self, released: Mapping[str, Any]) -> dict[str, object]:
    """Returns the curve as proportions and counts, with simultaneous bands."""
    fit, miss = bands.Fit(self.tree, released), self.query.miss
    band, inner = fit.bands(miss, miss / 2)
    # From fewer than one record nothing follows: any proportion is possible.
    least = inner.lower[0, 0, -1] if fit.total is None else fit.total
    # Dvoretzky, Kiefer and Wolfowitz (1956), with the constant of Massart
    # (1990); half of `miss` is for noise, half for sampling.
    sampling_error = (math.sqrt(math.log(4 / miss) / (2 * least))
                      if least >= 1 else 1.0)
    sides = zip(inner.shares(), (-sampling_error, sampling_error), strict=True)
    level = float(self.query.confidence)
    return {
        'thresholds': self.thresholds.floats, 'value': fit.shares()[0].tolist(),
        'interval': {
            **_listed(end[0] for end in band.shares()), 'level': level,
            'covers': 'for all thresholds at once: the share of the clamped '
                      'values of the file that is at or below; noise only'},
        'population_interval': {
            **_listed(np.clip(end[0] + shift, 0, 1) for end, shift in sides),
            'level': level,
            'covers': 'for all thresholds at once: the distribution function, '
                      'clamped, of what the records are independent draws '
                      'from; sampling and noise'
                      f'{self.query.missing_assumption}'},
        'ranks': {
            'value': fit.ranks[0].tolist(),
            'interval': {
                **_listed((band.lower[0, 0], band.upper[0, 0])), 'level': level,
                'covers': 'for all thresholds at once: how many values of the '
                          'file are at or below; noise only'},
            'standard_errors': self.tree.rank_deviations().tolist(),
            'standard_errors_are': 'of noise, before counts are made '
                                   'nonnegative, exact'},
        'simulations': simulations(miss / 2)}


def simulations(miss: float) -> dict[str, object]:
  """Returns how the widths of bands were simulated, for the release JSON."""
  return {'number': bands.num_runs(miss), 'seed': bands.SEED,
          'of': 'the distribution of the noise, which is public, for widths of '
                'bands'}


def drawn(tree: Tree, measured: list[int],
          meter: Meter) -> dict[str, object]:
  """Returns noisy counts of the nodes of a tree, and n if it is public."""
  noisy: dict[str, object] = {'noisy_counts': tree.draw(measured, meter)}
  return {**noisy, 'num_records': sum(measured)} if tree.known else noisy


def _listed(band: Iterable[np.ndarray]) -> dict[str, list[float]]:
  """Returns the two ends of a band as lists, for JSON."""
  lower, upper = band
  return {'lower': lower.tolist(), 'upper': upper.tolist()}


def ecdf(query: Query) -> Curve:
  """Returns the plan of the proportions of values up to each threshold."""
  bands.check_confidence(query)
  return Curve(query=query, thresholds=grids.of_query(query))


STATISTICS = (
    queries.Statistic(
        name='ecdf', help='share of the clamped values up to each threshold, '
        'for --bins, or for --thresholds between --lower and --upper',
        needs=('column',), takes=('lower', 'upper', 'thresholds', 'grid',
                                  'bins', 'missing'), plan=ecdf),
)
