"""Private tests of two proportions, and how many records they take.

Records are Bernoulli with proportion p_0 or p_1 > p_0, either as likely; a test
sees their count. Adjacency: REPLACE_ONE. Source: item ORC-1, EXP-8; the worked
example of thesis 000, section 3.2.1.

The best pure test adds geometric noise to the count and compares it with a
threshold. Where the likelihood ratio is below 1 the probability of p_1 should
be as small as it can, where it is above as large; given both at the crossing,
neighbours fix all others, x_k e^(epsilon) = x_(k + 1) below and 1 - x_k =
e^epsilon (1 - x_(k + 1)) above. The error is linear in the two, so some vertex
of what is allowed is best, and vertices are thresholds c,

  x_k = e^(-epsilon (c - k)) q / (1 + q) e^epsilon,  k < c,   q = e^-epsilon,
  1 - x_k = e^(-epsilon (k - c)) q / (1 + q),        k >= c.
"""

from collections.abc import Callable
import math

import numpy as np
from scipy import optimize
from scipy import signal
from scipy import special
from scipy import stats

from dpjax import errors
from dpjax.stats.minimax import concentrated

# Standard deviations of counts that are looked at.
_REACH = 14.0


def best_error(num_examples: int, probs: tuple[float, float], *,
               epsilon: float | None = None) -> float:
  """The mean of both errors of the best test, exactly.

  Args:
    num_examples: n.
    probs: p_0 < p_1.
    epsilon: of the test; None: no privacy.
  """
  _, excess = _counts(num_examples, probs)
  if epsilon is None:
    return float(1 - np.sum(np.maximum(excess, 0))) / 2
  q = math.exp(-errors.check_positive('epsilon', epsilon))
  # For every threshold c at once: what counts below and above it add.
  zero = np.zeros(1)
  below = np.concatenate([zero, signal.lfilter([1.0], [1.0, -q], excess)])
  above = np.concatenate([signal.lfilter([1.0], [1.0, -q], excess[::-1])[::-1],
                          zero])
  tails = np.concatenate([np.cumsum(excess[::-1])[::-1], zero])
  gains = tails + (below - above) * q / (1 + q)
  return float(1 - np.max(gains)) / 2


def gaussian_error(num_examples: int, probs: tuple[float, float], *,
                   rho: float) -> float:
  """The same of a count with Gaussian noise, rho-zCDP, at the best threshold.

  Args:
    num_examples: n.
    probs: p_0 < p_1.
    rho: of the release; noise has variance 1 / (2 rho).
  """
  sigma = 1 / math.sqrt(2 * errors.check_positive('rho', rho))
  return _best_threshold(num_examples, probs, special.ndtr, sigma)


def ramp_error(num_examples: int, probs: tuple[float, float], *, rho: float
               ) -> float:
  """The same of the two answers of `concentrated.limit_logit`, rho-zCDP.

  They tell the ends of a path apart best; no better test of two proportions is
  known.

  Args:
    num_examples: n.
    probs: p_0 < p_1.
    rho: of the release.
  """
  scale = 1 / math.sqrt(errors.check_positive('rho', rho))
  return _best_threshold(num_examples, probs, lambda x: special.expit(
      concentrated.limit_logit(x)), scale)


def _best_threshold(num_examples: int, probs: tuple[float, float],
                    accept: Callable[[np.ndarray], np.ndarray], scale: float
                    ) -> float:
  """The error of accept((count - c) / scale), at the best c."""
  counts, excess = _counts(num_examples, probs)
  # Unimodal in the threshold: ratios of likelihoods are monotone.
  found = optimize.minimize_scalar(
      lambda c: -float(excess @ accept((counts - c) / scale)),
      bounds=(counts[0] - scale, counts[-1] + scale), method='bounded',
      options=dict(xatol=1e-3 * scale))
  return float(1 + found.fun) / 2


def _counts(num_examples: int, probs: tuple[float, float]
            ) -> tuple[np.ndarray, np.ndarray]:
  """Counts, and P_1 - P_0 of them."""
  n = errors.check_at_least('num_examples', num_examples, 1)
  if not 0 <= probs[0] < probs[1] <= 1:
    raise ValueError(f'proportions must be in order, got {probs}')
  sides = [(n * p, _REACH * math.sqrt(n * p * (1 - p)) + 50) for p in probs]
  low = max(0, math.floor(min(mean - reach for mean, reach in sides)))
  high = min(n, math.ceil(max(mean + reach for mean, reach in sides)))
  counts = np.arange(low, high + 1)
  return counts, (stats.binom.pmf(counts, n, probs[1])
                  - stats.binom.pmf(counts, n, probs[0]))


def least_records(error: Callable[[int], float], target: float, *,
                  largest: int = 10**9) -> int:
  """The least n at which an error that falls with n is `target` at most.

  Args:
    error: of n.
    target: of the error, in (0, 1/2).
    largest: n that is tried.

  Raises:
    ValueError: if the error at `largest` is above the target.
  """
  if not 0 < target < 0.5:
    raise ValueError(f'target must lie in (0, 1/2), got {target}')
  high = 1
  while error(high) > target:
    if high >= largest:
      raise ValueError(f'{largest} records do not do')
    high = min(2 * high, largest)
  low = high // 2
  while high - low > 1:
    middle = (low + high) // 2
    low, high = (low, middle) if error(middle) <= target else (middle, high)
  return high
