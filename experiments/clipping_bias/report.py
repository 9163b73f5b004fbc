"""Makes tables and a figure of the bias of clipping; verdicts: `claims`."""

from collections.abc import Sequence
import math
from typing import Any

from dpjax.report import plots
from dpjax.report import tables
from experiments import records
from experiments import verdicts
from experiments.clipping_bias import claims
from experiments.clipping_bias import lookup
from experiments.clipping_bias import sweep

_FIGURE_CURVES = (('error_norm', '||g - clip(g)||', 'dp_sgd', 1.0),
                  ('clipped_norm', '||clip(g)||', 'dp_sgd', 1.0),
                  ('error_norm', '||g - clip(g)||, norm 3', 'dp_sgd', 3.0),
                  ('error_norm', 'Lip-DP-SGD', 'lip_dp_sgd', math.inf),
                  ('printed_error', "Algorithm 8's division by X_k",
                   'dp_sgd', 1.0))


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on all claims of Barczewski (2025, section 5.2.4)."""
  return claims.verdict(rows)


def table(rows: Sequence[records.Row]) -> str:
  """Returns the tables of all parts of the experiment, with headings."""
  values = lookup.collect(rows)
  length = sweep.LENGTHS['curve']
  return '\n'.join([
      'Where the mean clipped gradient of the regression example is zero, '
      'relative to (a, b), and its norm at (a, b); exact.\n',
      _lines(values, 'zero', ('zero_1', 'zero_2', 'norm_at_optimum',
                              'excess_risk'), digits=5),
      'The point at which training on it ends, relative to (a, b); mean over '
      'seeds, dp_sgd at epsilon 1.\n',
      _lines(values, 'descent', ('rest_1', 'rest_2'), digits=5),
      'Descent on 0.5 ||W - diag(2, 1)||^2 in a ball of radius 1: its end '
      'point and the best point of the ball.\n',
      _lines(values, 'ball', ('weight_1', 'weight_2', 'objective', 'optimum'),
             digits=5),
      'End point of training with division by the largest input of the batch; '
      'at: batch size, share of large records.\n',
      _lines(values, 'batches', ('fixed_point', 'simulated', 'simulated_se',
                                 'least_squares'), digits=4),
      f'Along training, on {length.probe_size} records, means over '
      f'{length.num_runs} runs: at the start -> mean over the last quarter. '
      'Private, not released. Cosine is between g and clip(g), changed the '
      'share of records whose gradient is changed. Where the expected clipped '
      'gradient is zero, ||clip(g)|| is still up to clip norm / sqrt(records) '
      'in root mean square.\n',
      _curve_table(values)])


def _mean(values: Sequence[float] | None) -> float | None:
  """Returns the mean; None without values."""
  return sum(values) / len(values) if values else None


def _clip_norm(value: float) -> str:
  """Returns the text of a clip norm; '-' for infinity, no clipping."""
  return f'{value:g}' if math.isfinite(value) else '-'


def _lines(values: lookup.Values, kind: str, metrics: Sequence[str], *,
           digits: int) -> str:
  """Returns a table of the means over seeds of `metrics`, for one kind."""
  lines = [
      (key.method, _clip_norm(key.clip_norm),
       ', '.join(f'{x:g}' for x in key.at) or '-',
       *(tables.number(_mean(result.get(metric)), digits=digits)
         for metric in metrics))
      for key, result in lookup.of_kind(values, kind).items()]
  return tables.markdown(('method', 'clip norm', 'at', *metrics), lines)


def _curve_table(values: lookup.Values) -> str:
  """Returns the table of the start and the end of each training curve."""
  metrics = ('gradient_norm', 'error_norm', 'clipped_norm', 'cosine',
             'fraction_changed', 'printed_error', 'train_loss')
  lines = []
  for name in lookup.curve_names(values):
    cells = [lookup.ends(lookup.curve(values, *name, metric)[1])
             for metric in metrics]
    accuracy = lookup.curve(values, *name, 'test_accuracy')[1]
    lines.append((
        *name[:2], _clip_norm(name[2]),
        *(f'{tables.number(cell.start)} -> {tables.number(cell.end)}'
          for cell in cells),
        tables.number(accuracy[-1] if accuracy else None)))
  return tables.markdown(
      ('data set', 'method', 'clip norm', '||g||', '||g - clip(g)||',
       '||clip(g)||', 'cosine', 'changed', '||g - Algorithm 8||',
       'training loss', 'test accuracy'), lines)


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws Figures 5.2.1 and 5.3.3 of Barczewski (2025) and erratum E19.

  The first row has two descent fields (Figure 5.2.1), and end points by batch
  size (E19). The second row has norms along training (Figure 5.3.3), and shares
  of clipped records.

  """
  values = lookup.collect(rows)
  drawn, axes = plots.new(2, 3, width=4.2, height=3.4)
  result = lookup.grid(values)
  if result is not None:
    zeros = (lookup.crossings(result.first, result.second, result.plain),
             lookup.crossings(result.first, result.second, result.clipped))
    _draw_field(axes[0, 0], result, result.plain, zeros,
                'descent along the mean gradient')
    _draw_field(axes[0, 1], result, result.clipped, zeros,
                'descent along the mean clipped gradient, norm 1')
  _draw_batches(axes[0, 2], values)
  names = sorted({name[0] for name in lookup.curve_names(values)},
                 reverse=True)
  for ax, name in zip(axes[1], names[:2]):
    _draw_curves(ax, values, name)
  _draw_fractions(axes[1, 2], values, names)
  for ax in axes.flat:
    if ax.get_legend_handles_labels()[0]:
      ax.legend()
    ax.set_visible(ax.has_data())
  return drawn


