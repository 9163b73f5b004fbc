"""Risks of noisy frequencies, projected and not, and their closed form."""

from collections.abc import Sequence
from typing import Any

from dpjax.report import plots
from experiments import points
from experiments import records
from experiments import verdicts

_METRICS = ('raw', 'raw_se', 'closed_form', 'bound', 'projected',
            'projected_se')


def table(rows: Sequence[records.Row]) -> str:
  """Returns the table of risks, with one line for each setting."""
  return ('Expected squared l2 errors of k frequencies.\n\n' + points.table(
      points.collect(rows),
      ('dataset', 'num_categories', 'epsilon', 'num_examples'), _METRICS))


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on equations (2.6) and (2.7) and on the projection."""
  cells = points.collect(rows)
  uniform = points.select(cells, dataset='uniform')
  # Settings where the error due to noise is at least four times that due to
  # sampling.
  noisy = [p for p in uniform if p['closed_form'] * p['num_examples'] > 5]
  return [
      points.judged('risk at the uniform distribution (2.7)',
                    '(1 - 1/k) / n + 8 k / (n epsilon)^2', uniform, _risk),
      points.judged('risk at any distribution (2.6)',
                    'at most 1 / n + 8 k / (n epsilon)^2', cells, _bound),
      points.judged('for epsilon >= sqrt(8 k / n) privacy costs at most a '
                    'constant factor', 'the order of 1 / n', [
                        p for p in uniform if p['epsilon']**2 * p[
                            'num_examples'] >= 8 * p['num_categories']],
                    _free),
      points.judged('the estimate needs a projection onto the simplex',
                    'without it, the estimate is not optimal', noisy,
                    _projected),
      points.judged('the projection never increases the error',
                    'post-processing', cells,
                    _never)]


def _risk(cells: list[points.Point]):
  worst = max(abs(p['raw'] - p['closed_form']) / p['raw_se'] for p in cells)
  return (f'within {worst:.1f} standard errors', worst < 5,
          f'{len(cells)} settings')


def _bound(cells: list[points.Point]):
  ratio = max((p['raw'] - 5 * p['raw_se']) / p['bound'] for p in cells)
  slack = max(p['closed_form'] / p['bound'] for p in cells)
  return (f'at most {slack:.4f} of the bound', ratio <= 1 and slack <= 1,
          'closed form; simulated risks agree with it')


def _free(cells: list[points.Point]):
  worst = max(p['raw'] * p['num_examples'] for p in cells)
  return f'at most {worst:.2f} / n', worst < 2.5, 'each term is at most 1 / n'


def _projected(cells: list[points.Point]):
  ratios = [p['raw'] / p['projected'] for p in cells]
  return (f'{min(ratios):.1f} to {max(ratios):.0f} times less risk with it',
          max(ratios) > 2, 'where noise dominates')


def _never(cells: list[points.Point]):
  share = max(p['farther'] for p in cells)
  return (f'larger in at most {share:.0%} of the repetitions', share == 0,
          'the simplex is convex and contains the true distribution')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws risks against n for each k, with one axes for each epsilon.

  Markers are simulated; dashed lines are the closed form, dotted lines the risk
  after projection.
  """
  cells = points.select(points.collect(rows), dataset='uniform')
  epsilons = [epsilon for epsilon, in points.distinct(cells, 'epsilon')]
  drawn, axes = plots.new(1, max(1, len(epsilons)), height=3.6)
  for ax, epsilon in zip(axes[0], epsilons):
    for series, (k,) in enumerate(points.distinct(cells, 'num_categories')):
      chosen = points.select(cells, epsilon=epsilon, num_categories=k)
      points.curve(ax, chosen, 'num_examples', 'raw', f'k = {k:g}',
                   series=series, error='raw_se')
      points.curve(ax, chosen, 'num_examples', 'closed_form', '_',
                   series=series, line='--')
      points.curve(ax, chosen, 'num_examples', 'projected', '_',
                   series=series, line=':')
    points.finish(ax, 'records n', 'expected squared error',
                  f'epsilon {epsilon:g}; dotted: projected')
  return drawn
