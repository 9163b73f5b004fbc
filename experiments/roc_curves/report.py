"""Reports areas between private and true ROC curves, and Table 6.1.

The table and the curves are those of Barczewski (2025).
"""

from collections.abc import Sequence
import math
from typing import Any

import numpy as np

from dpjax.report import plots
from dpjax.report import tables
from experiments import points
from experiments import records
from experiments import verdicts
from experiments.roc_curves import sweep

# (stand-in, epsilon) -> area between curves for one tree, as separate programs
# computed it (catalogue items EC-22 and EC-33).
REFERENCE = {
    ('framingham_stand_in', 0.5): 0.029, ('bank_full_stand_in', 0.2): 0.0079,
    ('diabetes_130_stand_in', 0.05): 0.0093,
    ('bank_full_stand_in', 0.05): 0.021, ('bank_full_stand_in', 0.5): 0.0035,
    ('bank_full_stand_in', 1.0): 0.0020}
_METHODS = ('printed', 'tight', 'joint')
# Curves: method, smoothing, label, number of the colour, line style.
_DRAWN = (
    ('exact', 'none', 'true', 6, '-'),
    ('printed', 'none', 'private, as printed', 0, ':'),
    ('printed', 'p1', 'p = 1', 1, '-'),
    ('printed', 'p2', 'p = 2', 2, '-'),
    ('joint', 'p2', 'one tree', 4, '-'),
)
_AGAINST_EPSILON = (*_DRAWN[1:4], ('tight', 'p2', 'p = 2, tight noise', 2,
                                   '--'), _DRAWN[4])


