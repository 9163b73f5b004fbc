"""Points by data set and size, and the noise with the least error."""

from collections.abc import Iterable

from experiments import points
from experiments.quantile_atoms import sweep

Errors = dict[str, points.Point]
"""Method -> point; for smoothed methods, the point with the best noise."""


def datasets(cells: Iterable[points.Point]) -> list[str]:
  """Returns the data sets that have points, in the order of the sweep."""
  present = {point['dataset'] for point in cells}
  return [dataset for dataset in (*sweep.MIXED, *sweep.FILES, *sweep.SURROGATES)
          if dataset in present]


def _is_coarse(point: points.Point) -> bool:
  return any(abs(point['sigma'] / sigma - 1) < 1e-6 for sigma in sweep.SIGMAS)


def smoothed(cells: Iterable[points.Point], method: str, *,
             fine: bool = False) -> list[points.Point]:
  """Returns the points of a method with added noise.

  They have one of the eight standard deviations of the sweep, or any if `fine`.
  """
  return [point for point in points.select(cells, method=method)
          if fine or _is_coarse(point)]


def best(cells: Iterable[points.Point], method: str, *, fine: bool = False
         ) -> points.Point | None:
  """Returns the point of least error over sigma, which only an oracle knows."""
  return min(smoothed(cells, method, fine=fine), default=None,
             key=lambda point: point['value_sup'])


def by_size(cells: Iterable[points.Point]) -> dict[tuple[str, int], Errors]:
  """Returns (distribution, n) -> errors by method."""
  groups: dict[tuple[str, int], list[points.Point]] = {}
  for point in cells:
    groups.setdefault((point['dataset'], int(point['num_examples'])),
                      []).append(point)
  return {key: _errors(group) for key, group in groups.items()}


def _errors(group: list[points.Point]) -> Errors:
  values = {point['method']: point for point in group
           if point['method'] not in sweep.SMOOTHED}
  for method in sweep.SMOOTHED:
    if (point := best(group, method)) is not None:
      values[method] = point
  return values
