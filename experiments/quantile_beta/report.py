"""Tables of errors, crossovers, and Figure 6.1 with better methods."""

from collections.abc import Sequence
from typing import Any

from dpjax.report import plots
from dpjax.report import tables
from experiments import points
from experiments import records
from experiments import verdicts
from experiments.quantile_beta import claims
from experiments.quantile_beta import sweep

# Curves: series, label, number of the colour and marker, line style.
_DRAWN = (
    ('emp', 'without privacy', 6, ':'),
    ('ind', 'IndExp', 0, '-'),
    ('rec_printed', 'RecExp, printed', 1, '-'),
    ('rec_printed_add', 'RecExp, not halved', 1, '--'),
    ('rec_depth', 'RecExp by depth', 3, '-'),
    ('hist_raw', 'histogram, printed', 2, '-'),
    ('hist_simplex', 'histogram, simplex', 2, '--'),
    ('joint', 'JointExp', 4, '-'),
    ('coarse', 'few bins', 5, '-'),
    ('knots', 'five knots', 0, '--'),
    ('tree', 'tree of counts', 3, '--'),
)


def verdict(rows: Sequence[records.Row]) -> list[verdicts.Verdict]:
  """Returns verdicts on section 6.2.4, and on better methods; see `claims`.

  The section is of Lalanne (2023).
  """
  return claims.verdict(rows)


def table(rows: Sequence[records.Row]) -> str:
  """Returns tables of errors by distribution, of crossovers, and of ranks."""
  result = claims.of_figure(rows)
  curves = claims.curves(result)
  parts = ['Mean over data sets of the largest |q_j - F^-1(p_j)|, of n records '
           'and epsilon as in the sweep; names with _add are for '
           'add_or_remove_one, where epsilon is not halved.\n']
  for dataset in claims.datasets(curves):
    parts += [f'{dataset}:\n', _errors(curves, dataset)]
  return '\n'.join([*parts, _crossovers(curves), *_ranks(result)])


def _errors(curves: claims.Curves, dataset: str) -> str:
  names = [name for other, name in curves if other == dataset]
  sizes = sorted({m for (other, _), curve in curves.items() if other == dataset
                  for m in curve})
  return tables.markdown(('m', *names), [
      (m, *(tables.number(point and point['value_sup'], digits=4)
            for point in (curves[dataset, name].get(m) for name in names)))
      for m in sizes])


def _crossovers(curves: claims.Curves) -> str:
  lines = []
  for dataset in claims.datasets(curves):
    for rec in ('rec_printed', 'rec_printed_add'):
      at = [claims.crossover(curves.get((dataset, rec)), curves.get(
          (dataset, f'hist_{post}'))) for post in sweep.POSTS]
      lines.append((dataset, rec, *(tables.number(value, digits=0)
                                for value in at)))
  return ('The m from which RecExp is worse than a histogram of 200 bins, by '
          'the post-processing of its counts.\n\n' + tables.markdown(
              ('distribution', 'RecExp', *sweep.POSTS), lines))


def _ranks(cells: Sequence[points.Point]) -> list[str]:
  """Returns Markdown on errors in ranks on Beta(2, 5), as a list of texts."""
  kept = points.select(cells, dataset='beta_2_5')
  largest = points.select(kept, num_orders=tuple(
      m for m, in points.distinct(kept, 'num_orders') if m in (10, 100)))
  if not largest:
    return []
  return ['Records between q_j and the rank n p_j, on beta_2_5: the largest '
          'and the mean over j.\n', points.table(
              largest, ('method', 'adjacency', 'num_orders'),
              ('rank_sup', 'rank_mean'))]


def figure(rows: Sequence[records.Row]) -> Any:
  """Draws the error against m, with one axes for each distribution."""
  result = claims.of_figure(rows)
  datasets = claims.datasets(claims.curves(result))
  drawn, axes = plots.new(2, 3, width=4.2, height=3.4)
  for ax, dataset in zip(axes.flat, datasets):
    for name, label, series, line in _DRAWN:
      points.band(ax, [p for p in points.select(result, dataset=dataset)
                       if claims.series(p) == name], 'num_orders',
                  'value_sup', label, series=series, line=line,
                  error='value_sup_se')
    points.finish(ax, 'orders m', 'mean largest error', dataset, legend=False)
  for ax in axes.flat:
    ax.set_visible(ax.has_data())
  drawn.legend(*axes[0, 0].get_legend_handles_labels(),
               loc='outside lower center', ncols=6,
               frameon=False)
  return drawn
