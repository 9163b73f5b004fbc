"""Tables and a figure of what was measured, from the rows alone."""

from collections.abc import Callable, Mapping, Sequence
import pathlib
from typing import Any, NamedTuple

from dpjax.report import plots
from dpjax.report import records
from dpjax.report import tables
from experiments import engine
from experiments import provenance
from experiments.benchmarks import architectures
from experiments.benchmarks import findings
from experiments.benchmarks import layers as single
from experiments.benchmarks import methods
from experiments.benchmarks import sweep
from experiments.benchmarks import values
from experiments.benchmarks.values import Line
from experiments.benchmarks.values import Metrics

PEERS = ('torch', 'opacus', 'jax_privacy', 'diffprivlib', 'opendp', 'cvxopt',
         'osqp', 'clarabel')
"""Packages whose versions are told."""

_ABOUT_RATIOS = {
    'step': 'Ratios are over L, the fastest step without clipping that draws '
            'noise once (' + ', '.join(methods.LIMITS) + ').',
    'memory': 'Ratios are over the step `limit`.',
    'scaling': 'Ratios are over one device. Devices beyond the cores are '
               'threads: what they cost is the overhead.',
    'compile': 'Each in fresh processes, without a cache. Compiled again: by '
               'a second batch of one shape and by an empty one.',
    'norms': 'Ratios are over the faster of `gram` and `kept`. What entered '
             'the layer and the cotangents are given.',
    'sampling': 'Ratios are over `threefry`.',
    'loop': 'Ratios are over `sgd`, of a step of one run.',
    'estimators': 'Ratios are over the loop of `numpy`.',
    'quantiles': 'Ratios are over `published`. Records come in no order, '
                 'epsilon is 1, under replace-one.',
    'curves': 'Ratios are over the fastest peer. Of N counts of mean 3; '
              'epsilon is 0.5 under replace-one, and rho half its square. '
              'Comparisons: one of two servers, whose keys have 16 of 1,024 '
              'thresholds each, or all of them.',
    'densities': 'Ratios are over `numpy`. epsilon is 0.1 under replace-one, '
                 'and rho half its square. Counts are drawn, an estimate is '
                 'made of them and its exact error is taken.',
    'parametric': 'Ratios are over `numpy`. epsilon is 0.1 or rho 0.005 under '
                  'replace-one. Statistics are drawn and estimates released.',
    'replicas': 'Ratios are over `large`. An epoch of 20 steps of each network '
                'is timed, with crops, mirror images, shuffling and validation '
                'on a batch.',
    'butterfly': 'Ratios are over `dense`, where the matrix fits. Sizes are '
                 'numbers N of a vector; there are 64 of them.',
}
# In the figure; of a method with several sets of flags the best.
_DRAWN = ('nonprivate', 'lip', 'ours', 'vmap', 'jax_privacy', 'opacus_hooks',
          'opacus_ghost')


def _sizes(lines: Mapping[Line, Mapping[int, Metrics]]) -> list[int]:
  return sorted({size for sizes in lines.values() for size in sizes})


def _spread(metrics: Metrics, name: str, digits: int = 3) -> str:
  """'median [quartiles]'."""
  if name not in metrics:
    return '-'
  low, middle, high = (f'{metrics[key]:.{digits}g}' for key in (
      f'{name}_low', name, f'{name}_high'))
  return f'{middle} [{low}, {high}]'


def _steps_cell(metrics: Metrics, size: int) -> str:
  del size
  name = values.time_name(metrics)
  return f'{_spread(metrics, "ratio")}; {metrics[name]:.3g} ms'


def _draws_cell(metrics: Metrics, size: int) -> str:
  name = values.time_name(metrics)
  return (f'{_spread(metrics, "ratio")}; {1e6 * metrics[name] / size:.3g} ns '
          'each')


def _estimators_cell(metrics: Metrics, size: int) -> str:
  del size
  rate = 1e3 * methods.REPETITIONS / metrics['wall_ms']
  return f'{_spread(metrics, "ratio")}; {_rounded(rate)}/s'


def _images_cell(metrics: Metrics, size: int) -> str:
  del size
  return (f'{_spread(metrics, "ratio")}; {_rounded(1e3 / metrics["wall_ms"])} '
          f'images/s; {metrics["compile_seconds"]:.2g} s; '
          f'{metrics["temp_kib"] * 1.024e-3:.3g} MB by XLA')


def _program_cell(metrics: Metrics, size: int) -> str:
  del size
  ours = (f'; {metrics["compile_seconds"]:.2g} s; '
          f'{metrics["temp_kib"] * 1.024e-3:.3g} MB by XLA'
          if 'temp_kib' in metrics else '')
  return (f'{_spread(metrics, "ratio")}; {metrics["wall_ms"]:.3g} ms; '
          f'{metrics["peak_kib"] * 1.024e-3:.3g} MB{ours}')


def _rounded(rate: float) -> str:
  return f'{float(f"{rate:.2g}"):,.0f}'


