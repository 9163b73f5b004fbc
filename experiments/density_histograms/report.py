"""Rates of private histograms, their bins, and verdicts on claims."""

from collections.abc import Sequence
import math
from typing import Any

import numpy as np

from dpjax.report import plots
from experiments import points
from experiments import records
from experiments import verdicts
from experiments.density_histograms import reference
from experiments.density_histograms import sweep

_METRICS = ('bins', 'mse', 'sampling', 'privacy', 'bias', 'trivial')
# n epsilon^3 at which noise and sampling contribute equally, for L = 2 (item
# DEN-H4).
_CROSSOVER = 2.64


def _collected(rows: Sequence[records.Row]) -> list[points.Point]:
  """Returns points with alpha and n alpha added.

  alpha is epsilon, or the square root of rho.
  """
  cells = points.collect(rows)
  for point in cells:
    alpha = (math.sqrt(point['budget']) if point['notion'] == 'zcdp'
             else point['budget'])
    point.values['alpha'] = alpha
    point.values['signal'] = point['num_records'] * alpha
    if 'largest' in point.values:
      # With noise, n is so large that the error due to noise dominates.
      size = (point['num_records']**(2 / 3) if point['notion'] == 'none'
              else point['signal'])
      for name in ('largest', 'largest_se', 'at_point'):
        point.values[name] *= size
      point.values['log_bins'] = math.log(point['bins'])
  return cells


