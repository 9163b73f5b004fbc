"""Proved error bounds of quantiles from a private histogram, on the host.

For N = 1 / h equal bins on [0, 1] with Laplace noise of scale 2 / epsilon, n
public, REPLACE_ONE, and a density that is at least pi_min and has Lipschitz
constant L. With `printed` the bound is the printed statement, valid but loose;
otherwise the constants come from its proof. Errors are maxima over all quantile
levels between F(gamma) and F(1 - gamma). Source: Lalanne (2023, Lemmas 6.2.8
and 6.2.9, Theorem 6.2.10) (item QF-16, QF-17, QF-18, QB-13, errata QE-10,
QE-11).
"""

from collections.abc import Callable
import math

import numpy as np
from scipy import optimize

from dpjax import errors


def density_tail(gamma: float, *, num_examples: int, epsilon: float,
                 num_bins: int, lipschitz: float,
                 printed: bool = False) -> float:
  """Bounds P(sup |density - its noisy histogram| > gamma) from above.

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
  """Returns the error of quantiles if densities are within `density_error`.

  Lemma 6.2.9: alpha / pi_min, printed with a factor of 2.
  """
  errors.check_positive('density_floor', density_floor)
  return density_error * (2 if printed else 1) / density_floor


def theorem_tail(gamma: float, *, num_examples: int, epsilon: float,
                 num_bins: int, lipschitz: float, density_floor: float,
                 printed: bool = False) -> float:
  """Bounds P(the error of quantiles exceeds gamma) from above (Theorem 6.2.10).

  It combines both lemmas and needs h < pi_min / (4 L).

  Raises:
    ValueError: if the number of bins is too small for the theorem.
  """
  errors.check_positive('density_floor', density_floor)
  if 4 * lipschitz >= num_bins * density_floor:
    raise ValueError('num_bins must exceed 4 lipschitz / density_floor, got '
                     f'{num_bins}')
  return density_tail(gamma * density_floor / (2 if printed else 1),
                      num_examples=num_examples, epsilon=epsilon,
                      num_bins=num_bins, lipschitz=lipschitz, printed=printed)


def smallest(tail: Callable[[float], float], level: float) -> float:
  """Returns the least gamma with tail(gamma) <= level, for a falling tail."""
  errors.check_open_unit('level', level)
  high = 1.0
  while tail(high) > level:
    high *= 2
  return float(optimize.brentq(
      # The tail may jump, so bisect on the sign only.
      lambda gamma: 0.5 if tail(gamma) > level else -0.5, 0.0, high,
      xtol=1e-9))


def noise_error(level: float, *, num_bins: int) -> float:
  """Bounds the largest partial sum of N standard Laplace draws.

  The bound fails with probability at most `level`, by Levy's inequality and the
  moment generating function: P(max > T) <= 4 min_l exp(-l T) (1 - l^2)^-N.
  """
  errors.check_open_unit('level', level)
  errors.check_at_least('num_bins', num_bins, 1)

  def log_excess(size: float) -> float:
    # The l that minimises the bound, in closed form.
    best = size / (num_bins + math.hypot(num_bins, size))
    return (math.log(4 / level) - best * size
            - num_bins * math.log1p(-best**2))
  high = 2 * (math.log(4 / level)
              + math.sqrt(num_bins * math.log(4 / level)))
  return float(optimize.brentq(log_excess, 0.0, high))


def direct_error(level: float, *, num_examples: int, epsilon: float,
                 num_bins: int, lipschitz: float,
                 density_floor: float) -> float:
  """Returns an error of quantiles exceeded with probability at most `level`.

  It bounds the distribution function directly: cumulated noise, sampling by the
  inequality of Dvoretzky, Kiefer and Wolfowitz, and a bias of at most L h^2 / 8
  between edges. `level` is divided between the first two for the least sum
  (item QB-13).
  """
  errors.check_open_unit('level', level)
  errors.check_positive('density_floor', density_floor)
  bias = _checked(lipschitz, num_bins, epsilon) / (8 * num_bins**2)

  def error(fraction: float) -> float:
    # A union bound: `fraction` of the failure probability is for the noise.
    noise = noise_error(fraction * level, num_bins=num_bins) * 2 / (
        num_examples * epsilon)
    sampling = math.sqrt(math.log(2 / ((1 - fraction) * level))
                         / (2 * num_examples))
    return (noise + sampling + bias) / density_floor
  return float(optimize.minimize_scalar(
      error, bounds=(1e-4, 1 - 1e-4), method='bounded').fun)


def best_bins(error: Callable[[int], float], *, first: int = 1,
              most: int = 4096) -> tuple[int, float]:
  """Returns the number of bins of least error, and that error.

  `error` must first fall and then rise with the number of bins.
  """
  bins, least = first, error(first)
  for candidate in np.unique(np.geomspace(first + 1, most, 60).astype(int)):
    value = error(int(candidate))
    if value < least:
      bins, least = int(candidate), value
  return bins, least


def _checked(lipschitz: float, num_bins: int, epsilon: float) -> float:
  """Checks the parameters and returns `lipschitz`."""
  errors.check_at_least('num_bins', num_bins, 1)
  errors.check_positive('epsilon', epsilon)
  return errors.check_non_negative('lipschitz', lipschitz)
