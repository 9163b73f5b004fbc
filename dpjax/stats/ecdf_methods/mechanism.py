"""Base class of the mechanisms: a sampler, and its parameters apart from it.

A mechanism takes the counts of the bins of a public grid and releases all ranks
at once. It consists of a pure sampler `draw(key, counts, parameters)` and of
its parameters, arrays that a compiled program takes as arguments: a sweep over
budgets and data compiles once for each grid.

Adjacency. Under REPLACE_ONE one count falls by 1, another rises by 1, and n,
their sum, is public: the last rank equals it. Under ADD_OR_REMOVE_ONE one count
changes by 1, and n is part of what is released.
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
  """Returns the jitted sampler, one for each shape; call it with 64-bit types.
  """
  return jax.jit(draw)


@functools.cache
def repeated(draw: Draw) -> Draw:
  """Returns the jitted (keys [R], counts [N], parameters) -> ranks [R, N]."""
  return jax.jit(jax.vmap(draw, (0, None, None)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class EcdfMechanism(abc.ABC):
  """Base class: the public parameters of a release, and how to draw it.

  The budget is either `epsilon`, of pure differential privacy, or `rho`, of
  zero-concentrated differential privacy. For a target of (epsilon, delta), take
  the rho of `notions.zcdp_from_approx_target`; `event` then has the exact
  privacy curve.

  Attributes:
    num_thresholds: N.
    epsilon: budget of one release of the whole curve, or None.
    rho: the same in zCDP, or None.
    adjacency: which data sets are neighbours.
    monotone: whether ranks are projected on those of nonnegative counts, in the
      metric of the mechanism's noise. Post-processing.
  """
  num_thresholds: int
  epsilon: float | None = None
  rho: float | None = None
  adjacency: Adjacency
  monotone: bool = True

  # Read by the auditor: `release` takes and returns 64-bit types.
  double_precision = True

  def __post_init__(self):
    errors.check_at_least('num_thresholds', self.num_thresholds, 2)
    check_adjacency(self.adjacency)
    if (self.epsilon is None) == (self.rho is None):
      raise ValueError('the budget is epsilon or rho, exactly one of them, got '
                       f'epsilon={self.epsilon} and rho={self.rho}')
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
    """Privacy event of one release, for the accountants.

    With a budget of rho the release is a Gaussian whose mean shifts by at most
    sqrt(2 rho) standard deviations. Under REPLACE_ONE that is the shift of two
    records, so one record's is half of it.
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
    """Jittable sampler (key, counts, parameters) -> ranks.

    Mechanisms that differ only in `parameters` share one function object.
    """

  @property
  @abc.abstractmethod
  def parameters(self) -> PyTree:
    """Float64 NumPy arrays that the sampler takes."""

  @abc.abstractmethod
  def variances(self) -> np.ndarray:
    """Returns exact error variances of the ranks [N], before the projection."""

  def _check_counts(self, counts: Array) -> None:
    """Raises unless there is one count for each bin."""
    if counts.shape != (self.num_thresholds,):
      raise ValueError(f'data must be counts of {self.num_thresholds} bins, '
                       f'got an array of shape {counts.shape}')

  @precision.in_float64
  def release(self, key: PRNGKey, data: Array) -> Array:
    """Releases noisy ranks [N] float64 of bin counts [N]; divide by n for F."""
    self._check_counts(data)
    return self.draw(key, jnp.asarray(data, jnp.float64), self.parameters)

  @precision.in_float64
  def estimate(self, key: PRNGKey, data: np.ndarray) -> np.ndarray:
    """Same as `release`, on the host, compiled once for each N."""
    self._check_counts(np.asarray(data))
    return np.asarray(compiled(self.draw)(
        key, jnp.asarray(data, jnp.float64), self.parameters))

  def risk(self, num_values: int) -> float:
    """Returns the mean variance of the ranks, times `num_values`."""
    return num_values * float(np.mean(self.variances()))