def table(rows: Sequence[records.Row]) -> str:
  """Returns tables of errors, of numbers of bins, and of largest errors.

  The first has the settings of item DEN-8.1, the second those of DEN-X3.
  """
  cells = _collected(rows)
  return '\n'.join([
      'Mean integrated squared errors in closed form; trivial: the error of '
      'the uniform density. budget: epsilon, or rho of zCDP.\n',
      points.table(points.select(cells, part='table'), (
          'density', 'notion', 'num_records', 'budget', 'method'), _METRICS),
      'Numbers of bins for tent2 by each rule, and the number with the least '
      'error (oracle).\n', points.table(points.select(
          cells, part='bins', method=('oracle', 'printed', 'tuned')),
                         ('num_records', 'budget', 'method'), _METRICS[:5]),
      'Mean of the largest error squared, printed bins, tent1, times n^(2/3) '
      'or n alpha; at_point: the largest mean squared error at a point, times '
      'the same.\n', points.table(points.select(cells, part='largest'), (
          'notion', 'num_records', 'budget'), (
              'bins', 'largest', 'largest_se', 'at_point'))])


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on Theorem 1, related claims, and the gain by tuning.

  Theorem 1 is of Lalanne, Garivier and Gribonval (2023).
  """
  cells = _collected(rows)
  return [*_of_rates(points.select(cells, method='printed')),
          *_of_bins(cells),
          *_of_largest(points.select(cells, part='largest'))]


def _of_rates(printed):
  records_, budgets = (points.select(printed, part=part)
                       for part in ('records', 'budgets'))
  private = [p for p in budgets if 1e-5 <= p['alpha'] <= 1e-3]
  return [
      points.judged('errors of the printed histogram fall with n', 'n^(-2/3)',
                    points.select(records_, budget=10.0), _in_records),
      points.judged('where noise dominates, errors fall with n epsilon',
                    '(n epsilon)^-1', [p for p in records_
                                       if p['signal'] >= 100
                                       and p['privacy'] > 0.8 * p['mse']],
                    lambda of: _slope(of, 'signal', -1)),
      points.judged('errors at n = 10^7 fall with epsilon', 'epsilon^-1',
                    points.select(private, notion='pure'),
                    lambda of: _slope(of, 'alpha', -1)),
      points.judged('errors at n = 10^7 fall with sqrt(rho)', 'sqrt(rho)^-1',
                    points.select(private, notion='zcdp'),
                    lambda of: _slope(of, 'alpha', -1)),
      points.judged('privacy is free for epsilon well above n^(-1/3)',
                    'n^(-2/3), flat', [p for p in budgets
                                       if p['alpha'] >= 0.09],
                    lambda of: _slope(of, 'alpha', 0)),
      points.judged('the rate is the larger of n^(-2/3) and (n epsilon)^-1',
                    'Theorem 1; "max(a + b)" in the introduction',
                    [p for p in records_ if p['signal'] >= 100], _maximum)]


def _of_bins(cells):
  chosen = points.select(cells, part='table')
  return [
      points.judged('the bin size minimises the variance',
                    'h = max(n^(-1/3), (n epsilon)^(-1/2))', points.select(
                        cells, part='bins', method=('fixed', 'printed')),
                    _variance),
      points.judged('the estimate is better than the uniform density',
                    'not in the text',
                    points.select(chosen, method='printed', notion='pure'),
                    _trivial),
      points.judged('printed and oracle errors match independently computed '
                    'values', 'item DEN-8.1, 1 %', points.select(
                        chosen, method=('printed', 'oracle')), _reference),
      points.judged('the error is smallest at the number of bins that '
                    'minimises the bound (DEN-H6)', 'within 1', points.select(
                        cells, part='bins', method=('fixed', 'tuned')), _least),
      points.judged('tuned bins have at most 5 % more error than printed ones',
                    '4.95 times less at L = 1 (DEN-H6)', points.select(
                        chosen, method=('printed', 'tuned')),
                    lambda of: _gain(of, 'tuned', 0.95)),
      points.judged('linear interpolation of tuned heights has a smaller '
                    'error than the printed histogram',
                    'by 2.85 on average (DEN-B8)', points.select(
                        chosen, method=('printed', 'polygon')),
                    lambda of: _gain(of, 'polygon', 1.0))]


def _of_largest(largest):
  return [
      points.judged('histograms are rate-optimal for the largest error',
                    'n^(-2/3)', points.select(largest, notion='none'), _grows),
      *(points.judged(f'largest errors grow as {growth}, {name}',
                      'R^2 above .99 (DEN-X12)',
                      points.select(largest, notion=notion),
                      lambda of, power=power: _linear(of, power))
        for notion, name, growth, power in (
            ('none', 'no privacy', 'ln m', 1), ('zcdp', 'zCDP', 'ln m', 1),
            ('pure', 'pure privacy', '(ln m)^2', 2))),
      points.judged('largest errors match independently computed values',
                    'item DEN-8.5, 4 %', largest, _largest)]


def _in_records(cells):
  slopes = [points.slope(points.select(cells, density=density), 'num_records',
                         'mse')
            for density, in points.distinct(cells, 'density')]
  return (', '.join(f'{slope:.3f}' for slope in slopes),
          all(abs(slope + 2 / 3) < 0.05 for slope in slopes),
          'slopes at epsilon 10, one for each density')


def _slope(cells, along, wanted):
  slope = points.slope(cells, along, 'mse')
  return (f'slope {slope:.3f}', abs(slope - wanted) < 0.05,
          f'{len(cells)} settings')


def _maximum(cells):
  ratios = [p['mse'] / max(p['num_records']**(-2 / 3), 1 / p['signal'])
            for p in points.select(cells, density='tent1')]
  most = 8 + 1 / 12 + 1
  return (f'{min(ratios):.2f} to {max(ratios):.2f} times the maximum',
          0.9 < min(ratios) and max(ratios) < 1.1 * most,
          'tent1; "max" of one sum is a misprint, and at most twice as much')


def _variance(cells):
  texts, stands = [], True
  for size, epsilon in points.distinct(cells, 'num_records', 'budget'):
    of = points.select(cells, num_records=size, budget=epsilon, method='fixed')
    rule = points.select(cells, num_records=size, budget=epsilon,
                         method='printed')
    least = min(of, key=lambda p: p['sampling'] + p['privacy'])
    stands &= all(p['bins'] == least['num_bins'] for p in rule)
    texts += [f'm = {least["num_bins"]:g} minimises it, the rule gives '
              f'{p["bins"]:g}'
              for p in rule]
  return ('; '.join(texts), stands,
          'the rule balances the terms of a bound without their constants')


def _trivial(cells):
  lost = [p for p in cells if p['mse'] >= p['trivial']]
  text = '; '.join(f'{p["mse"]:.3g} against {p["trivial"]:.3g} at n = '
                   f'{p["num_records"]:g}, epsilon = {p["budget"]:g}'
                   for p in lost)
  return (text or 'everywhere', not lost,
          f'the uniform density needs no data and is better in {len(lost)} of '
          f'{len(cells)} settings')


def _reference(cells):
  off, better = [], []
  for notion, lines in (('pure', reference.TABLE),
                        ('zcdp', reference.CONCENTRATED)):
    for (density, size, budget), wanted in lines.items():
      for p in points.select(cells, notion=notion, density=density,
                             num_records=size, budget=budget):
        printed = p['method'] == 'printed'
        ratio = p['mse'] / wanted[1 if printed else 3]
        off.append(abs(ratio - 1))
        if not printed and p['bins'] != wanted[2]:
          better.append(f'{p["bins"]:g} bins, not {wanted[2]}, for {density} '
                        f'at n = {size:g}')
  if not off:
    return '-', False, 'none of the settings'
  return (f'within {max(off):.2%}', max(off) < 0.01,
          f'{len(off)} numbers; better numbers of bins: ' + (
              ', '.join(better) or 'none'))


def _least(cells):
  pairs = []
  for size, epsilon in points.distinct(cells, 'num_records', 'budget'):
    of = points.select(cells, num_records=size, budget=epsilon)
    best = min(points.select(of, method='fixed'), key=lambda p: p['mse'])
    pairs += [(best['num_bins'], p['bins'])
              for p in points.select(of, method='tuned')]
  return (', '.join(f'{best:g} and {rule:g}' for best, rule in pairs),
          all(abs(best - rule) <= 1 for best, rule in pairs),
          'least error of tent2, and bins of the bound')


def _gain(cells, method, least):
  gains = []
  for point in points.select(cells, method=method):
    same = points.select(cells, method='printed', **{
        name: point[name] for name in ('density', 'notion', 'num_records',
                                       'budget')})
    gains += [p['mse'] / point['mse'] for p in same]
  if not gains:
    return '-', False, 'one of the two alone'
  return (f'{np.exp(np.mean(np.log(gains))):.2f} on average, '
          f'{min(gains):.2f} to {max(gains):.2f}', min(gains) >= least,
          f'geometric mean of {len(gains)} settings')


def _grows(cells):
  line = sorted((p['num_records'], p['largest'], p['at_point']) for p in cells)
  return (f'the error times n^(2/3) grows from {line[0][1]:.2f} to '
          f'{line[-1][1]:.2f}',
          line[-1][1] < 1.5 * line[0][1],
          f'at the worst point it grows from {line[0][2]:.2f} to '
          f'{line[-1][2]:.2f}, as proved; for the largest error the optimal '
          'rate is (ln n / n)^(2/3)')


def _linear(cells, power):
  x = np.array([p['log_bins'] for p in cells])**power
  y = np.array([p['largest'] for p in cells])
  if x.size < 3:
    return '-', False, 'too few settings'
  slope, start = np.polyfit(x, y, 1)
  square = np.corrcoef(x, y)[0, 1]**2
  return (f'R^2 = {square:.4f}, slope {slope:.2f}', square > 0.99 and slope > 0,
          f'{start:.2f} at m = 1; {x.size} settings')


def _largest(cells):
  off = []
  for notion, wanted in reference.LARGEST.items():
    of = points.select(cells, notion=notion)
    along = 'num_records' if notion == 'none' else 'signal'
    first = 3 if notion == 'none' else 2
    for p in of:
      place = round(math.log10(p[along])) - first
      off.append(abs(p['largest'] / wanted[place] - 1) - 4 * p['largest_se']
                 / wanted[place])
  return (f'at most {max(off):.1%} more than four standard errors away',
          max(off) < 0.04, f'{len(off)} numbers, some of two digits')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws errors against n, alpha and m, and largest errors against n."""
  cells = _collected(rows)
  drawn, axes = plots.new(2, 3, height=4.1)
  _draw_records(axes[0, 0], points.select(cells, part='records',
                                          density='tent2'))
  _draw_budgets(axes[0, 1], points.select(cells, part='budgets'))
  _draw_largest(axes[0, 2], points.select(cells, part='largest'))
  for ax, (size, epsilon) in zip(axes[1], points.distinct(
      points.select(cells, part='bins'), 'num_records', 'budget')):
    _draw_bins(ax, points.select(cells, part='bins', num_records=size,
                                 budget=epsilon))
  return drawn


