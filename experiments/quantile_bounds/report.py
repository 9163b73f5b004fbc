"""Reports proved bounds of quantile errors, and their ratio to measured errors.
"""

from collections.abc import Sequence
import math
from typing import Any

from dpjax.report import plots
from experiments import points
from experiments import records
from experiments import verdicts
from experiments.quantile_bounds import sweep

_FIELDS = ('dataset', 'method', 'epsilon', 'num_orders', 'num_examples')
_STATEMENTS = ('printed', 'corrected', 'sharp')
_RECURSIVE = ('recursive', 'recursive_printed')
# Tolerance, in standard deviations of the fraction of repetitions whose error
# exceeds 1/4.
_SIGMAS = 4


def table(rows: Sequence[records.Row]) -> str:
  """Returns tables of errors with their bounds, and of large errors.

  There are no bounds on Beta(2, 5).
  """
  cells = points.collect(rows)
  return (
      'The error (value_sup) that 95 % of releases do not exceed: measured, as '
      'printed, with corrected constants, and by a sharp bound. 1 is the whole '
      'range. Sharp bounds are those of `quantile_errors`, and the '
      'direct bound for the histogram; there is none where ranks reach the '
      'ends.\n\n' + points.table(
          points.select(cells, kind='upper'), _FIELDS,
          ('error', 'mean', *_STATEMENTS))
      + '\nProbability that an error exceeds 1/4, and its lower bound by Lemma '
        '6.2.7.\n\n' + points.table(
          points.select(cells, kind='lower'), _FIELDS[1:],
          ('far', 'printed', 'sharp')))


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts theorem by theorem, and on the sharp bounds."""
  cells = points.collect(rows)
  upper = points.select(cells, kind='upper')
  proved = points.select(upper, dataset=sweep.UNIFORM)
  ours = [p for p in proved if 'sharp' in p.values]
  stays = [points.judged(
      f'{name} stays below its bound', 'exceeded by 5 %', points.select(
          proved, method=methods), _below)
           for name, methods in (
               ('Corollary 6.2.4: IndExp', 'independent'),
               ('Theorem 6.2.5: RecExp', _RECURSIVE),
               ('Theorem 6.2.10: the histogram', 'histogram'),
               ('Theorem 6.2.15: JointExp', 'joint'))]
  return [
      *stays,
      points.judged('Figure 6.1 is explained by the theorems',
                    'Theorem 6.2.10 and 6.2.5 decide', points.select(
                        proved, num_examples=10_000, epsilon=0.1,
                        num_orders=(10, 100)), _outside),
      _beta(points.select(upper, dataset=sweep.BETA)),
      points.judged('RecExp has the smallest error for large m', 'much ahead',
                    points.select(proved, num_orders=10, method=(
                        'independent', 'joint', *_RECURSIVE)), _ahead),
      points.judged('Lemma 6.2.7: errors exceed 1/4 at least with the printed '
                    'probability',
                    'at least half of e^(-n epsilon / 2)', points.select(
                        cells, kind='lower'), _often),
      points.judged('sharp bounds hold', 'not in the text', ours, _sharp)]


def _below(cells: list[points.Point]):
  ratios = [p['printed'] / p['error'] for p in cells]
  some = [p for p in cells if p['printed'] < 1]
  return (f'{min(ratios):.0f} to {max(ratios):.0f} times the error',
          min(ratios) >= 1, f'{len(cells)} settings; in {len(some)} the bound '
                            'is smaller than the range of the data')


def _outside(cells: list[points.Point]):
  least = min(cells, key=lambda p: p['corrected'])
  return (f'corrected bounds of at least {least["corrected"]:.2g}',
          least['corrected'] < 0.5, 'levels lie between 1/4 and 3/4, so that '
                                    'no error exceeds 3/4: at epsilon 0.1 with '
                                    'ten levels or more no bound is '
                                    'informative (QE-06), not even for uniform '
                                    'records; errors are at least '
                                    f'{least["error"]:.2g}')


def _beta(cells: list[points.Point]) -> verdicts.Verdict:
  claim, printed = 'the theorems hold for Beta(2, 5)', 'shown in Figure 6.1'
  if not cells:
    return verdicts.Verdict(claim, printed, '-', verdicts.NOT_RUN, 'no rows')
  worst = max(p['error'] for p in cells)
  return verdicts.Verdict(
      claim, printed, f'95 % of errors are at most {worst:.2g}',
      verdicts.NOT_COMPARABLE, 'its density is 0 at the ends, where the '
                               'theorems need a positive lower bound; in the '
                               'figure only Beta(1, 1) has both bounds (QE-06)')


def _ahead(cells: list[points.Point]):
  """Compares recursive quantiles with JointExp, for ten quantile levels."""
  ratios = []
  for n, epsilon in points.distinct(cells, 'num_examples', 'epsilon'):
    by = {p['method']: p['error'] for p in points.select(
        cells, num_examples=n, epsilon=epsilon)}
    if {'recursive', 'joint'} <= set(by):
      ratios.append(by['recursive'] / by['joint'])
  if not ratios:
    return '-', False, 'one of the two alone'
  return (f'{min(ratios):.2g} to {max(ratios):.2g} times the error of JointExp '
          'for ten levels', max(ratios) <= 1,
          'bounds of JointExp scale worse, its error does not (QE-22)')


def _often(cells: list[points.Point]):
  slack = lambda p: _SIGMAS * math.sqrt(
      p['far'] * (1 - p['far']) / p['repetitions'])
  holds = all(p['far'] + slack(p) >= p['sharp'] >= p['printed'] for p in cells)
  least = min(p['far'] / p['printed'] for p in cells)
  return (f'at least {least:.2g} times as often', holds,
          f'{len(cells)} settings; the bound tends to 1/2 with m, not to 1 '
          '(QE-25)')


def _sharp(cells: list[points.Point]):
  closest = [p['sharp'] / p['error'] for p in cells]
  better = [p['printed'] / p['sharp'] for p in cells]
  holds = min(closest) >= 1 and min(better) > 1
  return (f'{min(closest):.2g} to {max(closest):.2g} times the error', holds,
          f'{min(better):.2g} to {max(better):.2g} times closer than printed, '
          f'{len(cells)} settings')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws errors against n with their bounds, one column for each mechanism."""
  upper = points.select(points.collect(rows), kind='upper')
  epsilons = [epsilon for epsilon, in points.distinct(upper, 'epsilon')]
  numbers = [number for number, in points.distinct(upper, 'num_orders')]
  shown = [m for m in (10, *reversed(numbers)) if m in numbers][0]
  upper = points.select(upper, num_orders=shown)
  methods = [m for m in sweep.METHODS if m != 'recursive_printed']
  drawn, axes = plots.new(len(epsilons), len(methods), width=3.2, height=2.8)
  for line, epsilon in zip(axes, epsilons):
    for ax, method in zip(line, methods):
      selected = points.select(upper, method=method, epsilon=epsilon)
      proved = points.select(selected, dataset=sweep.UNIFORM)
      for series, (metric, style) in enumerate(
          zip(_STATEMENTS, ('--', ':', '-.'))):
        points.curve(ax, proved, 'num_examples', metric, metric,
                     series=series + 1, line=style)
      points.curve(ax, proved, 'num_examples', 'error', 'uniform, measured',
                   series=0)
      points.curve(ax, points.select(selected, dataset=sweep.BETA),
                   'num_examples', 'error', 'Beta(2, 5), measured', series=4)
      ax.axhline(1, color='grey', linewidth=.8)
      points.finish(ax, f'records n, m = {shown:g}', 'error of 95 %',
                    f'{method}, epsilon {epsilon:g}',
                    legend=ax is axes[0, 0])
  return drawn
