"""Classical noise, compared with the least sufficient noise."""

from collections.abc import Sequence
import math
from typing import Any

from dpjax.report import plots
from experiments import points
from experiments import records
from experiments import verdicts

_NOISE = ('classical', 'least', 'true_epsilon', 'true_delta')
_UTILITY = ('exceeds_printed', 'exceeds_bound', 'exceeds_quantile')


def table(rows: Sequence[records.Row]) -> str:
  """Returns tables of standard deviations, and of failures of utility bounds.
  """
  cells = points.collect(rows)
  return '\n'.join([
      'Standard deviations for sensitivity 1; true: the epsilon of the '
      'classical noise.\n',
      points.table(points.select(cells, kind='noise'), ('delta', 'epsilon'),
                   _NOISE, digits=5),
      'Probability that the largest error exceeds a bound of confidence '
      '0.95.\n',
      points.table(points.select(cells, kind='utility'), ('size',), _UTILITY)])


def crossing(cells: list[points.Point]) -> float:
  """Returns the epsilon from which classical noise is too small.

  Returns NaN if the classical noise is large enough at every epsilon. ln(true
  delta / delta) is interpolated between the points of one delta.

  """
  pairs = sorted((point['epsilon'], math.log(
      point['true_delta'] / point['delta'])) for point in cells)
  for (low, below), (high, above) in zip(pairs, pairs[1:]):
    if below <= 0 < above:
      return low + (high - low) * below / (below - above)
  return math.nan


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on Propositions 7.18 and 7.19 of the lecture notes."""
  cells = points.collect(rows)
  noise = points.select(cells, kind='noise')
  sizes = points.select(cells, kind='utility')
  return [
      *(points.judged(
          f'Proposition 7.18 at delta {delta:g}: (epsilon, delta)-DP',
          'for all epsilon > 0', points.select(noise, delta=delta), _holds)
        for delta, in points.distinct(noise, 'delta') or [(1e-5,)]),
      points.judged('the source of the bound requires epsilon below 1',
                    'epsilon < 1',
                    [p for p in noise if p['epsilon'] < 1], _holds),
      points.judged('Proposition 7.19: the printed bound of the largest error',
                    'exceeded with probability 0.05', sizes,
                    lambda p: _utility(
                        p, 'exceeds_printed', 'the text omits a factor '
                        'sqrt(2), and uses the l1 instead of the l2 '
                        'sensitivity (L-E10)')),
      points.judged('the same with sqrt(2) and the l2 sensitivity', '-', sizes,
                    lambda p: _utility(
                        p, 'exceeds_bound',
                        'it is a bound; the exact quantile is smaller'))]


def _holds(cells: list[points.Point]):
  place = crossing(cells)
  ratios = [point['classical'] / point['least'] for point in cells]
  return ('not from epsilon '
          f'{place:.2f} on' if place == place else 'holds',
          not place == place and min(ratios) >= 1,
          f'the noise is {min(ratios):.3f} to {max(ratios):.3f} times the '
          'least sufficient noise (E23)')


def _utility(cells: list[points.Point], metric: str, reason: str):
  worst = max(point[metric] for point in cells)
  return f'up to {worst:.3f}', worst <= 0.05, reason


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws classical noise over the least noise, and its delta over the target.
  """
  noise = points.select(points.collect(rows), kind='noise')
  drawn, axes = plots.new(1, 2, height=3.4)
  deltas = [delta for delta, in points.distinct(noise, 'delta')]
  for series, delta in enumerate(deltas):
    chosen = [points.Point(p.fields, {
        'noise': p['classical'] / p['least'],
        'delta': p['true_delta'] / delta})
              for p in points.select(noise, delta=delta)]
    for ax, metric in zip(axes[0], ('noise', 'delta')):
      points.curve(ax, chosen, 'epsilon', metric, f'delta {delta:g}',
                   series=series)
  for ax, title in zip(axes[0], ('classical noise over the least',
                                 'true delta over the target')):
    ax.axhline(1, color='0.4', linestyle='--', linewidth=1)
    points.finish(ax, 'epsilon', title)
  return drawn
