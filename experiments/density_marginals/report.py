"""Makes the table of errors, a figure, and verdicts on private trees."""

from collections.abc import Sequence
from typing import Any

from dpjax.report import plots
from dpjax.report import tables
from experiments import points
from experiments import records
from experiments import verdicts
from experiments.density_marginals import chain
from experiments.density_marginals import sweep

# Stored errors of item DEN-B13: n, epsilon, then one error for each method in
# the order of `sweep.METHODS`.
REFERENCE = (
    (1e4, 0.1, 135, 18.6, 6.32, 2.04, 4.70, 0.407),
    (1e4, 1.0, 1.755, 0.919, 6.26, 0.083, 0.115, 0.413),
    (1e5, 0.1, 1.384, 0.602, 6.27, 0.033, 0.060, 0.041),
    (1e5, 1.0, 0.055, 0.050, 6.27, 0.006, 0.007, 0.041),
    (1e6, 1.0, 0.004, 0.004, 6.27, 0.001, 0.001, 0.004))
_LABELS = {'flat': 'all cells, Laplace', 'flat_simplex': 'all cells, simplex',
           'independent': 'independent', 'tree': 'tree, known',
           'private_tree': 'tree, private', 'not_private':
           'all cells, no privacy'}


def table(rows: Sequence[records.Row]) -> str:
  """Returns the table of errors by n and epsilon, above the stored errors."""
  cells = points.collect(rows)
  lines = []
  for size, epsilon in points.distinct(cells, 'num_records', 'epsilon'):
    of = points.select(cells, num_records=size, epsilon=epsilon)
    lines.append((f'{size:g}', f'{epsilon:g}', *(
        _cell(points.select(of, method=method)) for method in sweep.METHODS)))
    lines += [('', 'DEN-B13', *(f'{value:g}' for value in line[2:]))
              for line in REFERENCE if line[:2] == (size, epsilon)]
  return ('Mean squared errors of the density of 4096 cells; the error of the '
          f'uniform density is {chain.energy():.2f}. In brackets, the share of '
          'releases with the true tree.\n\n' + tables.markdown(
              ('n', 'epsilon', *_LABELS.values()), lines))


def _cell(cells: Sequence[points.Point]) -> str:
  if not cells:
    return '-'
  values = cells[0].values
  text = f'{values["mse"]:.3g}'
  if 'mse_se' in values:
    text += f' ± {values["mse_se"]:.1g}'
  return text + (f' ({values["right"]:.2f})' if 'right' in values else '')


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on the table of item DEN-B13 and on the gain of trees."""
  cells = points.collect(rows)
  trees = [(point, points.select(
      cells, method='flat_simplex', num_records=point['num_records'],
      epsilon=point['epsilon'])[0]) for point in points.select(
          cells, method='private_tree') if any(
              line[:2] == (point['num_records'], point['epsilon'])
              for line in REFERENCE)]
  gains = {(tree['num_records'], tree['epsilon']): flat['mse'] / tree['mse']
           for tree, flat in trees}
  return [
      points.judged('table DEN-B13 is reproduced', 'within 15 % and noise',
                    cells, _reference),
      points.judged('a private tree gains at (10^4, 1)', '3 at least', [
          tree for tree, _ in trees if tree['epsilon'] == 1.0
          and tree['num_records'] == 1e4], lambda of: (
              f'{gains[1e4, 1.0]:.1f}', gains[1e4, 1.0] >= 3,
              'compared with the density nearest to the flat table')),
      points.judged('a private tree gains over the nearest density to the flat '
                    'table', '4 to 10', [tree for tree, _ in trees],
                    lambda of: (f'{min(gains.values()):.1f} to '
                                f'{max(gains.values()):.1f}',
                                min(gains.values()) > 3.5,
                                f'{len(gains)} settings')),
      points.judged('a private tree beats a flat table without privacy',
                    'at epsilon 1', points.select(
                        cells, method='private_tree', epsilon=1.0,
                        num_records=(1e4, 1e5, 1e6)),
                    lambda of: _beats(of, cells)),
      points.judged('independent attributes keep their bias', '6.26 to 6.32',
                    points.select(cells, method='independent',
                                  num_records=(1e4, 1e5, 1e6)), _bias)]


def _reference(cells):
  worst, count = {}, 0
  for size, epsilon, *wanted in REFERENCE:
    for method, value in zip(sweep.METHODS, wanted, strict=True):
      for point in points.select(cells, method=method, num_records=size,
                                 epsilon=epsilon):
        # Stored values are rounded to half a unit of their last digit.
        slack = (0.15 * value + 4 * point.values.get('mse_se', 0.0)
                 + (0.0005 if value < 5 else 0.5))
        worst[f'{method}, n = {size:g}, epsilon = {epsilon:g}'] = abs(
            point['mse'] - value) / slack
        count += 1
  name = max(worst, key=worst.get)
  return (f'{sum(v <= 1 for v in worst.values())} of {count}',
          worst[name] <= 1, f'farthest: {worst[name]:.2f} of the tolerance, '
                            f'{name}; its distribution on the cells is known '
                            'only by two numbers')


def _beats(cells, everything):
  gains = [flat['mse'] / tree['mse'] for tree in cells
           for flat in points.select(
               everything, method='not_private', epsilon=1.0,
               num_records=tree['num_records'])]
  return (f'by {min(gains):.1f} to {max(gains):.1f}', min(gains) > 1,
          f'{len(gains)} sizes')


def _bias(cells):
  errors = [point['mse'] for point in cells]
  return (f'{min(errors):.2f} to {max(errors):.2f}',
          6.2 < min(errors) and max(errors) < 6.4, f'{len(errors)} settings')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws the error against n, with one axes for each epsilon."""
  cells = points.collect(rows)
  drawn, axes = plots.new(1, 2, height=3.2)
  for ax, epsilon in zip(axes[0], sweep.EPSILONS):
    for series, method in enumerate(sweep.METHODS):
      points.curve(ax, points.select(cells, method=method, epsilon=epsilon),
                   'num_records', 'mse', _LABELS[method], series=series,
                   line='--' if method in sweep.EXACT else '-')
    ax.axhline(chain.energy(), color='black', linewidth=0.8, linestyle=':',
               label='uniform')
    points.finish(ax, 'records n', 'mean squared error of the density',
                  f'epsilon = {epsilon:g}', legend=False)
  lines, labels = axes[0][0].get_legend_handles_labels()
  drawn.legend(lines, labels, loc='outside right center', fontsize=8)
  return drawn
