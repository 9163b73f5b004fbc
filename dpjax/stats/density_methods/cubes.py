"""Histograms of records in [0, 1]^d: noisy counts of K^d equal cells.

A replaced record changes two counts by 1, whatever d is: noise, guarantee and
closed forms are those of `histograms`, with m = K^d as the number of bins. Only
the bias differs: K^-2 = m^(-2/d). Source: Barber and Duchi (2014, section
3.2.2; item EST-HIST, erratum E-14).
"""

import dataclasses

import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.stats import precision
from dpjax.stats.density_methods import histograms
from dpjax.typing import PRNGKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class CubeHistogram(histograms.Histogram):
  """The histogram estimator on a cube: heights [m] of K^d cells, row by row.

  Guarantee: that of the counts, see `noisy_counts`.

  Attributes:
    dimension: d; `num_bins` is a d-th power.
  """
  dimension: int

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_at_least('dimension', self.dimension, 1)
    side_of(self.num_bins, self.dimension)

  def statistic(self, unit: np.ndarray) -> np.ndarray:
    """Returns counts [m] of records [n, d] in the cube; 1 is in the last cell.
    """
    side = side_of(self.num_bins, self.dimension)
    # Cells are numbered row by row; the last coordinate varies fastest.
    places = np.minimum((unit * side).astype(np.int64), side - 1)
    flat = np.ravel_multi_index(tuple(places.T), (side,) * self.dimension)
    return np.bincount(flat, minlength=self.num_bins).astype(np.float64)

  @precision.in_float64
  def estimate(self, key: PRNGKey, x: np.ndarray) -> np.ndarray:
    """Releases heights [K, ..., K] from records [n, d]; clips them to the cube.
    """
    unit = np.clip(np.asarray(x, np.float64), 0, 1)
    if unit.ndim != 2 or unit.shape[1] != self.dimension:
      raise ValueError(f'records must be [n, {self.dimension}], got '
                       f'{list(unit.shape)}')
    if np.isnan(unit).any():
      raise ValueError('records must be numbers, got NaN')
    if self.knows_total:
      errors.check_records(unit.shape[:1], self.num_records)
    heights = self._drawn(key, jnp.asarray(self.statistic(unit)))
    side = side_of(self.num_bins, self.dimension)
    return heights.reshape((side,) * self.dimension)


def side_of(num_bins: int, dimension: int) -> int:
  """Returns K, the number of cells per axis of K^d cells."""
  side = round(num_bins**(1 / dimension))
  if side**dimension != num_bins:
    raise ValueError('num_bins must be a whole number to the power of '
                     f'{dimension}, got {num_bins}')
  return side
