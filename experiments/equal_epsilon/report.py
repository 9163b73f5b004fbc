"""Compares methods by paired differences of test accuracy."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dpjax.report import plots
from dpjax.report import tables
from experiments import points
from experiments import records
from experiments import verdicts
from experiments.equal_epsilon import designs
from experiments.equal_epsilon import techniques

# A difference is clear if it is a gain for somebody, and so many standard
# errors of the mean of paired differences over five seeds.
_GAIN, _CLEAR = 0.005, 4.0
_PLAIN = 'poisson'
_BASELINES = ((_PLAIN, 'sgd'), (_PLAIN, 'momentum'))
# Method -> (claim of its authors, methods that it is said to exceed).
_CLAIMS = {
    (_PLAIN, 'low_pass'): ('more accurate than SGD without the filter',
                           ((_PLAIN, 'sgd'),)),
    (_PLAIN, 'kalman'): ('more accurate than DP-SGD', ((_PLAIN, 'sgd'),)),
    (_PLAIN, 'sharpness'): ('more accurate than DP-SGD', ((_PLAIN, 'sgd'),)),
    (_PLAIN, 'frequencies'): ('more accurate than DP-SGD and DiSK',
                              ((_PLAIN, 'sgd'), (_PLAIN, 'kalman'))),
    (_PLAIN, 'averaged'): ('more accurate than the last weights',
                           ((_PLAIN, 'sgd'),)),
    (_PLAIN, 'noise_corrected_adam'): ('more accurate than Adam',
                                       ((_PLAIN, 'adam'),))}


class Best(NamedTuple):
  """The chosen configuration of a method on a data set.

  Attributes:
    rate: learning rate.
    own: own parameter.
    held_out: mean accuracy on held-out records, by which it was chosen.
    test: accuracies on test records, in the order of seeds.
    stddev: noise in sums of gradients, see `run.mean_stddev`.
  """
  rate: float
  own: float
  held_out: float
  test: np.ndarray
  stddev: float


Method = tuple[str, str]
"""Names of a design and of an optimiser, which together are compared."""


def chosen(cells: Sequence[points.Point]) -> dict[tuple[str, Method], Best]:
  """Returns the best configuration of each data set and method."""
  result = {}
  for dataset, design, method in points.distinct(cells, 'dataset', 'design',
                                                 'method'):
    mine = points.select(cells, dataset=dataset, design=design, method=method)
    tried = []
    for rate, own in points.distinct(mine, 'rate', 'own'):
      runs = sorted(points.select(mine, rate=rate, own=own),
                    key=lambda run: run['seed'])
      tried.append(Best(
          rate, own, float(np.mean([run['held_out_accuracy'] for run in runs])),
          np.array([run['test_accuracy'] for run in runs]),
          runs[0]['mean_stddev']))
    result[dataset, (design, method)] = max(tried,
                                            key=lambda best: best.held_out)
  return result


def difference(one: Best, other: Best) -> tuple[float, float]:
  """Returns mean and standard error of paired differences of test accuracy."""
  pairs = one.test - other.test
  return float(pairs.mean()), float(pairs.std(ddof=1) / pairs.size**0.5)


def table(rows: Sequence[records.Row]) -> str:
  """Returns the table of all methods, with differences to baselines."""
  best = chosen(points.collect(rows))
  lines = []
  for (dataset, method), mine in best.items():
    design, optimizer = method
    cells = [dataset, design, optimizer, _source(method), f'{mine.rate:g}',
             f'{mine.own:g}' if mine.own else '-', f'{mine.stddev:.3g}',
             f'{mine.held_out:.4f}', f'{mine.test.mean():.4f}']
    for name in _BASELINES:
      other = best.get((dataset, name))
      cells.append('-' if name == method or other is None else
                   '{:+.4f} ({:.4f})'.format(*difference(mine, other)))
    lines.append(cells)
  return ('Test accuracy at equal epsilon of the configuration that is best on '
          'held-out records, mean over seeds; in brackets the standard error '
          'of a mean of paired differences. Noise: root mean square over steps '
          'of the standard deviation of sums of mean gradients so far, over '
          'the number of steps.\n\n' + tables.markdown(
              ('data set', 'design', 'optimiser', 'source', 'rate', 'own',
               'noise', 'held out', 'test',
               *(f'minus {name}' for _, name in _BASELINES)), lines))


def _source(method: Method) -> str:
  design, optimizer = method
  return (techniques.TECHNIQUES[optimizer].source if design == _PLAIN else
          designs.DESIGNS[design].source)


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns a verdict on the claim of each method."""
  cells = points.collect(rows)
  judged = [points.judged(f'{method[1]}: {claim}', 'gains at equal epsilon',
                          cells, lambda cells, method=method, rivals=rivals:
                          _gains(cells, method, rivals))
            for method, (claim, rivals) in _CLAIMS.items()]
  others = [name for name in designs.DESIGNS if name != _PLAIN]
  return judged + [
      points.judged(f'{design}: less noise in sums of gradients than Poisson '
                    'batches with independent noise',
                    designs.DESIGNS[design].reported, cells,
                    lambda cells, design=design: _quieter(cells, design))
      for design in others] + [
          points.judged(f'{design}: more accurate than Poisson batches with '
                        'independent noise', 'gains at equal epsilon', cells,
                        lambda cells, design=design: _gains(
                            cells, (design, 'momentum'), _BASELINES[1:]))
          for design in others]


