"""ROC curve, area and calibration of a score for two classes.

One release serves all: numbers of records by class and by bin of the score, in
one tree, with the whole budget. A record is in one bin of one class, so curves
of both classes need not share the budget; replacing a record may change its
label, too (Barczewski 2025, section 6.5; items EC-22, EC-26, corrections C6 to
C10 of experiments/ERRATA.md). The ledger keeps the release; curve, area,
calibration and test are post-processing of it.
"""

from collections.abc import Iterable, Mapping
import dataclasses
import functools
import math
from typing import Any

import numpy as np

from dpjax.release import bands
from dpjax.release import calibration
from dpjax.release import curves
from dpjax.release import grids
from dpjax.release import lattice
from dpjax.release import query as queries
from dpjax.release.bands import Bands
from dpjax.release.bands import Fit
from dpjax.release.costs import Cost
from dpjax.release.meter import Meter
from dpjax.release.query import Query
from dpjax.release.trees import Tree


@dataclasses.dataclass(frozen=True, kw_only=True)
class Classifier:
  """Counts of both classes over the bins of a grid, and views of them.

  Attributes:
    query: public parameters of the release.
    thresholds: public thresholds of the score.
  """
  query: Query
  thresholds: grids.Thresholds

  reads = 'labels'

  @property
  def asked(self) -> Query:
    """Returns the query of the release that all views share."""
    # What only changes a view is left out, so that all find the same entry.
    shared = dataclasses.replace(
        curves.grid_query(self.query, self.thresholds), groups=None,
        statistic='classifier', positive=self.positive)
    return shared if self.query.bins else dataclasses.replace(
        shared, lower=self.thresholds.lower, upper=self.thresholds.upper)

  @property
  def positive(self) -> str:
    """Returns the value of the label that is positive."""
    return queries.needed('positive', self.query.positive).strip()

  @functools.cached_property
  def tree(self) -> Tree:
    """Returns the tree over the bins of negatives, then of positives."""
    return Tree(num_bins=len(self.thresholds.points), num_classes=2,
                cost=self.query.cost(), replacing=self.query.replacing,
                known=self.query.knows_size)

  @property
  def cost(self) -> Cost:
    """Returns the cost of the noise of all nodes."""
    return self.tree.spent

  def facts(self) -> dict[str, object]:
    """Returns public facts: rules for values and labels, tree and noise."""
    return {'clamping': 'scores outside the public bounds are clamped to them',
            'missing': self.query.missing_text,
            'labels': f'{self.positive!r} is positive, whatever else '
                      'negative, also where there is none',
            'bins': f'{curves.BINS}; those of negatives come first',
            **self.tree.facts()}

  def measure(self, fields: Iterable[tuple[object, object]]) -> list[int]:
    """Returns the exact counts of bins, of negatives and then of positives."""
    size = self.tree.num_bins
    counts = [0] * (2 * size)
    for value, label in self.query.labelled(fields, self.thresholds.lower,
                                            self.thresholds.upper):
      positive = lattice.same(label, self.positive)
      counts[positive * size + self.thresholds.bin(value)] += 1
    return counts

  def draw(self, measured: list[int], meter: Meter) -> dict[str, object]:
    """Returns noisy counts of all nodes, and n if it is public."""
    return curves.drawn(self.tree, measured, meter)

  def view(self, released: Mapping[str, Any]) -> dict[str, object]:
    """Returns the view that the query asks for, with its bands."""
    fit = Fit(self.tree, released)
    band, = fit.bands(self.query.miss)
    views = {'roc': self._roc, 'auc': self._auc,
             'hosmer_lemeshow': self._hosmer_lemeshow}
    name = self.query.statistic
    if name != 'classifier':
      results = views[name](fit, band)
    else:
      names = list(views)[:3 if _are_probabilities(self.thresholds) else 2]
      results = {name: views[name](fit, band) for name in names}
    return {**results, **self._classes(fit, band),
            'simulations': curves.simulations(self.query.miss)}

  def _classes(self, fit: Fit, band: Bands) -> dict[str, object]:
    """Returns the numbers of records of each class, with intervals."""
    return {name: {
        'value': float(fit.ranks[row, -1]), 'interval': queries.interval(
            band.lower[0, row, -1], band.upper[0, row, -1],
            level=self.query.confidence, covers=f'the number of {name} of the '
            'file, with all that is in the band; noise only')}
            for row, name in enumerate(('negatives', 'positives'))}

  def _roc(self, fit: Fit, band: Bands) -> dict[str, object]:
    """Returns the ROC curve from (0, 0) to (1, 1), with simultaneous bands."""
    lower, upper = band.shares()
    return {
        'thresholds': [*self.thresholds.floats[::-1], None],
        'value': dict(zip(('fpr', 'tpr'), map(_rates, fit.shares()),
                          strict=True)),
        'interval': {
            **{name: {'lower': _rates(upper[row]), 'upper': _rates(lower[row])}
               for row, name in enumerate(('fpr', 'tpr'))},
            'level': float(self.query.confidence),
            'covers': 'for all thresholds and both rates at once: the rates of '
                      'the file; noise only'},
        'rule': 'a score above the threshold is predicted positive; null: all'}

  def _auc(self, fit: Fit, band: Bands) -> dict[str, object]:
    """Returns the area under the curve, with three intervals for it."""
    lower, upper = band.shares()
    # The noisy, not the exact counts decide whether a class counts as empty.
    empty = min(fit.ranks[:, -1]) < 1
    value = 0.5 if empty else _area(*fit.shares())
    file_interval, population_interval = (
        [(0.0, 1.0)] * 2 if empty else
        _area_intervals(fit, value, self.query.miss))
    level, pairs = self.query.confidence, 'the area under the curve of the '
    positives, negatives = fit.shares()[::-1]
    return {
        'value': value, 'empty_class': 'where the noisy counts leave less than '
        'one record to a class the area is 1/2, between 0 and 1',
        'interval': queries.interval(
            *file_interval, level=level, covers=f'{pairs}file, by noise '
            'simulated on the released counts; noise only'),
        'population_interval': queries.interval(
            *population_interval, level=level, covers=f'{pairs}distribution '
            'that records are independent draws from, simulated likewise; '
            'sampling and noise'
            f'{self.query.missing_assumption}'),
        'band_interval': queries.interval(
            # Lower scores of negatives raise it, of positives lower it.
            min(value, _area(lower[0], upper[1])),
            max(value, _area(upper[0], lower[1])), level=level,
            covers=f'{pairs}file: the least and the largest within the band of '
            'the curve; noise only, and no approximation'),
        'ties': float(np.diff(positives, prepend=0) @ np.diff(
            negatives, prepend=0)),
        'ties_are': 'share of pairs of a positive and a negative record in one '
                    'bin, which count half'}

  def _hosmer_lemeshow(self, fit: Fit, band: Bands) -> dict[str, object]:
    """Returns the Hosmer-Lemeshow statistic, its p-value and the groups."""
    del band
    edges = [float(self.thresholds.lower), *self.thresholds.floats]
    centres = (np.array(edges[1:]) + np.array(edges[:-1])) / 2
    number = self.query.groups or queries.GROUPS
    groups = calibration.grouped(fit.counts, centres, number)
    simulated = calibration.null_statistics(
        self.tree, fit.counts, centres, number,
        np.random.default_rng(bands.SEED))
    # Ties count as above, even if rounding splits them. The real value is one
    # of R + 1, so no p-value is 0.
    above = np.sum(simulated >= groups.statistic * (1 - 1e-12))
    return {
        'value': groups.statistic,
        'p_value': float((above + 1) / (len(simulated) + 1)),
        'critical_value': float(np.quantile(simulated, 1 - self.query.miss)),
        'null_law': f'{len(simulated)} simulations of labels that are '
                    'positive with the probability predicted, on the released '
                    'counts, with the noise of the release; the value is '
                    'larger by noise',
        'predictions': 'the centre of the bin of each score',
        'groups': self._table(groups, fit)}

  def _table(self, groups: calibration.Groups,
             fit: Fit) -> list[dict[str, object]]:
    """Returns observed and predicted proportions of positives, by group."""
    edges = [float(self.thresholds.lower),
            *(self.thresholds.floats[end] for end in groups.ends)]
    starts = np.append(0, groups.ends[:-1] + 1)

    def sums(counts: np.ndarray) -> np.ndarray:
      return np.add.reduceat(counts, starts, 1)

    estimates = sums(fit.linear)
    width, = bands.widths(fit.tree, sums, self.query.miss)
    released = sums(fit.counts)
    low, high = (np.maximum(estimates - width, 0), estimates + width)
    low, high = np.minimum(low, released), np.maximum(high, released)
    return [{
        'above': edges[place], 'up_to': edges[place + 1],
        'records': float(groups.records[place]),
        'predicted': _share(groups.expected[place],
                            groups.records[place] - groups.expected[place], 0),
        'observed': _share(released[1, place], released[0, place], 0.0),
        'interval': queries.interval(
            _share(low[1, place], high[0, place], 0.0),
            _share(high[1, place], low[0, place], 1.0),
            level=self.query.confidence,
            covers='for all groups at once, as if they had not been chosen in '
                   'view of the release: the observed share in the file; noise '
                   'only')} for place in range(len(groups.ends))]


