"""Estimates frequencies of K categories, from noisy counts or polls.

Central model: noisy counts of n records. Under REPLACE_ONE n is public, and one
record moves the counts by 2 in l1 and by sqrt(2) in l2. Under ADD_OR_REMOVE_ONE
one record moves them by 1 in both norms; n is private, and the sum of the noisy
counts stands in for it. Local model: people randomise their own answers.
Source: Lalanne (2023, Example 2.3.5 and equations (2.3)-(2.7)); lecture notes,
chapter 7, Example 7.34 (items MECH-10, LDP-07, LDP-08, errata T-E12, L-E13).
"""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy.additive import GaussianMechanism
from dpjax.privacy.additive import zcdp_gaussian
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.privacy.laplace import LaplaceMechanism
from dpjax.privacy.local import RandomizedResponse
from dpjax.stats import intervals
from dpjax.stats.intervals import Estimate
from dpjax.typing import Array, PRNGKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class Frequencies:
  """Frequencies from noisy counts; `laplace` and `gaussian` build it.

  Guarantee: that of the mechanism `counts`, applied to a histogram.

  Attributes:
    num_categories: K.
    num_examples: n under REPLACE_ONE, None under ADD_OR_REMOVE_ONE.
    counts: mechanism that releases the counts; it fixes their sensitivity.
    confidence: level of each category's interval, not of all jointly.
  """
  num_categories: int
  num_examples: int | None
  counts: LaplaceMechanism | GaussianMechanism
  confidence: float = 0.95

  def __post_init__(self) -> None:
    errors.check_at_least('num_categories', self.num_categories, 1)
    errors.check_open_unit('confidence', self.confidence)
    if self.adjacency is Adjacency.REPLACE_ONE:
      if self.num_examples is None:
        raise ValueError('num_examples must be given under replace_one, got '
                         'None')
      errors.check_at_least('num_examples', self.num_examples, 1)
    elif self.num_examples is not None:
      raise ValueError('num_examples is private under add_or_remove_one; leave '
                       f'it out, got {self.num_examples}')

  @property
  def adjacency(self) -> Adjacency:
    """Which data sets are neighbours."""
    return self.counts.adjacency

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy event of one release, for the accountants."""
    return self.counts.event

  def release(self, key: PRNGKey, data: Array) -> Estimate:
    """Returns frequencies [K] with intervals, from records [n] in 0 .. K - 1.

    Under REPLACE_ONE the values are unbiased, so they may be negative and need
    not sum to 1; see `project_on_simplex`. Records outside 0 .. K - 1 are
    counted in no category. The intervals are for the population frequencies.
    """
    if self.num_examples is not None:
      errors.check_records(data.shape, self.num_examples)
    noisy = self.counts.release(key, count(data, self.num_categories))
    total = (jnp.float32(self.num_examples) if self.num_examples is not None
             else jnp.maximum(jnp.sum(noisy), 1.0))
    share = noisy / total
    # Keeps the sampling variance positive where a noisy share is near 0 or 1.
    inner = jnp.clip(share, 1 / (total + 1), 1 - 1 / (total + 1))
    return intervals.clipped(self._with_interval(
        share, inner * (1 - inner) / total, total), 0.0, 1.0)

  def _with_interval(self, share: Array, variance: Array,
                     total: Array) -> Estimate:
    """Returns intervals for sampling error and noise together."""
    noise = self.counts.risk(1) / jnp.square(total)
    if self.num_examples is None:
      # Variance of Z_k - f sum(Z): the total is the sum of the noisy counts,
      # so their noise enters the quotient twice.
      noise = noise * (1 - 2 * share
                       + self.num_categories * jnp.square(share))
    elif isinstance(self.counts, LaplaceMechanism):
      return intervals.symmetric(share, intervals.half_width(
          jnp.sqrt(variance), jnp.full_like(
              share, self.counts.scale / self.num_examples),
          confidence=self.confidence))
    return intervals.wald(share, jnp.sqrt(variance + noise),
                          confidence=self.confidence)

  def risk(self, num_values: int) -> float | None:
    """Returns the expected squared error of `num_values` sample frequencies.

    None under ADD_OR_REMOVE_ONE, where the error depends on the private n;
    given the true n it would be `counts.risk(num_values) / n^2`.
    """
    if self.num_examples is None:
      return None
    return self.counts.risk(num_values) / self.num_examples**2

  def population_risk(self, probs: np.ndarray) -> float:
    """Returns the expected squared error of the K population frequencies.

    sum p (1 - p) / n + 8 K / (n epsilon)^2 with Laplace noise (Lalanne 2023,
    equation (2.6)): the noise is negligible if epsilon is above sqrt(8 K / n).

    Args:
      probs: [K] population frequencies.

    Raises:
      ValueError: under ADD_OR_REMOVE_ONE.
    """
    noise = self.risk(self.num_categories)
    if noise is None or self.num_examples is None:
      raise ValueError('population_risk has no closed form under '
                       'add_or_remove_one; use replace_one')
    probs = np.asarray(probs, np.float64)
    return float(np.sum(probs * (1 - probs))) / self.num_examples + noise


def laplace(*, num_categories: int, epsilon: float, adjacency: Adjacency,
            num_examples: int | None = None,
            confidence: float = 0.95) -> Frequencies:
  """Returns `Frequencies` with Laplace noise, which is epsilon-DP."""
  return Frequencies(
      num_categories=num_categories, num_examples=num_examples,
      counts=LaplaceMechanism(record_norm=1.0, epsilon=epsilon,
                              adjacency=adjacency), confidence=confidence)


def gaussian(*, num_categories: int, rho: float, adjacency: Adjacency,
             num_examples: int | None = None,
             confidence: float = 0.95) -> Frequencies:
  """Returns `Frequencies` with Gaussian noise, which is rho-zCDP.

  The noise has variance sensitivity^2 / (2 rho). Under REPLACE_ONE two counts
  change by 1 each, so the l2 sensitivity is sqrt(2), not twice the norm 1 of a
  record. The mechanism doubles the record norm, so that sqrt(2) / 2 is passed
  to it.
  """
  replacing = check_adjacency(adjacency) is Adjacency.REPLACE_ONE
  return Frequencies(
      num_categories=num_categories, num_examples=num_examples,
      counts=zcdp_gaussian(record_norm=math.sqrt(0.5) if replacing else 1.0,
                           rho=rho, adjacency=adjacency),
      confidence=confidence)


def count(data: Array, num_categories: int) -> Array:
  """Returns the number of records [n] in each category, float32 [K]."""
  # Records outside the categories go to an extra bin, which is dropped.
  known = (data >= 0) & (data < num_categories)
  return jnp.bincount(jnp.where(known, data, num_categories),
                      length=num_categories + 1)[:-1].astype(jnp.float32)


def project_on_simplex(values: Array) -> Array:
  """Returns the nearest probability vector [K] in l2; post-processing.

  It is never farther from any probability vector than `values` is. Source:
  Duchi et al. 2008, Figure 1 (item MECH-10).
  """
  ordered = jnp.flip(jnp.sort(values))
  ranks = jnp.arange(1, values.shape[0] + 1, dtype=values.dtype)
  thresholds = (jnp.cumsum(ordered) - 1) / ranks
  # The threshold of the simplex projection is the largest of these: they grow
  # up to the last rank whose value stays positive.
  return jax.nn.relu(values - jnp.max(thresholds))


def local(mechanism: RandomizedResponse, answers: Array, *,
          confidence: float = 0.95) -> Estimate:
  """Returns frequencies [K] with intervals from n randomised answers.

  The values are unbiased. The intervals are for the population and use the
  binomial variance of the answers. Source: lecture notes, chapter 7, Example
  7.34 (item LDP-07).

  Args:
    mechanism: randomised response that each person used.
    answers: [n] categories that were reported.
    confidence: level of each category's interval.
  """
  num_examples = answers.shape[0]
  share = count(answers, mechanism.num_categories) / num_examples
  answer_interval = intervals.binomial(
      share, num_examples, confidence=confidence, method='wald')
  # An answer frequency is other_prob + slope * f, which is inverted below.
  slope = mechanism.truth_prob - mechanism.other_prob
  return intervals.clipped(Estimate(*(
      (number - mechanism.other_prob) / slope
      for number in answer_interval)), 0.0, 1.0)


def local_risk(mechanism: RandomizedResponse, shares: np.ndarray,
               num_examples: int) -> float:
  """Returns the exact expected squared error of the K sample frequencies.

  Args:
    mechanism: randomised response that each person used.
    shares: [K] true frequencies of the sample.
    num_examples: n.
  """
  return math.fsum(mechanism.variance(float(share), num_examples)
                   for share in shares)


def local_population_risk(mechanism: RandomizedResponse, probs: np.ndarray,
                          num_examples: int) -> float:
  """Returns the expected squared error of the K population frequencies.

  Args:
    mechanism: randomised response that each person used.
    probs: [K] population frequencies.
    num_examples: n.
  """
  slope = mechanism.truth_prob - mechanism.other_prob
  answer_probs = mechanism.other_prob + slope * np.asarray(probs, np.float64)
  return float(np.sum(answer_probs * (1 - answer_probs))) / (
      num_examples * slope**2)
