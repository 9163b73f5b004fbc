"""The upper end theta of a uniform distribution on [0, theta], theta <= 1.

By the largest record and by twice the mean, without privacy and with a curator. Without privacy the largest record
wins by a factor of n; with noise on it, it is not even consistent, and what is
told as the weaker estimate in lecture 002, Exercise 7.36, is the better one
(spec EST-04..08, erratum L-E15). Both failures are kept, and called so.
"""

import dataclasses
import math

import jax.numpy as jnp

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import queries
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.privacy.inverse import InverseSensitivityQuantile
from dpjax.privacy.laplace import LaplaceMechanism
from dpjax.stats import intervals
from dpjax.stats.intervals import Estimate
from dpjax.stats.mean import BoundedMean
from dpjax.typing import Array, PRNGKey


def largest(data: Array, *, confidence: float = 0.95) -> Estimate:
  """(n + 1) / n times the largest of records [n]; no privacy (EST-04).

  Unbiased, of variance theta^2 / (n (n + 2)); the interval, from the largest to
  alpha^(-1/n) times it, is exact.
  """
  errors.check_open_unit('confidence', confidence)
  num_examples, top = data.shape[0], jnp.max(data)
  return Estimate(top * ((num_examples + 1) / num_examples), top,
                  top * (1 - confidence)**(-1 / num_examples))


def doubled_mean(data: Array, *, confidence: float = 0.95) -> Estimate:
  """Twice the mean of records [n]; no privacy; variance theta^2 / (3 n)."""
  return of_mean(jnp.mean(data), data.shape[0], 0.0, confidence)


def of_mean(mean: Array, num_examples: int, noise: float,
            confidence: float) -> Estimate:
  """Twice a mean, and an interval; `noise` is the variance it has on that."""
  value = 2 * mean
  within = jnp.clip(value, 0.0, 1.0)
  spread = jnp.sqrt(jnp.square(within) / (3 * num_examples) + noise)
  return intervals.clipped(
      intervals.wald(value, spread, confidence=confidence), 0.0, 1.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoisyMaximum:
  """The largest record plus Laplace noise: private, and useless (EST-05a).

  It moves by 1 if a record appears or is replaced, for any n; the risk tends to
  2 / epsilon^2. Guarantee: epsilon-DP under `adjacency`.

  Attributes:
    epsilon: of one release.
    adjacency: which data sets are neighbours.
  """
  epsilon: float
  adjacency: Adjacency

  def __post_init__(self):
    errors.check_positive('epsilon', self.epsilon)
    check_adjacency(self.adjacency)

  @property
  def noise(self) -> LaplaceMechanism:
    """Of l1 sensitivity 1, whichever the adjacency is."""
    replacing = self.adjacency is Adjacency.REPLACE_ONE
    return LaplaceMechanism(record_norm=0.5 if replacing else 1.0,
                            epsilon=self.epsilon, adjacency=self.adjacency)

  @property
  def event(self) -> accounting.DpEvent:
    """What one release costs."""
    return self.noise.event

  def release(self, key: PRNGKey, data: Array) -> Array:
    """The noisy maximum, a scalar, of records [n], clipped to [0, 1]."""
    known = jnp.nan_to_num(data.astype(jnp.float32))
    top = jnp.max(known, initial=0.0)
    return self.noise.release(key, jnp.minimum(top, 1.0))

  def risk(self, num_values: int) -> float:
    """Expected squared error as the largest of these records."""
    return self.noise.risk(num_values)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DoubledMean:
  """Twice the noisy mean of n public records in [0, 1] (EST-05b).

  Guarantee: epsilon-DP under REPLACE_ONE. Risk theta^2 / (3 n) + 8 / (n
  epsilon)^2.

  Attributes:
    num_examples: n.
    epsilon: of one release.
    confidence: of the interval.
  """
  num_examples: int
  epsilon: float
  confidence: float = 0.95

  def __post_init__(self):
    errors.check_open_unit('confidence', self.confidence)
    _ = self.mean  # Checks the rest.

  @property
  def mean(self) -> BoundedMean:
    """The mechanism of the mean."""
    return BoundedMean(num_examples=self.num_examples, lower=0.0, upper=1.0,
                       epsilon=self.epsilon)

  @property
  def adjacency(self) -> Adjacency:
    """One record is replaced; their number is public."""
    return self.mean.adjacency

  @property
  def event(self) -> accounting.DpEvent:
    """What one release costs."""
    return self.mean.event

  def release(self, key: PRNGKey, data: Array) -> Estimate:
    """The estimate of theta from records [n] and its interval, scalars."""
    return of_mean(self.mean.release(key, data).value, self.num_examples,
                    self.risk(1), self.confidence)

  def risk(self, num_values: int) -> float:
    """Expected squared error as twice the mean of these records."""
    return 4 * self.mean.risk(num_values)

  def population_risk(self, theta: float) -> float:
    """The same as an estimate of theta."""
    return theta**2 / (3 * self.num_examples) + self.risk(1)


def top_quantile(*, num_examples: int,
                 epsilon: float) -> InverseSensitivityQuantile:
  """A quantile near the top that leaves room for noise in ranks (EST-05c).

  The range above all records costs as many replacements as there are records
  above the quantile, 6 ln(n) / epsilon of them: it is n times as wide as a gap
  between records, and is chosen with probability of order n^-2. Divide what is
  released by its `prob`: the error is of order ln(n) / (n epsilon).
  """
  errors.check_at_least('num_examples', num_examples, 1)
  errors.check_positive('epsilon', epsilon)
  above = math.ceil(6 * math.log(num_examples) / epsilon)
  return InverseSensitivityQuantile(
      lower=0.0, upper=1.0, num_examples=num_examples, epsilon=epsilon,
      prob=max(0.5, 1 - above / num_examples))
