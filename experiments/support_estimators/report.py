"""Reports squared errors of estimators of the support, by model."""

from collections.abc import Sequence
import math
from typing import Any

from dpjax.report import plots
from experiments import points
from experiments import records
from experiments import verdicts

_METRICS = ('risk', 'risk_se', 'closed_form', 'bias', 'coverage')
_LOCAL = ('local_largest', 'local_doubled_mean')


def table(rows: Sequence[records.Row]) -> str:
  """Returns the table of errors and coverage, with one line for each setting.
  """
  return ('Expected squared errors at theta = 0.7, and coverage of intervals '
          'of confidence 0.95.\n\n' + points.table(
              points.collect(rows), ('method', 'epsilon', 'num_examples'),
              _METRICS))


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on Exercise 7.36 of the lecture notes, model by model."""
  cells = points.collect(rows)
  with_closed_form = [p for p in cells if 'closed_form' in p.values and
                      p['method'] != 'local_largest']
  intervals = [p for p in cells if 'coverage' in p.values]
  curator = points.select(cells, method=('noisy_largest',
                                         'noisy_doubled_mean'))
  return [
      points.judged('(PAC) twice the mean is worse than the maximum',
                    'suboptimal', points.select(
                        cells, method=('largest', 'doubled_mean')), _open),
      points.judged('(DP) the maximum plus Laplace noise estimates theta',
                    'an estimator', points.select(
                        cells, method='noisy_largest'), _inconsistent),
      points.judged('(DP) the average is suboptimal', 'suboptimal', curator,
                    lambda p: _order(p, 'noisy')),
      points.judged('(LDP) the maximum of noisy records estimates theta',
                    'an estimator', points.select(
                        cells, method='local_largest'), _inconsistent),
      points.judged('(LDP) the average is suboptimal', 'suboptimal',
                    points.select(cells, method=_LOCAL),
                    lambda p: _order(p, 'local')),
      points.judged('a private quantile has the rate of the maximum, up to '
                    'logarithms', 'not in the text', points.select(
                        cells, method='top_quantile', epsilon=(1.0, 4.0)),
                    _quantile),
      points.judged('squared errors match their closed forms', 'in part',
                    with_closed_form,
                    _closed),
      points.judged('intervals attain their confidence level',
                    '0.95', intervals,
                    _coverage)]


def _slopes(cells: list[points.Point], metric: str = 'risk') -> list[float]:
  return [points.slope(points.select(cells, method=method, epsilon=epsilon),
                       'num_examples', metric)
          for method, epsilon in points.distinct(cells, 'method', 'epsilon')]


def _open(cells: list[points.Point]):
  mean, largest = _slopes(cells)
  return (f'slopes {largest:.2f} and {mean:.2f} in n', largest < mean - 0.5,
          'theta^2 / n^2 against theta^2 / (3 n)')


def _inconsistent(cells: list[points.Point]):
  slopes = _slopes(cells)
  text = ', '.join(f'{slope:.2f}' for slope in slopes)
  return (f'slopes {text} in n, by epsilon', max(slopes) < -0.5,
          'the error does not vanish as n grows (L-E15)')


def _order(cells: list[points.Point], name: str):
  """Tests which estimator has the smaller error where n epsilon > 20."""
  enough = [p for p in cells if p['num_examples'] * p['epsilon'] > 20]
  ratios = []
  for size, epsilon in points.distinct(enough, 'num_examples', 'epsilon'):
    largest, mean = (points.select(
        enough, method=f'{name}_{what}', num_examples=size, epsilon=epsilon)
                     for what in ('largest', 'doubled_mean'))
    if largest and mean:
      ratios.append(largest[0]['risk'] / mean[0]['risk'])
  if not ratios:
    return '-', False, 'one of the two alone'
  return (f'{min(ratios):.0f} to {max(ratios):.1e} times the smaller error',
          max(ratios) < 1, 'the order is reversed (L-E15)')


def _quantile(cells: list[points.Point]):
  worst = max(math.sqrt(p['risk']) * p['num_examples'] * p['epsilon'] /
              math.log(p['num_examples']) for p in cells)
  return (f'root mean squared error at most {worst:.1f} ln n / (n epsilon)',
          worst < 10, 'EST-05c, inverse sensitivity')


def _closed(cells: list[points.Point]):
  # With few repetitions the estimated standard error is itself random, so that
  # of a normal error is its lower limit.
  worst = max(abs(p['risk'] - p['closed_form']) / max(
      p['risk_se'], p['closed_form'] * math.sqrt(2 / p['repetitions']))
              for p in cells)
  return (f'within {worst:.1f} standard errors', worst < 5,
          f'{len(cells)} settings')


def _coverage(cells: list[points.Point]):
  shares = [p['coverage'] for p in cells]
  # Four standard errors, and 0.01 for distributions that are not quite normal.
  enough = all(p['coverage'] > 0.94 - 4 * math.sqrt(
      0.95 * 0.05 / p['repetitions']) for p in cells)
  return (f'{min(shares):.3f} to {max(shares):.3f}', enough,
          f'{len(cells)} settings, of {min(p["repetitions"] for p in cells):g} '
          'repetitions or more')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws the error against n, with one axes for each epsilon."""
  cells = points.collect(rows)
  methods = [method for method, in points.distinct(cells, 'method')]
  epsilons = [epsilon for epsilon, in points.distinct(cells, 'epsilon')
              if math.isfinite(epsilon)]
  drawn, axes = plots.new(1, max(1, len(epsilons)), height=3.6)
  for ax, epsilon in zip(axes[0], epsilons):
    for series, method in enumerate(methods):
      points.curve(ax, points.select(cells, method=method, epsilon=(
          epsilon, math.inf)), 'num_examples', 'risk',
                   method.replace('_', ' '), series=series)
    points.finish(ax, 'records n', 'expected squared error',
                  f'epsilon {epsilon:g}', legend=ax is axes[0, 0])
  return drawn
