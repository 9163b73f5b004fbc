"""Tables of docs/lipschitz.md, made from committed rows.

`python -m launch.report` writes them into the page.
"""

from collections.abc import Callable, Sequence

from dpjax.report import tables
from experiments import papers
from experiments import records
from experiments import summary
from experiments.lip_depth import lookup
from experiments.lip_depth import sweep as depth_sweep
from experiments.lip_noise import report as noise_report
from experiments.lip_noise import sweep as noise_sweep
from experiments.lip_search import selected
from experiments.lip_tabular import sweep as table_sweep

_UNCLIPPED = 'lip_unclipped'
_COMPARED = ('sgd', 'lip_dp_sgd', 'lip_propagated', 'dp_sgd', 'dp_sgd_vmap')


def blocks(read: Callable[[str], Sequence[records.Row]]
           ) -> list[tuple[str, str]]:
  """Returns (name, text) of each table of the page.

  Args:
    read: returns the rows of an experiment.
  """
  return [('tables', of_tables(read('lip_tabular'))),
          ('images', of_images(read('lip_images'))),
          ('depth', of_depth(read('lip_depth'))),
          ('noise', of_noise(read('lip_noise'))),
          ('cost', of_cost(read('lip_runtime')))]


def of_tables(rows: Sequence[records.Row]) -> str:
  """Compares methods on the tables of `lip_tabular`, as folds chose them.

  Args:
    rows: all rows of the experiment.
  """
  kept = [row for row in rows if '/kind=table,' in row.id]
  cells = summary.over_seeds(kept, ('dataset', 'method'),
                             metric='test_accuracy')
  by_seed = summary.group(kept, ('dataset', 'method'), metric='test_accuracy')
  lines = []
  for line in papers.TABLE_5_4:
    names = [selected.best_by_score(line.dataset, methods)
             for methods in (table_sweep.CLIPPING, table_sweep.LIPSCHITZ)]
    clipping, lipschitz = ((line.dataset, name) for name in names)
    if not {clipping, lipschitz} <= by_seed.keys():
      continue
    gap = summary.summarise(summary.differences(
        by_seed[lipschitz], by_seed[clipping]))
    lines.append((
        line.dataset, f'{line.epsilon:g}',
        f'{summary.cell(cells[clipping], digits=4)} ({names[0]})',
        f'{summary.cell(cells[lipschitz], digits=4)} ({names[1]})',
        summary.cell(gap, digits=4),
        summary.cell(cells.get((line.dataset, _UNCLIPPED)), digits=4)))
  return tables.markdown(
      ('data set', 'epsilon', 'clipping', 'Lipschitz', 'difference',
       'nothing clipped'), lines)


def of_depth(rows: Sequence[records.Row]) -> str:
  """Shows accuracy and realised norms by depth, with orthogonal layers.

  Args:
    rows: all rows of `lip_depth`.
  """
  values = lookup.of_kind(lookup.collect(rows), 'orthogonal')
  by_cell = {(key.method, key.depth): metrics
             for key, metrics in values.items()}
  lines = []
  for depth in depth_sweep.DEPTHS:
    ours = by_cell.get(('lip_dp_sgd', depth))
    if ours is None:
      continue
    lines.append((depth, *(
        _mean(by_cell.get((method, depth)), 'test_accuracy', 4)
        for method in ('lip_dp_sgd', 'layer_clipped', 'dp_sgd')),
        _mean(ours, 'realised_first', 2), _mean(ours, 'realised_largest', 2),
        _mean(ours, 'signal_first', 3)))
  return tables.markdown(
      ('hidden layers', 'lip_dp_sgd', 'layer_clipped', 'dp_sgd',
       'realised first', 'realised largest', 'signal first'), lines)


def _mean(metrics: dict[str, dict[int, float]] | None, name: str,
          digits: int) -> str:
  """Returns the mean over seeds of a metric as text; '-' without rows."""
  if metrics is None or name not in metrics:
    return '-'
  return f'{summary.summarise(metrics[name].values()).mean:.{digits}f}'


def of_images(rows: Sequence[records.Row]) -> str:
  """Compares methods on images, with trained and with fixed convolutions.

  Args:
    rows: all rows of `lip_images`.
  """
  lines = []
  for profile, network in (('cpu', 'trained convolution'),
                           ('features', 'fixed wavelets, linear head')):
    kept = [row for row in rows if f'/profile={profile},' in row.id]
    cells = summary.over_seeds(
        kept, ('dataset', 'epsilon_requested', 'method'),
        metric='test_accuracy')
    for dataset, epsilon in sorted({key[:2] for key in cells
                                    if key[2] == 'lip_dp_sgd'}):
      lines.append((network, dataset, f'{epsilon:g}', *(
          summary.cell(cells.get((dataset, epsilon, method)), digits=4)
          for method in ('lip_dp_sgd', 'layer_clipped', 'dp_sgd'))))
  return tables.markdown(
      ('network', 'data set', 'epsilon', 'lip_dp_sgd', 'layer_clipped',
       'dp_sgd'), lines)


def of_noise(rows: Sequence[records.Row]) -> str:
  """Compares ways to draw batches and noise.

  Args:
    rows: all rows of `lip_noise`.
  """
  values = noise_report.by_key(rows, 'test_accuracy')
  lines = []
  for schedule, ways in noise_sweep.SCHEDULES.items():
    for way in noise_sweep.NOISE:
      keys = [(method, schedule, way) for method in noise_sweep.METHODS]
      if all(key in values for key in keys):
        lines.append((
            f'{ways.num_groups} groups, {ways.num_steps} steps', way,
            *(summary.cell(summary.summarise(values[key].values()), digits=4)
              for key in keys)))
  return tables.markdown(('records', 'noise', *noise_sweep.METHODS), lines)


def of_cost(rows: Sequence[records.Row]) -> str:
  """Compares time and memory of an epoch with those without privacy.

  Args:
    rows: all rows of `lip_runtime`.
  """
  cells: dict[tuple[str, int, str], dict[str, float]] = {}
  for row in rows:
    if '/kind=cpu,' in row.id and row.method in _COMPARED:
      size = int(row.id.split('batch_size=')[1].split(',')[0])
      cells.setdefault((row.dataset, size, row.method), {})[
          row.metric] = row.value
  lines = [(dataset, size, method, f'{metrics["ratio_to_sgd"]:.2f}',
            f'{metrics["megabytes"]:.0f}')
           for (dataset, size, method), metrics in sorted(cells.items())]
  return tables.markdown(
      ('data set', 'batch', 'method', 'time over sgd', 'megabytes'), lines)
