"""Widths and coverage of private intervals against n."""

from collections.abc import Sequence
from typing import Any

from dpjax.report import plots
from experiments import points
from experiments import records
from experiments import verdicts
from experiments.price_intervals import sweep

_LABELS = {'karwa_vadhan': 'Karwa and Vadhan, pure',
           'tuned': 'median and exact distribution, pure',
           'gaussian': 'the same, zCDP, rho = epsilon^2 / 2'}


def table(rows: Sequence[records.Row]) -> str:
  """Returns the table of widths and coverage, with one line for each setting.

  `centred` is 0 where there are too few records to find a centre.
  """
  return ('Intervals of 95 % of the mean of N(theta, 1), |theta| <= 100: '
          'coverage and half-width, the half-width without privacy, the '
          'squared error of the value and a lower bound of it; centred is 0 '
          'where there are too few records to find a centre.\n\n'
          + points.table(points.collect(rows), (
              'epsilon', 'num_examples', 'method'), (
                  'coverage', 'coverage_se', 'half', 'free', 'centred', 'risk',
                  'risk_se', 'lower')))


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on coverage, widths and risks, with their stored values.
  """
  cells = points.collect(rows)
  printed = points.select(cells, method='karwa_vadhan')
  ours = points.select(cells, method=('tuned', 'gaussian'))
  golden = [p for p in printed if _key(p) in sweep.PRINTED]
  return [
      points.judged('the printed interval covers theta in 95 % of runs',
                    'for all n and '
                    'epsilon', printed, _holds),
      points.judged('intervals with proved coverage cover theta in 95 % of '
                    'runs', '0.95 or more', ours, _holds),
      points.judged('their coverage is close to 95 % where the centre is '
                    'located',
                    '0.99 at most', [p for p in ours if p['centred']], _tight),
      points.judged('coverage of the printed interval', '.997, .992, .9995',
                    golden, lambda of: _golden(of, 'coverage', 0)),
      points.judged('half-widths of the printed interval', '.326, .268, .057',
                    golden, lambda of: _golden(of, 'half', 1)),
      points.judged('risks of the printed point estimate',
                    '8.5e-3, 7.3e-3, 2.6e-4', golden,
                    lambda of: _golden(of, 'risk', 2)),
      points.judged("dpjax's intervals are shorter at the same guarantee",
                    'everywhere that '
                    'the printed one holds', cells, _shorter),
      points.judged('no estimate has a risk below the lower bound',
                    'everywhere', cells, _above)]


def _key(point):
  return int(point['num_examples']), point['epsilon']


def _holds(cells):
  missing = [p for p in cells
             if p['coverage'] + 4 * p['coverage_se'] < sweep.CONFIDENCE]
  least = min(p['coverage'] for p in cells)
  where = ', '.join(f'n = {n}, epsilon = {epsilon:g}'
                    for n, epsilon in map(_key, missing))
  return (f'at least {least:.3f}', not missing,
          f'the centre is not located at {where}' if missing else
          f'{len(cells)} settings, within 4 standard errors')


def _tight(cells):
  most = max(p['coverage'] - 2 * p['coverage_se'] for p in cells)
  return (f'{min(p["coverage"] for p in cells):.3f} to '
          f'{max(p["coverage"] for p in cells):.3f}', most < 0.99,
          f'{len(cells)} settings')


def _golden(cells, metric, place):
  """Compares a metric with the stored values of `sweep.PRINTED`.

  The tolerance is 4 standard errors plus 1 %.
  """
  stands, texts = True, []
  for point in sorted(cells, key=lambda p: (p['num_examples'], p['epsilon'])):
    wanted = sweep.PRINTED[_key(point)][place]
    slack = 4 * point.values.get(f'{metric}_se', 0.0) + 0.01 * wanted
    texts.append(f'{point[metric]:.3g}')
    stands &= abs(point[metric] - wanted) <= slack
  return ', '.join(texts), stands, 'within 4 standard errors and 1 %'


def _shorter(cells):
  ratios = []
  for point in points.select(cells, method='tuned'):
    other, = points.select(cells, method='karwa_vadhan',
                           num_examples=point['num_examples'],
                           epsilon=point['epsilon'])
    if other['coverage'] + 4 * other['coverage_se'] >= sweep.CONFIDENCE:
      ratios.append(point['half'] / other['half'])
  over = [p['half'] / p['free'] for p in points.select(cells, method='tuned')
          if p['centred']]
  return (f'{min(ratios):.2f} to {max(ratios):.2f} of their width',
          max(ratios) < 1, f'{len(ratios)} settings; {min(over):.2f} to '
                           f'{max(over):.2f} of the width without privacy '
                           'where a centre is located')


def _above(cells):
  ratios = [(p['risk'] + 4 * p['risk_se']) / p['lower'] for p in cells]
  return (f'at least {min(ratios):.3g} times the bound', min(ratios) >= 1,
          f'{len(cells)} settings, within 4 standard errors')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws half-widths (above) and coverage (below), a column for each epsilon.
  """
  cells = points.collect(rows)
  budgets = points.distinct(cells, 'epsilon')
  drawn, axes = plots.new(2, max(len(budgets), 1), width=3.4, height=2.6)
  for column, (epsilon,) in enumerate(budgets):
    wide, held = axes[:, column]
    for series, (method, label) in enumerate(_LABELS.items()):
      shown = points.select(cells, method=method, epsilon=epsilon)
      points.curve(wide, shown, 'num_examples', 'half', label, series=series)
      points.curve(held, shown, 'num_examples', 'coverage', label,
                   series=series, error='coverage_se')
    points.curve(wide, points.select(cells, method='tuned', epsilon=epsilon),
                 'num_examples', 'free', 'without privacy', series=6, line='--')
    held.axhline(sweep.CONFIDENCE, color='black', linewidth=1, linestyle='--')
    first = column == 0
    points.finish(wide, '', 'half-width' if first else '',
                  f'epsilon = {epsilon:g}', legend=False)
    points.finish(held, 'records n', 'coverage' if first else '', '',
                  scales='log linear', legend=False)
    held.set_ylim(-0.05, 1.05)
    wide.set_ylim(0.02, 60)
    sizes = [n for n, in points.distinct(cells, 'num_examples')]
    for ax in (wide, held):
      ax.set_xticks(sizes, [f'{n:g}' for n in sizes])
      ax.set_xticks([], minor=True)
  drawn.legend(*axes[0, 0].get_legend_handles_labels(), ncols=4, fontsize=8,
               loc='outside lower center', frameon=False)
  return drawn