def _below(ax, columns):
  """Places the legend below the axes, where it hides no curve."""
  ax.legend(fontsize=7, frameon=False, loc='upper center', ncols=columns,
            bbox_to_anchor=(0.5, -0.15))


def _guide(ax, x, y, power, text):
  """Draws a dotted line of slope `power` on log axes, from (x[0], y)."""
  ax.plot(x, [y, y * (x[1] / x[0])**power], ':', color='black', linewidth=1)
  ax.annotate(text, (x[1], y * (x[1] / x[0])**power), fontsize=7,
              xytext=(2, 0), textcoords='offset points', va='center')


def _draw_records(ax, cells):
  for series, (epsilon,) in enumerate(points.distinct(cells, 'budget')[::-1]):
    for method, line in (('printed', '-'), ('tuned', '--'), ('polygon', ':')):
      points.curve(ax, points.select(cells, budget=epsilon, method=method),
                   'num_records', 'mse', f'{method}, ε = {epsilon:g}'
                   if line == '-' or series == 0 else None, series=series,
                   line=line)
    if 1e3 < (crossing := (_CROSSOVER / epsilon)**3) < 1e8:
      ax.axvline(crossing, color=plots.COLOURS[series], linewidth=0.8,
                 linestyle=(0, (1, 3)),
                 label=f'ε = 2.64 $n^{{-1/3}}$, {epsilon:g}')
  if cells:
    _guide(ax, (1e4, 1e6), 3e-4, -2 / 3, '$n^{-2/3}$')
    _guide(ax, (1e5, 1e7), 3e-2, -1, '$n^{-1}$')
  points.finish(ax, 'records n', 'mean integrated squared error',
                'X1: tent of slope 2, pure privacy', legend=False)
  _below(ax, 2)


