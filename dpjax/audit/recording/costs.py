"""Privacy costs of noisy values, and their epsilon."""

import dataclasses
import math
from typing import Any

import numpy as np

from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency


@dataclasses.dataclass(frozen=True)
class Cost:
  """Privacy cost of noisy values on one pair.

  Attributes:
    shift: mu of all Gaussian noise.
    laplace: ratios of shift and scale, one for each Laplace draw.
    discrete: (rate, whole shift) of discrete Laplace draws.
    pure: sum of other largest privacy losses, of the data set against its
      neighbour.
    reverse: the same of the neighbour against the data set.
    exact: False if `pure` or the others are upper bounds only.
    unknown: why a cost is unknown; empty if all are known.
    error: relative error of the measured scales.
  """
  shift: float = 0.0
  laplace: tuple[float, ...] = ()
  discrete: tuple[tuple[float, int], ...] = ()
  pure: float = 0.0
  reverse: float = 0.0
  exact: bool = True
  unknown: str = ''
  error: float = 0.0

  def __add__(self, other: 'Cost') -> 'Cost':
    return Cost(math.hypot(self.shift, other.shift),
                self.laplace + other.laplace, self.discrete + other.discrete,
                self.pure + other.pure, self.reverse + other.reverse,
                self.exact and other.exact, self.unknown or other.unknown,
                max(self.error, other.error))

  @property
  def largest_loss(self) -> float:
    """The largest privacy loss; infinite for Gaussian noise."""
    return (math.inf if self.shift > 0 else self.either
            + math.fsum(self.laplace)
            + math.fsum(rate * step for rate, step in self.discrete))

  @property
  def either(self) -> float:
    """The larger of `pure` and `reverse`; additive noise is symmetric."""
    return max(self.pure, self.reverse)


def both_ways(loss: float, **fields: Any) -> Cost:
  """Returns the cost of a release with one largest loss, both ways."""
  return Cost(pure=loss, reverse=loss, **fields)


def epsilon(cost: Cost, delta: float) -> float:
  """Returns the epsilon of a cost at delta, without the unknown parts."""
  if delta == 0 or cost.shift == 0 and cost.largest_loss in (0, math.inf):
    return cost.largest_loss
  if math.isinf(cost.shift) or math.isinf(cost.either) or any(
      map(math.isinf, cost.laplace)):
    return math.inf
  if not (cost.laplace or cost.discrete or cost.either):
    return _gaussian(cost.shift, delta)
  both = Adjacency.ADD_OR_REMOVE_ONE  # Of sensitivity 1 in the library.
  largest = dataclasses.replace(cost, shift=0.0).largest_loss
  if largest > 50 or cost.shift > 20:
    # Too much for the accountant; composition at delta is an upper bound.
    return largest + (_gaussian(cost.shift, delta) if cost.shift else 0.0)
  events = [accounting.laplace_event(noise_multiplier=1 / ratio)
            for ratio in cost.laplace if ratio > 1e-6]
  events += [accounting.discrete_laplace_event(noise_parameter=rate,
                                               sensitivity=step)
             for rate, step in cost.discrete]
  if cost.shift > 1e-6:
    events.append(accounting.gaussian_event(noise_multiplier=1 / cost.shift))
  if cost.either > 0:
    events.append(accounting.pure_event(epsilon=cost.either, adjacency=both))
  if not events:
    return 0.0
  spent = accounting.epsilon(accounting.composed_event(events), delta=delta,
                             adjacency=both)
  return min(spent, largest) if cost.shift == 0 else spent


def _gaussian(shift: float, delta: float) -> float:
  """Returns the epsilon of Gaussian noise of this mu."""
  if shift < 1e-4:
    return 0.0
  # For huge shifts the loss is mu^2 / 2 up to a few mu.
  return (shift**2 / 2 if shift > 100
          else accounting.gaussian_epsilon(shift=shift, delta=delta))


def change(one: np.ndarray, other: np.ndarray) -> np.ndarray:
  """Returns differences; NaN against a number counts as infinite."""
  with np.errstate(invalid='ignore'):
    differences = one - other
  same = (one == other) | (np.isnan(one) & np.isnan(other))
  # float32 sums are off by about their size times 1e-7 for each addition.
  slack = 2e-6 * np.maximum(np.abs(one), np.abs(other))
  differences = np.where(np.isnan(differences), np.inf, differences)
  return np.where(same | (np.abs(differences) <= slack), 0.0, differences)
