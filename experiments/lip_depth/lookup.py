"""Rows of this experiment by setting, and values computed from them."""

from collections.abc import Iterable
from typing import NamedTuple

from experiments import records
from experiments import summary
from experiments.lip_depth import sweep


class Key(NamedTuple):
  """A setting without its seed; the fields are those of `sweep.Setting`."""
  kind: str
  dataset: str
  method: str
  epsilon: float
  num_examples: int | None
  depth: int
  weight_norm: float


Values = dict[Key, dict[str, dict[int, float]]]
"""Setting -> metric -> seed -> value."""


def parse(id_: str) -> Key:
  """Returns the setting of an id."""
  cells = dict(pair.split('=', 1)
               for pair in id_.split('/', 1)[1].split(','))
  size = cells['num_examples']
  return Key(cells['kind'], cells['dataset'], cells['method'],
             float(cells['epsilon']), None if size == 'none' else int(size),
             int(cells['depth']), float(cells['weight_norm']))


def collect(rows: Iterable[records.Row]) -> Values:
  """Returns the values of all settings."""
  values: Values = {}
  for row in rows:
    values.setdefault(parse(row.id), {}).setdefault(row.metric, {})[
        row.seed] = row.value
  return values


def trained(values: Values) -> Values:
  """Returns the settings that were trained."""
  return {key: metrics for key, metrics in values.items()
          if key.kind in sweep.TRAINING}


def of_kind(values: Values, kind: str) -> Values:
  """Returns the settings of a kind, by method and depth."""
  results = {key: metrics for key, metrics in values.items()
           if key.kind == kind}
  return dict(sorted(results.items(), key=lambda item: (
      item[0].method, item[0].weight_norm, item[0].depth)))


def datasets(values: Values) -> list[str]:
  """Returns the data sets that were trained on, adult first."""
  return sorted({key.dataset for key in trained(values)})


class Line(NamedTuple):
  """A curve: its method, weight norm, and whether layers are orthogonal."""
  method: str
  weight_norm: float
  orthogonal: bool = False

  @property
  def label(self) -> str:
    """Returns the label of the curve; it states a norm other than the default.
    """
    if self.orthogonal:
      return f'{self.method}, orthogonal'
    if self.weight_norm == sweep.WEIGHT_NORM:
      return self.method
    return f'{self.method}, C = {self.weight_norm:g}'


LINES = (*(Line(name, sweep.WEIGHT_NORM) for name in ('sgd', *sweep.METHODS)),
         *(Line(name, 1.0) for name in sweep.UNIT),
         *(Line(name, 1.0, True) for name in ('sgd', *sweep.ON_ORTHOGONAL)))


def by_seed(values: Values, dataset: str, line: Line, along: str,
            metric: str = 'test_accuracy', **fixed
            ) -> dict[float | None, dict[int, float]]:
  """Returns a metric along one field; the other fields are at the centre.

  Maps each value of the field to {seed: value of the metric}.

  Args:
    values: values of all settings.
    dataset: name of the data set.
    line: the curve.
    along: field that varies: 'epsilon', 'num_examples' or 'depth'.
    metric: name of the metric.
    **fixed: values of other fields that are not those of the centre.
  """
  at = dict(dataset=dataset, method=line.method,
            weight_norm=line.weight_norm, epsilon=sweep.EPSILON,
            num_examples=None, depth=sweep.DEPTH) | fixed
  if line.method == 'sgd':
    at['epsilon'] = float('inf')
  del at[along]
  results = {
      getattr(key, along): metrics[metric]
      for key, metrics in trained(values).items()
      if metric in metrics and line.orthogonal == (
          key.kind in sweep.ORTHOGONAL) and all(
              getattr(key, name) == value for name, value in at.items())}
  # None stands for all records, so it comes after every number.
  return dict(sorted(results.items(), key=lambda item: (
      item[0] is None, item[0] or 0)))


def curve(values: Values, dataset: str, line: Line, along: str,
          metric: str = 'test_accuracy', **fixed
          ) -> dict[float | None, summary.Summary]:
  """Returns the means over seeds of `by_seed`."""
  result = by_seed(values, dataset, line, along, metric, **fixed)
  return {at: summary.summarise(seeds.values())
          for at, seeds in result.items()}


def sizes(rows: Iterable[records.Row]) -> dict[tuple[str, int | None], int]:
  """Returns (data set, records asked for) -> records trained on."""
  return {(row.dataset, parse(row.id).num_examples): row.n for row in rows}
