"""Errors of histograms without a curator and with one."""

from collections.abc import Sequence
from typing import Any

from dpjax.report import plots
from experiments import points
from experiments import records
from experiments import verdicts

_METRICS = ('local', 'local_exact', 'local_printed', 'central', 'central_exact',
            'central_add_remove')


def table(rows: Sequence[records.Row]) -> str:
  """Returns the table of errors, with one line for each setting."""
  return ('Expected squared errors, summed over K frequencies; exact: closed '
          'forms.\n\n' + points.table(
              points.collect(rows),
              ('num_categories', 'epsilon', 'num_examples'), _METRICS))


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on Example 7.34 of the lecture notes.

  They cover its two parts, with and without a curator, and the comparison.
  """
  cells = points.collect(rows)
  small = points.select(cells, epsilon=0.1)
  return [
      points.judged('(LDP) mean squared loss',
                    'at most (1 - p_0) e^epsilon / (n p_0 (e^epsilon - 1)^2)',
                    cells, _local),
      points.judged('(LDP) as epsilon -> 0', 'K (1 - 1/K) / (n epsilon^2)',
                    small, _limit),
      points.judged('(DP) the Laplace mechanism',
                    'b = 2 / (n epsilon^2), sensitivity 1/n', cells, _central),
      points.judged('(LDP) rate', '1 / n', cells,
                    lambda p: _slope(p, 'local', -1)),
      points.judged('(DP) rate', '1 / n^2', cells,
                    lambda p: _slope(p, 'central', -2)),
      points.judged('local privacy costs a factor over central privacy',
                    '1 / n', small,
                    _factor)]


def _off(cells: list[points.Point], name: str) -> float:
  return max(abs(p[name] - p[f'{name}_exact']) / p[f'{name}_se']
             for p in cells)


def _local(cells: list[points.Point]):
  ratios = [p['local_exact'] / p['local_printed'] for p in cells]
  return (f'{min(ratios):.3f} to {max(ratios):.3f} of the bound',
          max(ratios) <= 1 and _off(cells, 'local') < 5,
          f'simulated within {_off(cells, "local"):.1f} standard errors of the '
          'exact loss; the bound is valid but not tight')


def _limit(cells: list[points.Point]):
  ratios = [p['local_exact'] * p['num_examples'] * p['epsilon']**2 /
            (p['num_categories'] * (p['num_categories'] - 1)) for p in cells]
  return (f'{max(ratios):.3f} of that at epsilon 0.1',
          abs(max(ratios) - 1) < 0.1, 'exact, for one frequency')


def _central(cells: list[points.Point]):
  ratios = {p['epsilon']: p['central_printed'] / p['central_exact']
            for p in cells}
  text = ', '.join(f'{ratio:.3g} at {epsilon:g}'
                   for epsilon, ratio in sorted(ratios.items()))
  return ('b = 2 / (n epsilon), sensitivity 2/n', all(
      abs(ratio - 1) < 0.01 for ratio in ratios.values()),
          f'simulated within {_off(cells, "central"):.1f} standard errors; the '
          f'printed noise has {text} times the squared error (L-E13)')


def _slope(cells: list[points.Point], metric: str, wanted: int):
  slopes = [points.slope(points.select(cells, epsilon=epsilon),
                         'num_examples', metric)
            for epsilon, in points.distinct(cells, 'epsilon')]
  return (', '.join(f'{slope:.2f}' for slope in slopes), all(
      abs(slope - wanted) < 0.1 for slope in slopes),
          'slopes in n, simulated, by epsilon')


def _factor(cells: list[points.Point]):
  ratios = [p['local_exact'] / p['central_exact'] * 8 /
            (p['num_examples'] * p['num_categories']) for p in cells]
  return (f'{min(ratios):.2f} n K / 8', 0.5 < min(ratios) <= max(ratios) < 2,
          'the ratio of squared errors under replace-one')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws the error against n for each epsilon, in both models."""
  cells = points.collect(rows)
  drawn, axes = plots.new(1, 1, width=5.5, height=4)
  for series, (epsilon,) in enumerate(points.distinct(cells, 'epsilon')):
    chosen = points.select(cells, epsilon=epsilon)
    for name, line in (('local', '-'), ('central', '--')):
      points.curve(axes[0, 0], chosen, 'num_examples', f'{name}_exact',
                   f'{name}, epsilon {epsilon:g}', series=series, line=line)
  points.finish(axes[0, 0], 'records n', 'sum of squared errors')
  return drawn
