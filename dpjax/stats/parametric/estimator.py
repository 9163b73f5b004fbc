"""What the estimators of this room share: a statistic, a law, and numbers.

An estimator reduces n records to a statistic and adds noise to that. `draw(key,
statistic, parameters)` is a pure function, one object for all that numbers
tell, so that a sweep compiles once for each shape. Simulations draw statistics
from their own law, not records.

Adjacency: REPLACE_ONE, n public.
"""

import abc
from collections.abc import Callable
import dataclasses
import functools

import jax

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import precision
from dpjax.typing import Array, PRNGKey, PyTree

Draw = Callable[[PRNGKey, Array, PyTree], Array]
"""(key, statistic [s], parameters) -> estimate [d]; float64."""


@functools.cache
def repeated(draw: Draw) -> Draw:
  """(keys [R], statistics [R, s], parameters) -> estimates [R, d]."""
  return jax.jit(jax.vmap(draw, (0, 0, None)))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimator(abc.ABC):
  """Base of the estimators.

  Attributes:
    num_examples: n, public.
  """
  num_examples: int

  def __post_init__(self):
    errors.check_at_least('num_examples', self.num_examples, 1)

  @property
  def adjacency(self) -> Adjacency:
    """One record is replaced; their number is public."""
    return Adjacency.REPLACE_ONE

  @property
  @abc.abstractmethod
  def event(self) -> accounting.DpEvent:
    """What one release costs."""

  @property
  @abc.abstractmethod
  def draw(self) -> Draw:
    """The law; THE SAME object for estimators that numbers alone tell apart."""

  @property
  @abc.abstractmethod
  def parameters(self) -> PyTree:
    """The numbers of the law, float64; all of them are public."""

  @abc.abstractmethod
  def statistic(self, data: Array) -> Array:
    """[s], of records [n, ...]; PRIVATE. Records are bounded here."""

  @precision.in_float64
  def release(self, key: PRNGKey, data: Array) -> Array:
    """The estimate [d] from records [n, ...]."""
    errors.check_records(data.shape[:1], self.num_examples)
    return self.draw(key, self.statistic(data), self.parameters)

  @precision.in_float64
  def estimates(self, key: PRNGKey, statistics: Array) -> Array:
    """[R, d]: one release of each of statistics [R, s]; for simulations."""
    keys = jax.random.split(key, statistics.shape[0])
    return repeated(self.draw)(keys, precision.double(statistics),
                               self.parameters)

  def risk(self, num_values: int) -> float | None:
    """Of the noise alone, where it has a closed form."""
    del num_values
