"""Exact output distributions of Algorithm 8 on adjacent pairs of data sets.

The algorithm is that of Barczewski (2025). All pairs are one-dimensional, so
the epsilon of a pair is an integral (`mixtures`). It is a lower bound on the
epsilon of the algorithm.
"""

import math
from typing import NamedTuple

import numpy as np
from scipy import stats

from dpjax import errors
from experiments.methods.attacks import mixtures

_SMALLEST_LOG_WEIGHT = -700.0


class Pair(NamedTuple):
  """Distributions of one release on two neighbours."""
  without: mixtures.GaussianMixture
  within: mixtures.GaussianMixture


def sum_pair(*, num_examples: int, sampling_prob: float,
             noise_multiplier: float, norm_ratio: float) -> Pair:
  """Returns outputs of scaled batch sums, without and with an added record.

  Source: Barczewski (2025), Algorithm 8, lines 11-13 and Theorem 5.2.2; erratum
  E1. The model is f = theta x with a hinge loss of slope 1 and every margin
  active, so Delta_1 = 1. The data set holds n copies of (e, +1), of gradient
  -e; its neighbour also holds (M e, -1), of gradient +M e. A batch of m records
  is released as -m + noise, and with the added record as (M - m)/M + noise. The
  change m + 1 - m/M is not bounded by Delta_1, but by (m + 1) Delta_1.

  Args:
    num_examples: n, the number of records.
    sampling_prob: q; 1 takes every record.
    noise_multiplier: sigma, noise deviation over the claimed sensitivity.
    norm_ratio: M, at least 1; may be infinite.
  """
  if not norm_ratio >= 1:
    raise ValueError(f'norm_ratio must be at least 1, got {norm_ratio}')
  size, weight = _batch_sizes(num_examples, sampling_prob)
  return _pair(sampling_prob, weight, size,
               means=-size, means_with=1 - size / norm_ratio,
               stddevs=noise_multiplier * np.ones_like(size),
               stddevs_with=noise_multiplier * np.ones_like(size))


def mean_pair(*, num_examples: int, sampling_prob: float,
              noise_multiplier: float) -> Pair:
  """Returns outputs of batch means, whose divisor depends on the records.

  Source: Barczewski (2025), Algorithms 6 to 8, division by |V|; erratum E4. All
  gradients have norm 1: those of the n records are -1, that of the added record
  is +1. A batch of m records is released as -1 + N(0, sigma^2/m^2), and with
  the added record as (1 - m)/(m + 1) + N(0, sigma^2/(m + 1)^2).
  """
  size, weight = _batch_sizes(num_examples, sampling_prob)
  return _pair(sampling_prob, weight, size,
               means=-np.ones_like(size), means_with=(1 - size) / (size + 1),
               stddevs=noise_multiplier / np.maximum(size, 1),
               stddevs_with=noise_multiplier / (size + 1))


def redrawn_inclusion_prob(*, num_examples: int,
                           sampling_prob: float) -> float:
  """Returns the probability to be in a batch that is redrawn until nonempty.

  q / (1 - (1 - q)^n), against the q that is accounted. Source: Barczewski
  (2025), Algorithm 8, lines 6-9; erratum E5.

  Args:
    num_examples: number of records of the data set that holds the record.
    sampling_prob: q, the probability that a record is sampled.
  """
  errors.check_at_least('num_examples', num_examples, 1)
  errors.check_probability('sampling_prob', sampling_prob)
  if sampling_prob == 1:
    return 1.0
  not_empty = -math.expm1(num_examples * math.log1p(-sampling_prob))
  return sampling_prob / not_empty


class RepeatedTest(NamedTuple):
  """The test 'some step is released above the threshold'.

  Attributes:
    threshold: threshold of one step.
    log_false_positive_rate: natural logarithm of the rate over all steps.
    true_positive_rate: rate over all steps.
  """
  threshold: float
  log_false_positive_rate: float
  true_positive_rate: float

  def epsilon_lower(self, delta: float) -> float:
    """Returns ln((TPR - delta) / FPR), a lower bound on the true epsilon."""
    gain = self.true_positive_rate - delta
    if gain <= 0:
      return 0.0
    return max(0.0, math.log(gain) - self.log_false_positive_rate)

  def delta_lower(self, epsilon: float) -> float:
    """Returns TPR - e^epsilon FPR, a lower bound on delta at epsilon."""
    alarms = math.exp(min(0.0, epsilon + self.log_false_positive_rate))
    return max(0.0, self.true_positive_rate - alarms)


def repeated_test(pair: Pair, *, threshold: float,
                  num_steps: int) -> RepeatedTest:
  """Returns the error rates of a test of many independent steps."""
  alarm, hit = (_log_some(mixtures.log_tail(distribution, threshold), num_steps)
                for distribution in pair)
  return RepeatedTest(threshold, alarm, math.exp(hit))


def best_repeated_test(pair: Pair, *, num_steps: int,
                       epsilon: float) -> RepeatedTest:
  """Returns the test whose threshold shows the largest delta at `epsilon`."""
  lower, upper = pair.without.means.min(), pair.within.means.max()
  tests = [repeated_test(pair, threshold=float(value), num_steps=num_steps)
           for value in np.linspace(lower, upper, 513)]
  # In floating point, rates near 1 tie; the test with the larger bound on
  # epsilon is then preferred.
  return max(tests, key=lambda test: (round(test.delta_lower(epsilon), 9),
                                      test.epsilon_lower(1e-5)))


def _log_some(log_rate: float, num_steps: int) -> float:
  """Returns ln P(at least one of several independent steps is flagged)."""
  rate = math.exp(log_rate)
  if rate < 1e-30:
    return math.log(num_steps) + log_rate
  if rate >= 1:
    return 0.0
  return math.log(-math.expm1(num_steps * math.log1p(-rate)))


def _batch_sizes(num_examples: int,
                 sampling_prob: float) -> tuple[np.ndarray, np.ndarray]:
  """Returns the sizes of batches of the n records, and their probabilities."""
  errors.check_at_least('num_examples', num_examples, 1)
  errors.check_probability('sampling_prob', sampling_prob)
  sizes = np.arange(num_examples + 1)
  logs = stats.binom.logpmf(sizes, num_examples, sampling_prob)
  likely = logs > _SMALLEST_LOG_WEIGHT
  return sizes[likely].astype(np.float64), np.exp(logs[likely])


def _pair(sampling_prob, weight, size, *, means, means_with, stddevs,
          stddevs_with) -> Pair:
  """Returns outputs without and with the record; empty batches are redrawn."""
  drawn = weight * (size > 0)
  without = mixtures.mixture(drawn, means, stddevs)
  within = mixtures.mixture(
      np.concatenate([(1 - sampling_prob) * drawn, sampling_prob * weight]),
      np.concatenate([means, means_with]),
      np.concatenate([stddevs, stddevs_with]))
  return Pair(without, within)
