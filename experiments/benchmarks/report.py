"""Tables and a figure of what was measured, from the rows alone."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dpjax.report import plots
from dpjax.report import records
from dpjax.report import tables
from experiments.benchmarks import architectures
from experiments.benchmarks import methods
from experiments.benchmarks import sweep

Metrics = dict[str, float]

_ABOUT_RATIOS = {
    'step': 'Ratios are over L, the fastest step without clipping that draws '
            'noise once (' + ', '.join(methods.LIMITS) + ').',
    'memory': 'Ratios are over the step `limit`.',
    'scaling': 'Ratios are over one device. Devices beyond the cores are '
               'threads: what they cost is the overhead.',
    'compile': 'Each in fresh processes, without a cache. Compiled again: by '
               'a second batch of one shape and by an empty one.',
    'sampling': 'Ratios are over `threefry`.',
    'loop': 'Ratios are over `sgd`, of a step of one run.',
}
# In the figure; of a method with several sets of flags the best.
_DRAWN = ('nonprivate', 'lip', 'ours', 'vmap', 'jax_privacy', 'opacus_hooks',
          'opacus_ghost')


class Line(NamedTuple):
  """What a row of a table is about."""
  method: str
  num_devices: int

  @property
  def text(self) -> str:
    """As it is printed."""
    several = f', {self.num_devices} devices' if self.num_devices > 1 else ''
    return self.method + several


Values = dict[str, dict[Line, dict[int, Metrics]]]
"""Model -> line -> size -> metrics."""


def collect(rows: Iterable[records.Row], suite: str) -> Values:
  """The values of the rows of a suite, in the order of the sweep."""
  found: Values = {}
  for row in rows:
    cells = dict(pair.split('=', 1)
                 for pair in row.id.split('/', 1)[1].split(','))
    if cells['suite'] == suite:
      line = Line(row.method, int(cells['num_devices']))
      found.setdefault(row.dataset, {}).setdefault(line, {}).setdefault(
          int(cells['size']), {})[row.metric] = row.value
  return {model: dict(sorted(found[model].items(), key=_order))
          for model in sorted(found, key=_model_order)}


def _order(item) -> tuple:
  line = item[0]
  base, _ = methods.split(line.method)
  names = [*methods.STEPS, *methods.DRAWS, *methods.LOOPS]
  return names.index(base), line


def _model_order(model: str) -> tuple:
  names = list(architectures.MODELS)
  return names.index(model) if model in names else len(names), model


def _sizes(lines: Mapping[Line, Mapping[int, Metrics]]) -> list[int]:
  return sorted({size for sizes in lines.values() for size in sizes})


def _spread(metrics: Metrics, name: str, digits: int = 3) -> str:
  """'median [quartiles]'."""
  if name not in metrics:
    return '-'
  low, middle, high = (f'{metrics[key]:.{digits}g}' for key in (
      f'{name}_low', name, f'{name}_high'))
  return f'{middle} [{low}, {high}]'


def _time(metrics: Metrics) -> str:
  return 'wall_ms' if metrics.get('accelerator') else 'cpu_ms'


def _steps_cell(metrics: Metrics, size: int) -> str:
  del size
  name = _time(metrics)
  return f'{_spread(metrics, "ratio")}; {metrics[name]:.3g} ms'


def _draws_cell(metrics: Metrics, size: int) -> str:
  name = _time(metrics)
  return (f'{_spread(metrics, "ratio")}; {1e6 * metrics[name] / size:.3g} ns '
          'each')


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
    'memory': _memory_cell, 'compile': _compile_cell, 'sampling': _draws_cell}
_IN_CELLS = {
    'memory': 'ratio; KiB for each record beyond what was resident before the '
              'first step; KiB of scratch memory that XLA plans',
    'compile': 'seconds of tracing; of compiling; compilations of later '
               'batches',
    'sampling': 'ratio; CPU time of each value or record',
}
_STEPS_IN_CELLS = 'ratio; CPU time of a step over all threads'


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
  values = collect(rows, suite)
  every = [metrics for lines in values.values() for sizes in lines.values()
           for metrics in sizes.values()]
  parts = [f'# {suite}: {sweep.SUITES[suite]}\n',
           f'In cells: {_IN_CELLS.get(suite, _STEPS_IN_CELLS)}. Medians '
           f'[quartiles] over rounds. {_ABOUT_RATIOS[suite]}'
           f'{_wall(every)}\n']
  for model, lines in values.items():
    about = ''
    if model in architectures.MODELS:
      architecture = architectures.MODELS[model]
      about = (f': {architecture.about}, '
               f'{architectures.num_parameters(architecture):,} parameters')
    parts += [f'## {model}{about}\n', tables.markdown(
        ('method', *(f'{size:,}' for size in _sizes(lines))),
        [(line.text, *(_cell(suite, sizes[size], size) if size in sizes
                       else '-' for size in _sizes(lines)))
         for line, sizes in lines.items()])]
  parts += _fusions(values)
  made = '; '.join(f'`{command}`' for command in commands)
  return '\n'.join([*parts, _made(rows, every, software),
                    f'Made by {made}.\n' if made else ''])


def _wall(every: Sequence[Metrics]) -> str:
  return (' Time is wall time.' if any(
      metrics.get('accelerator') for metrics in every) else '')


def _fusions(values: Values) -> list[str]:
  """What a set of XLA flags is worth: time without it over time with it."""
  lines = []
  for model, found in values.items():
    for line, sizes in found.items():
      base, at, _ = line.method.partition('@')
      plain = found.get(line._replace(method=base), {}) if at else {}
      ratios = [f'{size:,}: {plain[size][_time(m)] / m[_time(m)]:.3g}'
                for size, m in sorted(sizes.items())
                if all(_time(m) in each for each in (m, plain.get(size, {})))]
      if ratios:
        lines.append((model, line.method, ', '.join(ratios)))
  if not lines:
    return []
  return ['## What flags of XLA change\n',
          'Time without the flags over time with them, by size. Far above 1 '
          'is the regression of `(c * g).sum(0)` in jaxlib 0.10.2.\n',
          tables.markdown(('model', 'method', 'ratio'), lines)]


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
  values = collect(rows, suite)
  drawn, axes = plots.new(1, max(1, len(values)), width=3.6, height=3.2)
  across = suite == 'scaling'
  for ax, (model, lines) in zip(axes[0], values.items(), strict=False):
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


class _Point(NamedTuple):
  """A median and half of what is between the quartiles."""
  middle: float
  half: float


_RATIO = ('ratio', 'ratio')
_DRAWN_METRICS = {'compile': ('compile_seconds', 'seconds of compiling'),
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
