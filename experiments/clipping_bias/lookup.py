"""Rows of this experiment by setting, and values computed from them."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from experiments import records


class Key(NamedTuple):
  """A setting without its seed; the fields are those of `sweep.Setting`."""
  kind: str
  dataset: str
  method: str
  clip_norm: float
  at: tuple[float, ...]


Values = dict[Key, dict[str, list[float]]]
"""Setting -> metric -> values, one for each seed."""


def parse(id_: str) -> Key:
  """Returns the setting of an id."""
  cells = dict(pair.split('=', 1)
               for pair in id_.split('/', 1)[1].split(','))
  at = cells['at']
  return Key(cells['kind'], cells['dataset'], cells['method'],
             float(cells['clip_norm']),
             () if at == 'none' else tuple(map(float, at.split('x'))))


def collect(rows: Iterable[records.Row]) -> Values:
  """Returns the values of all settings, sorted."""
  values: Values = {}
  for row in rows:
    values.setdefault(parse(row.id), {}).setdefault(row.metric, []).append(
        row.value)
  return dict(sorted(values.items()))


def of_kind(values: Values, *kinds: str) -> Values:
  """Returns the settings of these kinds."""
  return {key: metrics for key, metrics in values.items()
          if key.kind in kinds}


def curve(values: Values, dataset: str, method: str, clip_norm: float,
          metric: str) -> tuple[list[float], list[float]]:
  """Returns (steps, values) of one curve; both empty without rows."""
  points = sorted((key.at[0], metrics[metric][0])
                  for key, metrics in of_kind(values, 'curve',
                                              'short').items()
                  if key[1:4] == (dataset, method, clip_norm) and
                  metric in metrics)
  return [step for step, _ in points], [value for _, value in points]


def curve_names(values: Values) -> list[tuple[str, str, float]]:
  """Returns (dataset, method, clip norm) of all curves."""
  return sorted({key[1:4] for key in of_kind(values, 'curve', 'short')})


class Ends(NamedTuple):
  """Start and end of one curve.

  Attributes:
    start: value at the first point.
    end: mean over the last quarter of the points; NaN without rows.
  """
  start: float
  end: float


def ends(points: Sequence[float]) -> Ends:
  """Returns where a curve starts and ends."""
  if not points:
    return Ends(np.nan, np.nan)
  last = points[-max(1, len(points) // 4):]
  return Ends(points[0], float(np.mean(last)))


class Grid(NamedTuple):
  """The fields of Figure 5.2.1.

  Attributes:
    first: values of u_1, [m].
    second: values of u_2, [k].
    plain: mean gradient, [m, k, 2].
    clipped: mean clipped gradient, [m, k, 2].
  """
  first: np.ndarray
  second: np.ndarray
  plain: np.ndarray
  clipped: np.ndarray


def grid(values: Values) -> Grid | None:
  """Returns the fields, None if points are missing."""
  points = {key.at: metrics
            for key, metrics in of_kind(values, 'field').items()}
  first, second = (sorted({at[axis] for at in points}) for axis in (0, 1))
  if not points or len(points) < len(first) * len(second):
    return None

  def field(name):
    return np.array([[[points[x, y][f'{name}_{axis}'][0] for axis in (1, 2)]
                      for y in second] for x in first])

  return Grid(np.array(first), np.array(second), field('gradient'),
              field('clipped'))


def crossings(first: np.ndarray, second: np.ndarray,
              field: np.ndarray) -> np.ndarray:
  """Returns the zeros [z, 2] of a field, interpolated between its points.

  In each cell the field is taken to be linear in both coordinates together,
  fitted to the four corners; the zero counts if it lies in the cell.
  """
  values = []
  for i in range(len(first) - 1):
    for j in range(len(second) - 1):
      corners = field[i:i + 2, j:j + 2]
      slopes = np.stack([corners[1].mean(0) - corners[0].mean(0),
                         corners[:, 1].mean(0) - corners[:, 0].mean(0)], 1)
      if abs(np.linalg.det(slopes)) < 1e-12:
        continue
      place = 0.5 - np.linalg.solve(slopes, corners.mean((0, 1)))
      if (-1e-9 <= place).all() and (place <= 1 + 1e-9).all():
        widths = np.array([first[i + 1] - first[i], second[j + 1] - second[j]])
        values.append(np.array([first[i], second[j]]) + place * widths)
  return _distinct(np.array(values).reshape(-1, 2))


def _distinct(points: np.ndarray) -> np.ndarray:
  """Removes duplicates: a zero on an edge is found by each adjacent cell."""
  distinct: list[np.ndarray] = []
  for point in points:
    if all(np.abs(point - other).max() > 1e-6 for other in distinct):
      distinct.append(point)
  return np.array(distinct).reshape(-1, 2)
