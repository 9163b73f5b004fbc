"""Reports errors of private curves and of their inverses.

The figure is Figure 6.6.3 of Barczewski (2025).
"""

from collections.abc import Sequence
from typing import Any

from dpjax.report import plots
from experiments import points
from experiments import records
from experiments import verdicts

# (method, number of quantiles) -> rank errors of deciles at epsilon 0.1 and 1,
# as another program computed them (catalogue item EC-14).
REFERENCE = {
    ('paper_raw', 9.0): (734, 80), ('paper_p2', 9.0): (478, 62),
    ('tree', 9.0): (264, 31), ('search', 1.0): (136, 15),
    ('search', 9.0): (1385, 139), ('exponential', 1.0): (29, 2.8),
    ('exponential', 9.0): (241, 27)}
_DRAWN = (
    ('paper_raw', 'point_mse', 'F, printed', 0, '-'),
    ('paper_raw', 'inverse_mse', 'its inverse', 1, '-'),
    ('paper_p2', 'inverse_mse', 'inverse, p = 2', 2, '-'),
    ('paper_p1', 'inverse_mse', 'inverse, p = 1', 3, '-'),
    ('tight_p2', 'inverse_mse', 'inverse, p = 2, tight', 2, '--'),
    ('tree', 'point_mse', 'F, tree of counts', 4, '-'),
    ('tree', 'inverse_mse', 'its inverse', 4, '--'),
)
_RANKS = (
    ('paper_raw', 9, 'Algorithm 9, printed', 0, '-'),
    ('paper_p2', 9, 'Algorithm 9, p = 2', 2, '-'),
    ('tree', 9, 'tree of counts', 4, '-'),
    ('recursive', 9, 'RecExp', 3, '-'),
    ('exponential', 9, 'exponential, nine', 5, '-'),
    ('exponential', 1, 'exponential, one', 5, '--'),
    ('search', 9, 'fresh noise, nine', 1, '-'),
    ('search', 1, 'fresh noise, one', 1, '--'),
)


