"""Trade-off functions: the two errors of a test for one record.

Consider a test, from the release, of one data set against a neighbour. If its
first error probability is alpha, its second one is at least f(alpha). The
trade-off function f contains all that is known of a release: by convex duality
it is equivalent to (epsilon, delta) for every epsilon. Source: Lalanne (2023,
section 2.1), without the formula; Dong, Roth and Su (2022; item DEF-07,
INT-02).
"""

from collections.abc import Sequence
import math

import numpy as np

from dpjax.privacy.notions import ApproxDP


def approx(alpha: np.ndarray, guarantee: ApproxDP) -> np.ndarray:
  """Returns the least second error under (epsilon, delta)-DP.

  The maximum of two lines and 0.

  Args:
    alpha: first errors in [0, 1].
    guarantee: guarantee of the release.
  """
  alpha = checked(alpha)
  epsilon, left = guarantee.epsilon, 1 - guarantee.delta
  return np.maximum(0.0, np.maximum(
      left - math.exp(epsilon) * alpha, math.exp(-epsilon) * (left - alpha)))


def from_curve(alpha: np.ndarray, epsilons: Sequence[float],
               deltas: Sequence[float]) -> np.ndarray:
  """Returns the trade-off of a release that is (epsilon_i, delta_i)-DP, all i.

  This gives a lower bound on the trade-off for everything that an accountant
  covers, from its deltas at these epsilons.

  Args:
    alpha: first errors in [0, 1].
    epsilons: [m], each >= 0.
    deltas: [m], one for each epsilon.
  """
  return np.max([approx(alpha, ApproxDP(epsilon=epsilon, delta=delta))
                 for epsilon, delta in zip(epsilons, deltas, strict=True)
                 if delta < 1] or [np.zeros(np.shape(alpha))], axis=0)


def best_accuracy(guarantee: ApproxDP) -> float:
  """Returns the best accuracy of guessing one of two equally likely neighbours.

  (e^epsilon + delta) / (1 + e^epsilon); attained by binary randomised response.
  """
  growth = math.exp(-guarantee.epsilon)
  return (1 + guarantee.delta * growth) / (1 + growth)


def checked(alpha: np.ndarray) -> np.ndarray:
  """Returns alpha as float64; raises if it leaves [0, 1]."""
  alpha = np.asarray(alpha, np.float64)
  if not ((alpha >= 0) & (alpha <= 1)).all():
    raise ValueError('alpha must lie in [0, 1]')
  return alpha
