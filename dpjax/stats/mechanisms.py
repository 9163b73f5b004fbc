"""Base classes of mechanisms: a budget, and a sampler with its parameters.

A mechanism has a sampler, a pure function `draw(key, data, parameters)`, and
its parameters, arrays that a compiled program takes as arguments. Mechanisms
that differ only in parameters share one function object, so a sweep over
budgets, bounds and data compiles once for each shape of the arrays.
"""

import abc
from collections.abc import Callable
import dataclasses
import functools
import math
from typing import Any, Generic, TYPE_CHECKING, TypeVar

import jax
import numpy as np

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import precision
from dpjax.typing import PRNGKey, PyTree

Data = TypeVar('Data')
Draw = Callable[[PRNGKey, Data, PyTree], Any]
"""(key, PRIVATE data, public parameters) -> released arrays, in float64."""


@functools.cache
def compiled(draw: Draw[Any]) -> Draw[Any]:
  """Returns the compiled sampler, cached; call it with 64-bit types enabled."""
  return jax.jit(draw)


@functools.cache
def repeated(draw: Draw[Any], data_axis: int | None = None) -> Draw[Any]:
  """Returns a compiled sampler of R independent releases, cached.

  It maps (keys [R], data, parameters) to releases [R, ...].

  Args:
    draw: sampler of one release.
    data_axis: None if all releases are of the same data; 0 if there is one
      data set for each key, [R, ...].
  """
  return jax.jit(jax.vmap(draw, (0, data_axis, None)))


def check_budget(epsilon: float | None, rho: float | None) -> None:
  """Raises ValueError unless one of epsilon and rho is given, and positive."""
  if (epsilon is None) == (rho is None):
    raise ValueError('the budget is epsilon or rho, exactly one of them, got '
                     f'epsilon={epsilon} and rho={rho}')
  if epsilon is not None:
    errors.check_positive('epsilon', epsilon)
  if rho is not None:
    errors.check_positive('rho', rho)


class SampledMechanism(abc.ABC, Generic[Data]):
  """Base class of mechanisms that are a sampler and its parameters."""

  # Read by the auditor: `release` takes and returns 64-bit types.
  double_precision = True

  if TYPE_CHECKING:
    # A field of most subclasses and a property of the others. At run time a
    # property here would become the default value of the field.
    @property
    def adjacency(self) -> Adjacency:
      """Which data sets are neighbours."""

  @property
  @abc.abstractmethod
  def event(self) -> accounting.DpEvent:
    """Privacy cost of one release, for the accountants."""

  @property
  @abc.abstractmethod
  def draw(self) -> Draw[Data]:
    """Jittable sampler (key, data, parameters) -> release.

    Mechanisms that differ only in `parameters` must return THE SAME function
    object, or each of them is compiled anew.
    """

  @property
  @abc.abstractmethod
  def parameters(self) -> PyTree:
    """Public float64 NumPy arrays that the sampler takes."""

  def risk(self, num_values: int) -> float | None:
    """Returns the expected squared error of `num_values` released numbers.

    None here: it is unknown or depends on the data. A subclass that knows it
    without the data overrides this.
    """
    del num_values
    return None

  @precision.in_float64
  def _drawn(self, key: PRNGKey, data: Data) -> PyTree:
    """Returns one release as NumPy arrays, compiled once for each shape."""
    return jax.tree.map(np.asarray, compiled(self.draw)(key, data,
                                                        self.parameters))

  @precision.in_float64
  def _drawn_each(self, key: PRNGKey, data: Data, count: int) -> PyTree:
    """Returns one release for each of `count` data sets, with own noise."""
    return repeated(self.draw, 0)(jax.random.split(key, count), data,
                                  self.parameters)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Budgeted:
  """A privacy budget, and the relation of neighbours that it refers to.

  The budget is `epsilon`, of pure differential privacy, or `rho`, of
  zero-concentrated differential privacy. For a target of (epsilon, delta), take
  the rho of `notions.zcdp_from_approx_target`; `event` then has the exact
  privacy curve.

  Attributes:
    epsilon: budget of one release, or None.
    rho: budget of one release in zCDP, or None.
    adjacency: which data sets are neighbours. Under REPLACE_ONE the number of
      records is public.
  """
  epsilon: float | None = None
  rho: float | None = None
  adjacency: Adjacency

  @property
  def knows_total(self) -> bool:
    """Whether the number of records, n, is public."""
    return self.adjacency is Adjacency.REPLACE_ONE

  @property
  def pure(self) -> bool:
    """Whether the budget is epsilon."""
    return self.epsilon is not None

  @property
  def amount(self) -> float:
    """The budget: epsilon if it is pure, else rho; infinite without a budget.
    """
    if self.epsilon is not None:
      return self.epsilon
    return math.inf if self.rho is None else self.rho

  def noise_scale(self, cost: float) -> float:
    """Returns the noise scale that spends the budget.

    Args:
      cost: epsilon, or 2 rho, that noise of scale 1 costs.

    Returns:
      Laplace scale for a budget of epsilon, standard deviation for one of rho,
      and 0 without a budget.
    """
    # Standard deviations s cost 1 / s^2 in 2 rho, Laplace scales b cost 1 / b.
    return (cost / self.amount if self.pure
            else math.sqrt(cost / (2 * self.amount)))

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy event of one release, for the accountants.

    For a budget of rho it is that of a Gaussian release.
    """
    if math.isinf(self.amount):
      return accounting.non_private_event()
    if self.pure:
      return accounting.pure_event(epsilon=self.amount,
                                   adjacency=self.adjacency)
    # The mean shifts by at most sqrt(2 rho) standard deviations. Under
    # REPLACE_ONE two records change, so one record's shift is half of that.
    records = 2 if self.knows_total else 1
    return accounting.gaussian_event(
        noise_multiplier=records / math.sqrt(2 * self.amount))
