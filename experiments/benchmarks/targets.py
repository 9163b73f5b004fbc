"""What ours may take at most, and what it took: a table from rows."""

from typing import NamedTuple

from dpjax.report import tables
from experiments.benchmarks import methods
from experiments.benchmarks.values import Line
from experiments.benchmarks.values import Values


class Target(NamedTuple):
  """The most that something of ours may take.

  Attributes:
    model: name.
    size: records, or as `sweep.Setting.size`.
    metric: of rows.
    most: in `unit`; None where it is only told.
    unit: as it is printed.
    scale: of a value of the metric in it.
    methods: of which the best counts.
    accelerator: whether it is asked of accelerators only.
  """
  model: str
  size: int
  metric: str
  most: float | None
  unit: str = 'ms'
  scale: float = 1.0
  methods: tuple[str, ...] = ('ours',)
  accelerator: bool = False


_MB = dict(unit='MB', scale=1.024e-3)
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
    # 60 % of the images a second of one large batch.
    'replicas': (
        Target('resnet20_bfloat16', 256, 'ratio', 1.667, 'of large',
               methods=methods.PACKS, accelerator=True),
    ),
    'butterfly': tuple(
        Target(model, 2**12, 'ratio', 1.0, 'of dense')
        for model in methods.BUTTERFLY_MODELS),
}
"""By suite."""

MOST_COMPILE_SECONDS = 5.0
"""Of each program of these suites but `replicas`, which are for hours."""


def of_suite(suite: str, values: Values) -> list[str]:
  """The targets of a suite of which there are rows."""
  if suite not in TARGETS:
    return []
  rows = _found(TARGETS[suite], values)
  if suite != 'replicas':
    rows += _slowest_to_compile(values)
  if not rows:
    return []
  # Quantiles are of records; so says the table of them.
  columns = ('model', 'size', 'what', 'found', 'at most', 'met')
  return ['## Targets\n', tables.markdown(columns, rows)]


def _found(targets: tuple[Target, ...],
           values: Values) -> list[tuple[str, ...]]:
  rows = []
  for target in targets:
    lines = values.get(target.model, {})
    every = [lines.get(Line(method, 1), {}).get(target.size, {})
             for method in target.methods]
    found = [metrics[target.metric] for metrics in every
             if target.metric in metrics
             and (metrics.get('accelerator') or not target.accelerator)]
    if found:
      rows.append((target.model, f'{target.size:,}', target.metric, *_met(
          target.scale * min(found), target.most, target.unit)))
  return rows


def _slowest_to_compile(values: Values) -> list[tuple[str, ...]]:
  compiled = [(metrics['compile_seconds'], model, line.method, size)
              for model, lines in values.items()
              for line, sizes in lines.items()
              for size, metrics in sizes.items()
              if 'compile_seconds' in metrics]
  if not compiled:
    return []
  seconds, model, method, size = max(compiled)
  return [(model, f'{size:,}', f'compile_seconds, the most: {method}',
           *_met(seconds, MOST_COMPILE_SECONDS, 's'))]


def _met(found: float, most: float | None, unit: str) -> tuple[str, str, str]:
  if most is None:
    return f'{found:.3g} {unit}', '-', '-'
  return (f'{found:.3g} {unit}', f'{most:g} {unit}',
          'yes' if found <= most else 'NO')
