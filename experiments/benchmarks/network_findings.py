"""Compares the steps of `--suite=models` with their limits."""

from collections.abc import Iterator, Mapping

from dpjax.report import tables
from experiments.benchmarks import network_names
from experiments.benchmarks import values as collected
from experiments.benchmarks.network_names import Described
from experiments.benchmarks.values import Line
from experiments.benchmarks.values import Lines
from experiments.benchmarks.values import Metrics
from experiments.benchmarks.values import Values

_OVER_VMAP = 'time over vmap'


def of_suite(values: Values) -> list[str]:
  """Returns the table of limits, and a sentence on how many are kept."""
  rows = []
  for model, lines in values.items():
    described = network_names.find(model)
    if described is not None:
      rows += [(model, *row) for row in _of_model(described, lines)]
  if not rows:
    return []
  met = sum(row[-1] == 'met' for row in rows)
  return ['## Targets\n',
          'Limits of dpjax (`ours`) over the plain step; the last one of each '
          'network is over clipping by `jax.vmap`. Targets say nothing of '
          'other libraries.\n',
          tables.markdown(('network', 'size', 'metric', 'measured', 'limit',
                           'verdict'), rows),
          f'{met} of {len(rows)} targets are met.\n']


def _of_model(described: Described, lines: Lines) -> Iterator[tuple[str, ...]]:
  """Yields a row for each limit of a network whose metric was measured."""
  vmap = lines.get(Line('vmap', 1), {})
  for size, metrics in sorted(lines.get(Line('ours', 1), {}).items()):
    if described.accelerator and not metrics.get('accelerator'):
      continue
    measured = {'time': metrics.get('ratio'),
                'memory by XLA': metrics.get('temp_ratio'),
                'operations': metrics.get('flops_ratio'),
                'compiling': metrics.get('compile_ratio'),
                _OVER_VMAP: _quotient(metrics, vmap.get(size, {}))}
    limits = (described.time, described.memory, described.flops,
              network_names.COMPILE, network_names.OVER_VMAP)
    for (name, value), limit in zip(measured.items(), limits, strict=True):
      if limit is not None and value is not None:
        yield (f'{size:,}', name, f'{value:.3g}', f'{limit:g}',
               'met' if value <= limit else 'missed')


def _quotient(ours: Metrics, vmap: Mapping[str, float]) -> float | None:
  """Returns the time of dpjax over that of `vmap`, by their ratios.

  Each ratio is over the plain step of its own process.
  """
  if 'ratio' not in ours or 'ratio' not in vmap:
    return None
  return ours['ratio'] / vmap['ratio']


def cell(metrics: Metrics, size: int) -> str:
  """Returns ratios of time, memory, operations and compiling, and the time."""
  del size
  ratios = [f'{metrics["ratio"]:.3g} [{metrics["ratio_low"]:.3g}, '
            f'{metrics["ratio_high"]:.3g}]' if 'ratio' in metrics else '-']
  ratios += [f'{metrics[name]:.3g}' if name in metrics else '-'
             for name in ('temp_ratio', 'flops_ratio', 'compile_ratio')]
  parts = [*ratios, f'{metrics[collected.time_name(metrics)]:.3g} ms']
  if 'leaves' in metrics:
    parts.append(f'{metrics["leaves_formed"]:.0f} of {metrics["leaves"]:.0f}')
  return '; '.join(parts)
