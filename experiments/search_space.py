"""What a search may choose from: numbers, a few levels, choices.

A dimension maps the unit interval to its values, so that a point of a space
has a place in the unit cube. Levels and choices stand in the middle of their
share of it wherever a model sees them (Garrido-Merchan and Hernandez-Lobato
2020): what cannot be told apart has equal coordinates.
"""

from collections.abc import Sequence
import dataclasses
import math
from typing import Any

import numpy as np

from dpjax import errors

Point = dict[str, Any]
"""Values by the names of their dimensions."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Real:
  """A number in [low, high], searched on a log scale if `log`.

  Four digits are kept of it: more would mean nothing and be hard to read.
  """
  name: str
  low: float
  high: float
  log: bool = False

  def __post_init__(self):
    if self.log:
      errors.check_positive(f'{self.name}: low', self.low)
    if not self.low < self.high < math.inf:
      raise ValueError(f'{self.name}: low must be below high, got {self.low} '
                       f'and {self.high}')

  def value(self, unit: float) -> float:
    """The value at a place in [0, 1]."""
    low, high = self._ends
    value = low + unit * (high - low)
    value = math.exp(value) if self.log else value
    return self.nearest(float(f'{value:.4g}'))

  def unit(self, value: float) -> float:
    """The place in [0, 1] of a value."""
    low, high = self._ends
    return ((math.log(value) if self.log else value) - low) / (high - low)

  def nearest(self, value: float) -> float:
    """The closest value that there is."""
    return float(min(max(value, self.low), self.high))

  def snap(self, units: np.ndarray) -> np.ndarray:
    """Places that stand for values: all of them."""
    return units

  def features(self, units: np.ndarray) -> np.ndarray:
    """What a model sees of places [n]: [n, 1]."""
    return units[:, None]

  @property
  def _ends(self) -> tuple[float, float]:
    ends = self.low, self.high
    return tuple(map(math.log, ends)) if self.log else ends


@dataclasses.dataclass(frozen=True, kw_only=True)
class Levels:
  """One of a few numbers in increasing order, near if their ranks are."""
  name: str
  values: tuple

  def __post_init__(self):
    if not self.values or list(self.values) != sorted(set(self.values)):
      raise ValueError(f'{self.name} must have increasing values, got '
                       f'{self.values}')

  def value(self, unit: float) -> Any:
    """The value at a place in [0, 1]; each has the same share of it."""
    return self.values[int(self._ranks(np.array(unit)))]

  def unit(self, value: Any) -> float:
    """The place in [0, 1] of a value."""
    return (self.values.index(value) + 0.5) / len(self.values)

  def nearest(self, value: Any) -> Any:
    """The closest value that there is."""
    return min(self.values, key=lambda level: abs(level - value))

  def snap(self, units: np.ndarray) -> np.ndarray:
    """For each place the middle of the value's share that it lies in."""
    return (self._ranks(units) + 0.5) / len(self.values)

  def features(self, units: np.ndarray) -> np.ndarray:
    """What a model sees of places [n]: [n, 1]."""
    return self.snap(units)[:, None]

  def _ranks(self, units: np.ndarray) -> np.ndarray:
    count = len(self.values)
    return np.minimum(np.floor(units * count), count - 1).astype(int)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice(Levels):
  """One of a few values without an order, all equally far apart."""

  def __post_init__(self):
    if not self.values or len(set(self.values)) < len(self.values):
      raise ValueError(f'{self.name} must have different values, got '
                       f'{self.values}')

  def nearest(self, value: Any) -> Any:
    """The value itself, which must be there."""
    return errors.check_choice(self.name, value, self.values)

  def features(self, units: np.ndarray) -> np.ndarray:
    """What a model sees of places [n]: [n, number of values]."""
    return 0.5**0.5 * np.eye(len(self.values))[self._ranks(units)]


Dimension = Real | Levels | Choice
Space = Sequence[Dimension]


def integers(name: str, low: int, high: int) -> Levels:
  """All integers from `low` to `high`."""
  return Levels(name=name, values=tuple(range(low, high + 1)))


def check(space: Space) -> Space:
  """Refuses a space without dimensions, or with two of one name."""
  names = [each.name for each in space]
  if not space or len(set(names)) < len(names):
    raise ValueError('a space must have dimensions of different names, got '
                     f'{", ".join(names) or "none"}')
  return space


def nearest(space: Space, point: Point) -> Point:
  """The point of the space that is closest, coordinate by coordinate."""
  return {each.name: each.nearest(point[each.name]) for each in space}


def check_point(space: Space, point: Point) -> Point:
  """Refuses what is not a point of the space, in one line."""
  if set(point) != {each.name for each in space}:
    raise ValueError(f'a point must have {", ".join(e.name for e in space)}, '
                     f'got {", ".join(sorted(point))}')
  if (inside := nearest(space, point)) != point:
    name = next(name for name in point if point[name] != inside[name])
    raise ValueError(f'{name} = {point[name]} is not in the search space; the '
                     f'nearest is {inside[name]}')
  return point


def units(space: Space, points: Sequence[Point]) -> np.ndarray:
  """The places of points, [n, dimensions] in [0, 1]."""
  return np.array([[each.unit(point[each.name]) for each in space]
                   for point in points]).reshape(-1, len(space))


def point_at(space: Space, place: np.ndarray) -> Point:
  """The point at a place [dimensions]."""
  return {each.name: each.value(float(unit))
          for each, unit in zip(space, place, strict=True)}


def snap(space: Space, places: np.ndarray) -> np.ndarray:
  """The places [n, dimensions] that stand for the same points."""
  return np.stack([each.snap(column) for each, column
                   in zip(space, places.T, strict=True)], axis=1)


def features(space: Space, places: np.ndarray) -> np.ndarray:
  """What a model sees of places [n, dimensions]: [n, features]."""
  return np.concatenate([each.features(column) for each, column
                         in zip(space, places.T, strict=True)], axis=1)
