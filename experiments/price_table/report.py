"""Table 1 of Barber and Duchi (2014), with measured exponents."""

from collections.abc import Sequence
import math
from typing import Any

import numpy as np

from dpjax.report import plots
from dpjax.report import tables
from experiments import points
from experiments import records
from experiments import verdicts
from experiments.price_table import sweep

_NAMES = {'none': 'none', 'pure': 'epsilon-differential (Def. 1)',
          'smooth': 'smooth (Def. 2)',
          'approx': '(epsilon, delta)-approximate (Def. 3)',
          'kl': 'Kullback-Leibler (Def. 5)',
          'tv': 'total variation (Def. 4)', 'zcdp': 'rho-zCDP, ours'}
_UPPER = {'none': ('shrunk', '1 / n'),
          'pure': ('l2', '(d^2 / (n epsilon)^2)^p'),
          'smooth': ('laplace', '(d^2 / (n epsilon)^2)^p'),
          'approx': ('gaussian', '(d ln(1/delta) / (n epsilon)^2)^p'),
          'kl': ('gaussian', '(d / (n^2 level))^p'),
          'tv': ('gaussian', '(d / (n level)^2)^p'),
          'zcdp': ('gaussian', '(d / (n^2 rho))^p')}
_LOWER = {'none': '1 / n', 'pure': '(d^2 / (n epsilon)^2)^p',
          'smooth': '(d^2 / (n epsilon)^2)^p',
          'approx': '(min(d, ln(1/delta))^2 / (n epsilon)^2)^p',
          'kl': '(1 / (n^2 level))^p; now (d / (n^2 level))^p',
          'tv': '(1 / (n level)^2)^p',
          'zcdp': '(d / (n^2 rho))^p'}
_TOLERANCE = 0.1
# (notion, axis) for which lower bounds are known that grow, unlike the printed
# ones.
_GROWING = (('kl', 'dimension'), ('approx', 'dimension'))
_PRINTED = ('none', 'pure', 'approx', 'kl', 'tv')


def table(rows: Sequence[records.Row]) -> str:
  """Returns Table 1 with measured exponents, followed by all slopes."""
  cells = points.collect(rows)
  lines = []
  for row, name in _NAMES.items():
    notion = 'pure' if row == 'smooth' else row
    method, rate = _UPPER[row]
    lines.append((name, f'{rate} {_cell(cells, notion, method)}',
                  f'{_LOWER[row]} {_cell(cells, notion, "lower")}'))
  lines.append((f'{_NAMES["tv"]}, by a subsample',
                f'1 / (n level) {_cell(cells, "tv", "subsample")}', ''))
  return ('p = (k - 1) / k. Each rate is to be added to 1 / n, which has the '
          'constant 1, and is at most 1. In brackets are measured exponents of '
          'n, d and the level, for k = 2; 4; inf.\n\n'
          + tables.markdown(('privacy', 'upper bound', 'lower bound'), lines)
          + '\n' + points.table(cells, ('notion', 'method', 'axis', 'moment'),
                                ('theory', 'slope', 'risk_0', 'risk_5'),
                                digits=3))