def _gains(cells: list[points.Point], method: Method,
           rivals: Sequence[Method]) -> tuple[str, bool, str]:
  """Judges a method: a clear gain on every data set."""
  best = chosen(cells)
  gains = [difference(best[dataset, method], best[dataset, rival])
           for dataset, in points.distinct(cells, 'dataset')
           for rival in rivals]
  clear = [mean >= max(_GAIN, _CLEAR * error) for mean, error in gains]
  names = ' and '.join(name for _, name in rivals)
  return (f'{min(gains)[0]:+.4f} to {max(gains)[0]:+.4f}', all(clear),
          f'against {names}; clear, by {_CLEAR:g} standard errors and '
          f'{_GAIN:g}, in {sum(clear)} of {len(clear)} comparisons')


def _quieter(cells: list[points.Point], design: str) -> tuple[str, bool, str]:
  """Judges a design by its noise."""
  best = chosen(cells)
  ratios = [best[dataset, (design, 'momentum')].stddev
            / best[dataset, (_PLAIN, 'momentum')].stddev
            for dataset, in points.distinct(cells, 'dataset')]
  return (f'{min(ratios):.3f} to {max(ratios):.3f} times', max(ratios) < 1,
          'root mean square over the steps of the run')


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws the differences to SGD with momentum, by data set."""
  best = chosen(points.collect(rows))
  base = _BASELINES[1]
  methods = [(_PLAIN, name) for name in techniques.TECHNIQUES] + [
      (name, base[1]) for name in designs.DESIGNS if name != _PLAIN]
  methods.remove(base)
  drawn, axes = plots.new(1, 1, width=8, height=3.6)
  ax = axes[0, 0]
  for series, dataset in enumerate(sorted({dataset for dataset, _ in best})):
    known = [place for place, method in enumerate(methods)
             if (dataset, method) in best and (dataset, base) in best]
    gains = [difference(best[dataset, methods[place]], best[dataset, base])
             for place in known]
    ax.errorbar([place + 0.15 * (series - 1) for place in known],
                [mean for mean, _ in gains], [error for _, error in gains],
                label=dataset, linestyle='none', capsize=2,
                color=plots.COLOURS[series],
                marker=plots.MARKERS[series], markersize=4)
  ax.axhline(0.0, color='black', linewidth=.8)
  ax.set_xticks(range(len(methods)), [
      (optimizer if design == _PLAIN else design).replace('_', '\n')
      for design, optimizer in methods], fontsize=6)
  points.finish(ax, '', 'test accuracy minus momentum',
                'tuned alike, epsilon 1; bars: standard error')
  return drawn
