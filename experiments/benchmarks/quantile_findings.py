"""Compares the time of private quantiles with that of published algorithms."""

from dpjax.report import tables
from experiments.benchmarks import methods
from experiments.benchmarks import values as collected
from experiments.benchmarks.values import Line
from experiments.benchmarks.values import Metrics
from experiments.benchmarks.values import Values

_MANY_LEVELS = 5
"""Least number of levels for which JointExp should be no slower."""


def of_suite(values: Values) -> list[str]:
  """Returns the table that compares dpjax with the published algorithms."""
  beside = _beside(values)
  if not beside:
    return []
  return ['## Beside the published algorithms\n',
          'Median CPU time of a release of dpjax, divided by theirs.\n',
          tables.markdown(('model', 'records', 'over published',
                           'over published_tight', 'not slower'), beside)]


def _beside(values: Values) -> list[tuple[str, ...]]:
  """Returns a row for each model and size that both have."""
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
  """Returns the ratio of times; None if one is missing."""
  name = collected.time_name(above)
  return (above[name] / below[name]
          if name in above and name in below else None)


def _text(ratio: float | None) -> str:
  """Returns a ratio as text, '-' for None."""
  return '-' if ratio is None else f'{ratio:.3g}'


def _verdict(model: str, ratio: float) -> str:
  """Returns whether JointExp with several levels is fast enough, or '-'."""
  family, num_levels = methods.quantile_model(model)
  if family != 'joint' or num_levels < _MANY_LEVELS:
    return '-'
  return 'yes' if ratio <= 1 else 'NO'
