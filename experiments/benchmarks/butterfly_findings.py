"""Fits how the time of butterflies grows with the size of a vector."""

from collections.abc import Mapping

import numpy as np

from dpjax.report import tables
from experiments.benchmarks import values as collected
from experiments.benchmarks.values import Metrics
from experiments.benchmarks.values import Values

_LEAST_SIZE = 2**10
"""Below this size the overhead of a call dominates."""


def of_suite(values: Values) -> list[str]:
  """Returns the powers of N and of N log2 N that fit each method's times."""
  rows = [(model, line.method, *fitted) for model, lines in values.items()
          for line, sizes in lines.items() if (fitted := _fitted(sizes))]
  if not rows:
    return []
  return ['## Growth\n',
          'Exponents fitted to median times by least squares of logarithms, '
          f'for N >= {_LEAST_SIZE:,}. In theory a butterfly has power 1 in '
          'N log N, and a dense matrix power 2 in N.\n',
          tables.markdown(('model', 'method', 'sizes', 'power of N',
                           'power of N log N'), rows)]


def _fitted(sizes: Mapping[int, Metrics]) -> tuple[str, ...] | None:
  """Returns the sizes and both powers as text; None for a single size."""
  times = {size: metrics[collected.time_name(metrics)]
           for size, metrics in sorted(sizes.items())
           if size >= _LEAST_SIZE and metrics.get(
               collected.time_name(metrics))}
  if len(times) < 2:
    return None
  numbers = np.array(list(times), np.float64)
  logs = np.log(list(times.values()))
  power = lambda of: f'{np.polyfit(np.log(of), logs, 1)[0]:.2f}'
  return (f'{min(times):,} to {max(times):,}', power(numbers),
          power(numbers * np.log2(numbers)))
