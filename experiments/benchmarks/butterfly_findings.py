"""How time grows with the size of a vector: exponents fitted to rows."""

from collections.abc import Mapping

import numpy as np

from dpjax.report import tables
from experiments.benchmarks import values as collected
from experiments.benchmarks.values import Metrics
from experiments.benchmarks.values import Values

_LEAST_SIZE = 2**10
"""Below, calls cost more than what they do."""


def of_suite(values: Values) -> list[str]:
  """For each method the powers of N and of N log2 N that fit its times."""
  rows = [(model, line.method, *found) for model, lines in values.items()
          for line, sizes in lines.items() if (found := _fitted(sizes))]
  if not rows:
    return []
  return ['## Growth\n',
          f'Least squares of the logarithm of median time from N = '
          f'{_LEAST_SIZE:,} on. A butterfly has power 1 in N log N, a dense '
          'matrix 2 in N.\n',
          tables.markdown(('model', 'method', 'sizes', 'power of N',
                           'power of N log N'), rows)]


def _fitted(sizes: Mapping[int, Metrics]) -> tuple[str, ...] | None:
  """(sizes, powers), where there are two sizes or more."""
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
