"""What the mechanisms of this room share: numbers apart, a law apart.

A mechanism knows its law, a pure function `draw(key, records, parameters)`, and
its parameters, arrays that a compiled program takes as arguments: a sweep over
epsilon, bounds, orders and n compiles once for each length of arrays.
"""

import abc
from collections.abc import Callable
import dataclasses
import functools

import jax
import numpy as np

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.stats.quantiles import orders
from dpjax.stats import precision
from dpjax.stats.quantiles import rates
from dpjax.stats.quantiles import records
from dpjax.stats.quantiles.records import Records
from dpjax.typing import Array, PRNGKey, PyTree

Draw = Callable[[PRNGKey, Records, PyTree], Array]
"""(key, records, parameters) -> quantiles [m] float64, increasing."""

# Records that are worked on side by side.
_AT_ONCE = 2**14


@functools.cache
def compiled(draw: Draw) -> Draw:
  """The law, compiled once for each shape; under 64-bit types."""
  return jax.jit(draw)


@functools.cache
def repeated(draw: Draw) -> Draw:
  """(keys [R], records of [R, capacity], parameters) -> [R, m], compiled.

  Number and bounds of the records are the same for all. As many are side by
  side as fit in a cache.
  """
  def run(keys: PRNGKey, data: Records, parameters: PyTree) -> Array:
    count, length = data.ordered.shape
    beside = max(size for size in range(1, count + 1)
                 if count % size == 0 and size <= max(1, _AT_ONCE // length))
    return jax.lax.map(
        lambda of: draw(of[0], data._replace(ordered=of[1]), parameters),
        (keys, data.ordered), batch_size=beside)
  return jax.jit(run)


@dataclasses.dataclass(frozen=True, kw_only=True)
class QuantileMechanism(abc.ABC):
  """Base of the mechanisms: what is public, and how it is asked.

  Attributes:
    probs: orders [m], increasing, in (0, 1).
    epsilon: of one release, all orders together.
    lower: public bound; records below it count as it, NaN too.
    upper: public bound; records above it count as it.
    adjacency: which data sets are neighbours. Under REPLACE_ONE the number of
      records is public.
  """
  probs: tuple[float, ...]
  epsilon: float
  lower: float
  upper: float
  adjacency: Adjacency

  # For the auditor: records are numbers, and `release` has 64-bit types.
  record_shape = ()
  double_precision = True

  def __post_init__(self):
    orders.check_orders(self.probs)
    self._check_budget()
    errors.check_range(self.lower, self.upper)
    check_adjacency(self.adjacency)

  def _check_budget(self):
    errors.check_positive('epsilon', self.epsilon)

  @property
  def event(self) -> accounting.DpEvent:
    """What one release costs."""
    return accounting.pure_event(epsilon=self.epsilon,
                                 adjacency=self.adjacency)

  @property
  @abc.abstractmethod
  def draw(self) -> Draw:
    """The law; one function object for all that is told by parameters."""

  @property
  @abc.abstractmethod
  def parameters(self) -> PyTree:
    """Float64 arrays of NumPy that the law takes."""

  def check_size(self, num_examples: int) -> None:
    """Refuses numbers of records of which the law is not defined."""
    errors.check_at_least('num_examples', num_examples, 1)

  @precision.in_float64
  def release(self, key: PRNGKey, data: Array) -> Array:
    """Quantiles [m] float64, increasing, of records [n]."""
    self.check_size(data.shape[0])
    return self.draw(key, records.of(data, self.lower, self.upper),
                     self.parameters)

  @precision.in_float64
  def estimate(self, key: PRNGKey, data: np.ndarray) -> np.ndarray:
    """The same on the host, compiled once for each length of arrays."""
    self.check_size(len(data))
    return np.asarray(compiled(self.draw)(
        key, records.padded(data, self.lower, self.upper), self.parameters))

  def risk(self, num_values: int) -> None:
    """Unknown without the records: it depends on the gaps between them."""
    del num_values


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExponentialQuantiles(QuantileMechanism):
  """Base of those that are exponential mechanisms, one or several.

  Their range is bounded: k of them compose to epsilon if each has epsilon / k,
  and to rho-zCDP if each has sqrt(8 rho / k) or a little more. For a target of
  (epsilon, delta) rho is that of `notions.zcdp_from_approx_target`. Source:
  Dong, Durfee and Rogers 2020 (item QB-11).

  Attributes:
    epsilon: None where the budget is `rho`.
    rho: of zCDP, of one release; the event is for 'rdp' then.
  """
  epsilon: float | None = None
  rho: float | None = None

  def _check_budget(self):
    if (self.epsilon is None) == (self.rho is None):
      raise ValueError('the budget is epsilon or rho, one of them, got '
                       f'{self.epsilon} and {self.rho}')
    if self.rho is None:
      errors.check_positive('epsilon', self.epsilon)
    else:
      errors.check_positive('rho', self.rho)

  @property
  def steps(self) -> float:
    """How many, one after the other, share the budget; one unless said."""
    return 1

  def share(self, count: float) -> float:
    """Epsilon of each of `count` exponential mechanisms within the budget."""
    if self.rho is None:
      return self.epsilon / count
    return rates.from_rho(self.rho / count)

  @property
  def event(self) -> accounting.DpEvent:
    """What one release costs."""
    return self.zcdp_event if self.epsilon is None else super().event

  @property
  def zcdp_event(self) -> accounting.DpEvent:
    """What one release costs where many are composed; for 'rdp'."""
    rho = self.rho
    if rho is None:
      rho = self.steps * notions.zcdp_from_mechanism(
          notions.PureDP(epsilon=self.share(self.steps)), 'exponential').rho
    return accounting.concentrated_event(rho=rho, adjacency=self.adjacency)


@dataclasses.dataclass(frozen=True, kw_only=True)
class OuterQuantiles(QuantileMechanism):
  """Base of those that ask another one, their `inner`, and cost what it does.
  """

  @property
  def event(self) -> accounting.DpEvent:
    """What one release costs."""
    return self.inner.event

  def check_size(self, num_examples: int) -> None:
    """Refuses what `inner` refuses."""
    self.inner.check_size(num_examples)
