"""Trade-off functions: the two errors of a test for one record.

Consider a test, from the release, of one data set against a neighbour. If its
first error probability is alpha, its second one is at least f(alpha). The
trade-off function f contains all that is known of a release: by convex duality
it is equivalent to (epsilon, delta) for every epsilon. Source: Lalanne (2023,
section 2.1), without the formula; Dong, Roth and Su (2022; item DEF-07,
INT-02).
"""

from collections.abc import Callable, Sequence
import math

import numpy as np
from scipy import special

from dpjax import errors
from dpjax.privacy.notions import ApproxDP


def approx(alpha: np.ndarray, guarantee: ApproxDP) -> np.ndarray:
  """Returns the least second error under (epsilon, delta)-DP.

  The maximum of two lines and 0.

  Args:
    alpha: first errors in [0, 1].
    guarantee: guarantee of the release.
  """
  alpha = _checked(alpha)
  epsilon, left = guarantee.epsilon, 1 - guarantee.delta
  return np.maximum(0.0, np.maximum(
      left - math.exp(epsilon) * alpha, math.exp(-epsilon) * (left - alpha)))


def gaussian(alpha: np.ndarray, *, shift: float) -> np.ndarray:
  """Returns the trade-off of a Gaussian release, exact.

  Phi(Phi^-1(1 - alpha) - mu).

  Args:
    alpha: first errors in [0, 1].
    shift: mu, sensitivity over standard deviation.
  """
  errors.check_non_negative('shift', shift)
  return special.ndtr(special.ndtri(1 - _checked(alpha)) - shift)


def gaussian_delta(epsilon: np.ndarray | float, *,
                   shift: float) -> np.ndarray:
  """Returns delta as a function of epsilon of a Gaussian release, exact.

  The same curve as `gaussian`, which accountants round up: Phi(mu/2 - t/mu) -
  e^t Phi(-mu/2 - t/mu) (item DEF-03).

  Args:
    epsilon: t, any shape.
    shift: mu > 0.
  """
  errors.check_positive('shift', shift)
  epsilon = np.asarray(epsilon, np.float64)
  return special.ndtr(shift / 2 - epsilon / shift) - np.exp(
      epsilon + special.log_ndtr(-shift / 2 - epsilon / shift))


def laplace(alpha: np.ndarray, *, epsilon: float) -> np.ndarray:
  """Returns the trade-off of one number with Laplace noise, exact.

  Args:
    alpha: first errors in [0, 1].
    epsilon: sensitivity over the scale of the noise.
  """
  errors.check_non_negative('epsilon', epsilon)
  alpha = _checked(alpha)
  least = math.exp(-epsilon)
  with np.errstate(divide='ignore'):  # At alpha = 0 `middle` is not used.
    middle = least / (4 * alpha)
  return np.where(alpha < least / 2, 1 - math.exp(epsilon) * alpha,
                  np.where(alpha <= 0.5, middle, least * (1 - alpha)))


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


def delta_of(epsilon: float,
             tradeoff: Callable[[np.ndarray], np.ndarray]) -> float:
  """Returns delta = sup over alpha of 1 - f(alpha) - e^epsilon alpha.

  Args:
    epsilon: at least 0.
    tradeoff: f, convex, maps arrays of alphas to arrays.
  """
  errors.check_non_negative('epsilon', epsilon)
  low, high, best = 0.0, 1.0, 0.0
  for _ in range(11):  # Each leaves a fiftieth: to the end of float64.
    alpha = np.linspace(low, high, 101)
    gain = 1 - tradeoff(alpha) - math.exp(epsilon) * alpha
    # The gain is concave, so its maximum is next to the best grid point.
    place = int(np.argmax(gain))
    best = max(best, float(gain[place]))
    low, high = alpha[max(place - 1, 0)], alpha[min(place + 1, 100)]
  return best


def best_accuracy(guarantee: ApproxDP) -> float:
  """Returns the best accuracy of guessing one of two equally likely neighbours.

  (e^epsilon + delta) / (1 + e^epsilon); attained by binary randomised response.
  """
  growth = math.exp(-guarantee.epsilon)
  return (1 + guarantee.delta * growth) / (1 + growth)


def total_variation(guarantee: ApproxDP) -> float:
  """Returns the largest total variation distance between neighbours.

  Equal to 2 `best_accuracy` - 1.
  """
  return 2 * best_accuracy(guarantee) - 1


def _checked(alpha: np.ndarray) -> np.ndarray:
  """Returns alpha as float64; raises if it leaves [0, 1]."""
  alpha = np.asarray(alpha, np.float64)
  if not ((alpha >= 0) & (alpha <= 1)).all():
    raise ValueError('alpha must lie in [0, 1]')
  return alpha