def _norms_cell(metrics: Metrics, size: int) -> str:
  chosen = f'; {values.way(metrics)}' if 'by_gram' in metrics else ''
  return _steps_cell(metrics, size) + chosen


def _memory_cell(metrics: Metrics, size: int) -> str:
  each = {key: value / size for key, value in metrics.items()
          if key.startswith(('peak_kib', 'temp_kib'))}
  temp = f'; {each["temp_kib"]:.3g} by XLA' if 'temp_kib' in each else ''
  return f'{_spread(metrics, "ratio")}; {_spread(each, "peak_kib")}{temp}'


def _compile_cell(metrics: Metrics, size: int) -> str:
  del size
  again = metrics.get('compiled_again')
  return '; '.join([
      _spread(metrics, 'trace_seconds'), _spread(metrics, 'compile_seconds'),
      *([] if again is None else [f'again {again:.0f}'])])


_CELLS: dict[str, Callable[[Metrics, int], str]] = {
    'memory': _memory_cell, 'compile': _compile_cell, 'norms': _norms_cell,
    'sampling': _draws_cell, 'estimators': _estimators_cell,
    'quantiles': _program_cell, 'curves': _program_cell,
    'densities': _program_cell, 'parametric': _program_cell,
    'replicas': _images_cell, 'butterfly': _program_cell}
_MEMORY = ('memory of the first beyond what was resident before; of dpjax '
           'seconds of compiling and scratch memory that XLA plans')
_IN_CELLS = {
    'memory': 'ratio; KiB for each record beyond what was resident before the '
              'first step; KiB of scratch memory that XLA plans',
    'compile': 'seconds of tracing; of compiling; compilations of later '
               'batches',
    'norms': 'ratio; {time} of norms and clipped sum{threads}; how norms were '
             'found',
    'sampling': 'ratio; {time} of each value or record',
    'estimators': 'ratio of CPU time; repetitions a second of wall time',
    'quantiles': 'ratio of {time}; wall time of a release; ' + _MEMORY,
    'curves': 'ratio of {time}; wall time of a call; ' + _MEMORY,
    'densities': 'ratio of {time}; wall time of a repetition; ' + _MEMORY,
    'parametric': 'ratio of {time}; wall time of a repetition; ' + _MEMORY,
    'replicas': 'ratio of {time}{threads}; images a second of wall time, of '
                'all networks; seconds of compiling; scratch memory that XLA '
                'plans',
    'butterfly': 'ratio of {time}; wall time of all vectors; ' + _MEMORY,
}
_STEPS_IN_CELLS = 'ratio; {time} of a step{threads}'


def _cell(suite: str, metrics: Metrics, size: int) -> str:
  if 'timeout_seconds' in metrics:
    return f'over {metrics["timeout_seconds"]:g} s'
  if 'failed' in metrics:
    return 'failed'
  return _CELLS.get(suite, _steps_cell)(metrics, size)


def table(rows: Sequence[records.Row], suite: str, *,
          software: str = '', commands: Sequence[str] = ()) -> str:
  """The text of `table.md`: for each model methods down, sizes across.

  Args:
    rows: of one suite or more.
    suite: which to show.
    software: versions, for the last lines.
    commands: that made the rows, likewise.
  """
  found = values.collect(rows, suite)
  every = [metrics for lines in found.values() for sizes in lines.values()
           for metrics in sizes.values()]
  parts = [f'# {suite}: {sweep.SUITES[suite]}\n',
           f'In cells: {_in_cells(suite, every)}. Medians [quartiles] over '
           f'rounds. {_ABOUT_RATIOS[suite]}\n']
  for model, lines in found.items():
    parts += [f'## {model}{_about(model)}\n', tables.markdown(
        ('method', *(f'{size:,}' for size in _sizes(lines))),
        [(line.text, *(_cell(suite, sizes[size], size) if size in sizes
                       else '-' for size in _sizes(lines)))
         for line, sizes in lines.items()])]
    parts += findings.of_model(suite, lines)
  parts += findings.of_suite(suite, found)
  made = '; '.join(f'`{command}`' for command in commands)
  return '\n'.join([*parts, _made(rows, every, software),
                    f'Made by {made}.\n' if made else ''])


def table_of(folder: pathlib.Path, suite: str) -> str:
  """The table of the rows in a folder, with where they come from."""
  runs = provenance.read(folder / provenance.NAME)['runs']
  return table(records.sort(records.read(folder / engine.ROWS)), suite,
               software='; '.join(sorted({_versions(entry['versions'])
                                          for entry in runs})),
               commands=sorted({entry['command'] for entry in runs}))


def _versions(found: Mapping[str, str]) -> str:
  return ', '.join(f'{name} {found[name]}' for name in (
      'jax', 'jaxlib', *PEERS, 'python') if name in found)


