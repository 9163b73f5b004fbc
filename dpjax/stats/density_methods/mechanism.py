"""Base class of the density estimators: a statistic and what is drawn from it.

A mechanism reduces records to a statistic, counts of equal bins or sums of
basis functions, and releases coefficients of a density. `draw(key, statistic,
parameters)` adds the noise and applies the estimator's post-processing.

Adjacency. Under REPLACE_ONE n is public, and one count falls by 1 while another
rises by 1. Under ADD_OR_REMOVE_ONE one count changes by 1; `num_records` is
then a public guess that determines sizes, and noisy counts are divided by their
own noisy total.
"""

import abc
import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import check_adjacency
from dpjax.stats import mechanisms
from dpjax.stats import precision
from dpjax.stats.density_methods.densities import Density
from dpjax.stats.density_methods.estimate import DensityEstimate
from dpjax.typing import Array, PRNGKey, PyTree

Draw = mechanisms.Draw[Array]
"""(key, statistic [s] float64, parameters) -> coefficients [c]."""


class Risk(NamedTuple):
  """The mean integrated squared error in closed form.

  Attributes:
    sampling: error from n records, without noise.
    privacy: error added by the noise.
    bias: squared error that remains without sampling error and noise.
  """
  sampling: float
  privacy: float
  bias: float

  @property
  def total(self) -> float:
    """Sum of the three parts."""
    return self.sampling + self.privacy + self.bias


@dataclasses.dataclass(frozen=True, kw_only=True)
class DensityMechanism(mechanisms.Budgeted, mechanisms.SampledMechanism[Array]):
  """Base class of the density estimators.

  Without a budget, neither epsilon nor rho, the estimate is not private. For a
  target of (epsilon, delta) rho is half the square of
  `accounting.gaussian_shift`.

  Attributes:
    num_records: n, or a public guess of it under ADD_OR_REMOVE_ONE.
  """
  num_records: int

  kind = 'histogram'

  def __post_init__(self) -> None:
    errors.check_at_least('num_records', self.num_records, 1)
    check_adjacency(self.adjacency)
    # Neither is allowed here: estimates without privacy, for comparison.
    if not (self.epsilon is None and self.rho is None):
      mechanisms.check_budget(self.epsilon, self.rho)

  @property
  def budget(self) -> float:
    """alpha: epsilon, or the square root of rho; infinite without privacy."""
    return self.amount if self.pure else math.sqrt(self.amount)

  @abc.abstractmethod
  def statistic(self, unit: np.ndarray) -> np.ndarray:
    """Returns the exact, private statistic [s] of records [n] in [0, 1]."""

  def expected(self, density: Density) -> Risk:
    """Returns the exact risk for a density; only linear estimators, n public.
    """
    raise NotImplementedError(
        f'{type(self).__name__} is not linear: its error has no closed form')

  @precision.in_float64
  def release(self, key: PRNGKey, data: Array | np.ndarray) -> Array:
    """Releases coefficients [c] of a statistic [s]."""
    return self.draw(key, jnp.asarray(data, jnp.float64), self.parameters)

  @precision.in_float64
  def coefficients(self, key: PRNGKey, statistics: np.ndarray) -> np.ndarray:
    """Releases coefficients [R, c] of statistics [R, s]; independent noise."""
    return jax.tree.map(np.asarray, self._drawn_each(
        key, jnp.asarray(statistics, jnp.float64), statistics.shape[0]))

  @precision.in_float64
  def estimate(self, key: PRNGKey, x: np.ndarray) -> PyTree:
    """Releases the density of records [n]; clips them to [0, 1].

    Returns:
      A `DensityEstimate`; densities of several attributes have their own form.

    Raises:
      ValueError: if a record is NaN, or the public n differs.
    """
    # NaN stays NaN when it is clipped.
    unit = np.clip(np.asarray(x, np.float64), 0, 1)
    if np.isnan(unit).any():
      raise ValueError('records must be numbers, got NaN')
    if self.knows_total:
      errors.check_records(unit.shape, self.num_records)
    return DensityEstimate(kind=self.kind, coefficients=self._drawn(
        key, jnp.asarray(self.statistic(unit))))


def bin_counts(unit: np.ndarray, num_bins: int) -> np.ndarray:
  """Returns counts [m] float64 of equal bins of [0, 1]; 1 is in the last bin.
  """
  # The product rounds up to m at 1, and perhaps just below it.
  places = np.minimum((unit * num_bins).astype(np.int64), num_bins - 1)
  return np.bincount(places, minlength=num_bins).astype(np.float64)
