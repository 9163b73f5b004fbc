"""Tables and figure of the sweeps; the verdicts are `claims`."""

from collections.abc import Iterable, Sequence
import math
from typing import Any

from dpjax.report import plots
from dpjax.report import tables
from experiments import records
from experiments import summary
from experiments import verdicts
from experiments.lip_depth import claims
from experiments.lip_depth import lookup
from experiments.lip_depth import sweep

_TITLES = {'epsilon': 'epsilon', 'num_examples': 'training records',
           'depth': 'hidden layers'}


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on scaling laws and depth; see `claims`."""
  return claims.verdict(rows)


def table(rows: Sequence[records.Row]) -> str:
  """Returns tables of accuracy by each field, of bounds, and of noise."""
  values = lookup.collect(rows)
  sizes = lookup.sizes(rows)
  parts = []
  for dataset in lookup.datasets(values):
    for along, title in _TITLES.items():
      lines = _accuracies(values, dataset, along, sizes)
      if lines:
        parts += [f'{dataset}: test accuracy by {title}, mean +- standard '
                  'error over seeds; all else is that of the centre.\n', lines]
    parts += [f'{dataset}: bounds of the first and last noised block and the '
              'noise on an averaged update, by hidden layers, at the last '
              'parameters; realised is the largest ratio of the norm of a '
              'contribution to its bound (computed from private data, not for '
              'release).\n',
              _sensitivities(values, dataset)]
    parts += _planes(values, dataset)
  parts += ['Certified bounds of networks whose layers all have norm C, and '
            'the energy of the noise at multiplier 1; no data.\n',
            _bounds(values), 'Noise of the privatizer, measured.\n',
            _noise(values)]
  return '\n'.join(parts)


def _pivot(first: str, columns: Iterable, lines: Iterable) -> str:
  return tables.markdown((first, *columns), list(lines))


def _accuracies(values: lookup.Values, dataset: str, along: str,
                sizes) -> str:
  """Returns a table of accuracies, with one line for each method.

  The columns are the values of the field `along`; '' stands for a single value.
  """
  results = {line: lookup.curve(values, dataset, line, along)
           for line in lookup.LINES}
  columns = list(dict.fromkeys(
      at for curve in results.values() for at in curve))
  finite = [at for at in columns if at is None or math.isfinite(at)]
  if len(finite) < 2:
    return ''
  columns = sorted(columns, key=lambda at: (at is None, at or 0))
  heads = [str(sizes[dataset, at]) if along == 'num_examples' else f'{at:g}'
           for at in columns]
  return _pivot('method', heads, (
      (line.label, *(summary.cell(curve.get(at)) for at in columns))
      for line, curve in results.items() if curve))


def _mean(values: lookup.Values, dataset: str, line: lookup.Line,
          metric: str) -> dict[float, float]:
  return {depth: result.mean for depth, result in lookup.curve(
      values, dataset, line, 'depth', metric).items()}


def _sensitivities(values: lookup.Values, dataset: str) -> str:
  metrics = ('num_layers', 'noise_multiplier', 'sensitivity_first',
             'sensitivity_last', 'noise_norm', 'realised_first',
             'realised_last', 'realised_largest')
  lines = []
  for line in lookup.LINES[1:]:
    columns = [_mean(values, dataset, line, metric) for metric in metrics]
    for depth in columns[0]:
      cells = [column[depth] for column in columns]
      ratio = cells[2] / cells[3]
      lines.append((line.label, f'{depth:g}', *(
          f'{cell:.4g}' for cell in (*cells[:4], ratio, *cells[4:]))))
  return tables.markdown(
      ('method', 'hidden layers', 'blocks K', 'multiplier z', 'Delta first',
       'Delta last', 'first / last', 'noise norm', 'realised first',
       'realised last', 'realised largest'), lines)


def _planes(values: lookup.Values, dataset: str) -> list[str]:
  """Returns tables of accuracy by epsilon (rows) and depth (columns)."""
  parts = []
  for method in sweep.PLANE:
    line = lookup.Line(method, sweep.WEIGHT_NORM)
    curves = {epsilon: lookup.curve(values, dataset, line, 'depth',
                                    epsilon=epsilon)
              for epsilon in sweep.EPSILONS}
    curves = {epsilon: curve for epsilon, curve in curves.items()
              if len(curve) > 1}
    if len(curves) < 2:
      continue
    depths = sorted({depth for curve in curves.values() for depth in curve})
    parts += [f'{dataset}, {method}: test accuracy by epsilon and hidden '
              'layers.\n', _pivot('epsilon', (f'{d:g}' for d in depths), (
                  (f'{epsilon:g}', *(summary.cell(curve.get(depth))
                                     for depth in depths))
                  for epsilon, curve in curves.items()))]
  return parts


def _only(metrics: dict, name: str) -> float:
  value, = metrics[name].values()
  return value


def _bounds(values: lookup.Values) -> str:
  lines = []
  for key, metrics in lookup.of_kind(values, 'bounds').items():
    cells = [_only(metrics, name) for name in (
        'num_layers', 'num_blocks', 'sensitivity_first', 'sensitivity_last',
        'energy_optimal', 'energy_equal')]
    lines.append((key.method, f'{key.weight_norm:g}', key.depth,
                  *(f'{cell:.4g}' for cell in cells)))
  return tables.markdown(
      ('sums', 'C', 'depth', 'layers K', 'blocks', 'Delta first',
       'Delta last', 'energy, optimal split', 'energy, equal multipliers'),
      lines)


def _noise(values: lookup.Values) -> str:
  return tables.markdown(
      ('split', 'layers K', 'largest deviation of a variance, standard errors',
       'energy over that accounted once'),
      [(key.method, f"{_only(metrics, 'num_layers'):g}",
        f"{_only(metrics, 'largest_z_score'):.2f}",
        f"{_only(metrics, 'energy_ratio'):.3f}")
       for key, metrics in lookup.of_kind(values, 'noise').items()])


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws accuracy by epsilon, n and depth, for the first data set."""
  values, sizes = lookup.collect(rows), lookup.sizes(rows)
  drawn, axes = plots.new(1, 3, width=4.2, height=3.4)
  names = lookup.datasets(values)
  if not names:
    return drawn
  for ax, along in zip(axes[0], _TITLES, strict=True):
    for line in lookup.LINES:
      curve = lookup.curve(values, names[0], line, along)
      if not curve or (along != 'depth' and line.weight_norm == 1.0):
        continue
      _draw(ax, along, line, {
          sizes[names[0], at] if along == 'num_examples' else at: accuracy
          for at, accuracy in curve.items()})
    _scale(ax, along)
    ax.set_title(names[0])
    ax.set_ylabel('test accuracy')
  axes[0, 2].legend()
  return drawn


def _draw(ax: Any, along: str, line: lookup.Line, curve: dict) -> None:
  """Draws one line; over epsilon, the non-private accuracy is horizontal."""
  series = ('sgd', *sweep.METHODS).index(line.method)
  if along == 'epsilon' and line.method == 'sgd':
    for accuracy in curve.values():
      ax.axhline(accuracy.mean, color=plots.COLOURS[series], linestyle='--',
                 linewidth=1, label=line.label)
    return
  plots.error_bars(ax, list(curve), [a.mean for a in curve.values()],
                   [a.standard_error for a in curve.values()], line.label,
                   series=series)
  if line.weight_norm != sweep.WEIGHT_NORM:
    ax.containers[-1].lines[0].set_linestyle('--' if line.orthogonal else ':')


def _scale(ax: Any, along: str) -> None:
  if along == 'epsilon':
    plots.epsilon_axis(ax, sweep.EPSILONS)
    return
  ax.set_xscale('log', base=2 if along == 'depth' else 10)
  if along == 'depth':
    ax.set_xticks(sweep.DEPTHS, [f'{depth}' for depth in sweep.DEPTHS])
  ax.set_xlabel(_TITLES[along])