def _share(part: float, rest: float, empty: float) -> float:
  """Returns part / (part + rest), or `empty` if the sum is not positive."""
  return float(part / (part + rest)) if part + rest > 0 else empty


def _rates(shares: np.ndarray) -> list[float]:
  """Returns proportions above the thresholds, highest first, and then 1."""
  return [0.0, *(1 - shares[-2::-1]).tolist(), 1.0]


def _area(negatives: np.ndarray, positives: np.ndarray) -> float:
  """Returns the area of proportions [N] up to each threshold; ties count 1/2.
  """
  negatives, positives = (np.append(shares[:-1], 1.0)
                          for shares in (negatives, positives))
  middle = positives - np.diff(positives, prepend=0.0) / 2
  return float(np.diff(negatives, prepend=0.0) @ (1 - middle))


def _wins(counts: np.ndarray) -> float:
  """Returns how many pairs of [2, N] the score orders rightly; ties count 1/2.
  """
  return float(counts[1] @ (np.cumsum(counts[0]) - counts[0] / 2))


def _area_intervals(fit: Fit, value: float,
                    miss: float) -> list[tuple[float, float]]:
  """Returns intervals for the area of the file and of the population."""
  # The simulated pivot is the number of rightly ordered pairs minus the area
  # times all pairs. It is 0 without noise, unlike a quotient of noisy numbers.
  generator = np.random.default_rng(bands.SEED)
  number = bands.num_runs(miss)
  size = int(round(float(fit.counts.sum())))
  probs = (fit.counts / max(fit.counts.sum(), 1e-300)).reshape(-1)
  pivots = np.zeros((2, number))
  for run, error in enumerate(fit.tree.errors(number, generator)):
    sampled = generator.multinomial(size, probs).reshape(error.shape) if (
        size) else np.zeros(error.shape)
    for row, counts in enumerate((fit.counts, sampled)):
      noisy = counts + error
      pivots[row, run] = _wins(noisy) - value * math.prod(noisy.sum(1))
  pairs = math.prod(fit.linear.sum(1))
  if min(fit.linear.sum(1)) <= 0:
    return [(0.0, 1.0)] * 2
  low, high = np.quantile(pivots, [miss / 2, 1 - miss / 2], axis=1)
  intervals = [(_wins(fit.linear) - pivot) / pairs for pivot in (high, low)]
  return [(float(np.clip(min(lower, value), 0, 1)),
           float(np.clip(max(upper, value), 0, 1)))
          for lower, upper in zip(*intervals, strict=True)]


