"""Compares optimisers by paired differences of test accuracy."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dpjax.report import plots
from dpjax.report import tables
from experiments import points
from experiments import records
from experiments import verdicts
from experiments.private_optimizers import techniques

# The techniques that others are compared with, and what is a clear difference:
# so many standard errors of the mean of five paired differences.
_BASELINES, _CLEAR = ('sgd', 'momentum'), 4.0
# Accuracy that counts as a gain; less is of no use to anybody.
_GAIN = 0.005
# Claims of the papers, about the means over data sets of their own.
_CLAIMS = {
    'low_pass': 'higher accuracy than the optimiser without the filter',
    'kalman': 'higher accuracy than DP-SGD',
    'sharpness': 'higher accuracy than DP-SGD',
    'frequencies': 'higher accuracy than DP-SGD and DiSK',
    'averaged': 'higher accuracy than the last weights',
    'noise_corrected_adam': 'higher accuracy than Adam'}
_RIVALS = {'noise_corrected_adam': ('adam',), 'frequencies': ('sgd', 'kalman')}


class Best(NamedTuple):
  """The chosen configuration of an optimiser on a data set.

  Attributes:
    rate: learning rate.
    own: own parameter.
    held_out: mean accuracy on held-out records, by which it was chosen.
    test: accuracies on test records by seed, in the order of seeds.
  """
  rate: float
  own: float
  held_out: float
  test: np.ndarray


def chosen(cells: Sequence[points.Point]) -> dict[tuple[str, str], Best]:
  """Returns the best configuration of each data set and optimiser."""
  result = {}
  for dataset, method in points.distinct(cells, 'dataset', 'method'):
    mine = points.select(cells, dataset=dataset, method=method)
    tried = []
    for rate, own in points.distinct(mine, 'rate', 'own'):
      runs = sorted(points.select(mine, rate=rate, own=own),
                    key=lambda run: run['seed'])
      tried.append(Best(rate, own, float(np.mean(
          [run['held_out_accuracy'] for run in runs])), np.array(
              [run['test_accuracy'] for run in runs])))
    result[dataset, method] = max(tried, key=lambda best: best.held_out)
  return result


def difference(one: Best, other: Best) -> tuple[float, float]:
  """Returns mean and standard error of paired differences of test accuracy."""
  pairs = one.test - other.test
  return float(pairs.mean()), float(pairs.std(ddof=1) / pairs.size**0.5)


def table(rows: Sequence[records.Row]) -> str:
  """Returns the table of all optimisers, with differences to baselines."""
  best = chosen(points.collect(rows))
  lines = []
  for (dataset, method), mine in best.items():
    cells = [dataset, method, techniques.TECHNIQUES[method].source,
             f'{mine.rate:g}', f'{mine.own:g}' if mine.own else '-',
             f'{mine.held_out:.4f}', f'{mine.test.mean():.4f}']
    for name in _BASELINES:
      other = best.get((dataset, name))
      cells.append('-' if name == method or other is None else
                   '{:+.4f} ({:.4f})'.format(*difference(mine, other)))
    lines.append(cells)
  return ('Test accuracy at equal epsilon of the configuration that is best on '
          'held-out records, mean over seeds; in brackets the standard error '
          'of a mean of paired differences.\n\n' + tables.markdown(
              ('data set', 'optimiser', 'source', 'rate', 'own', 'held out',
               'test', *(f'minus {name}' for name in _BASELINES)), lines))


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns a verdict on the claim of each optimiser."""
  cells = points.collect(rows)
  return [points.judged(f'{method}: {claim}', 'gains at equal epsilon', cells,
                        lambda cells, method=method: _gains(cells, method))
          for method, claim in _CLAIMS.items()]


def _gains(cells: list[points.Point], method: str) -> tuple[str, bool, str]:
  """Judges an optimiser: a clear gain on every data set."""
  best = chosen(cells)
  rivals = _RIVALS.get(method, ('sgd',))
  gains = [difference(best[dataset, method], best[dataset, rival])
           for dataset, in points.distinct(cells, 'dataset')
           for rival in rivals]
  clear = [mean >= max(_GAIN, _CLEAR * error) for mean, error in gains]
  return (f'{min(gains)[0]:+.4f} to {max(gains)[0]:+.4f}', all(clear),
          f'against {" and ".join(rivals)}; clear, by {_CLEAR:g} standard '
          f'errors and {_GAIN:g}, in {sum(clear)} of {len(clear)} comparisons')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws the differences to SGD, by data set."""
  best = chosen(points.collect(rows))
  names = [name for name in techniques.TECHNIQUES if name != 'sgd']
  drawn, axes = plots.new(1, 1, width=6, height=3.6)
  ax = axes[0, 0]
  data = sorted({dataset for dataset, _ in best})
  for series, dataset in enumerate(data):
    known = [place for place, name in enumerate(names)
             if (dataset, name) in best and (dataset, 'sgd') in best]
    gains = [difference(best[dataset, names[place]], best[dataset, 'sgd'])
             for place in known]
    ax.errorbar([place + 0.15 * (series - 1) for place in known],
                [mean for mean, _ in gains], [error for _, error in gains],
                label=dataset, linestyle='none', capsize=2,
                color=plots.COLOURS[series],
                marker=plots.MARKERS[series], markersize=4)
  ax.axhline(0.0, color='black', linewidth=.8)
  ax.set_xticks(range(len(names)), [name.replace('_', '\n') for name in names],
                fontsize=7)
  points.finish(ax, '', 'test accuracy minus SGD',
                'tuned alike, epsilon 1; bars: standard error')
  return drawn
