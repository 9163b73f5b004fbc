"""Base class of the estimators of this package.

An estimator reduces n records to a statistic and adds noise to it. `draw(key,
statistic, parameters)` is a pure function, one object for all estimators that
differ in numbers only, so that a sweep compiles once for each shape.
Simulations draw statistics from their own distribution instead of records.

Adjacency: REPLACE_ONE, n public.
"""

import abc
import dataclasses

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import mechanisms
from dpjax.stats import precision
from dpjax.typing import Array, PRNGKey

Draw = mechanisms.Draw[Array]
"""(key, statistic [s], parameters) -> estimate [d]; float64."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Estimator(mechanisms.SampledMechanism[Array]):
  """Base class of the estimators of parameters.

  Attributes:
    num_examples: n, public.
  """
  num_examples: int

  def __post_init__(self) -> None:
    errors.check_at_least('num_examples', self.num_examples, 1)

  @property
  def adjacency(self) -> Adjacency:
    """REPLACE_ONE: one record is replaced; n is public."""
    return Adjacency.REPLACE_ONE

  @abc.abstractmethod
  def statistic(self, data: Array) -> Array:
    """Returns the PRIVATE statistic [s] of records [n, ...], which it clips."""

  @precision.in_float64
  def release(self, key: PRNGKey, data: Array) -> Array:
    """Returns the estimate [d] from records [n, ...]."""
    errors.check_records(data.shape[:1], self.num_examples)
    return self.draw(key, self.statistic(data), self.parameters)

  @precision.in_float64
  def estimates(self, key: PRNGKey, statistics: Array) -> Array:
    """Returns one release [R, d] for each of statistics [R, s]; for simulation.
    """
    return self._drawn_each(key, precision.double(statistics),
                            statistics.shape[0])