def _are_probabilities(thresholds: grids.Thresholds) -> bool:
  return 0 <= thresholds.lower and thresholds.upper <= 1


def classifier(query: Query) -> Classifier:
  """Returns the plan of all views of a score and a label, or of one of them.

  Raises:
    ValueError: if the label is the score, or probabilities are not in [0, 1].
  """
  bands.check_confidence(query)
  probabilities = query.statistic == 'hosmer_lemeshow'
  if probabilities and not query.bins and (query.lower, query.upper) == (
      None, None):
    query = dataclasses.replace(query, lower=lattice.Decimal(0),
                                upper=lattice.Decimal(1))
  thresholds = grids.of_query(query)
  if probabilities and not _are_probabilities(thresholds):
    raise ValueError('hosmer_lemeshow needs probabilities: bounds must lie in '
                     f'[0, 1], got {thresholds.lower} and {thresholds.upper}')
  if query.label == query.column:
    raise ValueError(f'label must be another column than {query.column!r}')
  if not queries.needed('positive', query.positive).strip():
    raise ValueError('positive must be a value of the label, got none')
  most = len(thresholds.points)
  if query.groups is not None and not 2 <= query.groups <= most:
    raise ValueError(f'groups must be 2 to {most}, got {query.groups}')
  return Classifier(query=query, thresholds=thresholds)


STATISTICS = tuple(
    queries.Statistic(
        name=name, help=text, needs=('column', 'label', 'positive'),
        takes=('lower', 'upper', 'thresholds', 'grid', 'bins', 'missing',
               *more), plan=classifier)
    for name, text, more in (
        ('classifier', 'ROC curve, area and calibration, of one release',
         ('groups',)),
        ('roc', 'rates of false and true positives of a score', ()),
        ('auc', 'area under the ROC curve of a score', ()),
        ('hosmer_lemeshow', 'calibration of predicted probabilities, and a '
         'test of it', ('groups',))))