def table(rows: Sequence[records.Row]) -> str:
  """Returns Table 6.1, and a table of errors with one line for each setting."""
  cells = points.collect(rows)
  exact = points.select(cells, method='exact')
  lines = [(p['dataset'], *(f'{p.values[name]:g}' if name in p.values else '-'
                            for name in ('num_examples', 'num_columns',
                                         'num_left_out')),
            tables.number(p['positive_share']), tables.number(p['auc']),
            '{}, {}, {}'.format(*sweep.TABLE_6_1.get(
                p['dataset'], '---'))) for p in exact]
  return (
      'Data sets, and their entries in Table 6.1.\n\n' + tables.markdown(
          ('data set', 'records', 'columns', 'left out', 'positive', 'AUC',
           'printed: records, positive, features'), lines)
      + '\nMean area between private and true curve, and mean error of the '
        'area under it. Curves that are not smoothed are replaced by their '
        'running maxima.\n\n'
      + points.table([p for p in cells if p['method'] != 'exact'],
                     ('dataset', 'method', 'smoothing', 'epsilon'),
                     ('area', 'area_se', 'auc_error', 'auc_error_se'),
                     digits=3))


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on sections 6.5.1 and 6.6.5, and on better methods.

  The sections are of Barczewski (2025).
  """
  cells = points.collect(rows)
  files = [p for p in cells if not p['dataset'].endswith('_stand_in')]
  bank = points.select(files, dataset='bank_full')
  drawn = [p for p in files if p['points']]
  return [
      points.judged('Table 6.1: numbers of records, features and positives',
                    'see the table', points.select(files, method='exact'),
                    _data),
      points.judged('smoothed curves are much closer than raw ones',
                    'in the figures', points.select(drawn, method='printed'),
                    _closer),
      points.judged('the error decreases with epsilon', 'Figure 6.6.4',
                    points.select(bank, method=_METHODS,
                                  smoothing=('p1', 'p2')), _decreases),
      points.judged('both norms are about equally good', 'Figure 6.6.4',
                    points.select(bank, method='printed',
                                  smoothing=('p1', 'p2')), _alike),
      points.judged('larger data sets are less affected',
                    'even at smaller epsilon',
                    points.select(drawn, method='printed', smoothing='p2'),
                    _larger),
      points.judged('areas by one tree computed by other programs are '
                    'reproduced', 'within 20 %, on stand-ins', points.select(
                        cells, method='joint', num_thresholds=2**10), _cells),
      points.judged('one tree over both classes is better than a curve of each',
                    'not in the text', points.select(
                        files, method=_METHODS, smoothing='p2'), _joint)]


def _span(values: Sequence[float]) -> str:
  return f'{min(values):.3g} to {max(values):.3g}' if values else '-'


def _data(cells: list[points.Point]):
  texts, stands = [], True
  for point in cells:
    records_, share, features = sweep.TABLE_6_1[point['dataset']]
    stands &= (point['num_examples'] == records_
               and point['num_columns'] == features
               and abs(point['positive_share'] - share) < 1e-3)
    texts.append(f'{point["dataset"]} {point["num_examples"]:g}, '
                 f'{point["positive_share"]:.3f}, {point["num_columns"]:g}')
  return ('; '.join(texts), stands, 'the file of the heart study has 4238 '
                                    'records, and the printed 4328 transposes '
                                    'digits (C25); the printed number of '
                                    'diabetes columns includes the ids of '
                                    'encounters and patients')


def _lines(cells: Sequence[points.Point], *names: str
           ) -> dict[tuple, dict[str, float]]:
  """Returns (data set, epsilon) -> values of other fields -> area."""
  lines: dict[tuple, dict[str, float]] = {}
  for point in cells:
    lines.setdefault((point['dataset'], point['epsilon']), {})[
        '/'.join(point[name] for name in names)] = point['area']
  return lines


def _closer(cells: list[points.Point]):
  gains = {name: [line['none'] / line[name]
                  for line in _lines(cells, 'smoothing').values()
                  if {'none', name} <= set(line)] for name in ('p1', 'p2')}
  both = [gain for each in gains.values() for gain in each]
  return ('; '.join(f'{name} {_span(each)} times'
                    for name, each in gains.items()),
          bool(both) and min(both) > 1.5,
          'ratio of the area of the running maxima of the raw curve; `much` is '
          'read as 1.5')


def _decreases(cells: list[points.Point]):
  falls = []
  for method, smoothing in points.distinct(cells, 'method', 'smoothing'):
    line = sorted(points.select(cells, method=method, smoothing=smoothing),
                  key=lambda p: p['epsilon'])
    falls += [second['area'] - first['area'] < 3 * math.hypot(
        first['area_se'], second['area_se'])
              for first, second in zip(line, line[1:])]
  return (f'in {sum(falls)} of {len(falls)} steps', bool(falls) and all(falls),
          'means, within 3 standard errors, in both norms and for all methods')


def _alike(cells: list[points.Point]):
  ratios = [line['p1'] / line['p2'] for line in _lines(
      cells, 'smoothing').values() if {'p1', 'p2'} <= set(line)]
  return (f'p = 1 has {_span(ratios)} times the area of p = 2',
          bool(ratios) and 0.5 < min(ratios) and max(ratios) < 2,
          'a factor of 2 either way')


def _larger(cells: list[points.Point]):
  by = {p['dataset']: p['area'] for p in cells}
  order = [by[name] for name in sweep.FIGURES if name in by]
  return (', '.join(f'{name} {area:.3g}' for name, area in by.items()),
          len(order) == 3 and order[0] == max(order),
          'the smallest data set has the largest epsilon and yet the largest '
          'area')


def _cells(cells: list[points.Point]):
  near = [p['area'] / REFERENCE[at] for p in cells
          if (at := (p['dataset'], p['epsilon'])) in REFERENCE]
  return (f'{_span(near)} times', bool(near) and 0.8 < min(near)
          and max(near) < 1.2, f'{len(near)} cells')


def _joint(cells: list[points.Point]):
  lines = _lines(cells, 'method').values()
  gains = {name: [line[name] / line['joint'] for line in lines
                  if {name, 'joint'} <= set(line)]
           for name in ('printed', 'tight')}
  both = [gain for each in gains.values() for gain in each]
  return ('; '.join(f'{name} {_span(each)} times the area'
                    for name, each in gains.items()),
          bool(both) and min(both) > 1, 'at every epsilon, for smoothed curves')


def _polyline(point: points.Point) -> tuple[np.ndarray, np.ndarray]:
  count = int(point['points']) + 1
  return tuple(np.array([point.values[f'{name}_{number:02}']
                         for number in range(count)])
               for name in ('fpr', 'tpr'))


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws the curves of each data set, and areas against epsilon."""
  cells = points.collect(rows)
  kept = [p for p in cells if p['points']]
  names = [name for name in (*sweep.FIGURES, *(
      f'{name}_stand_in' for name in sweep.FIGURES))
           if points.select(kept, dataset=name)][:3]
  drawn, axes = plots.new(1, len(names) + 1, width=3.6, height=3.4)
  for ax, name in zip(axes[0], names):
    for method, smoothing, label, series, line in _DRAWN:
      for point in points.select(kept, dataset=name, method=method,
                                 smoothing=smoothing)[:1]:
        ax.plot(*_polyline(point), line, label=label, linewidth=1.2,
                color=plots.COLOURS[series])
    epsilon = sweep.FIGURES[name.removesuffix('_stand_in')]
    points.finish(ax, 'false positives', 'true positives',
                  f'{name}, epsilon {epsilon:g}', scales='linear linear')
  name = 'bank_full' if points.select(cells, dataset='bank_full') else (
      names[0] if names else '')
  for method, smoothing, label, series, line in _AGAINST_EPSILON:
    points.curve(axes[0, -1], points.select(
        cells, dataset=name, method=method, smoothing=smoothing), 'epsilon',
                 'area', label, series=series, line=line)
  points.finish(axes[0, -1], 'epsilon', 'area between curves', name)
  return drawn