def _draw_field(ax: Any, grid: lookup.Grid, field, zeros, title: str) -> None:
  """Draws descent directions, as arrows of one length, and both zeros.

  Args:
    ax: axes to draw on.
    grid: coordinates of the points.
    field: [first, second, 2] mean gradients at the points.
    zeros: points [k, 2] where the mean gradient is zero, and where the mean
      clipped gradient is.
    title: title of the axes.
  """
  lengths = (field**2).sum(-1, keepdims=True)**0.5
  arrows = -field / lengths.clip(1e-12)
  ax.quiver(grid.first, grid.second, arrows[..., 0].T, arrows[..., 1].T,
            color='0.6', pivot='mid', width=0.004, angles='xy')
  for series, (points, label) in enumerate(zip(
      zeros, ('mean gradient is zero', 'mean clipped gradient is zero'))):
    ax.plot(points[:, 0], points[:, 1], plots.MARKERS[series], label=label,
            color=plots.COLOURS[series], markersize=6)
  ax.set_xlabel('theta_1 - a')
  ax.set_ylabel('theta_2 - b')
  ax.set_title(title)


def _draw_batches(ax: Any, values: lookup.Values) -> None:
  """Draws end points by batch size, and least squares as horizontal lines."""
  series: dict[tuple, list] = {}
  for key, metrics in lookup.of_kind(values, 'batches').items():
    size, share = key.at
    series.setdefault((key.method, share), []).append(
        (size, metrics['fixed_point'][0], metrics['least_squares'][0]))
  for index, ((method, share), points) in enumerate(sorted(series.items())):
    sizes, ends, levels = zip(*sorted(points))
    ax.plot(sizes, ends, label=f'{method.replace("_", " ")}, {share:g} large',
            color=plots.COLOURS[index], marker=plots.MARKERS[index],
            markersize=4)
    ax.axhline(levels[0], color='0.4', linestyle='--', linewidth=1)
  if series:
    ax.set_xscale('log')
    ax.set_xlabel('batch size (expected, for poisson)')
    ax.set_ylabel('fixed point; dashed: least squares')
    ax.set_title("division by the batch's largest input")


def _draw_curves(ax: Any, values: lookup.Values, dataset: str) -> None:
  """Draws the two curves of Figure 5.3.3, and the curves of other methods."""
  for index, (metric, label, method, clip_norm) in enumerate(_FIGURE_CURVES):
    steps, points = lookup.curve(values, dataset, method, clip_norm, metric)
    if steps:
      ax.plot(steps, points, label=label, color=plots.COLOURS[index],
              linewidth=1.2)
  ax.set_title(f'{dataset}: along training')
  ax.set_xlabel('step')
  ax.set_ylabel('norm')


def _draw_fractions(ax: Any, values: lookup.Values,
                    names: Sequence[str]) -> None:
  """Draws the share of records that are clipped, by step."""
  pairs = [(name, clip_norm) for name in names for clip_norm in (1.0, 3.0)]
  for index, (name, clip_norm) in enumerate(pairs):
    steps, points = lookup.curve(values, name, 'dp_sgd', clip_norm,
                                 'fraction_changed')
    if steps:
      ax.plot(steps, points, label=f'{name}, norm {clip_norm:g}',
              color=plots.COLOURS[index], linewidth=1.2)
  ax.set_title('share of records clipped, dp_sgd')
  ax.set_xlabel('step')
  ax.set_ylim(0, 1.02)
