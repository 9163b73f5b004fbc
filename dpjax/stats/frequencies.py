"""Frequencies of K categories: noisy counts of a curator, or noisy answers.

Of n public records, under REPLACE_ONE, counts move by 2 in l1 and by sqrt(2) in
l2; under ADD_OR_REMOVE_ONE by 1 in both, and n, which is private then, is the
sum of the noisy counts. Source: thesis 000, Example 2.3.5 and equations
(2.3)-(2.7); lecture 002, Example 7.34 (item MECH-10, LDP-07, LDP-08, errata
T-E12, L-E13).
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
  """Noisy counts as frequencies; made by `laplace` and `gaussian`.

  Guarantee: that of `counts`, for a histogram.

  Attributes:
    num_categories: K.
    num_examples: n under REPLACE_ONE, None under ADD_OR_REMOVE_ONE.
    counts: the mechanism of the counts, by their sensitivity.
    confidence: of the interval of each frequency by itself.
  """
  num_categories: int
  num_examples: int | None
  counts: LaplaceMechanism | GaussianMechanism
  confidence: float = 0.95

  def __post_init__(self):
    errors.check_at_least('num_categories', self.num_categories, 1)
    errors.check_open_unit('confidence', self.confidence)
    if self.adjacency is Adjacency.REPLACE_ONE:
      if self.num_examples is None:
        raise ValueError('num_examples must be given under replace_one')
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
    """What one release costs."""
    return self.counts.event

  def release(self, key: PRNGKey, data: Array) -> Estimate:
    """Frequencies [K] of records [n] of integers from 0 to K - 1.

    Values are unbiased under REPLACE_ONE: they may be negative and need not sum
    to 1; see `project_on_simplex`. Other integers are counted nowhere. The
    intervals are for the population.
    """
    if self.num_examples is not None:
      errors.check_records(data.shape, self.num_examples)
    noisy = self.counts.release(key, count(data, self.num_categories))
    total = (jnp.float32(self.num_examples) if self.num_examples is not None
             else jnp.maximum(jnp.sum(noisy), 1.0))
    share = noisy / total
    inner = jnp.clip(share, 1 / (total + 1), 1 - 1 / (total + 1))
    return intervals.clipped(self._with_interval(
        share, inner * (1 - inner) / total, total), 0.0, 1.0)

  def _with_interval(self, share: Array, variance: Array,
                     total: Array) -> Estimate:
    noise = self.counts.risk(1) / jnp.square(total)
    if self.num_examples is None:
      # Of Z_k - f sum(Z), where the sum is that of the noise on the total.
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
    """Expected squared error of `num_values` frequencies of these records.

    None under ADD_OR_REMOVE_ONE, where it depends on how many there are; over
    the true n it would be `counts.risk(num_values) / n^2`.
    """
    if self.num_examples is None:
      return None
    return self.counts.risk(num_values) / self.num_examples**2

  def population_risk(self, probs: np.ndarray) -> float:
    """Of all K, as estimates of what the records are drawn from (2.6).

    sum p (1 - p) / n + 8 K / (n epsilon)^2 with Laplace noise, which is free
    where epsilon is above sqrt(8 K / n). Under REPLACE_ONE only.

    Args:
      probs: [K], of the population.
    """
    noise = self.risk(self.num_categories)
    if noise is None:
      raise ValueError('no closed form under add_or_remove_one')
    probs = np.asarray(probs, np.float64)
    return float(np.sum(probs * (1 - probs))) / self.num_examples + noise


def laplace(*, num_categories: int, epsilon: float, adjacency: Adjacency,
            num_examples: int | None = None,
            confidence: float = 0.95) -> Frequencies:
  """With Laplace noise: epsilon-DP. See `Frequencies`."""
  return Frequencies(
      num_categories=num_categories, num_examples=num_examples,
      counts=LaplaceMechanism(record_norm=1.0, epsilon=epsilon,
                              adjacency=adjacency), confidence=confidence)


def gaussian(*, num_categories: int, rho: float, adjacency: Adjacency,
             num_examples: int | None = None,
             confidence: float = 0.95) -> Frequencies:
  """With Gaussian noise: rho-zCDP, of variance sensitivity^2 / (2 rho).

  Under REPLACE_ONE two counts move by 1, sqrt(2) in l2 and not twice the norm
  of a record: half of that stands for the norm. See `Frequencies`.
  """
  replacing = check_adjacency(adjacency) is Adjacency.REPLACE_ONE
  return Frequencies(
      num_categories=num_categories, num_examples=num_examples,
      counts=zcdp_gaussian(record_norm=math.sqrt(0.5) if replacing else 1.0,
                           rho=rho, adjacency=adjacency),
      confidence=confidence)


def count(data: Array, num_categories: int) -> Array:
  """How many of the records [n] are of each category, float32 [K]."""
  known = (data >= 0) & (data < num_categories)
  return jnp.bincount(jnp.where(known, data, num_categories),
                      length=num_categories + 1)[:-1].astype(jnp.float32)


def project_on_simplex(values: Array) -> Array:
  """The nearest vector [K] of probabilities; post-processing.

  Never farther from any vector of probabilities than `values` are. Source:
  Duchi et al. 2008, Figure 1 (item MECH-10).
  """
  ordered = jnp.flip(jnp.sort(values))
  ranks = jnp.arange(1, values.shape[0] + 1, dtype=values.dtype)
  thresholds = (jnp.cumsum(ordered) - 1) / ranks
  # The largest is that of the last rank whose value stays positive.
  return jax.nn.relu(values - jnp.max(thresholds))


def local(mechanism: RandomizedResponse, answers: Array, *,
          confidence: float = 0.95) -> Estimate:
  """Frequencies [K] from the answers [n] of people who trust nobody.

  Unbiased; the interval is for the population, by the spread of the answers.
  Source: lecture 002, Example 7.34 (item LDP-07).
  """
  num_examples = answers.shape[0]
  share = count(answers, mechanism.num_categories) / num_examples
  seen = intervals.binomial(share, num_examples, confidence=confidence,
                            method='wald')
  slope = mechanism.truth_prob - mechanism.other_prob
  return intervals.clipped(Estimate(*(
      (each - mechanism.other_prob) / slope for each in seen)), 0.0, 1.0)


def local_risk(mechanism: RandomizedResponse, shares: np.ndarray,
               num_examples: int) -> float:
  """Expected squared error of all K frequencies of these records, exact.

  Args:
    mechanism: what people answer by.
    shares: [K], frequencies of the truths.
    num_examples: n.
  """
  return math.fsum(mechanism.variance(float(share), num_examples)
                   for share in shares)


def local_population_risk(mechanism: RandomizedResponse, probs: np.ndarray,
                          num_examples: int) -> float:
  """The same, as estimates of what the records are drawn from.

  Args:
    mechanism: what people answer by.
    probs: [K], of the population.
    num_examples: n.
  """
  slope = mechanism.truth_prob - mechanism.other_prob
  seen = mechanism.other_prob + slope * np.asarray(probs, np.float64)
  return float(np.sum(seen * (1 - seen))) / (num_examples * slope**2)
