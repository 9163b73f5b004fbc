"""The map of regimes, and slopes of its boundaries."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpjax.report import plots
from dpjax.report import tables
from experiments import points
from experiments import records
from experiments import verdicts
from experiments.density_crossover import sweep

_LABELS = {'histogram': 'histogram, pure', 'zcdp_histogram': 'histogram, zCDP',
           'pure_printed': 'Fourier, pure, printed noise',
           'pure_exact': 'Fourier, pure, exact sensitivity',
           'spectral': 'spectral, pure',
           'zcdp_printed': 'Fourier, zCDP, printed noise',
           'zcdp_exact': 'Fourier, zCDP, exact sensitivity'}
_TOLERANCE = 0.02


def predicted(method: str, smoothness: float) -> float:
  """Returns the exponent of n in the boundary alpha, as theory predicts it.

  It equates the noise and the sampling term of the theorems.
  """
  if 'histogram' in method:
    return -1 / 3
  if method in ('pure_printed', 'pure_exact'):
    return -(smoothness - 0.5) / (2 * smoothness + 1)
  return -smoothness / (2 * smoothness + 1)


def _points(rows: Sequence[records.Row]) -> list[points.Point]:
  cells = points.collect(rows)
  for point in cells:
    point.fields['smoothness'] = float(
        point['dataset'][-1]) if 'sob' in point['dataset'] else 1.0
  return cells


def table(rows: Sequence[records.Row]) -> str:
  """Returns tables of slopes and prefactors of boundaries, and of boundaries.
  """
  cells = _points(rows)
  curves = points.distinct(cells, 'method', 'smoothness')
  lines = []
  for method, order in curves:
    of = points.select(cells, method=method, smoothness=order)
    theory = predicted(method, order)
    prefactor = _prefactor(of, 'doubling', theory)
    lines.append((_LABELS[method], of[0]['dataset'], f'{theory:.3f}', *(
        f'{points.slope(of, "num_examples", name):.3f}'
        for name in ('doubling', 'equal')), f'{prefactor:.2f}'))
  return ('Budgets alpha, epsilon or sqrt(rho), where the error is twice that '
          'without noise (doubling), and where noise and sampling contribute '
          'equally (equal), against n from 10^3 to 10^9: slopes of logarithms; '
          'the prefactor is that of doubling, for the theoretical exponent of '
          'n.\n\n' + tables.markdown(
              ('estimator', 'density', 'theory', 'doubling', 'equal',
               'prefactor'), lines)
          + '\nThe boundaries; below `trivial`, the uniform density has the '
            'smaller error.\n\n'
          + points.table(cells, ('method', 'dataset', 'num_examples'),
                         ('doubling', 'equal', 'trivial')))


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on the thresholds in the text, and on erratum DEN-E2."""
  cells = _points(rows)
  return [
      points.judged('the crossover of histograms is n^(-1/3) in epsilon and '
                    'sqrt(rho)', '-0.333', points.select(
                        cells, method=sweep.HISTOGRAMS), _slopes),
      points.judged('the crossover of histograms is 2.64 n^(-1/3) in epsilon',
                    '2.64, for L = 2', points.select(
                        cells, method='histogram'), _bend),
      points.judged('the crossover of the pure Fourier estimator is n^(-(beta '
                    '- 1/2) / (2 beta + 1))', '-0.167, -0.300, -0.357',
                    points.select(cells, method=('pure_printed',
                                                 'pure_exact')), _slopes),
      points.judged('the crossover of zCDP is n^(-(2 beta + 2) / (2 beta + 1)) '
                    'in rho', '-1.333, -1.200, -1.143', points.select(
                        cells, method=('zcdp_printed', 'zcdp_exact')), _rho),
      points.judged('setting the two terms equal gives the crossover n^(-2 '
                    'beta / (2 beta + 1))',
                    '-0.667, -0.800, -0.857', points.select(
                        cells, method=('zcdp_printed', 'zcdp_exact')),
                    lambda of: _slopes(of, 2)),
      points.judged('the crossover of pure privacy by a histogram is n^(-beta '
                    '/ (2 beta + 1))', '-0.333, -0.400, -0.429', points.select(
                        cells, method='spectral'), _slopes)]


def _by_curve(cells):
  return [(method, order, points.select(cells, method=method,
                                        smoothness=order))
          for method, order in points.distinct(cells, 'method', 'smoothness')]


