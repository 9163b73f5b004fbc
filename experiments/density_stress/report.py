"""Compares errors of methods, and judges which one gains on which density."""

from collections.abc import Sequence
import math
from typing import Any

from dpjax.report import plots
from dpjax.report import tables
from experiments import points
from experiments import records
from experiments import verdicts
from experiments.density_stress import sweep

_LABELS = {
    'printed': 'histogram, printed', 'oracle': 'histogram, oracle',
    'dyadic': 'histogram, dyadic oracle', 'tree': 'tree, oracle level',
    'leaves': 'tree, leaves', 'haar': 'wavelets', 'haar_all':
    'wavelets, all', 'merged': 'merged', 'merged_dear': 'merged, 2 ln m',
    'adaptive': 'adaptive', 'projection': 'projection, oracle N',
    'exact': 'exact sensitivity, oracle N', 'sums': 'adaptive sums',
    **{f'sparse_{count}': f'sparse, T = {count}' for count in sweep.ROUNDS}}
_METHODS = {'pure': sweep.PURE, 'zcdp': sweep.ZCDP}
_SMOOTH = {'pure': ('tent2', 'beta22'), 'zcdp': ('tent2', 'sobrand2')}


def table(rows: Sequence[records.Row]) -> str:
  """Returns tables of errors, one for each notion and density."""
  measured = points.collect(rows)
  parts = ['Mean integrated squared errors; simulated ones with a standard '
           'error.\n']
  for notion, density in points.distinct(measured, 'notion', 'density'):
    of = points.select(measured, notion=notion, density=density)
    cells = points.distinct(of, 'num_records', 'epsilon')
    budget = 'epsilon' if notion == 'pure' else 'rho = epsilon^2 / 2'
    parts += [f'{density}, {budget}; the error of the uniform density is '
              f'{max(p.values.get("trivial", 0) for p in of):.3g}:\n',
              tables.markdown(
                  ('method', *(f'{size:g}, {epsilon:g}'
                               for size, epsilon in cells)), [
                      (_LABELS[method], *(_cell(points.select(
                          of, method=method, num_records=size,
                          epsilon=epsilon)) for size, epsilon in cells))
                      for method in _METHODS[notion]])]
  return '\n'.join(parts)


def _cell(cells: Sequence[points.Point]) -> str:
  if not cells:
    return '-'
  text = f'{cells[0]["mise"]:.3g}'
  if 'mise_se' in cells[0].values:
    text += f' ± {cells[0]["mise_se"]:.1g}'
  return text


def _ratios(cells, method, other, notion, densities) -> list[float]:
  """Returns the ratios of errors of two methods, over all common settings."""
  ratios = []
  for point in points.select(cells, method=method, notion=notion,
                             density=densities):
    same = {name: point[name] for name in ('density', 'num_records',
                                           'epsilon')}
    ratios += [point['mise'] / base['mise'] for base in points.select(
        cells, method=other, notion=notion, **same)]
  return ratios


def _spread(ratios: Sequence[float]) -> str:
  mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
  return f'{min(ratios):.3g} to {max(ratios):.3g}, mean {mean:.3g}'


def _compared(claim, printed, ratios, stands, reason):
  """Returns a verdict on ratios; `stands(ratios)` decides if the claim holds.
  """
  return points.judged(claim, printed, ratios, lambda of: (
      _spread(of), stands(of), f'{reason}; {len(of)} settings'))


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on the items DEN-B10 to DEN-B12: signs and sizes."""
  cells = points.collect(rows)
  return [*_levels(cells), *_merging(cells), *_sparse(cells)]


def _above(least):
  return lambda ratios: min(ratios) > least


def _mostly(ratios):
  return math.prod(ratios) > 1


def _levels(cells):
  # Budgets of item DEN-B10.
  cells = points.select(cells, epsilon=(0.1, 0.2, 0.5))

  def ratios(method, other):
    return _ratios(cells, method, other, 'pure', sweep.DENSITIES['pure'])
  return [
      _compared('a tree errs more than a dyadic histogram, both at their best '
                'level', '1.5 to 4.0 times', ratios('tree', 'dyadic'),
                _above(1), 'only the direction is checked; the ratio is near 1 '
                           'where sampling error dominates'),
      _compared('a tree read at its leaves errs more', '7 to 470 times',
                ratios('leaves', 'dyadic'), _above(1),
                'only the direction is checked; 8 levels are too many for '
                'small budgets'),
      _compared('wavelets err more than the oracle histogram', '2 to 70 times',
                ratios('haar', 'oracle'), _above(1), 'the sign'),
      _compared('thresholds of wavelets gain', '1.8 times',
                ratios('haar_all', 'haar'), _mostly, 'the mean')]


def _merging(cells):
  def ratios(method, other, densities):
    return _ratios(cells, method, other, 'pure', densities)
  return [
      _compared('merging errs more than the oracle histogram on smooth '
                'densities', '2.4 times',
                ratios('merged', 'oracle', _SMOOTH['pure']), _above(1),
                'the sign'),
      _compared('merging gains on the printed histogram on blocks',
                '1.43 times', ratios('printed', 'merged', ('blocks',)),
                _mostly, 'the mean'),
      _compared('the adaptive estimator gains on the printed histogram on '
                'blocks', '1.71 times for cosines',
                ratios('printed', 'adaptive', ('blocks',)), _mostly,
                'the mean; splines here')]


def _sparse(cells):
  def ratios(method, other, densities):
    return _ratios(cells, method, other, 'zcdp', densities)
  best = [min(each) for each in zip(*(
      ratios(f'sparse_{count}', 'exact', _SMOOTH['zcdp'])
      for count in sweep.ROUNDS))]
  return [
      _compared('one round gains on the oracle projection on one high '
                'frequency', '37 to 92 times',
                ratios('exact', 'sparse_1', ('cos30',)), _above(30),
                'projection with exact sensitivities'),
      _compared('one round gains on that of printed sensitivities', '-',
                ratios('projection', 'sparse_1', ('cos30',)), _above(30),
                'the same density'),
      _compared('one round gains on the adaptive estimator there',
                '175 times at (10^4, .1)',
                ratios('sums', 'sparse_1', ('cos30',)),
                _above(30), 'which keeps all lower frequencies as well'),
      _compared('sparse spectra err more than the oracle projection on smooth '
                'densities', '1.5 to 2.9 times, best T', best, _above(1),
                'the best of ' + ', '.join(map(str, sweep.ROUNDS)))]


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws the error against epsilon at n = 10^5, one column for each density.
  """
  cells = points.select(points.collect(rows), num_records=1e5)
  drawn, axes = plots.new(2, 3, width=3.2, height=3.0)
  for line, (notion, densities) in zip(axes, sweep.DENSITIES.items()):
    methods = [method for method in _METHODS[notion] if method not in (
        'dyadic', 'leaves', 'haar_all')]
    for ax, density in zip(line, densities):
      of = points.select(cells, notion=notion, density=density)
      for series, method in enumerate(methods):
        points.curve(ax, points.select(of, method=method), 'epsilon', 'mise',
                     _LABELS[method], series=series,
                     line='--' if method in sweep.EXACT else '-')
      points.finish(ax, 'epsilon' if notion == 'pure' else
                    'epsilon, rho = epsilon^2 / 2', 'error (MISE)',
                    density, legend=False)
    # The legend is to the right of the axes, where it hides no curve.
    line[-1].legend(loc='center left', bbox_to_anchor=(1.02, 0.5), fontsize=8)
  return drawn
