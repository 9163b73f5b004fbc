"""Private tests of two proportions, and how many records they need.

Records are Bernoulli with proportion p_0 or p_1 > p_0, equally likely; a test
uses their count. Adjacency: REPLACE_ONE. Source: item ORC-1, EXP-8; the worked
example of Lalanne (2023, section 3.2.1).

The best pure test adds truncated geometric noise to the count and compares it
with a threshold c (docs/theory/proportions.md, Theorem 1): with q = e^-epsilon,
the probability x_k of answering p_1 at count k is

  x_k = q^(c - k) / (1 + q),          k < c,
  1 - x_k = q^(k - c + 1) / (1 + q),  k >= c.

The best c need not be the count where the likelihood ratio passes 1, so all of
them are compared. Awan and Slavkovic (2018, 2020) derive uniformly most
powerful tests of every level, also under (epsilon, delta)-DP; this is their
case of two equally likely proportions.
"""

from collections.abc import Callable
import math

import numpy as np
from scipy import optimize
from scipy import signal
from scipy import special
from scipy import stats

from dpjax import errors
from dpjax.theory.minimax import concentrated

# Counts this many standard deviations around their mean are used.
_REACH = 14.0


def best_error(num_examples: int, probs: tuple[float, float], *,
               epsilon: float | None = None) -> float:
  """Returns the exact mean of both errors of the best test.

  Args:
    num_examples: n, the number of records.
    probs: p_0 < p_1.
    epsilon: privacy budget of the test; None for no privacy.
  """
  _, excess = _counts(num_examples, probs)
  if epsilon is None:
    return float(1 - np.sum(np.maximum(excess, 0))) / 2
  q = math.exp(-errors.check_positive('epsilon', epsilon))
  # For all thresholds c at once: the sums over counts below and above c.
  zero = np.zeros(1)
  below = np.concatenate([zero, signal.lfilter([1.0], [1.0, -q], excess)])
  above = np.concatenate([signal.lfilter([1.0], [1.0, -q], excess[::-1])[::-1],
                          zero])
  tails = np.concatenate([np.cumsum(excess[::-1])[::-1], zero])
  gains = tails + (below - above) * q / (1 + q)
  return float(1 - np.max(gains)) / 2


def gaussian_error(num_examples: int, probs: tuple[float, float], *,
                   rho: float) -> float:
  """Returns the error of a count with Gaussian noise at the best threshold.

  Args:
    num_examples: n, the number of records.
    probs: p_0 < p_1.
    rho: zCDP budget of the release; the noise has variance 1 / (2 rho).
  """
  sigma = 1 / math.sqrt(2 * errors.check_positive('rho', rho))
  return _best_threshold(num_examples, probs, special.ndtr, sigma)


def ramp_error(num_examples: int, probs: tuple[float, float], *, rho: float
               ) -> float:
  """Returns the error of the two-answer mechanism `concentrated.limit_logit`.

  It is rho-zCDP and best at distinguishing the ends of a path; no better test
  of two proportions is known.

  Args:
    num_examples: n, the number of records.
    probs: p_0 < p_1.
    rho: zCDP budget of the release.
  """
  scale = 1 / math.sqrt(errors.check_positive('rho', rho))
  return _best_threshold(num_examples, probs, lambda x: special.expit(
      concentrated.limit_logit(x)), scale)


def _best_threshold(num_examples: int, probs: tuple[float, float],
                    accept: Callable[[np.ndarray], np.ndarray], scale: float
                    ) -> float:
  """Returns the error of accept((count - c) / scale) at the best c."""
  counts, excess = _counts(num_examples, probs)
  # The error is unimodal in c: excess changes sign once, because the likelihood
  # ratio is monotone, and the slope of `accept` is log-concave, so smoothing by
  # it adds no change of sign (variation diminishing; Karlin 1968).
  minimum = optimize.minimize_scalar(
      lambda c: -float(excess @ accept((counts - c) / scale)),
      bounds=(counts[0] - scale, counts[-1] + scale), method='bounded',
      options=dict(xatol=1e-3 * scale))
  return float(1 + minimum.fun) / 2


def _counts(num_examples: int, probs: tuple[float, float]
            ) -> tuple[np.ndarray, np.ndarray]:
  """Returns counts, and P_1 - P_0 of them."""
  n = errors.check_at_least('num_examples', num_examples, 1)
  if not 0 <= probs[0] < probs[1] <= 1:
    raise ValueError(f'proportions must be in order, got {probs}')
  sides = [(n * p, _REACH * math.sqrt(n * p * (1 - p)) + 50) for p in probs]
  low = max(0, math.floor(min(mean - deviation for mean, deviation in sides)))
  high = min(n, math.ceil(max(mean + deviation for mean, deviation in sides)))
  counts = np.arange(low, high + 1)
  return counts, (stats.binom.pmf(counts, n, probs[1])
                  - stats.binom.pmf(counts, n, probs[0]))


def least_records(error: Callable[[int], float], target: float, *,
                  largest: int = 10**9) -> int:
  """Returns the least n with an error of at most `target`.

  Args:
    error: error as a function of n, not increasing.
    target: target error, in (0, 1/2).
    largest: largest n to try.

  Raises:
    ValueError: if the error at `largest` is above the target.
  """
  if not 0 < target < 0.5:
    raise ValueError(f'target must lie in (0, 1/2), got {target}')
  high = 1
  while error(high) > target:
    if high >= largest:
      raise ValueError(f'{largest} records do not reach the target')
    high = min(2 * high, largest)
  low = high // 2
  while high - low > 1:
    middle = (low + high) // 2
    low, high = (low, middle) if error(middle) <= target else (middle, high)
  return high
