"""Epsilon of k releases by every bound, and verdicts on the printed bounds."""

from collections.abc import Sequence
from typing import Any

from dpjax.report import plots
from experiments import points
from experiments import records
from experiments import verdicts

_FORMS = ('basic', 'with_constant', 'without_constant')
_METRICS = (*_FORMS, 'advanced', 'exact', 'zcdp', 'laplace', 'exponential')
_LABELS = {
    'basic': 'A: sum', 'with_constant': 'B', 'without_constant': 'C',
    'advanced': 'first advanced form',
    'zcdp': 'zCDP, pure mechanisms', 'laplace': 'Laplace noise',
    'exponential': 'exponential mechanism'}
# Tolerance for the exact epsilon, whose privacy losses are rounded up on a
# grid.
_ROUNDING = 1e-3


def table(rows: Sequence[records.Row]) -> str:
  """Returns the table of all bounds, with one line for each setting."""
  return ('Epsilon of k releases of (epsilon, release_delta) together; exact: '
          'the least that the guarantees alone allow.\n\n' + points.table(
              points.collect(rows),
              ('epsilon', 'num_uses', 'release_delta', 'slack'), _METRICS))


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on Fact 2.2.4 of Lalanne (2023) and on Proposition 7.8.

  Proposition 7.8 is of the lecture notes that `sweep.ARTEFACT` names.
  """
  cells = points.collect(rows)
  pure = points.select(cells, release_delta=0.0)
  return [
      points.judged('Proposition 7.8: the epsilons add up to a bound', 'always',
                    cells, lambda p: _holds(p, 'basic')),
      points.judged('the smallest of A, B and C is a bound (Fact 2.2.4)',
                    'always', cells, lambda p: _holds(p, *_FORMS)),
      points.judged('the printed bound min(A, B, B)',
                    'min(A, B, B)', cells, _third),
      points.judged('Fact 2.2.4 is sharp: no smaller epsilon holds', 'sharp',
                    cells, _sharp),
      points.judged('the first advanced form is a bound', 'always', cells,
                    lambda p: _holds(p, 'advanced')),
      points.judged('the bound grows as k epsilon^2 + sqrt(k epsilon)',
                    'slope 1/2 in small epsilon',
                    points.select(pure, num_uses=10.0, epsilon=(0.01, 0.1)),
                    _growth)]


def _ratio(point: points.Point, *metrics: str) -> float:
  return min(point[metric] for metric in metrics) / point['exact']


def _holds(cells: list[points.Point], *metrics: str):
  least = min(cells, key=lambda point: _ratio(point, *metrics))
  worst = _ratio(least, *metrics)
  return (f'at least {worst:.4f} times the exact epsilon',
          worst >= 1 - _ROUNDING, f'{len(cells)} settings')


def _third(cells: list[points.Point]):
  smaller = [point for point in cells if point['without_constant'] < min(
      point['basic'], point['with_constant'])]
  return (f'C is the least in {len(smaller)} of {len(cells)}', not smaller,
          'a misprint of min(A, B, C) (T-E09)')


def _sharp(cells: list[points.Point]):
  most = max(cells, key=lambda point: _ratio(point, *_FORMS))
  return (f'up to {_ratio(most, *_FORMS):.3f} times the exact epsilon',
          _ratio(most, *_FORMS) <= 1 + _ROUNDING,
          f'at epsilon {most["epsilon"]:g}, k = {most["num_uses"]:g}; the '
          'triple is an upper bound of the optimal theorem (T-E09)')


def _growth(cells: list[points.Point]):
  if len(cells) < 2:
    return '-', False, 'one epsilon alone'
  slope = points.slope(cells, 'epsilon', 'advanced')
  return (f'slope {slope:.2f}', abs(slope - 0.5) < 0.1,
          'k epsilon^2 + epsilon sqrt(k) is meant (T-E09)')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws every bound divided by the exact epsilon, one axes per epsilon."""
  cells = points.select(points.collect(rows), release_delta=0.0, slack=1e-6)
  ratios = [points.Point(point.fields, {
      name: value / point['exact'] for name, value in point.values.items()})
            for point in cells]
  epsilons = [epsilon for epsilon, in points.distinct(cells, 'epsilon')]
  drawn, axes = plots.new(1, max(1, len(epsilons)), height=3.6)
  for ax, epsilon in zip(axes[0], epsilons):
    for series, metric in enumerate(_LABELS):
      points.curve(ax, points.select(ratios, epsilon=epsilon), 'num_uses',
                   metric, _LABELS[metric], series=series,
                   line='--' if metric in ('basic', 'advanced') else '-')
    points.finish(ax, 'releases k', 'epsilon over the exact one, delta 1e-6',
                  f'{epsilon:g}-DP each', legend=ax is axes[0, 0])
  return drawn
