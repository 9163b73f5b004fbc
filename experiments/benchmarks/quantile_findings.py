"""Are private quantiles as quick as they should be? Two tables from rows."""

from typing import NamedTuple

from dpjax.report import tables
from experiments.benchmarks import methods
from experiments.benchmarks import values as collected
from experiments.benchmarks.values import Line, Metrics, Values

_MANY_ORDERS = 5
"""From which JointExp should nowhere be slower than with FFTs."""


class Target(NamedTuple):
  """The most that something of ours may take.

  Attributes:
    model: name.
    size: records.
    metric: of rows.
    most: in `unit`.
    unit: as it is printed.
    scale: of a value of the metric in it.
  """
  model: str
  size: int
  metric: str
  most: float
  unit: str = 'ms'
  scale: float = 1.0


_MB = dict(unit='MB', scale=1.024e-3)
TARGETS = (
    Target('joint_30', 10**3, 'wall_ms', 8),
    Target('joint_8', 10**4, 'wall_ms', 16),
    Target('joint_30', 10**5, 'wall_ms', 2000),
    Target('joint_30', 10**5, 'temp_kib', 100, **_MB),
    Target('recursive_127', 10**4, 'wall_ms', 3),
)
MOST_COMPILE_SECONDS = 5.0
"""Of each program."""


def of_suite(values: Values) -> list[str]:
  """Ours beside the published algorithms, and the targets."""
  beside, targets = _beside(values), _targets(values)
  parts = []
  if beside:
    parts += ['## Beside the published algorithms\n',
              'CPU time of a release of ours over theirs, the medians.\n',
              tables.markdown(('model', 'records', 'over published',
                               'over published_tight', 'not slower'), beside)]
  if targets:
    parts += ['## Targets\n', tables.markdown(
        ('model', 'records', 'what', 'found', 'at most', 'met'), targets)]
  return parts


def _beside(values: Values) -> list[tuple[str, ...]]:
  rows = []
  for model, lines in values.items():
    ours, *others = (lines.get(Line(name, 1), {}) for name in (
        'ours', 'published', 'published_tight'))
    for size in sorted(ours):
      ratios = [_quotient(ours[size], each.get(size, {})) for each in others]
      if ratios[0] is not None:
        rows.append((model, f'{size:,}', *map(_text, ratios),
                     _verdict(model, ratios[0])))
  return rows


def _quotient(above: Metrics, below: Metrics) -> float | None:
  name = collected.time_name(above)
  return (above[name] / below[name]
          if name in above and name in below else None)


def _text(ratio: float | None) -> str:
  return '-' if ratio is None else f'{ratio:.3g}'


def _verdict(model: str, ratio: float) -> str:
  """Of JointExp with several orders; of others it is no target."""
  family, num_orders = methods.quantile_model(model)
  if family != 'joint' or num_orders < _MANY_ORDERS:
    return '-'
  return 'yes' if ratio <= 1 else 'NO'


def _targets(values: Values) -> list[tuple[str, ...]]:
  rows = []
  for model, size, metric, most, unit, scale in TARGETS:
    found = values.get(model, {}).get(Line('ours', 1), {}).get(size, {})
    if metric in found:
      rows.append((model, f'{size:,}', metric, *_met(
          scale * found[metric], most, unit)))
  compiled = [(metrics['compile_seconds'], model, line.method, size)
              for model, lines in values.items()
              for line, sizes in lines.items()
              for size, metrics in sizes.items()
              if 'compile_seconds' in metrics]
  if compiled:
    seconds, model, method, size = max(compiled)
    rows.append((model, f'{size:,}', f'compile_seconds, the most: {method}',
                 *_met(seconds, MOST_COMPILE_SECONDS, 's')))
  return rows


def _met(found: float, most: float, unit: str) -> tuple[str, str, str]:
  return (f'{found:.3g} {unit}', f'{most:g} {unit}',
          'yes' if found <= most else 'NO')
