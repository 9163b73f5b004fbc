"""Base class of the estimators: a statistic, a sampler, and its parameters.

A mechanism reduces records to a statistic, counts of equal bins or sums of
basis functions, and releases coefficients of a density. `draw(key, statistic,
parameters)` is a pure function that adds the noise and applies the estimator's
post-processing. Mechanisms that differ only in parameters share one function
object: a sweep compiles once for each shape.

Adjacency. Under REPLACE_ONE n is public, and one count falls by 1 while another
rises by 1. Under ADD_OR_REMOVE_ONE one count changes by 1; `num_records` is
then a public guess that determines sizes, and noisy counts are divided by their
own noisy total.
"""

import abc
from collections.abc import Callable
import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.stats import precision
from dpjax.stats.density_methods.densities import Density
from dpjax.stats.density_methods.estimate import DensityEstimate
from dpjax.typing import Array, PRNGKey, PyTree

Draw = Callable[[PRNGKey, Array, PyTree], Array]
"""(key, statistic [s] float64, parameters) -> coefficients [c]."""


@functools.cache
def compiled(draw: Draw) -> Draw:
  """Returns the jitted sampler, one for each shape; call it with 64-bit types.
  """
  return jax.jit(draw)


@functools.cache
def repeated(draw: Draw) -> Draw:
  """Returns the jitted (keys [R], statistics [R, s], parameters) -> [R, c]."""
  return jax.jit(jax.vmap(draw, (0, 0, None)))


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
class DensityMechanism(abc.ABC):
  """Base class of the estimators.

  The budget is `epsilon`, of pure differential privacy, or `rho`, of
  zero-concentrated differential privacy. With neither, the estimate is not
  private. For a target of (epsilon, delta) rho is half the square of
  `accounting.gaussian_shift`.

  Attributes:
    num_records: n, or a public guess of it under ADD_OR_REMOVE_ONE.
    epsilon: budget of one release, or None.
    rho: budget of one release in zCDP, or None.
    adjacency: which data sets are neighbours.
  """
  num_records: int
  epsilon: float | None = None
  rho: float | None = None
  adjacency: Adjacency

  # Read by the auditor: `release` takes and returns 64-bit types.
  double_precision = True
  kind = 'histogram'

  def __post_init__(self):
    errors.check_at_least('num_records', self.num_records, 1)
    check_adjacency(self.adjacency)
    if self.epsilon is not None and self.rho is not None:
      raise ValueError('the budget is epsilon or rho, exactly one of them, got '
                       f'epsilon={self.epsilon} and rho={self.rho}')
    for name in ('epsilon', 'rho'):
      if getattr(self, name) is not None:
        errors.check_positive(name, getattr(self, name))

  @property
  def knows_total(self) -> bool:
    """Whether n is public."""
    return self.adjacency is Adjacency.REPLACE_ONE

  @property
  def pure(self) -> bool:
    """Whether the budget is epsilon."""
    return self.epsilon is not None

  @property
  def budget(self) -> float:
    """alpha: epsilon, or the square root of rho; infinite without privacy."""
    if self.pure:
      return self.epsilon
    return math.inf if self.rho is None else math.sqrt(self.rho)

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy event of one release, for the accountants."""
    if self.pure:
      return accounting.pure_event(epsilon=self.epsilon,
                                   adjacency=self.adjacency)
    if self.rho is None:
      return accounting.non_private_event()
    # The mean shifts by at most sqrt(2 rho) standard deviations. Under
    # REPLACE_ONE two records change, so one record's shift is half of that.
    records = 2 if self.knows_total else 1
    return accounting.gaussian_event(
        noise_multiplier=records / math.sqrt(2 * self.rho))

  @abc.abstractmethod
  def statistic(self, unit: np.ndarray) -> np.ndarray:
    """Returns the exact, private statistic [s] of records [n] in [0, 1]."""

  @property
  @abc.abstractmethod
  def draw(self) -> Draw:
    """Jittable sampler (key, statistic, parameters) -> coefficients.

    Mechanisms that differ only in `parameters` share one function object.
    """

  @property
  @abc.abstractmethod
  def parameters(self) -> PyTree:
    """Float64 NumPy arrays that the sampler takes."""

  def expected(self, density: Density) -> Risk:
    """Returns the exact risk for a density; only linear estimators, n public.
    """
    raise NotImplementedError(
        f'{type(self).__name__} is not linear: its error is measured')

  @precision.in_float64
  def release(self, key: PRNGKey, data: Array) -> Array:
    """Releases coefficients [c] of a statistic [s]."""
    return self.draw(key, jnp.asarray(data, jnp.float64), self.parameters)

  @precision.in_float64
  def coefficients(self, key: PRNGKey, statistics: np.ndarray) -> np.ndarray:
    """Releases coefficients [R, c] of statistics [R, s]; independent noise."""
    keys = jax.random.split(key, statistics.shape[0])
    return jax.tree.map(np.asarray, repeated(self.draw)(
        keys, jnp.asarray(statistics, jnp.float64), self.parameters))

  @precision.in_float64
  def estimate(self, key: PRNGKey, x: np.ndarray) -> DensityEstimate:
    """Releases the density of records [n]; clips them to [0, 1].

    Raises:
      ValueError: if a record is NaN, or the public n differs.
    """
    unit = np.clip(np.asarray(x, np.float64), 0, 1)
    if np.isnan(unit).any():
      raise ValueError('records must be numbers, got NaN')
    if self.knows_total:
      errors.check_records(unit.shape, self.num_records)
    return DensityEstimate(kind=self.kind, coefficients=np.asarray(compiled(
        self.draw)(key, jnp.asarray(self.statistic(unit)), self.parameters)))


def bin_counts(unit: np.ndarray, num_bins: int) -> np.ndarray:
  """Returns counts [m] float64 of equal bins of [0, 1]; 1 is in the last bin.
  """
  places = np.minimum((unit * num_bins).astype(np.int64), num_bins - 1)
  return np.bincount(places, minlength=num_bins).astype(np.float64)
