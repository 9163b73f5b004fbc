"""Twice a noisy mean for the end of a support, and estimates without noise.

The lecture notes call it the weaker estimate (chapter 7, Exercise 7.36; items
EST-04..08, erratum L-E15); `supports.MeanSupport` is what the library uses.
"""

import dataclasses
import math

import jax.numpy as jnp

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.inverse import InverseSensitivityQuantile
from dpjax.stats import intervals
from dpjax.stats.intervals import Estimate
from dpjax.stats.means import BoundedMean
from dpjax.theory.parametric import subsampling
from dpjax.typing import Array, PRNGKey


def largest(data: Array, *, confidence: float = 0.95) -> Estimate:
  """Returns (n + 1) / n times the largest of records [n]; no privacy (EST-04).

  Unbiased, of variance theta^2 / (n (n + 2)). The interval from the largest to
  alpha^(-1/n) times it is exact.
  """
  errors.check_open_unit('confidence', confidence)
  num_examples, top = data.shape[0], jnp.max(data)
  return Estimate(top * ((num_examples + 1) / num_examples), top,
                  top * (1 - confidence)**(-1 / num_examples))


def doubled_mean(data: Array, *, confidence: float = 0.95) -> Estimate:
  """Returns twice the mean of records [n]; no privacy.

  Its variance is theta^2 / (3 n).
  """
  return of_mean(jnp.mean(data), data.shape[0], 0.0, confidence)


def of_mean(mean: Array, num_examples: int, noise: float,
            confidence: float) -> Estimate:
  """Returns twice a mean with an interval; `noise` is its noise variance."""
  value = 2 * mean
  # The variance theta^2 / (3 n) is taken at an estimate that can be theta.
  within = jnp.clip(value, 0.0, 1.0)
  stddev = jnp.sqrt(jnp.square(within) / (3 * num_examples) + noise)
  return intervals.clipped(
      intervals.wald(value, stddev, confidence=confidence), 0.0, 1.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DoubledMean:
  """Twice the noisy mean of n records in [0, 1], n public (EST-05b).

  Privacy: epsilon-DP under REPLACE_ONE. Risk theta^2 / (3 n) + 8 / (n
  epsilon)^2.

  Attributes:
    num_examples: n, the public number of records.
    epsilon: privacy budget of one release.
    confidence: confidence level of the interval.
  """
  num_examples: int
  epsilon: float
  confidence: float = 0.95

  def __post_init__(self) -> None:
    errors.check_open_unit('confidence', self.confidence)
    _ = self.mean  # Checks the rest.

  @property
  def mean(self) -> BoundedMean:
    """Returns the mechanism of the mean."""
    return BoundedMean(num_examples=self.num_examples, lower=0.0, upper=1.0,
                       epsilon=self.epsilon)

  @property
  def adjacency(self) -> Adjacency:
    """Returns REPLACE_ONE: one record is replaced, and their number is public.
    """
    return self.mean.adjacency

  @property
  def event(self) -> accounting.DpEvent:
    """Returns the privacy cost of one release."""
    return self.mean.event

  def release(self, key: PRNGKey, data: Array) -> Estimate:
    """Returns the estimate of theta from records [n] and its interval, scalars.
    """
    return of_mean(self.mean.release(key, data).value, self.num_examples,
                   self.risk(1), self.confidence)

  def risk(self, num_values: int) -> float:
    """Returns the mean squared error of estimating twice the records' mean."""
    return 4 * self.mean.risk(num_values)

  def population_risk(self, theta: float) -> float:
    """Returns the mean squared error as an estimate of theta."""
    return theta**2 / (3 * self.num_examples) + self.risk(1)


def top_quantile(*, num_examples: int,
                 epsilon: float) -> InverseSensitivityQuantile:
  """Returns a mechanism for a quantile with space above it for noise (EST-05c).
  """
  errors.check_at_least('num_examples', num_examples, 1)
  errors.check_positive('epsilon', epsilon)
  # Records left above, so that the choice is rarely above the largest record.
  above = math.ceil(6 * math.log(num_examples) / epsilon)
  return InverseSensitivityQuantile(
      lower=0.0, upper=1.0, num_examples=num_examples, epsilon=epsilon,
      prob=max(0.5, 1 - above / num_examples))


def largest_risk(theta: float, *, num_examples: int,
                 factor: float = 1.0) -> float:
  """Returns the mean squared error of `factor` times the largest record.

  theta^2 times 2 / ((n + 1)(n + 2)) for the record itself, which exceeds the
  theta^2 / n^2 of Barber and Duchi (2014) from n = 4 on (erratum E-10); 1 / (n
  (n + 2)) for (n + 1) / n; 1 / (n + 1)^2 for (n + 2) / (n + 1), the least
  (EST-UNIF-MAX).
  """
  n = errors.check_at_least('num_examples', num_examples, 1)
  mean = n / (n + 1)
  # The form n / (n + 2) minus a square would cancel from n = 10^7 on.
  variance = mean / ((n + 1) * (n + 2))
  return theta**2 * ((factor * mean - 1)**2 + factor**2 * variance)


def largest_absolute_risk(theta: float, *, num_examples: int,
                          factor: float = 1.0) -> float:
  """Returns the mean absolute error of `factor` >= 1 times the largest record.

  theta (2 c^-n / (n + 1) + c n / (n + 1) - 1); the least is 2^(1 / (n + 1)) - 1
  at c = 2^(1 / (n + 1)).
  """
  n = errors.check_at_least('num_examples', num_examples, 1)
  return theta * ((2 * factor**-n + factor * n) / (n + 1) - 1)


def subsampled(*, num_examples: int, level: float,
               factor: float | None = None) -> subsampling.Subsampled:
  """Returns `factor` times the largest of m records: total variation privacy.

  None stands for the factor (m + 2) / (m + 1). Errors are those of
  `largest_risk` with m records.
  """
  size = subsampling.subset_size(num_examples, level)
  times = (size + 2) / (size + 1) if factor is None else factor
  return subsampling.Subsampled(num_examples=num_examples, level=level,
                                estimate=lambda kept: times * jnp.max(kept))
