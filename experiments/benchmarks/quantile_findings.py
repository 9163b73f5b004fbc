"""Are private quantiles as quick as published algorithms? A table from rows."""

from dpjax.report import tables
from experiments.benchmarks import methods
from experiments.benchmarks import values as collected
from experiments.benchmarks.values import Line
from experiments.benchmarks.values import Metrics
from experiments.benchmarks.values import Values

_MANY_ORDERS = 5
"""From which JointExp should nowhere be slower than with FFTs."""


def of_suite(values: Values) -> list[str]:
  """Ours beside the published algorithms."""
  beside = _beside(values)
  if not beside:
    return []
  return ['## Beside the published algorithms\n',
          'CPU time of a release of ours over theirs, the medians.\n',
          tables.markdown(('model', 'records', 'over published',
                           'over published_tight', 'not slower'), beside)]


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
