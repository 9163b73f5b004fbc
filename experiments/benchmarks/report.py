"""Writes tables and figures of the measurements, from the rows alone."""

from collections.abc import Callable, Mapping, Sequence
import pathlib
from typing import Any, NamedTuple

from dpjax.report import plots
from dpjax.report import tables
from experiments import engine
from experiments import provenance
from experiments import records
from experiments.benchmarks import architectures
from experiments.benchmarks import findings
from experiments.benchmarks import layers as single
from experiments.benchmarks import methods
from experiments.benchmarks import network_findings
from experiments.benchmarks import network_names
from experiments.benchmarks import sweep
from experiments.benchmarks import values
from experiments.benchmarks.values import Line
from experiments.benchmarks.values import Metrics

PEERS = ('torch', 'opacus', 'jax_privacy', 'diffprivlib', 'opendp', 'cvxopt',
         'osqp', 'clarabel')
"""Packages whose versions are reported."""

_ABOUT_RATIOS = {
    'step': 'Ratios are over L, the fastest step without clipping that draws '
            'noise once (' + ', '.join(methods.LIMITS) + ').',
    'memory': 'Ratios are over the step `limit`.',
    'scaling': 'Ratios are over one device. Devices in excess of the cores are '
               'threads, so these ratios measure the overhead.',
    'compile': 'Each measurement is in a fresh process, without a cache. '
               'Compilations of later batches: those for a second batch of the '
               'same shape and for an empty one.',
    'norms': 'Ratios are over the faster of `gram` and `kept`. Inputs and '
             'cotangents of the layer are given.',
    'sampling': 'Ratios are over `threefry`.',
    'loop': 'Ratios are over a step of one run of `sgd`.',
    'estimators': 'Ratios are over the loop of `numpy`.',
    'quantiles': 'Ratios are over `published`. Records are unsorted; epsilon '
                 'is 1 under replace-one.',
    'curves': 'Ratios are over the fastest peer. There are N counts of mean 3; '
              'epsilon is 0.5 under replace-one, and rho half its square. A '
              'comparison is the work of one of two servers; each key has 16 '
              'of 1,024 thresholds, or all of them.',
    'densities': 'Ratios are over `numpy`. epsilon is 0.1 under replace-one, '
                 'and rho half its square. A repetition draws counts, '
                 'estimates the density and computes its exact error.',
    'parametric': 'Ratios are over `numpy`. epsilon is 0.1 or rho is 0.005 '
                  'under replace-one. A repetition draws a statistic and '
                  'releases an estimate.',
    'replicas': 'Ratios are over `large`. An epoch of 20 steps of each network '
                'is timed, with crops, mirror images, shuffling and validation '
                'on a batch.',
    'butterfly': 'Ratios are over `dense`, where the matrix fits in memory. '
                 'The size is the length N of a vector; there are 64 vectors.',
    'models': 'Ratios are over the same step without clipping, compiled and '
              'timed in the same process, in turns; for `plain` they are those '
              'of a program over itself. No method draws noise. Operations are '
              'those of products and convolutions, in every pass of a loop.',
    'stream': 'Ratios are over the same step on 64,000 records in memory. The '
              'size is the number of records, of 784 numbers each; batches '
              'have about 1,024. A process may use 2 GB of memory for data, a '
              'tenth of the largest data set.',
}
# Methods in the figure; each is drawn with its best set of XLA flags.
_DRAWN = ('nonprivate', 'lip', 'ours', 'vmap', 'jax_privacy', 'opacus_hooks',
          'opacus_ghost')


def _sizes(lines: Mapping[Line, Mapping[int, Metrics]]) -> list[int]:
  """Returns all sizes of a model, sorted."""
  return sorted({size for sizes in lines.values() for size in sizes})


def _spread(metrics: Metrics, name: str, digits: int = 3) -> str:
  """Returns a metric as 'median [quartiles]'."""
  if name not in metrics:
    return '-'
  low, middle, high = (f'{metrics[key]:.{digits}g}' for key in (
      f'{name}_low', name, f'{name}_high'))
  return f'{middle} [{low}, {high}]'


def _steps_cell(metrics: Metrics, size: int) -> str:
  """Returns the ratio and the time of a step."""
  del size
  name = values.time_name(metrics)
  return f'{_spread(metrics, "ratio")}; {metrics[name]:.3g} ms'


def _draws_cell(metrics: Metrics, size: int) -> str:
  """Returns the ratio and the time of one draw."""
  name = values.time_name(metrics)
  return (f'{_spread(metrics, "ratio")}; {1e6 * metrics[name] / size:.3g} ns '
          'each')


def _estimators_cell(metrics: Metrics, size: int) -> str:
  """Returns the ratio and the repetitions per second."""
  del size
  rate = 1e3 * methods.REPETITIONS / metrics['wall_ms']
  return f'{_spread(metrics, "ratio")}; {_rounded(rate)}/s'


