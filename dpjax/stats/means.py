"""Releases means of records in a public range; their number may be private.

Under REPLACE_ONE n is public, and one record moves the mean by at most (b - a)
/ n. Under ADD_OR_REMOVE_ONE n is private, and one record can move the mean of a
small data set by (b - a) / 2, so a noisy sum is divided by a noisy count
instead. Source: Lalanne (2023, Example 2.3.2); lecture notes, chapter 7,
Exercise 7.12, whose sensitivity max / n needs a public n (items MECH-09,
INT-03, erratum T-E11).
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import mechanism
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.laplace import LaplaceMechanism
from dpjax.stats import intervals
from dpjax.stats.intervals import Estimate
from dpjax.typing import Array, PRNGKey

INTERVALS = ('exact', 'wald')


def _centred(data: Array | np.ndarray, lower: float, upper: float) -> Array:
  """Clips records to [lower, upper] and subtracts the midpoint; NaN stays NaN.
  """
  return jnp.clip(data.astype(jnp.float32), lower, upper) - (
      lower + upper) / 2


def _largest_variance(mean: Array, num_examples: Array | int, lower: float,
                      upper: float) -> Array:
  """Returns the largest variance of records with this mean: (m - a)(b - m).

  Records at the two ends alone attain it. The mean is kept (b - a) / n away
  from the ends, where the bound would be 0.
  """
  # A noisy mean may lie at an end or outside, where the product is <= 0.
  margin = jnp.minimum((upper - lower) / num_examples, (upper - lower) / 2)
  mean = jnp.clip(mean, lower + margin, upper - margin)
  return (mean - lower) * (upper - mean)


@dataclasses.dataclass(frozen=True, kw_only=True)
class BoundedMean:
  """The mean of n records in [a, b] with Laplace noise; n is public.

  Guarantee: epsilon-DP under REPLACE_ONE. Unbiased for the mean of the clipped
  records. The interval is for the mean of the population they are drawn from;
  it uses the largest variance that the bounds allow, so it suits any population
  within them. For zeros and ones it is no wider than necessary.

  Attributes:
    num_examples: n.
    lower: a, public.
    upper: b, public; values outside are clipped, NaN becomes `lower`.
    epsilon: budget of one release.
    confidence: level of the interval.
    interval: 'exact' inverts the distribution of normal sampling error plus
      Laplace noise. 'wald' treats the sum as normal: a little too narrow if the
      noise dominates.

  Examples:
    >>> from dpjax.stats.means import BoundedMean
    >>> noisy = BoundedMean(num_examples=1000, lower=0, upper=1, epsilon=1.0)
    >>> noisy.scale
    0.001
    >>> # Reproducible: for research, not for a release.
    >>> mean = noisy.release(jax.random.key(0), jnp.arange(1000) / 1000)
    >>> bool(mean.low < 0.5 < mean.high)
    True
  """
  num_examples: int
  lower: float
  upper: float
  epsilon: float
  confidence: float = 0.95
  interval: str = 'exact'

  def __post_init__(self) -> None:
    errors.check_at_least('num_examples', self.num_examples, 1)
    errors.check_range(self.lower, self.upper)
    errors.check_positive('epsilon', self.epsilon)
    errors.check_open_unit('confidence', self.confidence)
    errors.check_choice('interval', self.interval, INTERVALS)

  @property
  def adjacency(self) -> Adjacency:
    """Neighbours differ in one replaced record; n is public."""
    return Adjacency.REPLACE_ONE

  @property
  def total(self) -> LaplaceMechanism:
    """The Laplace mechanism for the sum of (record minus midpoint)."""
    return LaplaceMechanism(record_norm=(self.upper - self.lower) / 2,
                            epsilon=self.epsilon, adjacency=self.adjacency)

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy event of one release, for the accountants."""
    return self.total.event

  @property
  def scale(self) -> float:
    """Laplace scale of the noise on the mean: (b - a) / (n epsilon)."""
    return self.total.scale / self.num_examples

  def release(self, key: PRNGKey, data: Array | np.ndarray) -> Estimate:
    """Returns the noisy mean of records [n] and its interval, as scalars."""
    errors.check_records(data.shape, self.num_examples)
    centred = _centred(data, self.lower, self.upper)
    # NaN counts as the lower bound, so that n stays the public one.
    filled = jnp.where(jnp.isnan(centred), (self.lower - self.upper) / 2,
                       centred)
    noisy = self.total.release(key, jnp.sum(filled))
    return self._estimate(
        noisy / self.num_examples + (self.lower + self.upper) / 2)

  def _estimate(self, mean: Array) -> Estimate:
    """Returns the interval around a noisy mean, clipped to the range."""
    variance = _largest_variance(mean, self.num_examples, self.lower,
                                 self.upper) / self.num_examples
    # Laplace noise of scale b has variance 2 b^2.
    if self.interval == 'wald':
      interval = intervals.wald(mean, jnp.sqrt(variance + 2 * self.scale**2),
                                confidence=self.confidence)
    else:
      interval = intervals.symmetric(mean, intervals.half_width(
          jnp.sqrt(variance), jnp.full_like(mean, self.scale),
          confidence=self.confidence))
    return intervals.clipped(interval, self.lower, self.upper)

  def risk(self, num_values: int) -> float:
    """Returns the expected squared error for the mean of these records."""
    return num_values * 2 * self.scale**2

  def population_risk(self, variance: float) -> float:
    """Returns the expected squared error for the population mean.

    Args:
      variance: variance of one record.
    """
    return variance / self.num_examples + self.risk(1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivateSizeMean:
  """The mean of records in [a, b] whose number is private.

  It divides a noisy sum by a noisy count. Subtracting the midpoint from each
  record halves the sensitivity of the sum to (b - a) / 2. Guarantee: epsilon-DP
  under ADD_OR_REMOVE_ONE, by composition of the two releases. NaN records are
  left out.

  Attributes:
    lower: a, public.
    upper: b, public; values outside are clipped.
    epsilon: budget of both releases together.
    count_share: fraction of epsilon for the count, in (0, 1).
    confidence: level of the interval, which is a normal approximation for
      counts well above the noise.
  """
  lower: float
  upper: float
  epsilon: float
  count_share: float = 0.5
  confidence: float = 0.95

  def __post_init__(self) -> None:
    errors.check_range(self.lower, self.upper)
    errors.check_positive('epsilon', self.epsilon)
    errors.check_open_unit('count_share', self.count_share)
    errors.check_open_unit('confidence', self.confidence)

  @property
  def adjacency(self) -> Adjacency:
    """Neighbours differ in one record that is added or removed."""
    return Adjacency.ADD_OR_REMOVE_ONE

  @property
  def total(self) -> LaplaceMechanism:
    """The Laplace mechanism for the sum of (record minus midpoint)."""
    return LaplaceMechanism(record_norm=(self.upper - self.lower) / 2,
                            epsilon=(1 - self.count_share) * self.epsilon,
                            adjacency=self.adjacency)

  @property
  def count(self) -> LaplaceMechanism:
    """The Laplace mechanism for the number of records."""
    return LaplaceMechanism(record_norm=1.0,
                            epsilon=self.count_share * self.epsilon,
                            adjacency=self.adjacency)

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy event of one release, for the accountants."""
    return mechanism.compose(self.total, self.count)

  def release(self, key: PRNGKey, data: Array | np.ndarray) -> Estimate:
    """Returns the noisy mean of records [m], within [a, b], and its interval.
    """
    centred = _centred(data, self.lower, self.upper)
    present = ~jnp.isnan(centred)
    for_sum, for_count = jax.random.split(key)
    total = self.total.release(
        for_sum, jnp.sum(jnp.where(present, centred, 0.0)))
    count = jnp.maximum(1.0, self.count.release(
        for_count, jnp.sum(present.astype(jnp.float32))))
    # A small noisy count would inflate the quotient, which the range bounds.
    half = (self.upper - self.lower) / 2
    offset = jnp.clip(total / count, -half, half)
    mean = offset + (self.lower + self.upper) / 2
    # Delta method for total / count: both noises, divided by count^2.
    noise = (self.total.risk(1) + jnp.square(offset) * self.count.risk(1))
    variance = (_largest_variance(mean, count, self.lower, self.upper) / count
                + noise / jnp.square(count))
    return intervals.clipped(
        intervals.wald(mean, jnp.sqrt(variance), confidence=self.confidence),
        self.lower, self.upper)

  def risk(self, num_values: int) -> None:
    """Returns None: the risk of a quotient has no closed form."""
    del num_values


def variance_sensitivity(*, num_examples: int, lower: float, upper: float,
                         ddof: int = 1) -> float:
  """Returns the sensitivity of the sample variance of n records in [a, b].

  It is (b - a)^2 (n - 1) / (n (n - ddof)), so (b - a)^2 / n for the unbiased
  variance. It is attained if all other records are at one end. Adjacency:
  REPLACE_ONE, n public (item EXT-OPENDP).

  Args:
    num_examples: n, above ddof.
    lower: a.
    upper: b.
    ddof: 0 or 1; the variance divides by n - ddof.
  """
  if ddof not in (0, 1):
    raise ValueError(f'ddof must be 0 or 1, got {ddof}')
  errors.check_at_least('num_examples', num_examples, 1 + ddof)
  errors.check_range(lower, upper)
  return (upper - lower)**2 * (num_examples - 1) / (
      num_examples * (num_examples - ddof))
