"""Gains of post-processing over the printed histogram."""

from collections.abc import Sequence
import math
from typing import Any

import numpy as np

from dpjax.report import plots
from dpjax.report import tables
from experiments import points
from experiments import records
from experiments import verdicts
from experiments.density_post_processing import reference
from experiments.density_post_processing import sweep

_PAIR = ('grid', 'density', 'num_records', 'epsilon')
_TITLES = {'tent2': 'tent of slope 2', 'linear1.5': 'linear, slope 1.5',
           'beta22': 'Beta(2, 2)', 'beta25': 'Beta(2, 5)'}


def _collected(rows: Sequence[records.Row]) -> list[points.Point]:
  """Returns points with n epsilon and the gain over the printed histogram.

  The gain is the printed histogram's error divided by that of the method.
  """
  cells = points.collect(rows)
  printed = {tuple(p[name] for name in _PAIR): p['mse']
             for p in points.select(cells, method='printed')}
  for p in cells:
    p.values['signal'] = p['num_records'] * p['epsilon']
    # Values such as 31.6 and 31.62 are rounded to one place on the axis.
    p.values['decade'] = round(2 * math.log10(p['signal'])) / 2
    before = printed.get(tuple(p[name] for name in _PAIR))
    if before is not None:
      p.values['gain'] = before / p['mse']
  return [p for p in cells if 'gain' in p.values]


def _mean(cells: Sequence[points.Point], name: str = 'gain') -> float:
  return math.exp(np.mean([math.log(p[name]) for p in cells]))


def table(rows: Sequence[records.Row]) -> str:
  """Returns the tables of gains by n epsilon and of catalogue item DEN-8.4."""
  cells = _collected(rows)
  ladder = points.select(cells, grid='ladder')
  decades = [decade for decade, in points.distinct(ladder, 'decade')]
  gains = tables.markdown(
      ('method', *(f'{10**decade:.3g}' for decade in decades)), [
          (method, *(f'{_mean(of):.3g}' for decade in decades if (
              of := [p for p in points.select(ladder, method=method)
                     if p['decade'] == decade])))
          for method in sweep.METHODS[1:]
          if points.select(ladder, method=method)])
  return '\n'.join([
      'Ratio of the error of the printed histogram to that of each method: '
      'geometric means over densities and n, by n epsilon.\n', gains,
      'Mean integrated squared errors.\n', points.table(
          points.select(cells, grid='table'),
          ('density', 'num_records', 'epsilon', 'method'),
          ('bins', 'mse', 'mse_se', 'closed'))])


