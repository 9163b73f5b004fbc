"""Collects the rows of a suite by model, method and size."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from experiments import records
from experiments.benchmarks import architectures
from experiments.benchmarks import layers
from experiments.benchmarks import methods
from experiments.benchmarks import network_names

Metrics = dict[str, float]


class Line(NamedTuple):
  """The method and the number of devices of a row in a table."""
  method: str
  num_devices: int

  @property
  def text(self) -> str:
    """Returns the label of the line in a table."""
    several = f', {self.num_devices} devices' if self.num_devices > 1 else ''
    return self.method + several


Lines = dict[Line, dict[int, Metrics]]
"""Maps line -> size -> metrics, for one model."""

Values = dict[str, Lines]
"""Maps the name of a model to its lines."""


def collect(rows: Iterable[records.Row], suite: str) -> Values:
  """Returns the values of the rows of a suite, in the order of the sweep."""
  collected: Values = {}
  for row in rows:
    cells = dict(pair.split('=', 1)
                 for pair in row.id.split('/', 1)[1].split(','))
    if cells['suite'] == suite:
      line = Line(row.method, int(cells['num_devices']))
      collected.setdefault(row.dataset, {}).setdefault(line, {}).setdefault(
          int(cells['size']), {})[row.metric] = row.value
  return {model: dict(sorted(collected[model].items(), key=_order))
          for model in sorted(collected, key=_model_order)}


def _order(item: tuple[Line, Any]) -> tuple[int, Line]:
  """Returns the sort key of (line, metrics by size)."""
  line = item[0]
  base, _ = methods.split(line.method)
  names = [*methods.STEPS, *methods.DRAWS, *methods.NORMS, *methods.LOOPS,
           *methods.ESTIMATORS, *methods.QUANTILES, *methods.CURVES,
           *methods.DENSITIES, *methods.REPLICAS, *methods.BUTTERFLY,
           *methods.NETWORK_STEPS, *methods.STREAMS]
  return names.index(base), line


def _model_order(model: str) -> tuple[int, str]:
  """Returns the sort key of a model."""
  names = [*architectures.MODELS, *layers.LAYERS, *methods.QUANTILE_MODELS,
           *methods.CURVE_MODELS, *methods.DENSITY_MODELS,
           *methods.REPLICA_MODELS, *methods.BUTTERFLY_MODELS,
           *methods.STREAM_MODELS,
           *network_names.NETWORKS]
  return names.index(model) if model in names else len(names), model


def time_name(metrics: Metrics) -> str:
  """Returns the metric that ratios compare: CPU time or wall time."""
  return 'wall_ms' if metrics.get('accelerator') else 'cpu_ms'


def way(metrics: Metrics) -> str:
  """Returns how per-record gradient norms of a layer were computed.

  'gram': from Gram matrices; 'kept': from gradients kept in memory.
  """
  return 'gram' if metrics['by_gram'] else 'kept'