def _draw_budgets(ax, cells):
  for series, (notion, name) in enumerate((('pure', 'ε-DP'),
                                           ('zcdp', 'ρ-zCDP'))):
    for method, line in (('printed', '-'), ('tuned', '--'), ('polygon', ':')):
      points.curve(ax, points.select(cells, notion=notion, method=method),
                   'alpha', 'mse', f'{name}, {method}', series=series,
                   line=line)
  if cells:
    _guide(ax, (1e-4, 1e-2), 2e-2, -1, 'slope −1')
    ax.axvline(_CROSSOVER * 1e7**(-1 / 3), color='grey', linewidth=0.8,
               linestyle=(0, (1, 3)), label='2.64 $n^{-1/3}$')
  points.finish(ax, 'ε, or square root of ρ', 'mean integrated squared error',
                'X2: tent of slope 2, $n = 10^7$', legend=False)
  _below(ax, 2)


def _draw_largest(ax, cells):
  names = {'none': 'no privacy, times $n^{2/3}$',
           'zcdp': 'ρ-zCDP, times $n$ √ρ',
           'pure': 'ε-DP, times $n$ ε / 10'}
  for series, (notion, name) in enumerate(names.items()):
    of = points.select(cells, notion=notion)
    if len(of) < 3:
      continue
    unit, power = (10, 2) if notion == 'pure' else (1, 1)
    x = np.array([p['log_bins'] for p in of])
    y = np.array([p['largest'] for p in of]) / unit
    colour = plots.COLOURS[series]
    ax.plot(np.exp(x), y, plots.MARKERS[series], color=colour, markersize=4,
            label=name)
    fine = np.linspace(x.min(), x.max(), 50)
    ax.plot(np.exp(fine), np.polyval(np.polyfit(x**power, y, 1), fine**power),
            '--', color=colour, linewidth=1,
            label='$a + b \\ln m$' if power == 1 else '$a + b (\\ln m)^2$')
    ax.plot(np.exp(x), [p['at_point'] / unit for p in of], ':', color=colour,
            linewidth=1, label='at the worst point')
  points.finish(ax, 'bins m, as printed', 'mean of sup |error|², normalised',
                'X12: tent of slope 1', scales='log linear', legend=False)
  _below(ax, 3)


def _draw_bins(ax, cells):
  fixed = points.select(cells, method='fixed')
  for series, (metric, line) in enumerate((
      ('mse', '-'), ('sampling', '--'), ('privacy', '-.'), ('bias', ':'))):
    # The sampling error of one bin is 0, which logarithmic axes cannot show.
    xs, ys = [p['num_bins'] for p in fixed], [p[metric] or math.nan
                                              for p in fixed]
    ax.plot(xs, ys, line, color=plots.COLOURS[series], linewidth=1.2,
            label='sum of the three' if metric == 'mse' else metric)
  for series, method in enumerate(sweep.METHODS[:3], start=4):
    for p in points.select(cells, method=method):
      ax.plot([p['bins']], [p['mse']], plots.MARKERS[series - 3],
              color=plots.COLOURS[series], markersize=7, label=method,
              linestyle='none', markerfacecolor='none')
  title = (f'X3: n = {cells[0]["num_records"]:g}, ε = {cells[0]["budget"]:g}'
           if cells else '')
  points.finish(ax, 'bins m', 'mean integrated squared error', title,
                legend=False)
  _below(ax, 4)