_LINES = (
    ('lines halve the error of the same heights',
     '1.96, from 1.66 to 2.72 (DEN-B8)', 'tuned', 1.6),
    ('lines err less than the oracle histogram', '1.91 (DEN-B8)', 'oracle',
     1.5),
    ('lines err less than the printed histogram', '2.85 (DEN-B8)', 'printed',
     2.0))


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on the gain by each step, and that projection never hurts.
  """
  cells = _collected(rows)
  ladder = points.select(cells, grid='ladder')
  little = [p for p in ladder if p['decade'] <= 2]
  much = [p for p in ladder if p['decade'] >= 2]
  return [
      points.judged('closed forms match simulated errors', 'exact',
                    [p for p in cells if 'closed' in p.values], _simulated),
      points.judged('projecting onto densities never increases the error',
                    'ratio at most 1',
                    [p for p in cells if 'worst' in p.values], _never),
      points.judged('gains are in the order (d), (c), (a) for n epsilon up to '
                    '100', '1.66, 1.33, 1.14 (DEN-B9)', points.select(
                        little, method=sweep.POSTS), _ordered),
      points.judged('gains are small for n epsilon from 100 on',
                    '1.02 to 1.08 (DEN-B9)',
                    points.select(much, method=sweep.POSTS), _small),
      points.judged('shrinkage does not increase the error',
                    'at least .99 of the printed one', points.select(
                        ladder, method='james_stein'), _harmless),
      *(points.judged(claim, known, points.select(
          much, method=('polygon', other)),
                      lambda of, other=other, least=least: _against(
                          of, other, least))
        for claim, known, other, least in _LINES),
      points.judged('on tuned bins, other post-processing gains little',
                    'at most 1.05 (DEN-B9)', points.select(
                        much, method=('tuned_simplex', 'tuned_shrunk',
                                      'tuned')), _rest),
      points.judged('unimodal fits of fine bins lose to the oracle histogram',
                    '0.75 on average (DEN-B9)', points.select(
                        much, method=('unimodal', 'oracle')), _unimodal),
      points.judged('errors match independently computed values',
                    'item DEN-8.4, 15 %; smaller errors are accepted',
                    points.select(cells, grid='table',
                                  method=reference.METHODS),
                    _reference)]


def _simulated(cells):
  worst = max(abs(p['mse'] - p['closed']) / p['mse_se'] for p in cells)
  return (f'within {worst:.1f} standard errors', worst < 4.5,
          f'{len(cells)} settings')


def _never(cells):
  worst = max(p['worst'] for p in cells)
  return (f'at most {worst:.6f}', worst <= 1 + 1e-9,
          'every single release')


def _gains(cells):
  return {method: _mean(points.select(cells, method=method))
          for method, in points.distinct(cells, 'method')}


def _ordered(cells):
  gains = _gains(cells)
  text = ', '.join(f'{name} {gain:.2f}' for name, gain in gains.items())
  order = [gains[name] for name in ('james_stein', 'simplex', 'fix_mass')
           if name in gains]
  return (text, order == sorted(order, reverse=True),
          f'{len(cells)} settings, on another grid than the values of DEN-B9')


def _small(cells):
  gains = _gains(cells)
  text = ', '.join(f'{name} {gain:.2f}' for name, gain in gains.items())
  return text, 1 <= min(gains.values()) and max(gains.values()) < 1.25, (
      'geometric means')


def _harmless(cells):
  least = min(cells, key=lambda p: p['gain'])
  return (f'ratio at least {least["gain"]:.4f}', least['gain'] > 0.99,
          f'{least["density"]} at n = {least["num_records"]:g}, n epsilon = '
          f'{least["signal"]:g}')


def _ratios(cells, method, other):
  """Returns pairs (error of `other` over that of `method`, point)."""
  lines = {tuple(p[name] for name in _PAIR): p['mse']
           for p in points.select(cells, method=other)}
  return [(lines[key] / p['mse'], p) for p in points.select(
      cells, method=method)
          if (key := tuple(p[name] for name in _PAIR)) in lines]


def _against(cells, other, least):
  ratios = [ratio for ratio, _ in _ratios(cells, 'polygon', other)]
  if not ratios:
    return '-', False, 'one of the two alone'
  mean = math.exp(np.mean(np.log(ratios)))
  return (f'{mean:.2f}, from {min(ratios):.2f} to {max(ratios):.2f}',
          mean >= least, f'geometric mean of {len(ratios)} settings')


def _rest(cells):
  texts, most = [], 0.0
  for method in ('tuned_simplex', 'tuned_shrunk'):
    ratios = [ratio for ratio, _ in _ratios(cells, method, 'tuned')]
    if ratios:
      mean = math.exp(np.mean(np.log(ratios)))
      texts.append(f'{method} {mean:.3f}')
      most = max(most, mean)
  return (', '.join(texts) or '-', 0 < most <= 1.1, 'geometric means')


def _unimodal(cells):
  ratios = _ratios(cells, 'unimodal', 'oracle')
  if not ratios:
    return '-', False, 'one of the two alone'
  mean = math.exp(np.mean([math.log(ratio) for ratio, _ in ratios]))
  best, where = max(ratios, key=lambda pair: pair[0])
  return (f'{mean:.2f}, up to {best:.2f}', mean < 1,
          f'best for {where["density"]} at n = {where["num_records"]:g}, n '
          f'epsilon = {where["signal"]:g}; its number of bins needs no tuning')


def _reference(cells):
  off = {}
  for key, wanted in reference.TABLE.items():
    for method, value in zip(reference.METHODS, wanted, strict=True):
      for p in points.select(cells, method=method, **dict(
          zip(('density', 'num_records', 'epsilon'), key, strict=True))):
        off[f'{method}, {key[0]}, n = {key[1]:g}'] = p['mse'] / value
  if not off:
    return '-', False, 'none of the settings'
  worst, best = (choose(off, key=off.get) for choose in (max, min))
  return (f'{off[best]:.2f} to {off[worst]:.2f} times those values',
          off[worst] <= 1.15,
          f'{len(off)} numbers; most above: {worst}; most below: {best}, whose '
          'number of bins minimises the bound over all integers')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws gains against n epsilon at n = 10^4, one column for each density."""
  cells = points.select(_collected(rows), grid='ladder', num_records=10**4)
  drawn, axes = plots.new(2, 4, width=3.2, height=3.6)
  lower = ('tuned', 'tuned_shrunk', 'polygon', 'oracle', 'unimodal')
  for column, (density, title) in enumerate(_TITLES.items()):
    of = points.select(cells, density=density)
    for ax, methods in zip(axes[:, column], (sweep.POSTS, lower)):
      for series, method in enumerate(methods):
        points.curve(ax, points.select(of, method=method), 'signal', 'gain',
                     method, series=series)
      ax.axhline(1.0, color='black', linewidth=0.8)
      # In the first row gains fall to 1; in the second those of the fine bins
      # rise to 1 from below, which a linear axis would not show.
      top = methods is sweep.POSTS
      points.finish(ax, 'n ε', 'gain over the printed histogram'
                    if column == 0 else '', f'{title}, $n = 10^4$',
                    legend=False,
                    scales='log linear' if top else 'log log')
      if column == 0 and of:
        ax.legend(fontsize=7, frameon=False,
                  loc='upper right' if top else 'lower right')
  return drawn
