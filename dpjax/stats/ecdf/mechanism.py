"""What the mechanisms of this room share: numbers apart, a law apart.

A mechanism takes the counts of the bins of a public grid and releases all ranks
at once. It knows its law, a pure function `draw(key, counts, parameters)`, and
its parameters, arrays that a compiled program takes as arguments: a sweep over
budgets and data compiles once for each grid.

Adjacency. Under REPLACE_ONE one count falls by 1, another rises by 1, and
n, their sum, is public: ranks end at it. Under ADD_OR_REMOVE_ONE one count
moves by 1, and n is part of what is released.
"""

import abc
from collections.abc import Callable
import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.stats import precision
from dpjax.typing import Array, PRNGKey, PyTree

Draw = Callable[[PRNGKey, Array, PyTree], Array]
"""(key, counts [N] float64, parameters) -> ranks [N] float64."""


@functools.cache
def compiled(draw: Draw) -> Draw:
  """The law, compiled once for each shape; under 64-bit types."""
  return jax.jit(draw)


@functools.cache
def repeated(draw: Draw) -> Draw:
  """(keys [R], counts [N], parameters) -> ranks [R, N], compiled."""
  return jax.jit(jax.vmap(draw, (0, None, None)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class EcdfMechanism(abc.ABC):
  """Base of the mechanisms: what is public, and how it is asked.

  The budget is `epsilon`, of pure differential privacy, or `rho`, of
  zero-concentrated; one of them. For a target of (epsilon, delta) rho is that
  of `notions.zcdp_from_approx_target`, and `event` has the exact curve.

  Attributes:
    num_thresholds: N.
    epsilon: of one release of the whole curve.
    rho: of the same.
    adjacency: which data sets are neighbours.
    monotone: whether ranks are projected on those of nonnegative counts, in the
      metric of the mechanism's noise. Post-processing.
  """
  num_thresholds: int
  epsilon: float | None = None
  rho: float | None = None
  adjacency: Adjacency
  monotone: bool = True

  # For the auditor: data are counts, and `release` has 64-bit types.
  double_precision = True

  def __post_init__(self):
    errors.check_at_least('num_thresholds', self.num_thresholds, 2)
    check_adjacency(self.adjacency)
    if (self.epsilon is None) == (self.rho is None):
      raise ValueError('the budget is epsilon or rho, one of them, got '
                       f'{self.epsilon} and {self.rho}')
    if self.rho is None:
      errors.check_positive('epsilon', self.epsilon)
    else:
      errors.check_positive('rho', self.rho)

  @property
  def knows_total(self) -> bool:
    """Whether n is public."""
    return self.adjacency is Adjacency.REPLACE_ONE

  @property
  def pure(self) -> bool:
    """Whether the budget is epsilon."""
    return self.rho is None

  @property
  def event(self) -> accounting.DpEvent:
    """What one release costs.

    With a budget of rho the release is one Gaussian whose mean moves by
    sqrt(2 rho) of its standard deviations; half of that is one record's under
    REPLACE_ONE.
    """
    if self.pure:
      return accounting.pure_event(epsilon=self.epsilon,
                                   adjacency=self.adjacency)
    records = 2 if self.knows_total else 1
    return accounting.gaussian_event(
        noise_multiplier=records / math.sqrt(2 * self.rho))

  @property
  @abc.abstractmethod
  def draw(self) -> Draw:
    """The law; one function object for all that is told by parameters."""

  @property
  @abc.abstractmethod
  def parameters(self) -> PyTree:
    """Float64 arrays of NumPy that the law takes."""

  @abc.abstractmethod
  def variances(self) -> np.ndarray:
    """Of the errors of the ranks [N], exact, before they are made monotone."""

  def _check_counts(self, counts: Array) -> None:
    if counts.shape != (self.num_thresholds,):
      raise ValueError(f'there must be counts of {self.num_thresholds} bins, '
                       f'got an array of shape {counts.shape}')

  @precision.in_float64
  def release(self, key: PRNGKey, data: Array) -> Array:
    """Noisy ranks [N] float64 of counts [N] of bins; divide by n for F."""
    self._check_counts(data)
    return self.draw(key, jnp.asarray(data, jnp.float64), self.parameters)

  @precision.in_float64
  def estimate(self, key: PRNGKey, data: np.ndarray) -> np.ndarray:
    """The same on the host, compiled once for each number of thresholds."""
    self._check_counts(np.asarray(data))
    return np.asarray(compiled(self.draw)(
        key, jnp.asarray(data, jnp.float64), self.parameters))

  def risk(self, num_values: int) -> float:
    """Mean over the ranks of their variances, times `num_values`."""
    return num_values * float(np.mean(self.variances()))
