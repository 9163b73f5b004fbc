"""Tables of errors, and Figures 6.4 and 6.5 with better methods."""

from collections.abc import Sequence
from typing import Any

from dpjax.report import plots
from dpjax.report import tables
from experiments import points
from experiments import records
from experiments import verdicts
from experiments.quantile_atoms import claims
from experiments.quantile_atoms import lookup
from experiments.quantile_atoms import sweep

# Curves: method, label, number of the colour and marker, line style.
_DRAWN = (
    ('emp', 'without privacy', 6, ':'),
    ('joint', 'JointExp', 0, '-'),
    ('inverse', 'inverse sensitivity', 1, '-'),
    ('hs_uniform', 'JointExp, best uniform noise', 2, '-'),
    ('hs_gaussian', 'JointExp, best Gaussian noise', 3, '-'),
    ('hs_printed', 'JointExp, noise as recommended', 0, '--'),
    ('joint_floor', 'JointExp, noise with a floor', 4, '-'),
    ('rec_floor', 'RecExp, noise with a floor', 5, '-'),
    ('coarse', 'few bins', 2, '--'),
    ('tree', 'tree of counts', 3, '--'),
)
_METHODS = tuple(method for method, *_ in _DRAWN[:8]) + (
    'hist_raw', 'coarse', 'tree')


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on all claims; see `claims`."""
  return claims.verdict(rows)


def table(rows: Sequence[records.Row]) -> str:
  """Returns tables of errors by distribution and n, and by noise."""
  cells = points.collect(rows)
  errors = lookup.by_size(cells)
  parts = ['Mean over data sets of the largest |q_j - F^-1(p_j)|. For '
           'hs_uniform and hs_gaussian, the best of eight standard deviations '
           'is chosen by the measured errors, which no private mechanism can '
           'do.\n']
  for dataset in lookup.datasets(cells):
    sizes = sorted(size for other, size in errors if other == dataset)
    parts += [f'{dataset}:\n', tables.markdown(('n', *_METHODS), [
        (size, *(_number(errors[dataset, size].get(method))
                 for method in _METHODS)) for size in sizes])]
  return '\n'.join([*parts, *_by_sigma(cells)])


def _number(point: points.Point | None) -> str:
  return '-' if point is None else f'{point["value_sup"]:.3g}'


def _by_sigma(cells: Sequence[points.Point]) -> list[str]:
  kept = lookup.smoothed(points.select(cells, num_examples=float(sweep.SIZE)),
                         'hs_uniform', fine=True)
  at = {(p['dataset'], p['sigma']): p for p in kept}
  datasets, sigmas = lookup.datasets(kept), sorted({p['sigma'] for p in kept})
  if not kept:
    return []
  return [f'Uniform noise at n = {sweep.SIZE}, by its standard deviation.\n',
          tables.markdown(('sigma', *datasets), [
              (f'{sigma:.3g}', *(_number(at.get((dataset, sigma)))
                                 for dataset in datasets))
              for sigma in sigmas])]


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws errors by n (Figure 6.4) and, below, by the noise (Figure 6.5)."""
  cells = points.collect(rows)
  datasets = lookup.datasets(cells)
  errors = lookup.by_size(cells)
  columns = max(1, min(5, len(datasets)))
  height = -(-max(1, len(datasets)) // columns)
  drawn, axes = plots.new(2 * height, columns, width=3.8, height=3.)
  for ax, dataset in zip(axes[:height].flat, datasets):
    for method, label, series, line in _DRAWN:
      points.band(ax, [of[method] for (other, _), of in errors.items()
                       if other == dataset and method in of], 'num_examples',
                  'value_sup', label, series=series, line=line,
                  error='value_sup_se')
    points.finish(ax, 'records n', 'mean largest error', dataset, legend=False)
  for ax, dataset in zip(axes[height:].flat, datasets):
    _against_noise(ax, points.select(cells, dataset=dataset,
                                     num_examples=float(sweep.SIZE)), dataset)
  for ax in axes.flat:
    ax.set_visible(ax.has_data())
  drawn.legend(*axes[0, 0].get_legend_handles_labels(),
               loc='outside lower center', ncols=5, frameon=False)
  return drawn


def _against_noise(ax: Any, cells: Sequence[points.Point],
                   dataset: str) -> None:
  styles = {method: (series, line) for method, _, series, line in _DRAWN}
  for method in sweep.SMOOTHED:
    series, line = styles[method]
    points.band(ax, lookup.smoothed(cells, method, fine=True), 'sigma',
                'value_sup', method, series=series, line=line,
                error='value_sup_se')
  for method in ('emp', 'joint', 'inverse', 'joint_floor', 'rec_floor'):
    for point in points.select(cells, method=method):
      series, line = styles[method]
      ax.axhline(point['value_sup'], color=plots.COLOURS[series],
                 linestyle=':' if method == 'emp' else '-', linewidth=1)
  points.finish(ax, 'standard deviation of the noise', 'mean largest error',
                f'{dataset}, n = {sweep.SIZE}', legend=False)