def _cell(cells, notion, method) -> str:
  parts = []
  for k in sweep.MOMENTS:
    slopes = {p['axis']: f'{p["slope"]:.2f}' for p in points.select(
        cells, notion=notion, method=method, moment=k)}
    if slopes:
      parts.append(', '.join(slopes.get(axis, '-') for axis in sweep.AXES))
  return f'[{"; ".join(parts)}]'


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on the exponents of the table, and on open cases."""
  cells = points.collect(rows)
  upper = [p for p in cells if p['method'] not in ('lower', 'subsample')]
  lower = points.select(cells, method='lower')
  of = lambda some, names: [p for p in some if p['notion'] in names]
  return [
      points.judged('upper bounds of Table 1', 'p = (k - 1) / k',
                    of(upper, _PRINTED), _rates),
      points.judged('lower bounds of Table 1', 'p = (k - 1) / k',
                    [p for p in of(lower, _PRINTED)
                     if (p['notion'], p['axis']) not in _GROWING], _rates),
      points.judged('Kullback-Leibler and approximate privacy: lower bounds do '
                    'not grow with d', 'slope 0, and 0 above ln(1 / delta)',
                    [p for p in lower if (p['notion'], p['axis']) in _GROWING],
                    _growing),
      points.judged('upper and lower bounds of rho-zCDP have the same rates '
                    'in n, d and rho',
                    'not in the table', of(upper + lower, ('zcdp',)), _rates),
      points.judged('a subsample attains another rate under total variation '
                    'privacy', 'not in the table', points.select(
                        cells, method='subsample'), _rates),
      points.judged('the lower bound of total variation is tight for k = 2, in '
                    'every dimension', 'open', points.select(
                        cells, notion='tv', moment=2.0), _subsample),
      points.judged('no risk is below its lower bound', 'always', cells,
                    _ordered)]


def _rates(cells):
  off = [abs(p['slope'] - p['theory']) for p in cells]
  worst = cells[int(np.argmax(off))]
  return (f'{len(cells)} slopes within {max(off):.3f}', max(off) < _TOLERANCE,
          f'tolerance {_TOLERANCE}; farthest {worst["notion"]}, '
          f'{worst["method"]}, {worst["axis"]}, k = {worst["moment"]:g}: '
          f'{worst["slope"]:.3f} for {worst["theory"]:.3f}')


def _growing(cells):
  texts = [f'{p["notion"]} {p["slope"]:.2f}' for p in cells]
  return (', '.join(texts), max(p['slope'] for p in cells) < _TOLERANCE,
          'the bound by scores has the dependence on d of the upper bounds, '
          'for k = inf')


def _pairs(cells):
  """Yields (estimator, lower bound) of the same notion, axis and k."""
  for p in cells:
    if p['method'] != 'lower':
      below, = points.select(cells, method='lower', **{
          name: p[name] for name in ('notion', 'axis', 'moment')})
      yield p, below


def _ratios(pair):
  p, below = pair
  return [p[f'risk_{i}'] / below[f'risk_{i}'] for i in range(6)]


def _ordered(cells):
  ratios = np.array([_ratios(pair) for pair in _pairs(cells)])
  texts = []
  for notion, methods in sweep.METHODS.items():
    mine = [min(_ratios(pair)[i] for pair in _pairs(points.select(
        cells, notion=notion, axis=axis, moment=k)))
            for axis, k in points.distinct(points.select(
                cells, notion=notion), 'axis', 'moment') for i in range(6)]
    if mine:
      texts.append(f'{notion} {min(mine):.2f} to {max(mine):.3g}')
  return ('; '.join(texts), ratios.min() >= 1 - 1e-9,
          'the least risk over the best lower bound')


def _subsample(cells):
  ratios = np.array([_ratios(pair) for pair in _pairs(cells)
                     if pair[0]['method'] == 'subsample'])
  return (f'{ratios.min():.2f} to {ratios.max():.2f} times the lower bound',
          ratios.max() < 5, 'attained by the mean of a few records, released '
                            'without noise')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws exponents, measured and of the table, in one panel for each axis."""
  cells = points.collect(rows)
  drawn, axes = plots.new(1, 3, width=3.8, height=3.8)
  labels = {'num_examples': 'n', 'dimension': 'd', 'level': 'the level'}
  kinds = [(notion, method) for notion, methods in sweep.METHODS.items()
           for method in (*methods, 'lower')]
  for ax, axis in zip(axes[0], sweep.AXES):
    for series, k in enumerate(sweep.MOMENTS):
      selected = points.select(cells, axis=axis, moment=k)
      heights = [kinds.index((p['notion'], p['method'])) + 0.2 * (series - 1)
                 for p in selected]
      ax.plot([p['theory'] for p in selected], heights, '|', color='black',
              markersize=9, label='table' if not series else None)
      ax.plot([p['slope'] for p in selected], heights, plots.MARKERS[series],
              color=plots.COLOURS[series], markersize=4, linestyle='none',
              label='k = inf' if math.isinf(k) else f'k = {k:g}')
    points.finish(ax, f'exponent of {labels[axis]}', '', scales='linear linear',
                  legend=False)
    ax.set_yticks(range(len(kinds)))
    ax.set_yticklabels([f'{notion}, {method}' for notion, method in kinds]
                       if ax is axes[0][0] else [])
    ax.invert_yaxis()
  handles, names = axes[0][0].get_legend_handles_labels()
  drawn.legend(handles, names, ncols=4, fontsize=8, frameon=False,
               loc='outside lower center')
  return drawn
