"""Reports how often answers fail, by randomiser and number of people."""

from collections.abc import Sequence
import math
from typing import Any

from dpjax.report import plots
from experiments import points
from experiments import records
from experiments import verdicts

_METRICS = ('batch_size', 'simulated', 'failure', 'failure_exact',
            'any_failure')


def table(rows: Sequence[records.Row]) -> str:
  """Returns the table of group sizes and failure probabilities by setting."""
  return ('Number of people for one answer, and probability that its error '
          'exceeds the tolerance; any_failure: probability that one of T '
          'answers does.\n\n' + points.table(
              points.collect(rows),
              ('method', 'epsilon', 'tolerance', 'failure_prob', 'num_queries'),
              _METRICS, digits=6))


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on Proposition 7.35 of the lecture notes.

  It is judged as printed, and with the constants that it needs.
  """
  cells = points.collect(rows)
  sound = points.select(cells, method=('bernoulli', 'laplace'))
  return [
      points.judged('Proposition 7.35: 1 / (epsilon tau)^2 people for each '
                    'query are enough', 'with high probability',
                    points.select(cells, method='printed'), _printed),
      points.judged('Proposition 7.35 with constants and ln(T / beta): all '
                    'answers are within tau', 'with probability 1 - beta',
                    sound, _enough),
      points.judged('simulated answers fail as often as computed', '-', cells,
                    _simulated)]


def _printed(cells: list[points.Point]):
  share = [p['failure_exact'] for p in cells]
  return (f'a single answer fails {min(share):.0%} to {max(share):.0%} of the '
          'time', max(p['any_failure'] for p in cells) <= 0.5,
          'Laplace noise of scale 2 / epsilon has variance 8 / epsilon^2, and '
          'ln(T / beta) is missing (L-E14)')


def _enough(cells: list[points.Point]):
  worst = max(p['any_failure'] / p['failure_prob'] for p in cells)
  sizes = {(p['method'], p['epsilon']): p['batch_size'] for p in cells}
  ratios = [size / sizes['bernoulli', epsilon] for (method, epsilon), size
            in sizes.items() if method == 'laplace']
  return (f'one of T fails with probability at most {worst:.1e} beta',
          worst <= 1, 'two-valued answers need '
          f'{min(ratios):.0f} to {max(ratios):.0f} times fewer people than '
          'Laplace noise')


def _simulated(cells: list[points.Point]):
  def off(point):
    exact = point['failure_exact']
    spread = math.sqrt(exact * (1 - exact) / point['simulated'])
    return abs(point['failure'] - exact) / max(spread, 1 / point['simulated'])
  worst = max(map(off, cells))
  return (f'within {worst:.1f} standard errors', worst < 5,
          f'{len(cells)} settings')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws the number of people and the failure probability against epsilon."""
  cells = points.collect(rows)
  drawn, axes = plots.new(1, 2, height=3.4)
  for series, (method,) in enumerate(points.distinct(cells, 'method')):
    chosen = [points.Point(p.fields, p.values | {
        'any_failure': max(p['any_failure'], 1e-9)})
              for p in points.select(cells, method=method)]
    for ax, metric in zip(axes[0], ('batch_size', 'any_failure')):
      points.curve(ax, chosen, 'epsilon', metric, method, series=series)
  points.finish(axes[0, 0], 'epsilon', 'people for one answer')
  for limit, in points.distinct(cells, 'failure_prob'):
    axes[0, 1].axhline(limit, color='0.4', linestyle='--', linewidth=1)
  points.finish(axes[0, 1], 'epsilon', 'probability that one of T fails',
                'at least 1e-9; dashed: beta')
  for ax in axes[0]:
    plots.epsilon_axis(ax, [p['epsilon'] for p in cells])
  return drawn