def table(rows: Sequence[records.Row]) -> str:
  """Returns the table of errors, with one line for each setting."""
  return (
      'Mean squared errors of F at uniform thresholds (point_mse) and of '
      'values at uniform quantile levels, divided by their range '
      '(inverse_mse); rank_rmse: root mean squared rank error of the deciles, '
      'in records.\n\n' + points.table(
          points.collect(rows), ('method', 'num_quantiles', 'num_thresholds',
                                 'epsilon'),
          ('point_mse', 'inverse_mse', 'inverse_mse_se', 'rank_rmse',
           'rank_rmse_se'), digits=3))


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on Figure 6.6.3 and on better methods.

  Figure 6.6.3 is discussed in Barczewski (2025, section 6.6.4).
  """
  cells = points.collect(rows)
  of = lambda *methods: points.select(cells, method=methods)
  return [
      points.judged('errors of F and of its inverses are of the same order',
                    'as the figure draws them', of('paper_raw', 'paper_p1',
                                            'paper_p2'), _order),
      points.judged('non-monotone curves contribute little to the errors of '
                    'inverses',
                    'no strong impact', of('paper_raw', 'paper_p2'), _falls),
      points.judged('values computed by other programs are reproduced',
                    'ranks within 15 %', points.select(
                        cells, num_thresholds=2**15, epsilon=(0.1, 1.0)),
                    _cells),
      points.judged('a single quantile is best released by a quantile '
                    'mechanism', 'Algorithm 9 on a curve', cells, _one),
      points.judged('nine quantiles are better read off one released curve '
                    'than released by binary searches',
                    'not in the text', points.select(
                        cells, num_quantiles=9), _nine),
      points.judged('nine quantiles are best released together, by RecExp',
                    'not in the text', points.select(cells, num_quantiles=9),
                    _together)]


def _by(cells: Sequence[points.Point], metric: str
        ) -> dict[float, dict[tuple[str, float], float]]:
  """Returns epsilon -> (method, number of quantiles) -> value of the metric."""
  lines = {}
  for point in cells:
    if metric in point.values:
      lines.setdefault(point['epsilon'], {})[
          point['method'], point['num_quantiles']] = point[metric]
  return lines


def _ratios(cells, metric, above, below) -> list[float]:
  """Returns ratios of one method to another at each epsilon with both."""
  return [line[above] / line[below] for line in _by(cells, metric).values()
          if {above, below} <= set(line)]


def _span(values: Sequence[float]) -> str:
  return f'{min(values):.3g} to {max(values):.3g}'


def _order(cells: list[points.Point]):
  curve = {p['epsilon']: p['point_mse'] for p in cells
           if p['method'] == 'paper_raw'}
  ratios = {method: [p['inverse_mse'] / curve[p['epsilon']] for p in cells
                     if p['method'] == method and p['epsilon'] in curve]
            for method in ('paper_raw', 'paper_p2', 'paper_p1')}
  all_of = [ratio for each in ratios.values() for ratio in each]
  return ('; '.join(f'{method} {_span(each)}' for method, each
                    in ratios.items()) + ' times that of F',
          bool(all_of) and min(all_of) > 0.1 and max(all_of) < 10,
          'a factor of 10 either way')


def _falls(cells: list[points.Point]):
  gains = _ratios(cells, 'inverse_mse', ('paper_raw', 9.0), ('paper_p2', 9.0))
  return (f'{_span(gains)} times the error of a smoothed curve',
          bool(gains) and 1 < min(gains) and max(gains) < 5,
          'smoothing helps at every epsilon, by less than a factor of 5')


def _cells(cells: list[points.Point]):
  near = [p['rank_rmse'] / REFERENCE[at][p['epsilon'] == 1.0] for p in cells
          if (at := (p['method'], p['num_quantiles'])) in REFERENCE]
  if not near:
    return '-', False, 'no setting has a stored value'
  return (f'{_span(near)} times', 0.85 < min(near) and max(near) < 1.15,
          f'{len(near)} cells')


def _one(cells: list[points.Point]):
  one = ('exponential', 1.0)
  gains = {name: _ratios(cells, 'rank_rmse', (name, 9.0), one)
           for name in ('paper_raw', 'paper_p2', 'tree')}
  least = [min(each) for each in gains.values() if each]
  return ('; '.join(f'{name} {_span(each)}' for name, each in gains.items()),
          bool(least) and min(least) > 1,
          'times the rank error of the exponential mechanism, which needs no '
          'curve')


def _nine(cells: list[points.Point]):
  gains = _ratios(cells, 'rank_rmse', ('search', 9.0), ('paper_raw', 9.0))
  return (f'{_span(gains)} times the rank error of Algorithm 9',
          bool(gains) and min(gains) > 1, 'each search gets a ninth of epsilon')


def _together(cells: list[points.Point]):
  gains = [min(value for (name, _), value in line.items()
               if name != 'recursive') / line['recursive', 9.0]
           for line in _by(cells, 'rank_rmse').values()
           if ('recursive', 9.0) in line and len(line) > 1]
  return (f'{_span(gains)} times less rank error than the next best',
          bool(gains) and min(gains) > 1,
          'a curve also answers every other quantile level')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws squared errors as in Figure 6.6.3, and rank errors of deciles."""
  cells = points.collect(rows)
  drawn, axes = plots.new(1, 2, width=4.6, height=3.6)
  for method, metric, label, series, line in _DRAWN:
    points.curve(axes[0, 0], points.select(cells, method=method), 'epsilon',
                 metric, label, series=series, line=line)
  points.finish(axes[0, 0], 'epsilon', 'mean squared error')
  for method, number, label, series, line in _RANKS:
    points.curve(axes[0, 1], points.select(cells, method=method,
                                           num_quantiles=number), 'epsilon',
                 'rank_rmse', label, series=series, line=line)
  points.finish(axes[0, 1], 'epsilon', 'ranks that deciles are off by')
  return drawn
