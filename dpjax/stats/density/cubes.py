"""Histograms of records in [0, 1]^d: noisy counts of K^d equal cells.

A record that takes another's place moves two counts by 1, whatever d is: noise,
guarantee and closed forms are those of `histograms`, with m = K^d in place of
the number of bins. What differs is the bias, K^-2 = m^(-2/d). Source: paper
004, l. 391-396 (item EST-HIST, erratum E-14 of minimax.md).
"""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.stats import precision
from dpjax.stats.density import histograms
from dpjax.stats.density import laws
from dpjax.stats.density import mechanism
from dpjax.typing import PRNGKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class CubeHistogram(histograms.Histogram):
  """The histogram estimator on a cube: heights [m] of K^d cells, row by row.

  Guarantee: that of the counts, see `noisy_counts`.

  Attributes:
    dimension: d; `num_bins` is a d-th power.
  """
  dimension: int

  def __post_init__(self):
    super().__post_init__()
    errors.check_at_least('dimension', self.dimension, 1)
    side_of(self.num_bins, self.dimension)

  def statistic(self, unit: np.ndarray) -> np.ndarray:
    """Counts [m] of records [n, d] in the cube; 1 is in the last cell."""
    side = side_of(self.num_bins, self.dimension)
    places = np.minimum((unit * side).astype(np.int64), side - 1)
    flat = np.ravel_multi_index(tuple(places.T), (side,) * self.dimension)
    return np.bincount(flat, minlength=self.num_bins).astype(np.float64)

  @precision.in_float64
  def estimate(self, key: PRNGKey, x: np.ndarray) -> np.ndarray:
    """Heights [K, ..., K] from records [n, d]; others are clipped."""
    unit = np.clip(np.asarray(x, np.float64), 0, 1)
    if unit.ndim != 2 or unit.shape[1] != self.dimension:
      raise ValueError(f'records must be [n, {self.dimension}], got '
                       f'{list(unit.shape)}')
    if np.isnan(unit).any():
      raise ValueError('records must be numbers, got NaN')
    if self.knows_total:
      errors.check_records(unit.shape[:1], self.num_records)
    heights = mechanism.compiled(self.draw)(
        key, jnp.asarray(self.statistic(unit)), self.parameters)
    side = side_of(self.num_bins, self.dimension)
    return np.asarray(heights).reshape((side,) * self.dimension)


def side_of(num_bins: int, dimension: int) -> int:
  """K of K^d cells."""
  side = round(num_bins**(1 / dimension))
  if side**dimension != num_bins:
    raise ValueError(f'num_bins must be a whole number to the power of '
                     f'{dimension}, got {num_bins}')
  return side


@dataclasses.dataclass(frozen=True, kw_only=True)
class AxisMixture:
  """A density on [0, 1]^d: of one coordinate, whichever is drawn, by a law.

  f(x) = 1/d sum_a f_a(x_a). What histograms need of it is exact, as of
  `laws.Density`.

  Attributes:
    parts: f_a, one for each coordinate.
  """
  parts: tuple[laws.Density, ...]

  @property
  def name(self) -> str:
    """Of its parts."""
    return '+'.join(part.name for part in self.parts)

  @property
  def square(self) -> float:
    """Integral of f^2."""
    return 1 + sum(part.energy for part in self.parts) / len(self.parts)**2

  @property
  def lipschitz(self) -> float:
    """Largest norm of a gradient, at most."""
    slopes = [part.lipschitz for part in self.parts]
    return float(np.linalg.norm(slopes)) / len(self.parts)

  @functools.lru_cache
  def masses(self, num_bins: int) -> np.ndarray:
    """Probabilities [m] of equal cells."""
    count = len(self.parts)
    side = side_of(num_bins, count)
    heights = [side * part.masses(side).reshape(
        (-1,) + (1,) * (count - 1 - axis))
               for axis, part in enumerate(self.parts)]
    found = np.ravel(sum(heights) / (count * num_bins))
    found.setflags(write=False)
    return found

  counts = laws.Density.counts


def worst(num_bins: int, dimension: int) -> laws.Density | AxisMixture:
  """A 1-Lipschitz density that a histogram of m cells tells nothing of.

  A zigzag along the first coordinate: counts are those of the uniform law, and
  the bias is m^(-2/d) / 12, for d = 1 the largest there is.
  """
  side = side_of(num_bins, dimension)
  if dimension == 1:
    return laws.zigzag(side)
  if dimension > 2 * side:
    raise ValueError(f'a slope of {dimension} is too much for {side} cells')
  return AxisMixture(parts=(laws.zigzag(side, float(dimension)),
                            *(dimension - 1) * (laws.uniform(),)))
