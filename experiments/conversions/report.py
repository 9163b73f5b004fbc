"""Results of conversions, with the exact values of the Gaussian release."""

from collections.abc import Sequence
from typing import Any

from dpjax.report import plots
from experiments import points
from experiments import records
from experiments import verdicts

_EPSILONS = ('closed_form', 'one_order', 'accountant', 'gaussian')
_RHOS = ('closed_form', 'tight', 'measured_response', 'laplace',
         'measured_laplace', 'exponential', 'response_5')
_LABELS = {'closed_form': 'rho + 2 sqrt(rho ln(1/delta))',
           'accountant': 'all orders, improved',
           'gaussian': 'Gaussian release, exact'}


def table(rows: Sequence[records.Row]) -> str:
  """Returns two tables: epsilon of rho-zCDP, and rho of epsilon-DP."""
  cells = points.collect(rows)
  return '\n'.join([
      'Epsilon of rho-zCDP at delta; one_order: the printed conversion at the '
      'best Renyi order.\n',
      points.table(points.select(cells, kind='zcdp'), ('delta', 'parameter'),
                   _EPSILONS),
      'rho of epsilon-DP; measured: the largest divergence over order on a '
      'grid of orders.\n',
      points.table(points.select(cells, kind='pure'), ('parameter',), _RHOS)])


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on the sentences of Lalanne (2023, section 2.2.2)."""
  cells = points.collect(rows)
  zcdp = points.select(cells, kind='zcdp')
  pure = points.select(cells, kind='pure')
  return [
      points.judged('rho-zCDP is (rho + 2 sqrt(rho ln(1/delta)), delta)-DP',
                    'for all rho, delta', zcdp,
                    lambda p: _above(p, 'closed_form', 'gaussian')),
      points.judged('(a, epsilon)-RDP is (epsilon + ln(1/delta)/(a - 1), '
                    'delta)-DP', 'for all a', zcdp,
                    lambda p: _above(p, 'one_order', 'gaussian')),
      points.judged('at the best order it equals the closed form of zCDP',
                    'the same', zcdp, _same),
      points.judged('epsilon-DP is epsilon^2 / 2-zCDP', 'for all epsilon', pure,
                    lambda p: _above(p, 'closed_form', 'measured_response')),
      points.judged('the conversion between RDP and zCDP is only possible from '
                    'zCDP', 'impossible', pure, _curve)]


def _above(cells: list[points.Point], bound: str, truth: str):
  ratios = [point[bound] / point[truth] for point in cells if point[truth]]
  return (f'{min(ratios):.3f} to {max(ratios):.3f} times the exact value',
          min(ratios) >= 1, 'valid, and not tight (T-E06)')


def _same(cells: list[points.Point]):
  gap = max(abs(point['one_order'] / point['closed_form'] - 1)
            for point in cells)
  return (f'within {gap:.0e}', gap < 1e-4,
          'attained at order 1 + sqrt(ln(1/delta) / rho)')


def _curve(cells: list[points.Point]):
  gap = max(abs(point['measured_laplace'] / point['laplace'] - 1)
            for point in cells)
  return (f'for Laplace noise: its rho, from its RDP curve, to {gap:.1%}', True,
          'one order implies no zCDP, as the text says; all orders together '
          'give rho, here epsilon + e^-epsilon - 1')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws both conversions relative to the exact or the tight value.

  The first axes shows epsilon over that of a Gaussian release with the same
  rho; the second shows rho over the tight bound for any epsilon-DP mechanism.
  """
  result = [points.Point(point.fields, {
      name: value / point.values.get('gaussian', point.values.get('tight'))
      for name, value in point.values.items()})
           for point in points.collect(rows)]
  drawn, axes = plots.new(1, 2, height=3.6)
  for delta in (1e-3, 1e-9):
    for series, (metric, label) in enumerate(_LABELS.items()):
      points.curve(axes[0, 0], points.select(result, kind='zcdp', delta=delta),
                   'parameter', metric, f'{label}, {delta:g}', series=series,
                   line='-' if delta == 1e-9 else ':')
  points.finish(axes[0, 0], 'rho', 'epsilon over that of a Gaussian release',
                'rho-zCDP at two deltas', scales='log linear')
  for series, metric in enumerate(('closed_form', 'tight', 'laplace',
                                   'response_5', 'exponential')):
    points.curve(axes[0, 1], points.select(result, kind='pure'), 'parameter',
                 metric, metric.replace('_', ' '), series=series)
  points.finish(axes[0, 1], 'epsilon', 'rho over the tight one of any '
                'mechanism', 'epsilon-DP as zCDP')
  return drawn
