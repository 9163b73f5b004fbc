"""What the estimators of this room share: a statistic, a law, and numbers.

A mechanism reduces records to a statistic, counts of equal bins or sums of a
basis, and releases coefficients of a density. `draw(key, statistic,
parameters)` is a pure function, one object for all that numbers tell: a sweep
compiles once for each shape. Noise and then whatever post-processing belongs to
the estimator are in it.

Adjacency. Under REPLACE_ONE n is public, a count falls by 1 and another rises
by 1. Under ADD_OR_REMOVE_ONE one count moves by 1; `num_records` is then a
public guess that sizes are chosen by, and what is noisy is divided by its own
noisy total.
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
from dpjax.stats.density.estimate import DensityEstimate
from dpjax.stats.density.laws import Density
from dpjax.typing import Array, PRNGKey, PyTree

Draw = Callable[[PRNGKey, Array, PyTree], Array]
"""(key, statistic [s] float64, parameters) -> coefficients [c]."""


@functools.cache
def compiled(draw: Draw) -> Draw:
  """The law, compiled once for each shape; under 64-bit types."""
  return jax.jit(draw)


@functools.cache
def repeated(draw: Draw) -> Draw:
  """(keys [R], statistics [R, s], parameters) -> coefficients [R, c]."""
  return jax.jit(jax.vmap(draw, (0, 0, None)))


class Risk(NamedTuple):
  """The mean integrated squared error, in closed form.

  Attributes:
    sampling: what n records leave, were there no noise.
    privacy: what the noise adds.
    bias: what is left of f were there neither; squared.
  """
  sampling: float
  privacy: float
  bias: float

  @property
  def total(self) -> float:
    """The sum."""
    return self.sampling + self.privacy + self.bias


@dataclasses.dataclass(frozen=True, kw_only=True)
class DensityMechanism(abc.ABC):
  """Base of the estimators.

  The budget is `epsilon`, of pure differential privacy, or `rho`, of
  zero-concentrated; or neither, and the estimate is not private. For a target
  of (epsilon, delta) rho is half the square of `accounting.gaussian_shift`.

  Attributes:
    num_records: n.
    epsilon: of one release.
    rho: of one release.
    adjacency: which data sets are neighbours.
  """
  num_records: int
  epsilon: float | None = None
  rho: float | None = None
  adjacency: Adjacency

  # For the auditor: `release` has 64-bit types.
  double_precision = True
  kind = 'histogram'

  def __post_init__(self):
    errors.check_at_least('num_records', self.num_records, 1)
    check_adjacency(self.adjacency)
    if self.epsilon is not None and self.rho is not None:
      raise ValueError('the budget is epsilon or rho, one of them, got '
                       f'{self.epsilon} and {self.rho}')
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
    """What one release costs."""
    if self.pure:
      return accounting.pure_event(epsilon=self.epsilon,
                                   adjacency=self.adjacency)
    if self.rho is None:
      return accounting.non_private_event()
    # The mean moves by sqrt(2 rho) deviations, half of it one record's where
    # another takes its place.
    records = 2 if self.knows_total else 1
    return accounting.gaussian_event(
        noise_multiplier=records / math.sqrt(2 * self.rho))

  @abc.abstractmethod
  def statistic(self, unit: np.ndarray) -> np.ndarray:
    """Of records [n] in [0, 1], float64 [s]; exact, and private."""

  @property
  @abc.abstractmethod
  def draw(self) -> Draw:
    """The law; one function object for all that is told by parameters."""

  @property
  @abc.abstractmethod
  def parameters(self) -> PyTree:
    """Float64 arrays of NumPy that the law takes."""

  def expected(self, density: Density) -> Risk:
    """The closed form of its error, n public; of linear estimators alone."""
    raise NotImplementedError(
        f'{type(self).__name__} is not linear: its error is measured')

  @precision.in_float64
  def release(self, key: PRNGKey, data: Array) -> Array:
    """Coefficients [c] of a statistic [s]."""
    return self.draw(key, jnp.asarray(data, jnp.float64), self.parameters)

  @precision.in_float64
  def coefficients(self, key: PRNGKey, statistics: np.ndarray) -> np.ndarray:
    """The same of many statistics [R, s], each with noise of its own."""
    keys = jax.random.split(key, statistics.shape[0])
    return jax.tree.map(np.asarray, repeated(self.draw)(
        keys, jnp.asarray(statistics, jnp.float64), self.parameters))

  @precision.in_float64
  def estimate(self, key: PRNGKey, x: np.ndarray) -> DensityEstimate:
    """The private density of records [n] in [0, 1]; others are clipped."""
    unit = np.clip(np.asarray(x, np.float64), 0, 1)
    if np.isnan(unit).any():
      raise ValueError('records must be numbers, got NaN')
    if self.knows_total:
      errors.check_records(unit.shape, self.num_records)
    return DensityEstimate(kind=self.kind, coefficients=np.asarray(compiled(
        self.draw)(key, jnp.asarray(self.statistic(unit)), self.parameters)))


def bin_counts(unit: np.ndarray, num_bins: int) -> np.ndarray:
  """Counts [m] float64 of equal bins of [0, 1]; 1 is in the last."""
  places = np.minimum((unit * num_bins).astype(np.int64), num_bins - 1)
  return np.bincount(places, minlength=num_bins).astype(np.float64)
