"""Base class of the mechanisms that release a distribution function.

A mechanism takes the counts of the bins of a public grid and releases all ranks
at once, by a sampler `draw(key, counts, parameters)`.

Adjacency. Under REPLACE_ONE one count falls by 1, another rises by 1, and n,
their sum, is public: the last rank equals it. Under ADD_OR_REMOVE_ONE one count
changes by 1, and n is part of what is released.
"""

import abc
import dataclasses

import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import check_adjacency
from dpjax.stats import mechanisms
from dpjax.stats import precision
from dpjax.typing import Array, PRNGKey

Draw = mechanisms.Draw[Array]
"""(key, counts [N] float64, parameters) -> ranks [N] float64."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class EcdfMechanism(mechanisms.Budgeted, mechanisms.SampledMechanism[Array]):
  """Base class: the public parameters of a release, and how to draw it.

  The budget is epsilon or rho, for one release of the whole curve.

  Attributes:
    num_thresholds: N, number of bins.
    monotone: whether ranks are projected on those of nonnegative counts, in the
      metric of the mechanism's noise. Post-processing.
  """
  num_thresholds: int
  monotone: bool = True

  def __post_init__(self) -> None:
    errors.check_at_least('num_thresholds', self.num_thresholds, 2)
    check_adjacency(self.adjacency)
    mechanisms.check_budget(self.epsilon, self.rho)

  @abc.abstractmethod
  def variances(self) -> np.ndarray:
    """Returns exact error variances of the ranks [N], before the projection."""

  def _check_counts(self, counts: Array | np.ndarray) -> None:
    """Raises ValueError unless there is one count for each bin."""
    if counts.shape != (self.num_thresholds,):
      raise ValueError(f'data must be counts of {self.num_thresholds} bins, '
                       f'got an array of shape {counts.shape}')

  @precision.in_float64
  def release(self, key: PRNGKey, data: Array | np.ndarray) -> Array:
    """Releases noisy ranks [N] float64 of bin counts [N]; divide by n for F."""
    self._check_counts(data)
    return self.draw(key, jnp.asarray(data, jnp.float64), self.parameters)

  @precision.in_float64
  def estimate(self, key: PRNGKey, data: np.ndarray) -> np.ndarray:
    """Releases the same ranks as `release`, compiled once for each N."""
    self._check_counts(np.asarray(data))
    return self._drawn(key, jnp.asarray(data, jnp.float64))

  def risk(self, num_values: int) -> float:
    """Returns the mean error variance of a rank, times `num_values`."""
    return num_values * float(np.mean(self.variances()))