def _images_cell(metrics: Metrics, size: int) -> str:
  """Returns the ratio, the images per second, and the cost of compiling."""
  del size
  return (f'{_spread(metrics, "ratio")}; {_rounded(1e3 / metrics["wall_ms"])} '
          f'images/s; {metrics["compile_seconds"]:.2g} s; '
          f'{metrics["temp_kib"] * 1.024e-3:.3g} MB by XLA')


def _program_cell(metrics: Metrics, size: int) -> str:
  """Returns ratio, time and memory, for dpjax also the cost of compiling."""
  del size
  compiled = (f'; {metrics["compile_seconds"]:.2g} s; '
              f'{metrics["temp_kib"] * 1.024e-3:.3g} MB by XLA'
              if 'temp_kib' in metrics else '')
  return (f'{_spread(metrics, "ratio")}; {metrics["wall_ms"]:.3g} ms; '
          f'{metrics["peak_kib"] * 1.024e-3:.3g} MB{compiled}')


def _rounded(rate: float) -> str:
  """Returns a number with two significant digits and separators."""
  return f'{float(f"{rate:.2g}"):,.0f}'


def _norms_cell(metrics: Metrics, size: int) -> str:
  """Returns ratio, time, and the way that norms were computed."""
  chosen = f'; {values.way(metrics)}' if 'by_gram' in metrics else ''
  return _steps_cell(metrics, size) + chosen


def _memory_cell(metrics: Metrics, size: int) -> str:
  """Returns the ratio and the memory per record."""
  each = {key: value / size for key, value in metrics.items()
          if key.startswith(('peak_kib', 'temp_kib'))}
  temp = f'; {each["temp_kib"]:.3g} by XLA' if 'temp_kib' in each else ''
  return f'{_spread(metrics, "ratio")}; {_spread(each, "peak_kib")}{temp}'


def _compile_cell(metrics: Metrics, size: int) -> str:
  """Returns seconds of tracing and compiling, and later compilations."""
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
    'replicas': _images_cell, 'butterfly': _program_cell,
    'models': network_findings.cell, 'stream': _program_cell}
_MEMORY = ('peak memory of the first one, minus resident memory before it; '
           'for dpjax also seconds of compiling and scratch memory planned by '
           'XLA')
_IN_CELLS = {
    'memory': 'ratio; peak memory minus resident memory before the first step, '
              'in KiB per record; scratch memory planned by XLA, in KiB',
    'compile': 'seconds of tracing; of compiling; compilations of later '
               'batches',
    'norms': 'ratio; {time} of norms and clipped sum{threads}; the way that '
             'norms were computed',
    'sampling': 'ratio; {time} per value or record',
    'estimators': 'ratio of CPU time; repetitions per second of wall time',
    'quantiles': 'ratio of {time}; wall time of a release; ' + _MEMORY,
    'curves': 'ratio of {time}; wall time of a call; ' + _MEMORY,
    'densities': 'ratio of {time}; wall time of a repetition; ' + _MEMORY,
    'parametric': 'ratio of {time}; wall time of a repetition; ' + _MEMORY,
    'replicas': 'ratio of {time}{threads}; images of all networks per second '
                'of wall time; seconds of compiling; scratch memory planned by '
                'XLA',
    'butterfly': 'ratio of {time}; wall time for all vectors; ' + _MEMORY,
    'models': 'ratio of {time}{threads}; of scratch memory planned by XLA; of '
              'operations; of seconds of tracing and compiling; {time} of a '
              'step; for dpjax the parameters with slow gradients, of all',
    'stream': 'ratio of {time}{threads}; wall time of a step; peak memory of '
              'the first one, minus resident memory before it',
}
_STEPS_IN_CELLS = 'ratio; {time} of a step{threads}'


def _cell(suite: str, metrics: Metrics, size: int) -> str:
  """Returns the cell of a measurement, or why there is none."""
  if 'timeout_seconds' in metrics:
    return f'over {metrics["timeout_seconds"]:g} s'
  if 'failed' in metrics:
    return 'failed'
  return _CELLS.get(suite, _steps_cell)(metrics, size)


def table(rows: Sequence[records.Row], suite: str, *,
          software: str = '', commands: Sequence[str] = ()) -> str:
  """Returns the text of `table.md`: a table of methods by sizes per model.

  Args:
    rows: rows of one suite or more.
    suite: name of the suite to show.
    software: versions of packages, for the last lines.
    commands: commands that made the rows, for the last lines.
  """
  collected = values.collect(rows, suite)
  every = [metrics for lines in collected.values() for sizes in lines.values()
           for metrics in sizes.values()]
  parts = [f'# {suite}: {sweep.SUITES[suite]}\n',
           f'Cells: {_in_cells(suite, every)}. Medians [quartiles] over '
           f'rounds. {_ABOUT_RATIOS[suite]}\n']
  for model, lines in collected.items():
    parts += [f'## {model}{_about(model, suite)}\n', tables.markdown(
        ('method', *(f'{size:,}' for size in _sizes(lines))),
        [(line.text, *(_cell(suite, sizes[size], size) if size in sizes
                       else '-' for size in _sizes(lines)))
         for line, sizes in lines.items()])]
    parts += findings.of_model(suite, lines)
  parts += findings.of_suite(suite, collected)
  quoted = '; '.join(f'`{command}`' for command in commands)
  return '\n'.join([*parts, _origin(rows, every, software),
                    f'Made by {quoted}.\n' if quoted else ''])


