"""Required speed and memory of dpjax, beside the measured values."""

from typing import Any, NamedTuple

from dpjax.report import tables
from experiments.benchmarks import methods
from experiments.benchmarks.values import Line
from experiments.benchmarks.values import Values


class Target(NamedTuple):
  """An upper limit on the time or memory of dpjax.

  Attributes:
    model: name of the work.
    size: number of records, see `sweep.Setting.size`.
    metric: name of the metric in the rows.
    most: the limit, in `unit`; None to report the value only.
    unit: unit in the table.
    scale: factor that converts the metric to `unit`.
    methods: methods among which the least value counts.
    accelerator: True for a limit that holds on accelerators only.
  """
  model: str
  size: int
  metric: str
  most: float | None
  unit: str = 'ms'
  scale: float = 1.0
  methods: tuple[str, ...] = ('ours',)
  accelerator: bool = False


_MB: dict[str, Any] = dict(unit='MB', scale=1.024e-3)
TARGETS = {
    'quantiles': (
        Target('joint_30', 10**3, 'wall_ms', 8),
        Target('joint_8', 10**4, 'wall_ms', 16),
        Target('joint_30', 10**5, 'wall_ms', 2000),
        Target('joint_30', 10**5, 'temp_kib', 100, **_MB),
        Target('recursive_127', 10**4, 'wall_ms', 3),
    ),
    'curves': (
        Target('squares', 2**15, 'wall_ms', 15),
        Target('squares', 2**20, 'wall_ms', 500),
        Target('absolute', 2**15, 'wall_ms', 200),
        Target('comparison', 10**4, 'wall_ms', 1, 'us a comparison',
               1e3 / (16 * 10**4)),
        Target('comparison_everywhere', 45_211, 'wall_ms', None, 's', 1e-3),
    ),
    'densities': tuple(
        Target(model, 10**6, 'wall_ms', 10, 's for 10,000', 10)
        for model in methods.DENSITY_MODELS),
    'parametric': tuple(
        Target(model, 10**4, 'wall_ms', 10, 's for 100,000', 100)
        for model in methods.PARAMETRIC_MODELS),
    # One large batch may process at most 1.667 times as many images a second.
    'replicas': (
        Target('resnet20_bfloat16', 256, 'ratio', 1.667, 'of large',
               methods=methods.PACKS, accelerator=True),
    ),
    'stream': tuple(
        Target(model, 6_400_000, 'ratio', 1.1, 'of memory')
        for model in methods.STREAM_MODELS),
    'butterfly': tuple(
        Target(model, 2**12, 'ratio', 1.0, 'of dense')
        for model in methods.BUTTERFLY_MODELS),
}
"""Maps a suite to its limits."""

MOST_COMPILE_SECONDS = 5.0
"""Limit for each program of these suites, except the long `replicas`."""


def of_suite(suite: str, values: Values) -> list[str]:
  """Returns Markdown on the targets of a suite; empty if none was measured."""
  if suite not in TARGETS:
    return []
  rows = _measured(TARGETS[suite], values)
  if suite != 'replicas':
    rows += _slowest_to_compile(values)
  if not rows:
    return []
  columns = ('model', 'size', 'metric', 'measured', 'limit', 'met')
  return ['## Targets\n', tables.markdown(columns, rows)]


def _measured(targets: tuple[Target, ...],
              values: Values) -> list[tuple[str, ...]]:
  """Returns a row for each limit whose metric was measured."""
  rows = []
  for target in targets:
    lines = values.get(target.model, {})
    every = [lines.get(Line(method, 1), {}).get(target.size, {})
             for method in target.methods]
    measured = [metrics[target.metric] for metrics in every
                if target.metric in metrics
                and (metrics.get('accelerator') or not target.accelerator)]
    if measured:
      rows.append((target.model, f'{target.size:,}', target.metric, *_met(
          target.scale * min(measured), target.most, target.unit)))
  return rows


def _slowest_to_compile(values: Values) -> list[tuple[str, ...]]:
  """Returns a row about the program that takes longest to compile."""
  compiled = [(metrics['compile_seconds'], model, line.method, size)
              for model, lines in values.items()
              for line, sizes in lines.items()
              for size, metrics in sizes.items()
              if 'compile_seconds' in metrics]
  if not compiled:
    return []
  seconds, model, method, size = max(compiled)
  return [(model, f'{size:,}', f'longest compile_seconds: {method}',
           *_met(seconds, MOST_COMPILE_SECONDS, 's'))]


def _met(value: float, most: float | None, unit: str) -> tuple[str, str, str]:
  """Returns the cells of a value, its limit, and whether it is within it."""
  if most is None:
    return f'{value:.3g} {unit}', '-', '-'
  return (f'{value:.3g} {unit}', f'{most:g} {unit}',
          'yes' if value <= most else 'NO')
