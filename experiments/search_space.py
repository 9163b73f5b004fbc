"""Search spaces of hyperparameters: real numbers, ordered levels, choices.

A dimension maps the unit interval to its values, so that a point of a space
has a place in the unit cube. A level or a choice owns a part of the interval,
and a model sees the middle of that part (Garrido-Merchan and Hernandez-Lobato
2020): places with the same value get equal coordinates.
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

  Values are rounded to four significant digits, to be readable.
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
    """Returns the value at a place in [0, 1]."""
    low, high = self._ends
    value = low + unit * (high - low)
    value = math.exp(value) if self.log else value
    return self.nearest(float(f'{value:.4g}'))

  def unit(self, value: float) -> float:
    """Returns the place in [0, 1] of a value."""
    low, high = self._ends
    return ((math.log(value) if self.log else value) - low) / (high - low)

  def nearest(self, value: float) -> float:
    """Returns the closest allowed value."""
    return float(min(max(value, self.low), self.high))

  def snap(self, units: np.ndarray) -> np.ndarray:
    """Returns the places unchanged: each stands for a value of its own."""
    return units

  def features(self, units: np.ndarray) -> np.ndarray:
    """Returns the features [n, 1] of places [n] for a model."""
    return units[:, None]

  @property
  def _ends(self) -> tuple[float, float]:
    """Returns the ends of the interval, on the scale that is searched."""
    if self.log:
      return math.log(self.low), math.log(self.high)
    return self.low, self.high


@dataclasses.dataclass(frozen=True, kw_only=True)
class Levels:
  """One of a few increasing numbers; their distance is that of their ranks."""
  name: str
  values: tuple

  def __post_init__(self):
    if not self.values or list(self.values) != sorted(set(self.values)):
      raise ValueError(f'{self.name} must have increasing values, got '
                       f'{self.values}')

  def value(self, unit: float) -> Any:
    """Returns the value at a place in [0, 1]; all own parts of equal length."""
    return self.values[int(self._ranks(np.array(unit)))]

  def unit(self, value: Any) -> float:
    """Returns the place in [0, 1] of a value."""
    return (self.values.index(value) + 0.5) / len(self.values)

  def nearest(self, value: Any) -> Any:
    """Returns the closest allowed value."""
    return min(self.values, key=lambda level: abs(level - value))

  def snap(self, units: np.ndarray) -> np.ndarray:
    """Returns for each place the middle of the part that it lies in."""
    return (self._ranks(units) + 0.5) / len(self.values)

  def features(self, units: np.ndarray) -> np.ndarray:
    """Returns the features [n, 1] of places [n] for a model."""
    return self.snap(units)[:, None]

  def _ranks(self, units: np.ndarray) -> np.ndarray:
    count = len(self.values)
    return np.minimum(np.floor(units * count), count - 1).astype(int)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Choice(Levels):
  """One of a few values without an order, all at equal distances."""

  def __post_init__(self):
    if not self.values or len(set(self.values)) < len(self.values):
      raise ValueError(f'{self.name} must have different values, got '
                       f'{self.values}')

  def nearest(self, value: Any) -> Any:
    """Returns the value itself; raises ValueError if it is not a choice."""
    return errors.check_choice(self.name, value, self.values)

  def features(self, units: np.ndarray) -> np.ndarray:
    """Returns one-hot features [n, number of values] of places [n]."""
    return 0.5**0.5 * np.eye(len(self.values))[self._ranks(units)]


Dimension = Real | Levels | Choice
Space = Sequence[Dimension]


def integers(name: str, low: int, high: int) -> Levels:
  """Returns a dimension of all integers from `low` to `high`."""
  return Levels(name=name, values=tuple(range(low, high + 1)))


def check(space: Space) -> Space:
  """Returns the space; raises ValueError if it is empty or repeats a name."""
  names = [each.name for each in space]
  if not space or len(set(names)) < len(names):
    raise ValueError('a space must have dimensions of different names, got '
                     f'{", ".join(names) or "none"}')
  return space


def nearest(space: Space, point: Point) -> Point:
  """Returns the closest point of the space, coordinate by coordinate."""
  return {each.name: each.nearest(point[each.name]) for each in space}


def check_point(space: Space, point: Point) -> Point:
  """Returns the point; raises ValueError if it is not in the space."""
  if set(point) != {each.name for each in space}:
    raise ValueError(f'a point must have {", ".join(e.name for e in space)}, '
                     f'got {", ".join(sorted(point))}')
  if (inside := nearest(space, point)) != point:
    name = next(name for name in point if point[name] != inside[name])
    raise ValueError(f'{name} = {point[name]} is not in the search space; the '
                     f'nearest is {inside[name]}')
  return point


def units(space: Space, points: Sequence[Point]) -> np.ndarray:
  """Returns the places of points, [n, dimensions] in [0, 1]."""
  return np.array([[each.unit(point[each.name]) for each in space]
                   for point in points]).reshape(-1, len(space))


def point_at(space: Space, place: np.ndarray) -> Point:
  """Returns the point at a place [dimensions]."""
  return {each.name: each.value(float(unit))
          for each, unit in zip(space, place, strict=True)}


def snap(space: Space, places: np.ndarray) -> np.ndarray:
  """Returns the canonical places [n, dimensions] of the same points."""
  return np.stack([each.snap(column) for each, column
                   in zip(space, places.T, strict=True)], axis=1)


def features(space: Space, places: np.ndarray) -> np.ndarray:
  """Returns the features [n, features] of places [n, dimensions]."""
  return np.concatenate([each.features(column) for each, column
                         in zip(space, places.T, strict=True)], axis=1)
