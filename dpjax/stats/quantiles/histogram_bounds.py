"""What is proved of quantiles of a private histogram, on the host.

For N = 1 / h equal bins on [0, 1] with Laplace noise of scale 2 / epsilon, n
public, REPLACE_ONE, and a density with Lipschitz constant L that is at least
pi_min. `printed` is the statement of the thesis, valid and loose; else its
proof gives the constants used. Errors are of quantiles at all orders between
F(gamma) and F(1 - gamma). Source: thesis 000, Lemmas 6.2.8 and 6.2.9, Theorem
6.2.10 (item QF-16, QF-17, QF-18, QB-13, errata QE-10, QE-11).
"""

from collections.abc import Callable
import math

import numpy as np
from scipy import optimize

from dpjax import errors


def density_tail(gamma: float, *, num_examples: int, epsilon: float,
                 num_bins: int, lipschitz: float,
                 printed: bool = False) -> float:
  """P(sup |density - its histogram| > gamma) is at most this.

  Lemma 6.2.8, for gamma > L h. Hoeffding's exponent is twice the printed one.
  """
  slack = gamma - _checked(lipschitz, num_bins, epsilon) / num_bins
  if slack <= 0:
    return 1.0
  sampled = num_examples * (slack / num_bins)**2 / (4 if printed else 2)
  noised = gamma * num_examples * epsilon / (4 * num_bins)
  return min(1.0, num_bins * (math.exp(-noised) + 2 * math.exp(-sampled)))


def inversion_error(density_error: float, *, density_floor: float,
                    printed: bool = False) -> float:
  """How far quantiles are off if densities are within `density_error`.

  Lemma 6.2.9: alpha / pi_min, printed with a factor of 2.
  """
  errors.check_positive('density_floor', density_floor)
  return density_error * (2 if printed else 1) / density_floor


def theorem_tail(gamma: float, *, num_examples: int, epsilon: float,
                 num_bins: int, lipschitz: float, density_floor: float,
                 printed: bool = False) -> float:
  """P(the error of quantiles exceeds gamma) is at most this: Theorem 6.2.10.

  By both lemmas, for h < pi_min / (4 L).

  Raises:
    ValueError: for too few bins.
  """
  errors.check_positive('density_floor', density_floor)
  if 4 * lipschitz >= num_bins * density_floor:
    raise ValueError('num_bins must exceed 4 lipschitz / density_floor, got '
                     f'{num_bins}')
  return density_tail(gamma * density_floor / (2 if printed else 1),
                      num_examples=num_examples, epsilon=epsilon,
                      num_bins=num_bins, lipschitz=lipschitz, printed=printed)


def smallest(tail: Callable[[float], float], level: float) -> float:
  """The smallest gamma with tail(gamma) <= level, of a falling tail."""
  errors.check_open_unit('level', level)
  high = 1.0
  while tail(high) > level:
    high *= 2
  return float(optimize.brentq(
      lambda gamma: 0.5 if tail(gamma) > level else -0.5, 0.0, high,
      xtol=1e-9))


def noise_error(level: float, *, num_bins: int) -> float:
  """What the largest partial sum of N standard Laplace draws stays below.

  In all but `level`, by Levy's inequality and the moment generating function:
  P(max > T) <= 4 min_l exp(-l T) (1 - l^2)^-N.
  """
  errors.check_open_unit('level', level)
  errors.check_at_least('num_bins', num_bins, 1)

  def log_excess(size: float) -> float:
    best = size / (num_bins + math.hypot(num_bins, size))
    return (math.log(4 / level) - best * size
            - num_bins * math.log1p(-best**2))
  high = 2 * (math.log(4 / level)
              + math.sqrt(num_bins * math.log(4 / level)))
  return float(optimize.brentq(log_excess, 0.0, high))


def direct_error(level: float, *, num_examples: int, epsilon: float,
                 num_bins: int, lipschitz: float,
                 density_floor: float) -> float:
  """What errors of quantiles stay below, in all but `level` of releases.

  The distribution function by itself: noise cumulated, sampling by the
  inequality of Dvoretzky, Kiefer and Wolfowitz, and at most L h^2 / 8 between
  edges; `level` is divided between the first two for the best (item QB-13).
  """
  errors.check_open_unit('level', level)
  errors.check_positive('density_floor', density_floor)
  bias = _checked(lipschitz, num_bins, epsilon) / (8 * num_bins**2)

  def error(share: float) -> float:
    noise = noise_error(share * level, num_bins=num_bins) * 2 / (
        num_examples * epsilon)
    sampling = math.sqrt(math.log(2 / ((1 - share) * level))
                         / (2 * num_examples))
    return (noise + sampling + bias) / density_floor
  return float(optimize.minimize_scalar(
      error, bounds=(1e-4, 1 - 1e-4), method='bounded').fun)


def best_bins(error: Callable[[int], float], *, first: int = 1,
              most: int = 4096) -> tuple[int, float]:
  """The number of bins of least error, and that: of what falls, then rises."""
  bins, least = first, error(first)
  for more in np.unique(np.geomspace(first + 1, most, 60).astype(int)):
    found = error(int(more))
    if found < least:
      bins, least = int(more), found
  return bins, least


def _checked(lipschitz: float, num_bins: int, epsilon: float) -> float:
  errors.check_at_least('num_bins', num_bins, 1)
  errors.check_positive('epsilon', epsilon)
  return errors.check_non_negative('lipschitz', lipschitz)