def table_of(folder: pathlib.Path, suite: str) -> str:
  """Returns the table of the rows in a folder, with their provenance."""
  runs = provenance.read(folder / provenance.NAME)['runs']
  return table(records.sort(records.read(folder / engine.ROWS)), suite,
               software='; '.join(sorted({_versions(entry['versions'])
                                          for entry in runs})),
               commands=sorted({entry['command'] for entry in runs}))


def _versions(versions: Mapping[str, str]) -> str:
  """Returns the versions of the packages that matter, as text."""
  return ', '.join(f'{name} {versions[name]}' for name in (
      'jax', 'jaxlib', *PEERS, 'python') if name in versions)


def _about(model: str, suite: str) -> str:
  """Returns a description of a network or layer for its heading."""
  if suite == 'models':
    described = network_names.find(model)
    return f': {described.about}' if described else ''
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
  """Returns the description of the cells of a suite."""
  accelerator = any(metrics.get('accelerator') for metrics in every)
  return _IN_CELLS.get(suite, _STEPS_IN_CELLS).format(
      time='wall time' if accelerator else 'CPU time',
      threads='' if accelerator else ' over all threads')


def _origin(rows: Sequence[records.Row], every: Sequence[Metrics],
            software: str) -> str:
  """Returns lines on machine, software, other load and digest of the rows."""
  names = lambda column: ', '.join(
      sorted({getattr(row, column) for row in rows})) or '-'
  others = [metrics['others'] for metrics in every if 'others' in metrics]
  busy = ('In the worst row, other processes kept '
          f'{max(others):.2f} cores busy (median over rounds).\n'
          if others else '')
  return f'''Machine: {names('device')}.
Software: {software or 'JAX ' + names('jax')}; code {names('commit')}.
{busy}Rows: sha256 {records.digest(rows)}.
'''


def figure(rows: Sequence[records.Row], suite: str) -> Any:
  """Draws a panel for each model: medians and quartiles by size or devices.

  The metric is seconds of compiling, KiB per record, or the ratio.
  """
  collected = values.collect(rows, suite)
  if suite == 'norms':
    return _choices(collected)
  drawn, axes = plots.new(1, max(1, len(collected)), width=3.6, height=3.2)
  across = suite == 'scaling'
  for ax, (model, lines) in zip(axes[0], collected.items(), strict=False):
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


def _choices(collected: values.Values) -> Any:
  """Draws the time of gram over kept against the number that decides."""
  drawn, ((ax,),) = plots.new(width=5.0, height=3.4)
  points: dict[tuple[int, str], list[tuple[float, float]]] = {}
  for lines in collected.values():
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
  ax.set_xlabel('products of Gram matrices per number of a gradient')
  ax.set_ylabel('time of gram over kept')
  if points:
    ax.legend()
  return drawn


class _Point(NamedTuple):
  """One point of a curve: a median and half of the interquartile range."""
  middle: float
  half: float


_RATIO = ('ratio', 'ratio')
_DRAWN_METRICS = {'butterfly': ('wall_ms', 'ms of wall time'),
                  'compile': ('compile_seconds', 'seconds of compiling'),
                  'memory': ('peak_kib', 'KiB per record')}


def _series(lines: Mapping[Line, Mapping[int, Metrics]],
            suite: str) -> dict[str, dict[int, _Point]]:
  """Returns label -> x -> point, by the best set of flags at each x."""
  across = suite == 'scaling'
  metric, _ = _DRAWN_METRICS.get(suite, _RATIO)
  series: dict[str, dict[int, _Point]] = {}
  for line, sizes in lines.items():
    base, _ = methods.split(line.method)
    if base in methods.STEPS and base not in _DRAWN and not across:
      continue
    for size, metrics in sizes.items():
      if not metrics.get(metric):  # Zero has no place on the logarithmic axis.
        continue
      unit = size if suite == 'memory' else 1
      point = _Point(metrics[metric] / unit, (
          metrics[f'{metric}_high'] - metrics[f'{metric}_low']) / 2 / unit)
      points = series.setdefault(f'{base}, {size:,}' if across else base, {})
      x = line.num_devices if across else size
      points[x] = min(point, points.get(x, point))
  return series
