"""Means of records in a public range, their number public or private.

Under REPLACE_ONE the number n is public and the mean moves by (b - a) / n.
Under ADD_OR_REMOVE_ONE n is private, the mean of a few records moves by
(b - a) / 2, however many there are elsewhere, and a noisy sum is divided by a
noisy count. Source: thesis 000, Example 2.3.2; lecture 002, Exercise 7.12,
whose max / n needs a public n (item MECH-09, INT-03, erratum T-E11).
"""

import dataclasses

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import mechanism
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.laplace import LaplaceMechanism
from dpjax.stats import intervals
from dpjax.stats.intervals import Estimate
from dpjax.typing import Array, PRNGKey

INTERVALS = ('exact', 'wald')


def _centred(data: Array, lower: float, upper: float) -> Array:
  """Records minus the middle of the range, clipped to it; NaN stays."""
  return jnp.clip(data.astype(jnp.float32), lower, upper) - (
      lower + upper) / 2


def _spread(mean: Array, num_examples: Array | int, lower: float,
            upper: float) -> Array:
  """The most that records of this mean can vary: (m - a)(b - m).

  Attained by two values alone; the mean is kept (b - a) / n off the ends, where
  nothing would seem to vary.
  """
  margin = jnp.minimum((upper - lower) / num_examples, (upper - lower) / 2)
  mean = jnp.clip(mean, lower + margin, upper - margin)
  return (mean - lower) * (upper - mean)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoundedMean:
  """The mean of n public records in [a, b], with Laplace noise.

  Guarantee: epsilon-DP under REPLACE_ONE. Unbiased for the mean of the clipped
  records; the interval is for that of the population they are drawn from, and
  holds the confidence for any population with these bounds. For zeros and ones
  it is no wider than need be.

  Attributes:
    num_examples: n.
    lower: a.
    upper: b; what lies beyond is clipped, NaN becomes `lower`.
    epsilon: of one release.
    confidence: of the interval.
    interval: 'exact' inverts the law of the normal and the Laplace part, 'wald'
      takes both for normal: a little too narrow where noise prevails.

  Examples:
    >>> from dpjax.stats.mean import BoundedMean
    >>> noisy = BoundedMean(num_examples=1000, lower=0, upper=1, epsilon=1.0)
    >>> noisy.scale
    0.001
    >>> # Reproducible: for research, not for a release.
    >>> found = noisy.release(jax.random.key(0), jnp.arange(1000) / 1000)
    >>> bool(found.low < 0.5 < found.high)
    True
  """
  num_examples: int
  lower: float
  upper: float
  epsilon: float
  confidence: float = 0.95
  interval: str = 'exact'

  def __post_init__(self):
    errors.check_at_least('num_examples', self.num_examples, 1)
    errors.check_range(self.lower, self.upper)
    errors.check_positive('epsilon', self.epsilon)
    errors.check_open_unit('confidence', self.confidence)
    errors.check_choice('interval', self.interval, INTERVALS)

  @property
  def adjacency(self) -> Adjacency:
    """One record is replaced; their number is public."""
    return Adjacency.REPLACE_ONE

  @property
  def total(self) -> LaplaceMechanism:
    """The mechanism of the sum of records less the middle of the range."""
    return LaplaceMechanism(record_norm=(self.upper - self.lower) / 2,
                            epsilon=self.epsilon, adjacency=self.adjacency)

  @property
  def event(self) -> accounting.DpEvent:
    """What one release costs."""
    return self.total.event

  @property
  def scale(self) -> float:
    """Of the noise on the mean: (b - a) / (n epsilon)."""
    return self.total.scale / self.num_examples

  def release(self, key: PRNGKey, data: Array) -> Estimate:
    """The noisy mean of records [n] and its interval, scalars."""
    errors.check_records(data.shape, self.num_examples)
    centred = _centred(data, self.lower, self.upper)
    known = jnp.where(jnp.isnan(centred), (self.lower - self.upper) / 2,
                      centred)
    noisy = self.total.release(key, jnp.sum(known))
    return self._estimate(
        noisy / self.num_examples + (self.lower + self.upper) / 2)

  def _estimate(self, mean: Array) -> Estimate:
    variance = _spread(mean, self.num_examples, self.lower,
                       self.upper) / self.num_examples
    if self.interval == 'wald':
      found = intervals.wald(mean, jnp.sqrt(variance + 2 * self.scale**2),
                             confidence=self.confidence)
    else:
      found = intervals.symmetric(mean, intervals.half_width(
          jnp.sqrt(variance), jnp.full_like(mean, self.scale),
          confidence=self.confidence))
    return intervals.clipped(found, self.lower, self.upper)

  def risk(self, num_values: int) -> float:
    """Expected squared error as the mean of these records."""
    return num_values * 2 * self.scale**2

  def population_risk(self, variance: float) -> float:
    """The same as the mean of what they are drawn from.

    Args:
      variance: of one record.
    """
    return variance / self.num_examples + self.risk(1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivateSizeMean:
  """The mean of records in [a, b] whose number is private too.

  Noisy sum of records less the middle of the range, over noisy count: the
  middle halves what one record adds to the sum. Guarantee: epsilon-DP under
  ADD_OR_REMOVE_ONE, as two releases composed. Records that are NaN are absent.

  Attributes:
    lower: a.
    upper: b; what lies beyond is clipped.
    epsilon: of both releases together.
    count_share: the part of epsilon for the count, in (0, 1).
    confidence: of the interval, which is normal: for counts well above the
      noise.
  """
  lower: float
  upper: float
  epsilon: float
  count_share: float = 0.5
  confidence: float = 0.95

  def __post_init__(self):
    errors.check_range(self.lower, self.upper)
    errors.check_positive('epsilon', self.epsilon)
    errors.check_open_unit('count_share', self.count_share)
    errors.check_open_unit('confidence', self.confidence)

  @property
  def adjacency(self) -> Adjacency:
    """One record more or less."""
    return Adjacency.ADD_OR_REMOVE_ONE

  @property
  def total(self) -> LaplaceMechanism:
    """The mechanism of the sum of records less the middle of the range."""
    return LaplaceMechanism(record_norm=(self.upper - self.lower) / 2,
                            epsilon=(1 - self.count_share) * self.epsilon,
                            adjacency=self.adjacency)

  @property
  def count(self) -> LaplaceMechanism:
    """The mechanism of their number."""
    return LaplaceMechanism(record_norm=1.0,
                            epsilon=self.count_share * self.epsilon,
                            adjacency=self.adjacency)

  @property
  def event(self) -> accounting.DpEvent:
    """What one release costs."""
    return mechanism.compose(self.total, self.count)

  def release(self, key: PRNGKey, data: Array) -> Estimate:
    """The noisy mean of records [m], within [a, b], and its interval."""
    centred = _centred(data, self.lower, self.upper)
    present = ~jnp.isnan(centred)
    for_sum, for_count = jax.random.split(key)
    total = self.total.release(
        for_sum, jnp.sum(jnp.where(present, centred, 0.0)))
    count = jnp.maximum(1.0, self.count.release(
        for_count, jnp.sum(present.astype(jnp.float32))))
    half = (self.upper - self.lower) / 2
    offset = jnp.clip(total / count, -half, half)
    mean = offset + (self.lower + self.upper) / 2
    noise = (self.total.risk(1) + jnp.square(offset) * self.count.risk(1))
    variance = (_spread(mean, count, self.lower, self.upper) / count
                + noise / jnp.square(count))
    return intervals.clipped(
        intervals.wald(mean, jnp.sqrt(variance), confidence=self.confidence),
        self.lower, self.upper)

  def risk(self, num_values: int) -> None:
    """Of a quotient: no closed form."""
    del num_values


def variance_sensitivity(*, num_examples: int, lower: float, upper: float,
                         ddof: int = 1) -> float:
  """What one record of n in [a, b] moves the sample variance by, at most.

  (b - a)^2 (n - 1) / (n (n - ddof)): (b - a)^2 / n for the unbiased variance.
  Attained where all other records are at one end. REPLACE_ONE, n public (item
  EXT-OPENDP).

  Args:
    num_examples: n, above ddof.
    lower: a.
    upper: b.
    ddof: what the divisor n is less by, 0 or 1.
  """
  if ddof not in (0, 1):
    raise ValueError(f'ddof must be 0 or 1, got {ddof}')
  errors.check_at_least('num_examples', num_examples, 1 + ddof)
  errors.check_range(lower, upper)
  return (upper - lower)**2 * (num_examples - 1) / (
      num_examples * (num_examples - ddof))
