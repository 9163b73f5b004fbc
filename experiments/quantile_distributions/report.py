"""Draws Figure 6.3 of Lalanne (2023) and makes verdicts on its claims."""

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
  """Returns the share of records in each bin, [50]."""
  return np.array([point[f'share_{place:02d}']
                   for place in range(sweep.NUM_BINS)])


def table(rows: Sequence[records.Row]) -> str:
  """Returns a table of the bounds and the largest shares of each data set."""
  cells = points.collect(rows)
  for point in cells:
    point.values['largest_bin'] = shares(point).max()
  return ('Shares of one bin of 50, and of one value.\n\n' + points.table(
      cells, ('dataset', 'num_draws'), ('lower', 'upper', 'largest_bin',
                                        'largest_atom')))


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on what Lalanne (2023, section 6.3.5) says of them."""
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
  """Returns the bin probabilities [50] of the distribution of this name."""
  share, gap = map(float, name.split('_')[1:])
  ends = np.linspace(0, 1, sweep.NUM_BINS + 1)
  left = np.minimum(ends, 0.5 - gap) + np.maximum(ends - 0.5 - gap, 0)
  result = (1 - share) * np.diff(left) / (1 - 2 * gap)
  # 1/2 is the lower end of its bin.
  result[sweep.NUM_BINS // 2] += share
  return result


def _mixed(cells: list[points.Point]):
  """Compares the shares of mixed distributions with their definitions."""
  worst = 0.0
  for point in cells:
    probs = expected(point['dataset'])
    stddevs = np.sqrt(probs * (1 - probs) / point['num_draws'])
    gaps = np.abs(shares(point) - probs)
    worst = max(worst, np.max(gaps / np.maximum(stddevs, 1e-9)))
  return (f'within {worst:.1f} standard deviations', worst < 5,
          f'{len(cells)} distributions, {sweep.NUM_BINS} bins')


def _concentrated(cells: list[points.Point]):
  """Compares the largest bins of concentrated and spread distributions."""
  largest = {point['dataset']: shares(point).max() for point in cells}
  spread = [largest[name] for name in _SPREAD if name in largest]
  concentrated = [largest[name] for name in _CONCENTRATED if name in largest]
  text = ', '.join(f'{name} {value:.2f}' for name, value in largest.items())
  return (text, bool(spread and concentrated) and
          min(concentrated) > max(spread),
          'largest share of a bin')


def _zeros(cells: list[points.Point]):
  """Tests that more than half of the dividends are equal."""
  atom = cells[0]['largest_atom']
  return (f'{atom:.3f} of the draws', atom > 0.5, 'one value')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws a histogram for each distribution."""
  values = {point['dataset']: point for point in points.collect(rows)}
  names = [setting.dataset for setting in sweep.SETTINGS
           if setting.dataset in values]
  drawn, axes = plots.new(2, math.ceil(max(2, len(names)) / 2), width=3.2,
                          height=2.6)
  for ax, name in zip(axes.flat, names):
    point = values[name]
    ends = np.linspace(point['lower'], point['upper'], sweep.NUM_BINS + 1)
    # Counts of draws, as in the printed figure.
    ax.stairs(point['num_draws'] * shares(point), ends, fill=True,
              color=plots.COLOURS[0])
    points.finish(ax, 'value', 'draws', name, legend=False,
                  scales='linear log' if name in _LOGARITHMIC
                  else 'linear linear')
  for ax in axes.flat:
    ax.set_visible(ax.has_data())
  return drawn
