"""Compares our accuracies with the printed ones, and draws accuracy by epsilon.
"""

from collections.abc import Sequence
import math
from typing import Any

from dpjax.report import plots
from dpjax.report import tables
from experiments import papers
from experiments import records
from experiments import summary
from experiments import verdicts
from experiments.lip_search import selected
from experiments.lip_tabular import claims
from experiments.lip_tabular import sweep

_KEYS = ('dataset', 'method', 'epsilon_requested', 'delta', 'n')
_BAND = 0.015
_METHODS = (*sweep.STRONG, 'sgd', *sweep.METHODS, *sweep.OTHERS)


def table(rows: Sequence[records.Row]) -> str:
  """Returns a table with one line for each data set, method and budget."""
  accuracy = summary.over_seeds(rows, _KEYS, metric='test_accuracy')
  noise = summary.over_seeds(rows, _KEYS, metric='noise_multiplier')
  realised = {layer: summary.over_seeds(rows, _KEYS,
                                        metric=f'realised_{layer}')
              for layer in ('first', 'largest')}
  costs = summary.costs(rows, _KEYS, metric='test_accuracy')
  lines = []
  for key in sorted(accuracy, key=_order):
    dataset, method, requested, delta, n = key
    lines.append((
        dataset, method, n, accuracy[key].count,
        summary.cell(accuracy[key], digits=4), f'{requested:g}',
        f'{costs[key].epsilon:.4g}', f'{delta:.3g}' if delta else '-',
        f'{noise[key].mean:.4g}' if key in noise else '-',
        *(f'{of[key].mean:.2f}' if key in of else '-'
          for of in realised.values()),
        f'{costs[key].seconds:.2f}'))
  return ('Test accuracy on the held-out fifth, mean +- standard error over '
          'seeds; epsilon is that of the event that ran, add-or-remove-one, '
          'PLD; seconds of training for one run. Realised is the largest norm '
          'of the gradients of 100 training records over the certified bound, '
          'in the first layer and in the layer where this ratio is largest. '
          f'{_hyperparameters()}\n\n' +
          tables.markdown(
              ('data set', 'method', 'n', 'runs', 'accuracy',
               'epsilon asked', 'epsilon spent', 'delta', 'noise multiplier',
               'realised first', 'realised largest', 'seconds'), lines))


def _hyperparameters() -> str:
  """Says where the hyperparameters come from."""
  names = selected.datasets()
  lines = [line.dataset for line in papers.TABLE_5_4
           if line.dataset not in names]
  if not names:
    return 'Hyperparameters are those of recipes.'
  return (f'Hyperparameters on {", ".join(names)} are those that `lip_search` '
          'selected, with as many trials for each method, on the training part '
          'of the first split; test records of other splits were seen by that '
          'choice, and epsilon does not cover it.' + (
              f' On {", ".join(lines)} they are those of recipes.' if lines
              else ''))


def _order(key: tuple) -> tuple:
  dataset, method, requested, delta, n = key
  return dataset, delta, _METHODS.index(method), requested, n


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws accuracy by epsilon, one panel for each data set."""
  kept = [row for row in rows if _is_of(row, 'grid', 'smoke')]
  accuracy = summary.over_seeds(kept, ('dataset', 'method',
                                       'epsilon_requested'),
                                metric='test_accuracy')
  names = sorted({dataset for dataset, _, _ in accuracy}) or ['no rows']
  columns = min(3, len(names))
  drawn, axes = plots.new(-(-len(names) // columns), columns)
  for panel, ax in enumerate(axes.flat):
    if panel >= len(names):
      ax.set_visible(False)
      continue
    _draw(ax, names[panel], accuracy)
  axes.flat[0].legend()
  return drawn


def _draw(ax: Any, name: str, accuracy) -> None:
  """Draws a line for each method; the non-private one is horizontal."""
  finite = sorted({epsilon for dataset, _, epsilon in accuracy
                   if dataset == name and math.isfinite(epsilon)})
  for series, method in enumerate(sweep.METHODS):
    result = [(epsilon, accuracy[name, method, epsilon]) for epsilon in finite
             if (name, method, epsilon) in accuracy]
    if result:
      plots.error_bars(ax, [e for e, _ in result], [a.mean for _, a in result],
                       [a.standard_error for _, a in result], method,
                       series=series)
  ceiling = accuracy.get((name, 'sgd', math.inf))
  if ceiling is not None:
    ax.axhline(ceiling.mean, color='0.4', linestyle='--', linewidth=1,
               label='sgd (not private)')
  if finite:
    plots.epsilon_axis(ax, finite)
  ax.set_title(name)
  ax.set_ylabel('test accuracy')


def _is_of(row: records.Row, *kinds: str) -> bool:
  """Returns whether a row is of a setting of one of these kinds."""
  return any(f'/kind={kind},' in row.id for kind in kinds)


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on every printed cell of Table 5.4, at the same budget.

  The table is that of Barczewski (2025).
  """
  kept = [row for row in rows if _is_of(row, 'table')]
  accuracy = summary.over_seeds(kept, ('dataset', 'method'),
                                metric='test_accuracy')
  datasets = {dataset for dataset, _ in accuracy}
  result = [
      _compare(line, method, accuracy.get((line.dataset, method)))
      for line in papers.TABLE_5_4 if line.dataset in datasets
      for method in sweep.METHODS
  ]
  missing = [line.dataset for line in papers.TABLE_5_4
             if line.dataset not in datasets]
  result += claims.overall(
      kept + [row for row in rows if row.method == 'sgd'], datasets)
  result += claims.near_strong_models(
      kept + [row for row in rows if _is_of(row, 'strong')])
  if missing:
    result.append(verdicts.Verdict(', '.join(missing), '-', '-',
                                  verdicts.NOT_RUN, 'no rows'))
  return result


def _compare(line: papers.TabularAccuracy, method: str,
             ours: summary.Summary | None) -> verdicts.Verdict:
  claim = f'{line.dataset}, {method} at epsilon {line.epsilon:g}'
  printed = getattr(line, method)
  shown = tables.number(printed)
  if ours is None:
    return verdicts.Verdict(claim, shown, '-', verdicts.NOT_RUN, 'no rows')
  cell = summary.cell(ours)
  if printed is None:
    return verdicts.Verdict(claim, shown, cell, verdicts.NOT_COMPARABLE,
                            'the cell is missing in the text')
  gap = ours.mean - printed
  if abs(gap) <= _BAND:
    return verdicts.Verdict(claim, shown, cell, verdicts.AGREES,
                            f'within {_BAND:g}')
  return verdicts.Verdict(claim, shown, cell, verdicts.DIFFERS,
                          f'{gap:+.3f}: {_why(method, gap)}')


def _why(method: str, gap: float) -> str:
  """Returns the known reasons for a gap."""
  if gap > 0:
    return ('scaling, widths and hyperparameters of the table are not given; '
            'ours are in the recipes')
  if method == 'dp_sgd':
    return 'fewer training records (a fifth is held out), one recipe for all'
  return ('the printed method divides by the largest activation of the batch '
          'and counts one noised layer, so its epsilon does not hold; ours '
          'does')
