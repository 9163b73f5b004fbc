"""Magnitude of noise: exact quantiles, and the bounds of the literature.

Float64 on the host. Every function takes `size`, the number of independent
coordinates, and a scale: b of Laplace noise, whose variance is 2 b^2, or the
standard deviation of Gaussian noise. Each quantile or bound is exceeded by the
norm of the noise with probability (at most) `failure_prob`, g in formulas.
"""

import math

from scipy import special

from dpjax import errors


def laplace_sup_quantile(scale: float, size: int, *,
                         failure_prob: float) -> float:
  """Returns the exact quantile of the sup norm of Laplace noise.

  -b ln(1 - (1 - g)^(1/k)). The bound b ln(k / g) of Lalanne (2023, Fact 2.3.4)
  and of the lecture notes (chapter 7, Proposition 7.15; item MECH-01) is
  `laplace_sup_bound`.
  """
  return -scale * math.log(_tail(size, failure_prob, scale=scale))


def laplace_sup_bound(scale: float, size: int, *, failure_prob: float) -> float:
  """Returns the bound b ln(k / g) on the sup norm; exact for one number.

  Lalanne (2023, Fact 2.3.4) prints it for the l1 norm, for which it is false:
  at k = 10 and g = 0.05 the l1 norm exceeds it with probability 0.956 (erratum
  T-E10).
  """
  _check(size, failure_prob, scale=scale)
  return scale * math.log(size / failure_prob)


def laplace_l1_quantile(scale: float, size: int, *,
                        failure_prob: float) -> float:
  """Returns the exact quantile of the l1 norm of Laplace noise.

  This norm is a sum of `size` exponential numbers.
  """
  _check(size, failure_prob, scale=scale)
  return scale * float(special.gammainccinv(size, failure_prob))


def gaussian_sup_quantile(stddev: float, size: int, *,
                          failure_prob: float) -> float:
  """Returns the exact quantile of the sup norm of Gaussian noise."""
  return -stddev * float(special.ndtri(
      _tail(size, failure_prob, stddev=stddev) / 2))


def gaussian_sup_bound(stddev: float, size: int, *,
                       failure_prob: float) -> float:
  """Returns the bound sigma sqrt(2 ln(d / g)) on the sup norm.

  For sigma calibrated to the l2 sensitivity. The lecture notes (chapter 7,
  Proposition 7.19) use the l1 sensitivity and lose the root of 2; that bound is
  exceeded with probability 0.194 instead of 0.05 at d = 10 (item MECH-04,
  erratum L-E10).
  """
  _check(size, failure_prob, stddev=stddev)
  return stddev * math.sqrt(2 * math.log(size / failure_prob))


def gaussian_l2_quantile(stddev: float, size: int, *,
                         failure_prob: float) -> float:
  """Returns the exact quantile of the l2 norm of Gaussian noise.

  The squared norm has a chi-square distribution.
  """
  _check(size, failure_prob, stddev=stddev)
  return stddev * math.sqrt(
      2 * float(special.gammainccinv(size / 2, failure_prob)))


def gaussian_l2_bound(stddev: float, size: int, *,
                      failure_prob: float) -> float:
  """Returns sigma sqrt(k + 2 sqrt(k ln(1/g)) + 2 ln(1/g)) for the l2 norm.

  Source: Laurent and Massart (2000); Lalanne (2023, Fact 2.3.7; item MECH-03).
  """
  _check(size, failure_prob, stddev=stddev)
  log_term = math.log(1 / failure_prob)
  return stddev * math.sqrt(
      size + 2 * math.sqrt(size * log_term) + 2 * log_term)


def gaussian_mean_norm(stddev: float, size: int) -> float:
  """Returns the expected l2 norm sigma sqrt(2) Gamma((d + 1)/2) / Gamma(d/2).
  """
  errors.check_at_least('size', size, 1)
  errors.check_positive('stddev', stddev)
  return stddev * math.sqrt(2) * math.exp(
      math.lgamma((size + 1) / 2) - math.lgamma(size / 2))


def _tail(size: int, failure_prob: float, **scale: float) -> float:
  """Returns the failure probability of each of `size` coordinates.

  Independent coordinates with this probability fail in all with `failure_prob`.
  """
  _check(size, failure_prob, **scale)
  return -math.expm1(math.log1p(-failure_prob) / size)


def _check(size: int, failure_prob: float, **scale: float) -> None:
  """Checks the scale, the number of coordinates and the probability."""
  for name, value in scale.items():
    errors.check_positive(name, value)
  errors.check_at_least('size', size, 1)
  errors.check_open_unit('failure_prob', failure_prob)
