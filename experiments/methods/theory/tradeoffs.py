"""Trade-off functions of known mechanisms, and their (epsilon, delta) curves.

`dpjax.privacy.tradeoff` explains trade-off functions and has the one that
follows from a guarantee. Source: Lalanne (2023, section 2.1); Dong, Roth and Su
(2022; items DEF-03 and DEF-07).
"""

from collections.abc import Callable
import math

import numpy as np
from scipy import special

from dpjax import errors
from dpjax.privacy import tradeoff
from dpjax.privacy.notions import ApproxDP


def gaussian(alpha: np.ndarray, *, shift: float) -> np.ndarray:
  """Returns the trade-off of a Gaussian release, exact.

  Phi(Phi^-1(1 - alpha) - mu).

  Args:
    alpha: first errors in [0, 1].
    shift: mu, sensitivity over standard deviation.
  """
  errors.check_non_negative('shift', shift)
  return special.ndtr(special.ndtri(1 - tradeoff.checked(alpha)) - shift)


def gaussian_delta(epsilon: np.ndarray | float, *,
                   shift: float) -> np.ndarray:
  """Returns delta as a function of epsilon of a Gaussian release, exact.

  The same curve as `gaussian`, which accountants round up: Phi(mu/2 - t/mu) -
  e^t Phi(-mu/2 - t/mu) (item DEF-03).

  Args:
    epsilon: t, any shape.
    shift: mu > 0, sensitivity over standard deviation.
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
  alpha = tradeoff.checked(alpha)
  least = math.exp(-epsilon)
  with np.errstate(divide='ignore'):  # At alpha = 0 `middle` is not used.
    middle = least / (4 * alpha)
  return np.where(alpha < least / 2, 1 - math.exp(epsilon) * alpha,
                  np.where(alpha <= 0.5, middle, least * (1 - alpha)))


def delta_of(epsilon: float,
             function: Callable[[np.ndarray], np.ndarray]) -> float:
  """Returns delta = sup over alpha of 1 - f(alpha) - e^epsilon alpha.

  Args:
    epsilon: epsilon at which delta is computed, at least 0.
    function: f, convex, maps arrays of alphas to arrays.
  """
  errors.check_non_negative('epsilon', epsilon)
  low, high, best = 0.0, 1.0, 0.0
  for _ in range(11):  # Each leaves a fiftieth: to the end of float64.
    alpha = np.linspace(low, high, 101)
    gain = 1 - function(alpha) - math.exp(epsilon) * alpha
    # The gain is concave, so its maximum is next to the best grid point.
    place = int(np.argmax(gain))
    best = max(best, float(gain[place]))
    low, high = alpha[max(place - 1, 0)], alpha[min(place + 1, 100)]
  return best


def total_variation(guarantee: ApproxDP) -> float:
  """Returns the largest total variation distance between neighbours.

  Equal to 2 `tradeoff.best_accuracy` - 1.
  """
  return 2 * tradeoff.best_accuracy(guarantee) - 1
