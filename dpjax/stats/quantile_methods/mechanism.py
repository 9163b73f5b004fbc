"""Base classes of the quantile mechanisms.

A sampler takes padded records (`records`), so a sweep over epsilon, bounds,
quantile levels and n compiles only once for each length of arrays.
"""

import dataclasses
import functools
from typing import TYPE_CHECKING

import jax
import numpy as np

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.stats import mechanisms
from dpjax.stats import precision
from dpjax.stats.quantile_methods import quantile_levels
from dpjax.stats.quantile_methods import rates
from dpjax.stats.quantile_methods import records
from dpjax.stats.quantile_methods.records import Records
from dpjax.typing import Array, PRNGKey, PyTree

Draw = mechanisms.Draw[Records]
"""(key, records, parameters) -> quantiles [m] float64, increasing."""

# Records that `repeated` processes in parallel; about what a cache holds.
_AT_ONCE = 2**14


@functools.cache
def repeated(draw: Draw) -> Draw:
  """Returns a compiled sampler over R keys and data sets.

  It maps (keys [R], records of [R, capacity], parameters) to [R, m]. All data
  sets have the same number of records and the same bounds. As many run in
  parallel as fit in a cache.
  """
  def run(keys: PRNGKey, data: Records, parameters: PyTree) -> Array:
    count, length = data.ordered.shape
    # The largest divisor of R whose data sets fit in a cache together.
    at_once = max(size for size in range(1, count + 1)
                  if count % size == 0 and size <= max(1, _AT_ONCE // length))
    return jax.lax.map(
        lambda args: draw(args[0], data._replace(ordered=args[1]), parameters),
        (keys, data.ordered), batch_size=at_once)
  return jax.jit(run)


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuantileMechanism(mechanisms.SampledMechanism[Records]):
  """Base class of the quantile mechanisms: public parameters and `release`.

  Attributes:
    probs: quantile levels [m], increasing, in (0, 1).
    epsilon: privacy budget of one release, all levels together; None for a
      budget of rho.
    lower: public lower bound; smaller records and NaN are clipped to it.
    upper: public upper bound; larger records are clipped to it.
    adjacency: which data sets are neighbours. Under REPLACE_ONE the number of
      records is public.
  """
  probs: tuple[float, ...]
  epsilon: float | None
  lower: float
  upper: float
  adjacency: Adjacency

  # The auditor reads the shape of a record: a record is a number.
  record_shape = ()

  def __post_init__(self) -> None:
    quantile_levels.check_levels(self.probs)
    errors.check_range(self.lower, self.upper)
    check_adjacency(self.adjacency)

  def check_size(self, num_examples: int) -> None:
    """Raises ValueError if the mechanism is undefined for this many records."""
    errors.check_at_least('num_examples', num_examples, 1)

  @precision.in_float64
  def release(self, key: PRNGKey, data: Array | np.ndarray) -> Array:
    """Returns quantiles [m] float64, increasing, of records [n]; jittable."""
    self.check_size(data.shape[0])
    return self.draw(key, records.of(data, self.lower, self.upper),
                     self.parameters)

  @precision.in_float64
  def estimate(self, key: PRNGKey, data: np.ndarray) -> np.ndarray:
    """Releases the same on the host, compiled once for each padded length."""
    self.check_size(len(data))
    return self._drawn(key, records.padded(data, self.lower, self.upper))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PureQuantiles(QuantileMechanism):
  """Base class of mechanisms with a budget of pure differential privacy.

  Attributes:
    epsilon: privacy budget of one release, all levels together.
  """
  epsilon: float

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_positive('epsilon', self.epsilon)

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy cost of one release."""
    return accounting.pure_event(epsilon=self.epsilon,
                                 adjacency=self.adjacency)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExponentialQuantiles(mechanisms.Budgeted, QuantileMechanism):
  """Base class of mechanisms that compose exponential mechanisms.

  Exponential mechanisms have bounded range. k of them compose to epsilon if
  each has epsilon / k, and to rho-zCDP if each has sqrt(8 rho / k) or a little
  more. With a budget of rho, `event` is for the 'rdp' accountant. Source: Dong,
  Durfee and Rogers 2020 (item QB-11).
  """

  def __post_init__(self) -> None:
    super().__post_init__()
    mechanisms.check_budget(self.epsilon, self.rho)

  @property
  def steps(self) -> float:
    """Number of exponential mechanisms that share the budget; 1 by default."""
    return 1

  def share(self, count: float) -> float:
    """Returns the epsilon of each of `count` exponential mechanisms."""
    part = self.amount / count
    return part if self.pure else rates.from_rho(part)

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy cost of one release."""
    return super().event if self.pure else self.zcdp_event

  @property
  def zcdp_event(self) -> accounting.DpEvent:
    """Privacy cost in zCDP, for composing many releases; for 'rdp'."""
    rho = self.amount
    if self.pure:
      rho = self.steps * notions.zcdp_from_mechanism(
          notions.PureDP(epsilon=self.share(self.steps)), 'exponential').rho
    return accounting.concentrated_event(rho=rho, adjacency=self.adjacency)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OuterQuantiles(QuantileMechanism):
  """Base class of mechanisms that post-process or pre-process for `inner`.

  Their privacy cost is that of `inner`.
  """

  if TYPE_CHECKING:
    # A field of one subclass and a property of another. At run time a property
    # here would become the default value of the field.
    @property
    def inner(self) -> QuantileMechanism:
      """Mechanism whose answers are released."""

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy cost of one release."""
    return self.inner.event

  def check_size(self, num_examples: int) -> None:
    """Raises ValueError where `inner` does."""
    self.inner.check_size(num_examples)