def _about(model: str) -> str:
  if model in architectures.MODELS:
    architecture = architectures.MODELS[model]
    return (f': {architecture.about}, '
            f'{architectures.num_parameters(architecture):,} parameters')
  if model in single.LAYERS:
    layer = single.LAYERS[model]
    shape, kernel = (' x '.join(map(str, sizes))
                     for sizes in (layer.input_shape, layer.kernel))
    return f': {layer.about}, {shape} by {kernel}, stride {layer.stride}'
  return ''


def _in_cells(suite: str, every: Sequence[Metrics]) -> str:
  accelerator = any(metrics.get('accelerator') for metrics in every)
  return _IN_CELLS.get(suite, _STEPS_IN_CELLS).format(
      time='wall time' if accelerator else 'CPU time',
      threads='' if accelerator else ' over all threads')


def _made(rows: Sequence[records.Row], every: Sequence[Metrics],
          software: str) -> str:
  """Where the rows come from, and how quiet it was there."""
  names = lambda column: ', '.join(
      sorted({getattr(row, column) for row in rows})) or '-'
  others = [metrics['others'] for metrics in every if 'others' in metrics]
  busy = ('In the row with most company other processes kept '
          f'{max(others):.2f} cores busy.\n' if others else '')
  return f'''Machine: {names('device')}.
Software: {software or 'JAX ' + names('jax')}; code {names('commit')}.
{busy}Rows: sha256 {records.digest(rows)}.
'''


def figure(rows: Sequence[records.Row], suite: str) -> Any:
  """A panel for each model, medians and quartiles by size or devices.

  What is drawn: seconds of compiling, KiB for each record, or the ratio.
  """
  found = values.collect(rows, suite)
  if suite == 'norms':
    return _choices(found)
  drawn, axes = plots.new(1, max(1, len(found)), width=3.6, height=3.2)
  across = suite == 'scaling'
  for ax, (model, lines) in zip(axes[0], found.items(), strict=False):
    series = _series(lines, suite)
    for number, (label, points) in enumerate(series.items()):
      xs = sorted(points)
      plots.error_bars(ax, xs, [points[x].middle for x in xs],
                       [points[x].half for x in xs], label, series=number)
    ax.set_xscale('log', base=2)
    ax.set_yscale('log')
    ax.set_xlabel('devices' if across else 'size')
    ax.set_ylabel(_DRAWN_METRICS.get(suite, _RATIO)[1])
    ax.set_title(model)
    if series:
      ax.legend()
  return drawn


def _choices(found: values.Values) -> Any:
  """Time of gram over kept, by what the choice is made by, in one panel."""
  drawn, ((ax,),) = plots.new(width=5.0, height=3.4)
  points: dict[tuple[int, str], list[tuple[float, float]]] = {}
  for lines in found.values():
    gram, kept, chosen = (lines.get(Line(name, 1), {})
                          for name in methods.NORMS)
    for size in gram.keys() & kept.keys() & chosen.keys():
      each = [line[size] for line in (gram, kept, chosen)]
      if all('ratio' in metrics for metrics in each):
        points.setdefault((size, values.way(each[2])), []).append(
            (each[2]['products_per_number'],
             each[0]['ratio'] / each[1]['ratio']))
  for number, ((size, way), series) in enumerate(sorted(points.items())):
    ax.scatter(*zip(*series, strict=True), color=plots.COLOURS[number],
               marker=plots.MARKERS[number], label=f'{size:,}: {way} chosen')
  ax.axhline(1.0, color='black', linewidth=0.8)
  ax.set_xscale('log')
  ax.set_yscale('log')
  ax.set_xlabel('products of Gram matrices for a number of a gradient')
  ax.set_ylabel('time of gram over kept')
  if points:
    ax.legend()
  return drawn


class _Point(NamedTuple):
  """A median and half of what is between the quartiles."""
  middle: float
  half: float


_RATIO = ('ratio', 'ratio')
_DRAWN_METRICS = {'butterfly': ('wall_ms', 'ms of wall time'),
                  'compile': ('compile_seconds', 'seconds of compiling'),
                  'memory': ('peak_kib', 'KiB for each record')}


def _series(lines: Mapping[Line, Mapping[int, Metrics]],
            suite: str) -> dict[str, dict[int, _Point]]:
  """Label -> x -> point, of the best set of flags at each x."""
  across = suite == 'scaling'
  metric, _ = _DRAWN_METRICS.get(suite, _RATIO)
  found: dict[str, dict[int, _Point]] = {}
  for line, sizes in lines.items():
    base, _ = methods.split(line.method)
    if base in methods.STEPS and base not in _DRAWN and not across:
      continue
    for size, metrics in sizes.items():
      if not metrics.get(metric):  # a logarithm has no place for 0
        continue
      unit = size if suite == 'memory' else 1
      point = _Point(metrics[metric] / unit, (
          metrics[f'{metric}_high'] - metrics[f'{metric}_low']) / 2 / unit)
      points = found.setdefault(f'{base}, {size:,}' if across else base, {})
      x = line.num_devices if across else size
      points[x] = min(point, points.get(x, point))
  return found
