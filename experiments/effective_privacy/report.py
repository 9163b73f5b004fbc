"""Reports effective privacy against noise, and draws Figure 6.6."""

from collections.abc import Sequence
from typing import Any

from dpjax.report import plots
from experiments import points
from experiments import records
from experiments import verdicts

_METRICS = ('largest', 'largest_se', 'least_of_sets', 'most_of_sets', 'fresh',
            'fresh_se')
# Distribution -> values of `largest` at `_SIGMAS`, computed separately for n =
# 21, one data set and 1500 noise vectors.
_KNOWN = {'mixed_0_0': (.71, .71, .60, .58, .52, .41, .19, .065, .027),
          'mixed_0.2_0.1': (.79, .78, .75, .67, .52, .42, .21, .062, .021),
          'mixed_0.5_0.25': (.96, .96, .93, .85, .62, .42, .19, .064, .026)}
_SIGMAS = (1e-4, 1e-3, .01, .03, .1, .3, 1., 3., 10.)


def table(rows: Sequence[records.Row]) -> str:
  """Returns the table of log-ratios by distribution and noise level.
  """
  return ('Largest log-ratios of densities over neighbours of a data set and '
          'points, mean over data sets; `fresh`: for the same neighbour and '
          'point, on independent noise that was not used to choose them, with '
          'its standard error.\n\n' + points.table(
              points.collect(rows), ('dataset', 'sigma'), _METRICS))


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on the claims of the text about Figure 6.6."""
  cells = points.collect(rows)
  least = min((p['sigma'] for p in cells), default=0.0)
  return [
      points.judged('effective privacy is at most epsilon', '<= epsilon',
                    cells, _below),
      points.judged('small noise leaves effective privacy unchanged',
                    'unchanged',
                    [p for p in cells if p['sigma'] <= 1e-3], _plateau),
      points.judged('large noise makes neighbouring data sets harder to '
                    'distinguish', 'less than epsilon', [p for p in cells if p[
                        'sigma'] >= 1], _amplified),
      points.judged('effective privacy increases with the noise',
                    'not in the text', cells,
                    _falling),
      points.judged('without noise, neighbours of X attain epsilon',
                    'two regimes, one at epsilon',
                    points.select(cells, sigma=least), _at_epsilon),
      points.judged('values of single data sets match independently computed '
                    'ones', 'no numbers',
                    [p for p in cells if p['dataset'] in _KNOWN and
                     p['sigma'] in _SIGMAS], _as_known)]


def _below(cells: list[points.Point]):
  worst = max(p['excess_se'] for p in cells)
  return (f'at most {max(p["most_of_sets"] for p in cells):.3f}', worst <= 3,
          'no data set exceeds epsilon by 3 standard errors of its noise')


def _by_distribution(cells: list[points.Point]) -> list[list[points.Point]]:
  return [points.select(cells, dataset=distribution)
          for distribution, in points.distinct(cells, 'dataset')]


def _plateau(cells: list[points.Point]):
  change = max(abs(p['fresh'] - each[0]['fresh'])
              for each in _by_distribution(cells) for p in each)
  return (f'changes by {change:.3f}', change < .05,
          'sigma up to 1e-3 of the range')


def _amplified(cells: list[points.Point]):
  most = max(p['fresh'] for p in cells)
  return (f'at most {most:.3f} from sigma = 1 on', most < .3,
          'where the median is already useless')


def _falling(cells: list[points.Point]):
  worst = max(((b['fresh'] - a['fresh']) / (
      a['fresh_se']**2 + b['fresh_se']**2 + 1e-6)**.5
               for each in _by_distribution(cells)
               for a, b in zip(each, each[1:])),
              default=0.0)
  return (f'rises by {max(worst, 0.0):.1f} standard errors', worst < 4,
          'against sigma, for each distribution')


def _at_epsilon(cells: list[points.Point]):
  values = sorted(p['largest'] for p in cells)
  return (f'{values[0]:.2f} to {values[-1]:.2f}', values[0] > .95,
          'X is fixed, and is not the worst data set')


def _as_known(cells: list[points.Point]):
  ratios = [p['largest'] / _KNOWN[p['dataset']][_SIGMAS.index(p['sigma'])]
            for p in cells]
  return (f'{min(ratios):.2f} to {max(ratios):.2f} times the stored values',
          min(ratios) > .75 and max(ratios) < 1.33,
          'n = 21, other data sets from the same distributions')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws effective epsilon against the noise, by distribution."""
  cells = points.collect(rows)
  drawn, axes = plots.new(1, 1, width=5, height=3.6)
  ax = axes[0, 0]
  for series, (distribution,) in enumerate(points.distinct(cells, 'dataset')):
    each = points.select(cells, dataset=distribution)
    points.curve(ax, each, 'sigma', 'largest', distribution.replace('_', ' '),
                 series=series)
    points.curve(ax, each, 'sigma', 'fresh', '', series=series, line=':')
  ax.axhline(1.0, color='black', linewidth=.8, linestyle='--')
  points.finish(ax, 'standard deviation of the noise / range',
                'effective epsilon', 'median, epsilon 1; dotted: fresh noise')
  return drawn
