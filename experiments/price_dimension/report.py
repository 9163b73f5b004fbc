"""Reports risks and bounds against the dimension and the radius."""

from collections.abc import Sequence
from typing import Any

from dpjax.report import plots
from experiments import points
from experiments import records
from experiments import verdicts
from experiments.price_dimension import sweep

_UPPER = ('once', 'shrunk', 'rounds')
_MEASURED = ('coinpress', 'ours')
_COLUMNS = (*_UPPER, 'coinpress', 'ours', 'ours_se', 'lower', 'van_Trees',
            'cube', 'scores', 'ball', 'optimised', 'printed', 'free')
# Metric -> label, number of the colour, line style. Markers show measured
# risks.
_CURVES = {'once': ('upper: clipped once at R + g', 1, '-'),
           'rounds': ('upper: rounds, proven', 2, '-'),
           'lower': ('lower: the best', 0, '-.'),
           'optimised': ('lower: Prop. 4.2.2, optimised', 4, '-.'),
           'printed': ('lower: Prop. 4.2.2, printed', 3, ':'),
           'free': ('without privacy', 6, '--')}
_MARKS = {'coinpress': ('measured: CoinPress', 5), 'ours': (
    'measured: rounds', 6)}
_RATIOS = '1.6, 38, 3.6, 795'
# From this dimension on, the norm of a normal vector varies little relative to
# its mean.
_FROM = 128


