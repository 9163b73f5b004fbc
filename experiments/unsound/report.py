"""Claimed and true epsilon, and lower bounds from attacks."""

from collections.abc import Iterator, Sequence
import math
from typing import Any

from dpjax.report import plots
from dpjax.report import tables
from experiments import records
from experiments import verdicts
from experiments.unsound import claims
from experiments.unsound import sweep

_EXACT_KINDS = ('pair', 'blocks', 'batch', 'constant', 'published', 'curve')
_EXPLAINED = ('epsilon_claimed', 'epsilon_true')
_STATISTICS = ('sum', 'likelihood')

_EXACT_TEXT = '''\
Claimed: the accountant of the text on the printed noise. True: the exact
epsilon of a pair of adjacent data sets (pair, batch, full curves: no epsilon
of the algorithm is below it), or the accountant on the noise, the batches and
the contributions that really are (others; Renyi orders where the multiplier is
below 0.25, PLD otherwise). Contributions are attained, but for convolutions
and alpha, where they are bounds. Add-or-remove-one.'''

_AUDIT_TEXT = '''\
Lower bounds on epsilon from attacks, with 95 % confidence on each line, by two
statistics: the sum of releases along the mean gradient, and the log-likelihood
ratio of the subsampled mechanism. 'cap' is what a perfect attack would reach
with as many runs. lip_scaled is the sound method under the same attack.'''


def cases(rows: Sequence[records.Row]) -> dict[tuple, dict[str, float]]:
  """Returns (kind, case, method, canary, claim) -> metric -> value."""
  values: dict[tuple, dict[str, float]] = {}
  for row in rows:
    fields = dict(part.split('=') for part in
                  row.id.split('/', 1)[1].split(','))
    key = (fields['kind'], fields['case'], fields['method'],
           float(fields['canary']), float(fields['epsilon']))
    values.setdefault(key, {'n': row.n, 'delta': row.delta})[
        row.metric] = row.value
  return values


def table(rows: Sequence[records.Row]) -> str:
  """Returns tables of exact results, and of lower bounds from attacks."""
  result = cases(rows)
  parts = [_EXACT_TEXT, '', tables.markdown(
      ('kind', 'case', 'n', 'delta', 'claimed', 'true', 'also'),
      list(_exact_lines(result))), _AUDIT_TEXT, '', tables.markdown(
          ('kind', 'case', 'method', 'canary', 'claimed',
           *(f'{what} ({name})' for name in _STATISTICS
             for what in ('AUC', 'bound')), 'cap', 'refuted', 'accuracy'),
          list(_audit_lines(result)))]
  return '\n'.join(parts)


def _exact_lines(cells) -> Iterator[tuple]:
  for kind in _EXACT_KINDS:
    for key in sorted(k for k in cells if k[0] == kind):
      metrics = cells[key]
      others = '; '.join(
          f'{name} {_number(value)}' for name, value in metrics.items()
          if name not in (*_EXPLAINED, 'n', 'delta'))
      yield (kind, key[1], metrics['n'], f'{metrics["delta"]:.3g}',
             _number(metrics['epsilon_claimed']),
             _number(metrics['epsilon_true']), others or '-')


def _audit_lines(measured) -> Iterator[tuple]:
  for key in sorted(k for k in measured if k[0] in ('audit', 'training')):
    metrics = measured[key]
    kind, case, method, canary, claimed = key
    cells = []
    for name in _STATISTICS:
      cells += [tables.number(metrics.get(f'auc_{name}')),
                tables.number(metrics.get(f'epsilon_lower_{name}'), digits=2)]
    accuracy = metrics.get('test_accuracy')
    yield (kind, case, method, f'{canary:g}x' if canary else 'in bounds',
           f'{claimed:g}', *cells, _number(metrics['largest_lower']),
           'yes' if claims.best_bound(metrics) > claimed else 'no',
           tables.number(accuracy))


def _number(value: float) -> str:
  return f'{value:.4g}'


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws audited and true epsilons over the claimed one."""
  result = cases(rows)
  drawn, axes = plots.new(1, 2, width=4.6, height=4.4)
  audits, truth = axes.flat
  lines = _series(result, 'audit', claims.best_bound)
  for number, (name, points) in enumerate(lines.items()):
    _line(audits, points, name, number)
  caps = [m['largest_lower'] for k, m in result.items() if k[0] == 'audit']
  if caps:
    audits.axhline(max(caps), color='0.4', linestyle=':', linewidth=1,
                   label='cap of so many runs')
  curves = _series(result, 'curve', lambda m: m['epsilon_true'])
  for number, (name, points) in enumerate(curves.items()):
    _line(truth, points, name, number)
  truth.set_yscale('log')
  audits.set_title('attacks: lower bound')
  truth.set_title('exact: true epsilon')
  for ax in (audits, truth):
    _finish(ax)
  return drawn


def _series(cells, kind, value) -> dict[str, list[tuple[float, float]]]:
  """Returns name -> [(claimed epsilon, true epsilon)] of one kind."""
  series: dict[str, list[tuple[float, float]]] = {}
  by_size = sorted((k for k in cells if k[0] == kind), key=lambda k: (
      k[2], k[3], len(k[1]), k[1], k[4]))
  for key in by_size:
    _, case, method, canary, claimed = key
    name = f'{method}, {canary:g}x' if canary else _curve_name(case)
    series.setdefault(name, []).append((claimed, value(cells[key])))
  return series


def _curve_name(case: str) -> str:
  kind, _, size = case.partition('_')
  return f'{size} blocks as one' if kind == 'blocks' else (
      f'batch maximum, n = {size}')


def _line(ax: Any, points, name: str, series: int) -> None:
  claimed, values = zip(*points, strict=True)
  plots.error_bars(ax, claimed, values, [math.nan] * len(values), name,
                   series=series)


def _finish(ax: Any) -> None:
  """Draws the diagonal, above which a claim is refuted."""
  ax.plot(sweep.EPSILONS, sweep.EPSILONS, color='0.4', linestyle='--',
          linewidth=1, label='claim')
  plots.epsilon_axis(ax, sweep.EPSILONS)
  ax.set_xlabel('claimed epsilon')
  # The legend is below the panel, most of which is crossed by lines.
  ax.legend(loc='upper center', bbox_to_anchor=(0.5, -0.16), ncols=2)


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on each claim of the text and of the public code.

  The text is Barczewski (2025).
  """
  return claims.verdict(cases(rows))
