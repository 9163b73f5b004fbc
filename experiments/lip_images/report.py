"""Reports accuracies of our profiles, and draws them beside published ones."""

from collections.abc import Sequence
import math
from typing import Any

from dpjax.report import plots
from dpjax.report import tables
from experiments import papers
from experiments import records
from experiments import summary
from experiments.lip_images import claims
from experiments.lip_images import sweep

verdict = claims.verdict

DE_ET_AL = '''\
Profile de_et_al: DP-SGD with the recipe of De et al. (2022) for WRN-16-4: 16 \
views of each record (reflected crops, mirror images), weight standardisation, \
16 groups, moving average of 0.9999 with warm-up, batches of 4,096 records, \
learning rate 2, clip norm 1, for which rescaling gradients to unit norm \
changes nothing; 875 steps at epsilon 1, 2,500 at epsilon 8. Unlike theirs, \
batches are Poisson samples, noise is calibrated to epsilon, pixels are scaled \
to [-1, 1] and not by channel, kernels have no gains, normalisations come \
before the ReLU and have no scales and offsets, shortcuts have no \
normalisation, and parameters start as by He et al. (2015). \
One seed.'''
_INTRODUCTION = '''\
EXP-F5.3.1. Accuracy on the publisher's test part, median over seeds and \
standard error of the mean; epsilon is that of the event that ran, \
add-or-remove-one, PLD; seconds of training for one run. Realised is the \
largest norm of the gradients of 100 training records over the certified \
bound, and signal is the norm of the mean gradient of 4,096 records over it at \
the start, in the first and in the last layer.

Profile cpu: all training records, pixels in [0, 1] averaged over blocks of \
2 x 2, one 3 x 3 convolution of 16 channels at stride 2, 32 hidden units, no \
biases; tempered_sigmoid is layer_clipped with tanh, lip_propagated stands for \
Bethune et al. 2023. Profile features: a linear model on scattering \
coefficients of norm 1. Profile full, with the networks of the paper, needs a \
GPU: '''


_OF_BOUNDS = ('realised_first', 'realised_last', 'signal_first', 'signal_last')


def table(rows: Sequence[records.Row]) -> str:
  """Returns a table of accuracies by profile, data set, method and budget."""
  trained = [row for row in rows if row.method != 'count']
  profiles = sorted({claims.profile(row) for row in trained})
  lines = []
  for profile in profiles:
    lines += _lines(profile, [row for row in trained
                              if claims.profile(row) == profile])
  ran = 'it was run.' if 'full' in profiles else 'it was not run.'
  if 'de_et_al' in profiles:
    ran += '\n\n' + DE_ET_AL
  return _INTRODUCTION + ran + '\n\n' + tables.markdown(
      ('profile', 'data set', 'method', 'parameters', 'n', 'runs',
       'median accuracy', 'standard error', 'epsilon asked', 'epsilon spent',
       'delta', 'noise multiplier', 'realised first', 'realised last',
       'signal first', 'signal last', 'seconds'), lines)


def _lines(profile: str, rows: Sequence[records.Row]) -> list[tuple]:
  keys = ('dataset', 'method', 'epsilon_requested', 'delta', 'n')
  by_metric = {
      metric: summary.over_seeds(rows, keys, metric=metric)
      for metric in ('test_accuracy', 'noise_multiplier', 'num_parameters',
                     *_OF_BOUNDS)}
  costs = summary.costs(rows, keys, metric='test_accuracy')
  lines = []
  for key in sorted(by_metric['test_accuracy'], key=_order):
    dataset, method, requested, delta, n = key
    accuracy = by_metric['test_accuracy'][key]
    size = by_metric['num_parameters'][key].mean
    lines.append((
        profile, dataset, method, f'{size:.0f}', n, accuracy.count,
        tables.number(accuracy.median, digits=4),
        tables.number(accuracy.standard_error, digits=4), f'{requested:g}',
        f'{costs[key].epsilon:.4g}', f'{delta:.3g}' if delta else '-',
        f'{by_metric["noise_multiplier"][key].mean:.4g}',
        *(f'{by_metric[metric][key].mean:.2g}' if key in by_metric[metric]
          else '-' for metric in _OF_BOUNDS),
        f'{costs[key].seconds:.1f}'))
  return lines


def _order(key: tuple) -> tuple:
  dataset, method, requested, delta, n = key
  return dataset, sweep.METHODS.index(method), requested, delta, n


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws accuracy by epsilon, one panel for each data set."""
  drawn, axes = plots.new(1, len(claims.DATASETS), height=3.6)
  for ax, dataset in zip(axes.flat, claims.DATASETS, strict=True):
    full = claims.accuracies(rows, 'full', dataset)
    result = full or claims.accuracies(rows, 'cpu', dataset)
    epsilons = {epsilon for _, epsilon in result if math.isfinite(epsilon)}
    _draw_ours(ax, result)
    epsilons |= _draw_published(ax, dataset)
    plots.epsilon_axis(ax, [e for e in epsilons if e in _TICKS])
    size = '' if full or not result else ', ours: small network'
    ax.set_title(f'{dataset}{size}')
    ax.set_ylabel('test accuracy')
    ax.legend(fontsize=5.5, ncols=2)
  return drawn


_TICKS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
_PUBLISHED_MARKERS = 'x+1234'


def _draw_ours(ax: Any, cells: claims.Accuracies) -> None:
  """Draws a line for each method: medians with standard errors."""
  for series, method in enumerate(sweep.METHODS[1:]):
    points = [(epsilon, value) for (name, epsilon), value in cells.items()
              if name == method]
    if points:
      plots.error_bars(ax, [e for e, _ in points],
                       [value.median for _, value in points],
                       [value.standard_error for _, value in points], method,
                       series=series)
  ceiling = cells.get(('sgd', math.inf))
  if ceiling is not None:
    ax.axhline(ceiling.median, color='0.4', linestyle='--', linewidth=1,
               label='sgd (not private)')


def _draw_published(ax: Any, dataset: str) -> set[float]:
  """Draws accuracies of other works; returns their epsilons.

  The public code of Barczewski (2025) is drawn as an open circle, because it is
  not private.
  """
  epsilons = set()
  curves = [curve for curve in papers.PUBLISHED_CURVES
            if curve.dataset == dataset]
  for marker, curve in zip(_PUBLISHED_MARKERS, curves, strict=False):
    ax.plot(curve.epsilons, curve.accuracies, linestyle='none', marker=marker,
            color='0.2', label=curve.work)
    epsilons |= set(curve.epsilons)
  line = next(each for each in papers.PUBLISHED_CODE if each.dataset == dataset)
  ax.plot([line.epsilon], [line.accuracy], linestyle='none', marker='o',
          fillstyle='none', color='0.6', label='public code (not private)')
  return epsilons | {line.epsilon}