def _slopes(cells, power=1):
  off = {(method, order): points.slope(of, 'num_examples', 'doubling')
         - predicted(method, order) for method, order, of in _by_curve(cells)}
  texts = [f'{power * (predicted(*key) + value):.3f}'
           for key, value in off.items()]
  return (', '.join(texts), max(map(abs, off.values())) < _TOLERANCE,
          f'at most {max(map(abs, off.values())):.3f} from the theory; '
          f'tolerance {_TOLERANCE} in alpha; slopes where the error doubles')


def _rho(cells):
  slopes = {(method, order): 2 * points.slope(of, 'num_examples', 'doubling')
            for method, order, of in _by_curve(cells)}
  stands = all(abs(slope + (2 * order + 2) / (2 * order + 1)) < 2 * _TOLERANCE
               for (_, order), slope in slopes.items())
  return (', '.join(f'{slope:.3f}' for slope in slopes.values()), stands,
          'slopes in rho where the error doubles; erratum DEN-E2')


def _prefactor(cells, name, exponent):
  """Returns the geometric mean of p[name] / n^exponent over points."""
  return float(np.exp(np.mean([
      np.log(p[name] / p['num_examples']**exponent) for p in cells])))


def _bend(cells):
  mean = _prefactor(cells, 'equal', -1 / 3)
  return (f'{mean:.2f} n^(-1/3)', abs(mean / 2.64 - 1) < 0.25,
          'where noise and sampling contribute equally with the bins that are '
          'best for their sum; 2.64 uses the bins that are best without noise; '
          'within 25 %')


_PANELS = (('Lipschitz (tent2)', ('histogram', 'zcdp_histogram')),
           ('Fourier, pure, printed noise', ('pure_printed',)),
           ('spectral, pure', ('spectral',)),
           ('Fourier, zCDP, exact sensitivity', ('zcdp_exact',)))


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws the boundaries of regimes in the plane of n and alpha.

  Dotted lines have the exponents of the theory.
  """
  cells = _points(rows)
  drawn, axes = plots.new(2, 2, width=4.6, height=3.6)
  for ax, (title, methods) in zip(axes.ravel(), _PANELS):
    _shade(ax, points.select(cells, method=methods[0]))
    series = 0
    for method in methods:
      for order, in points.distinct(points.select(cells, method=method),
                                    'smoothness'):
        of = points.select(cells, method=method, smoothness=order)
        label = (_LABELS[method] if 'histogram' in method
                 else f'beta = {order:g}')
        points.curve(ax, of, 'num_examples', 'doubling', label, series=series)
        _theory(ax, of, predicted(method, order), series)
        series += 1
    points.finish(ax, 'records n', 'alpha: epsilon, or sqrt(rho)', title)
    ax.set_ylim(1e-6, 60)
    ax.legend(fontsize=7, loc='upper right', ncols=2, frameon=False)
  return drawn


def _theory(ax, cells, exponent, series):
  xs = np.array(sorted(p['num_examples'] for p in cells))
  ax.plot(xs, _prefactor(cells, 'doubling', exponent) * xs**exponent, ':',
          color='black', linewidth=1, label=f'n^{exponent:.3f}')


def _shade(ax, cells):
  """Shades where noise dominates and where the uniform density is better.

  The boundaries are those of one beta: 2 if it was run.
  """
  orders = [order for order, in points.distinct(cells, 'smoothness')]
  if not orders:
    return
  order = 2.0 if 2.0 in orders else orders[0]
  of = sorted(points.select(cells, smoothness=order),
              key=lambda p: p['num_examples'])
  at = f' (beta = {order:g})' if 'sob' in of[0]['dataset'] else ' (pure)'
  xs = [p['num_examples'] for p in of]
  upper = [p['doubling'] for p in of]
  lower = [p['trivial'] for p in of]
  ax.fill_between(xs, 1e-9, lower, color='0.6', alpha=0.5, linewidth=0)
  ax.fill_between(xs, lower, upper, color=plots.COLOURS[4], alpha=0.15,
                  linewidth=0)
  middle = len(xs) // 2
  ax.text(xs[middle], np.sqrt(lower[middle] * upper[middle]),
          f'noise dominates{at}', ha='center', fontsize=8)
  ax.text(1.5 * xs[0], 2e-6, 'worse than uniform', fontsize=8)
  ax.text(1.5 * xs[0], 3, 'sampling dominates', fontsize=8)
