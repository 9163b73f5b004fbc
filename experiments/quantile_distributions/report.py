"""Figure 6.3, and verdicts on the claims about it."""

from collections.abc import Sequence
import math
from typing import Any

import numpy as np

from dpjax.report import plots
from experiments import points
from experiments import records
from experiments import verdicts
from experiments.quantile_distributions import sweep

_LOGARITHMIC = ('pages', 'earnings', 'dividends', *sweep.SURROGATES)
_CONCENTRATED = ('earnings', 'dividends', *sweep.SURROGATES)
_SPREAD = ('ratings', 'pages')


def shares(point: points.Point) -> np.ndarray:
  """Of the bins, [50]."""
  return np.array([point[f'share_{place:02d}']
                   for place in range(sweep.NUM_BINS)])


def table(rows: Sequence[records.Row]) -> str:
  """What is largest."""
  cells = points.collect(rows)
  for point in cells:
    point.values['largest_bin'] = shares(point).max()
  return ('Shares of one bin of 50, and of one value.\n\n' + points.table(
      cells, ('dataset', 'num_draws'), ('lower', 'upper', 'largest_bin',
                                        'largest_atom')))


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Section 6.3.5 on its distributions."""
  cells = points.collect(rows)
  return [
      points.judged('in mixed_<p>_<delta> the atom has probability p, and '
                    'both sides share the rest evenly',
                    'the definition', points.select(
                        cells, dataset=sweep.MIXED), _mixed),
      points.judged('Earnings and Dividends are more concentrated than Ratings '
                    'and Pages', 'much more', points.select(
                        cells, dataset=(*_SPREAD, *_CONCENTRATED)),
                    _concentrated),
      points.judged('Dividends accumulate at 0', 'a big part', points.select(
          cells, dataset='dividends'), _zeros)]


def expected(name: str) -> np.ndarray:
  """Shares [50] of a mixed distribution, by its definition."""
  share, gap = map(float, name.split('_')[1:])
  ends = np.linspace(0, 1, sweep.NUM_BINS + 1)
  left = np.minimum(ends, 0.5 - gap) + np.maximum(ends - 0.5 - gap, 0)
  result = (1 - share) * np.diff(left) / (1 - 2 * gap)
  # 1/2 is the lower end of its bin.
  result[sweep.NUM_BINS // 2] += share
  return result


def _mixed(cells: list[points.Point]):
  worst = 0.0
  for point in cells:
    wanted = expected(point['dataset'])
    spread = np.sqrt(wanted * (1 - wanted) / point['num_draws'])
    gaps = np.abs(shares(point) - wanted)
    worst = max(worst, np.max(gaps / np.maximum(spread, 1e-9)))
  return (f'within {worst:.1f} standard deviations', worst < 5,
          f'{len(cells)} distributions, {sweep.NUM_BINS} bins')


def _concentrated(cells: list[points.Point]):
  largest = {point['dataset']: shares(point).max() for point in cells}
  spread = [largest[name] for name in _SPREAD if name in largest]
  others = [largest[name] for name in _CONCENTRATED if name in largest]
  text = ', '.join(f'{name} {value:.2f}' for name, value in largest.items())
  return (text, bool(spread and others) and min(others) > max(spread),
          'largest share of a bin')


def _zeros(cells: list[points.Point]):
  atom = cells[0]['largest_atom']
  return (f'{atom:.3f} of the draws', atom > 0.5, 'one value')


def figure(rows: Sequence[records.Row]) -> Any:
  """One axes for each distribution."""
  values = {point['dataset']: point for point in points.collect(rows)}
  names = [setting.dataset for setting in sweep.SETTINGS
           if setting.dataset in values]
  drawn, axes = plots.new(2, math.ceil(max(2, len(names)) / 2), width=3.2,
                          height=2.6)
  for ax, name in zip(axes.flat, names):
    point = values[name]
    ends = np.linspace(point['lower'], point['upper'], sweep.NUM_BINS + 1)
    # In the unit of the figure: of 10^7 draws.
    ax.stairs(point['num_draws'] * shares(point), ends, fill=True,
              color=plots.COLOURS[0])
    points.finish(ax, 'value', 'draws', name, legend=False,
                  scales='linear log' if name in _LOGARITHMIC
                  else 'linear linear')
  for ax in axes.flat:
    ax.set_visible(ax.has_data())
  return drawn
