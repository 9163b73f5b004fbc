"""Slopes of squared errors of quantiles, and gains of better ranks."""

from collections.abc import Sequence
import math
from typing import Any

from dpjax.report import plots
from experiments import points
from experiments import records
from experiments import verdicts
from experiments.quantile_rates import sweep

_ADD, _REPLACE = 'add_or_remove_one', 'replace_one'


def table(rows: Sequence[records.Row]) -> str:
  """Returns the table of errors, with one line for each setting."""
  return ('Mean squared errors of quantiles of uniform records. closed_form: '
          'p (1 - p) / n + 2 / (n rate)^2; rank_error: mean of |#{X < q} - n '
          'p|; distance: mean distance from the interpolated quantile of the '
          'records.\n\n' + points.table(
              points.collect(rows), ('method', 'adjacency', 'num_orders',
                                     'epsilon', 'num_examples'),
              ('mse', 'mse_se', 'closed_form', 'rank_error', 'distance')))


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on the rates in the conclusion, and on better costs.

  The conclusion is that of Lalanne (2023); the changed costs are items QB-01
  and QB-03.
  """
  cells = points.collect(rows)
  median = points.select(cells, method='real', adjacency=_REPLACE)
  # Interpolation between records, which the formula ignores, matters above
  # epsilon = 3. The formula needs n epsilon well above 20.
  valid = [p for p in median if p['epsilon'] <= 3]
  return [
      points.judged('the squared error of QExp is p (1 - p) / n + 8 / (n '
                    'epsilon)^2', 'not in the text', valid, _closed),
      points.judged('the squared error is 1/n for epsilon at least 1 / sqrt(n)',
                    'slope -1', [p for p in valid if _private(p) < 0.1],
                    lambda p: _slope(p, 'num_examples', -1)),
      points.judged('for smaller epsilon it is 1/(n epsilon)^2: rate in n',
                    'slope -2', [p for p in valid if _private(p) > 0.9],
                    lambda p: _slope(p, 'num_examples', -2)),
      points.judged('for smaller epsilon it is 1/(n epsilon)^2: rate in '
                    'epsilon', 'slope -2',
                    [p for p in valid if _private(p) > 0.9],
                    lambda p: _slope(p, 'epsilon', -2)),
      points.judged('RecExp and JointExp have both rates for a fixed m',
                    'slopes -1 and -2 in n', points.select(
                        cells, method=sweep.SEVERAL), _several),
      points.judged('unrounded targets halve the cost of a median under '
                    'addition and deletion',
                    'rank errors 20.5 and 10.5 (QB-01)',
                    points.select(cells, adjacency=_ADD),
                    _unrounded),
      points.judged('interpolated ranks are equally private and more accurate',
                    '1.02 to 3.8 times (QB-03)', points.select(
                        cells, method=('real', 'interpolated'),
                        adjacency=_REPLACE, num_examples=1000),
                    _interpolated)]


def _private(point: points.Point) -> float:
  """Returns the fraction of a median's closed-form error due to privacy."""
  return 1 - point['sampling'] / point['closed_form']


def _closed(cells: list[points.Point]):
  ratios = [p['mse'] / p['closed_form'] for p in cells]
  # The formula ignores the position within an interval between records, and the
  # ends of the range.
  enough = all(abs(p['mse'] - p['closed_form']) < 5 * p['mse_se']
               + 0.1 * p['closed_form'] for p in cells)
  return (f'{min(ratios):.2f} to {max(ratios):.2f} times', enough,
          f'{len(cells)} settings, within 5 standard errors and 10 %')


def _slope(cells: list[points.Point], along: str, wanted: float):
  """Compares the slope along one field, averaged over the other, with `wanted`.
  """
  other = 'epsilon' if along == 'num_examples' else 'num_examples'
  groups = [points.select(cells, **{other: value})
            for value, in points.distinct(cells, other)]
  slopes = [points.slope(group, along, 'mse') for group in groups
            if len(group) > 1]
  if not slopes:
    return '-', False, 'one setting alone'
  mean = sum(slopes) / len(slopes)
  return (f'slope {mean:.2f}', abs(mean / wanted - 1) < 0.1,
          f'{len(slopes)} lines, within 10 %')