def table(rows: Sequence[records.Row]) -> str:
  """Returns the table of all bounds and risks, with one line for each setting.
  """
  return ('Worst squared errors over the ball; coinpress and ours are '
          'measured, with the standard error of ours. Upper bounds: once, '
          'shrunk, rounds. Lower bounds: the best one, then each.\n\n'
          + points.table(
              points.collect(rows), ('kind', 'notion', 'num_examples',
                                     'dimension', 'radius', 'budget'),
              _COLUMNS))


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on theory, claims of Lalanne (2023), and stored values."""
  cells = points.collect(rows)
  wide = points.select(cells, kind='dimension')
  high = [p for p in wide if 'printed' in p.values]
  noisy = [p for p in wide if p['num_examples'] == 10**3
           and p['dimension'] >= _FROM]
  radii = points.select(cells, kind='radius')
  return [
      points.judged('risks lie between lower and upper bounds',
                    'everywhere', cells, _ordered),
      points.judged('the lower bound of Proposition 4.2.2 exceeds the '
                    'non-private risk', 'max{d / n, '
                    'd^2 / (n epsilon)^2}, max{d / n, d / (n^2 rho)}', high,
                    _blind),
      points.judged('the optimised proposition is below the best bound',
                    'printed <= optimised <= best', high, _three),
      points.judged('the least bound under rho grows with d^2',
                    'd / (n^2 rho), printed', points.select(
                        noisy, notion='zcdp'), lambda of: _slope(
                            of, 'lower', 1)),
      points.judged('one clipped mean under rho grows with d^2', 'slope 2',
                    points.select(noisy, notion='zcdp'), lambda of: _slope(
                        of, 'once', 2)),
      points.judged('one clipped mean under epsilon grows with d^3', 'slope 3',
                    points.select(noisy, notion='pure'), lambda of: _slope(
                        of, 'once', 3)),
      points.judged('one round grows with R^2, CoinPress does not',
                    'slopes 2 and 0',
                    [p for p in points.select(radii, notion='zcdp')
                              if p['radius'] >= 100], _radius),
      points.judged('CoinPress against one round', _RATIOS, points.select(
          cells, kind='rounds'), _ratios),
      points.judged('rounds beat CoinPress, by a proven bound', 'measured',
                    [p for p in cells if 'coinpress' in p.values], _beaten)]


def _ordered(cells):
  bad = sum(p['lower'] > min(p[name] for name in (*_UPPER, 'trivial'))
            or any(p[name] + 4 * p[f'{name}_se'] < p['lower']
                   for name in _MEASURED if name in p.values)
            or 'ours' in p.values and (
                p['ours'] - 4 * p['ours_se'] > p['rounds']) for p in cells)
  gaps = [min(p[name] for name in (*_UPPER, 'trivial')) / p['lower']
          for p in cells]
  return (f'{bad} of {len(cells)} out of order', not bad,
          f'best upper over best lower bound: {min(gaps):.2f} to '
          f'{max(gaps):.1f}')


def _blind(cells):
  unseen = [p for p in cells if abs(
      p['printed'] * 65536 * p['num_examples'] / p['dimension'] - 1) < 1e-6]
  costs = [p['lower'] / p['free'] for p in cells]
  return (f'it is d / (65536 n) at {len(unseen)} of {len(cells)} settings',
          len(unseen) < len(cells), f'the best bound is up to {max(costs):.3g} '
          'times the risk without privacy there (erratum E-19)')


def _three(cells):
  ratios = [(p['optimised'] / p['printed'], p['lower'] / p['optimised'])
            for p in cells]
  return (', '.join(f'{min(of):.3g} to {max(of):.3g}' for of in zip(*ratios)),
          min(map(min, ratios)) >= 1, 'ratio of optimised to printed, and of '
                                      'the best to optimised')


def _slope(cells, metric, wanted):
  slope = points.slope(cells, 'dimension', metric)
  return (f'slope {slope:.2f}', abs(slope - wanted) < 0.1,
          f'd from {_FROM} on, n = 10^3, {len(cells)} settings')


def _radius(cells):
  slopes = [points.slope(cells, 'radius', name)
            for name in ('once', 'coinpress', 'rounds')]
  return (', '.join(f'{slope:.2f}' for slope in slopes),
          abs(slopes[0] - 2) < 0.1 and abs(slopes[1]) < 0.1,
          'the last slope is that of the proven bound; R from 100 to 10^4')


def _ratios(cells):
  cells = sorted(cells, key=lambda p: (p['num_examples'], p['radius']))
  ratios = [p['once'] / p['coinpress'] for p in cells]
  wanted = [float(text) for text in _RATIOS.split(', ')][:len(ratios)]
  return (', '.join(f'{ratio:.3g}' for ratio in ratios),
          all(abs(r / w - 1) < 0.2 for r, w in zip(ratios, wanted)),
          'within 20 %; the tail probabilities differ')


def _beaten(cells):
  bounds = [p['rounds'] / p['coinpress'] for p in cells]
  seen = [p['ours'] / p['coinpress'] for p in cells]
  return (f'{min(seen):.2f} to {max(seen):.2f} of its measured risk, '
          f'{min(bounds):.2f} to {max(bounds):.2f} by the proven bound',
          max(seen) < 1.05,
          f'{len(cells)} settings; budgets and clipping bounds minimise the '
          'proven risk')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws risks against d, one column for each n, and against R in the last."""
  cells = points.collect(rows)
  sizes = [n for n, in points.distinct(points.select(
      cells, kind='dimension'), 'num_examples')]
  drawn, axes = plots.new(2, len(sizes) + 1, width=2.9, height=2.7)
  for line, (notion, name) in zip(axes, (('zcdp', 'rho'), ('pure', 'epsilon'))):
    selected = points.select(cells, notion=notion)
    budget = f'{name} = {sweep.BUDGETS[notion]:g}'
    for ax, n in zip(line, sizes):
      _draw(ax, points.select(selected, kind='dimension', num_examples=n),
            'dimension')
      points.finish(ax, 'dimension d, R = sqrt d', 'worst squared error'
                    if ax is line[0] else '', f'n = {n:g}, {budget}',
                    legend=False)
    _draw(line[-1], points.select(selected, kind='radius'), 'radius')
    points.finish(line[-1], 'radius R, d = 10', '', f'n = 10000, {budget}',
                  legend=False)
  seen = {}
  for ax in axes.ravel():
    for handle, label in zip(*ax.get_legend_handles_labels()):
      seen.setdefault(label, handle)
  drawn.legend(seen.values(), seen, ncols=4, fontsize=8,
               loc='outside lower center', frameon=False)
  return drawn


def _draw(ax: Any, shown: Sequence[points.Point], across: str) -> None:
  for name, (label, series, line) in _CURVES.items():
    points.curve(ax, shown, across, name, label, series=series, line=line)
  for curve in ax.get_lines():
    curve.set_marker('')
  for name, (label, series) in _MARKS.items():
    points.curve(ax, shown, across, name, label, series=series,
                 error=f'{name}_se')