def _several(cells: list[points.Point]):
  """Tests slopes: of the error in n, and of its private part in n epsilon."""
  slopes = {}
  for method in sweep.SEVERAL:
    of = points.select(cells, method=method)
    largest = max((p['epsilon'] for p in of), default=0.0)
    added = [points.Point(
        dict(signal=p['num_examples'] * p['epsilon']),
        dict(added=p['mse'] - p['sampling'])) for p in of
             if p['num_examples'] * p['epsilon'] >= 300
             and p['mse'] > 1.3 * p['sampling']]
    lines = (points.select(of, epsilon=largest), 'num_examples', 'mse'), (
        added, 'signal', 'added')
    slopes[method] = [points.slope(*line) if len(line[0]) > 1 else math.nan
                      for line in lines]
  text = '; '.join(f'{method} {first:.2f} and {second:.2f}'
                   for method, (first, second) in slopes.items())
  stands = all(abs(first + 1) < 0.1 and abs(second / 2 + 1) < 0.1
               for first, second in slopes.values())
  return (text, stands, 'within 10 %, where n epsilon is 300 or more; below '
                        'that, errors are of the size of the range')


def _unrounded(cells: list[points.Point]):
  by = {p['method']: p for p in cells}
  if not {'rounded', 'real'} <= set(by):
    return '-', False, 'one of the two alone'
  ranks = [by[method]['rank_error'] for method in ('rounded', 'real')]
  return (f'rank errors {ranks[0]:.1f} and {ranks[1]:.1f}',
          1.8 < ranks[0] / ranks[1] < 2.2,
          f'at epsilon {by["real"]["epsilon"]:g}, '
          f'{by["real"]["repetitions"]:g} data sets')


def _interpolated(cells: list[points.Point]):
  gains = []
  for epsilon, in points.distinct(cells, 'epsilon'):
    by = {p['method']: p['distance'] for p in points.select(
        cells, epsilon=epsilon)}
    if len(by) == 2:
      gains.append((epsilon, by['real'] / by['interpolated']))
  if not gains:
    return '-', False, 'one of the two alone'
  text = ', '.join(f'{gain:.2f} at {epsilon:g}' for epsilon, gain in gains)
  return (f'{text}', gains[-1][1] > 2 and gains[0][1] > 0.9,
          'distance from the interpolated quantile of the records')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws squared errors against n and epsilon, and gains of better costs.

  Dashed lines are the closed form.
  """
  cells = points.collect(rows)
  median = points.select(cells, method='real', adjacency=_REPLACE)
  drawn, axes = plots.new(1, 3, height=3.4)
  names = {'num_examples': 'records n', 'epsilon': 'epsilon'}
  for ax, along, other in ((axes[0, 0], 'num_examples', 'epsilon'),
                           (axes[0, 1], 'epsilon', 'num_examples')):
    lines = [points.select(median, **{other: value})
             for value, in points.distinct(median, other)]
    for series, line in enumerate(each for each in lines if len(each) > 1):
      points.curve(ax, line, along, 'mse', f'{names[other]} {line[0][other]:g}',
                   series=series, error='mse_se')
      points.curve(ax, line, along, 'closed_form', None, series=series,
                   line='--')
    points.finish(ax, names[along], 'mean squared error', 'QExp, median')
  several = points.select(cells, method=sweep.SEVERAL)
  for series, (epsilon,) in enumerate(points.distinct(several, 'epsilon')):
    for method, line in zip(sweep.SEVERAL, ('-', '--', ':')):
      points.curve(axes[0, 2], points.select(
          several, method=method, epsilon=epsilon), 'num_examples', 'mse',
                   f'{method}, {epsilon:g}', series=series, line=line)
  points.finish(axes[0, 2], names['num_examples'], 'mean squared error',
                'five orders, by epsilon')
  return drawn
