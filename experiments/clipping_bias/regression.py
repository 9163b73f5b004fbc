"""Linear regression with skewed errors, where clipping moves the optimum.

Catalogue item BIAS-01; Barczewski (2025, section 5.2.4). x is uniform on [0,
1], y = a x + b + e with P(e = 9) = 0.1 and P(e = -1) = 0.9, and the loss is
(theta_1 x + theta_2 - y)^2. (The text prints the model as theta_1 x theta_2 and
the values of e as 10.) With u = (theta_1 - a, theta_2 - b) and the residual r =
u_1 x + u_2 - e, the gradient of a record is 2 r (x, 1), so that nothing here
depends on a and b.

The clipped gradient is the derivative of a Huber loss of r, with corners that
depend on x; the normalised gradient is the derivative of |r| / sqrt(1 + x^2).
Both means are gradients of convex functions, so descent comes to rest at their
zeros only.

All integrals are exact, because the integrand has an antiderivative between the
points where clipping sets in. They are computed in float64 on the host.
"""

from collections.abc import Callable
import math

import numpy as np
from scipy import optimize

from dpjax import errors

ERRORS = ((9.0, 0.1), (-1.0, 0.9))
"""(value, probability) of e; the mean is zero."""

# Integrals over [0, 1] of (x, 1) / sqrt(1 + x^2).
_UNIT = np.array([math.sqrt(2) - 1, math.asinh(1)])
# The Hessian of the expected loss: twice the moments of (x, 1).
_HESSIAN = 2 * np.array([[1 / 3, 1 / 2], [1 / 2, 1]])
# Derivative of the zero in the clip norm, while the zero is linear: it is (0,
# -1) + clip_norm * _SLOPE.
_SLOPE = np.linalg.solve(_HESSIAN, _UNIT) / 9

LARGEST_LINEAR = 20 / (1 + 2 * float(_SLOPE[1]))
"""17.93: above, some gradients with e = 9 are shorter than the clip norm."""

UNBIASED_FROM = 18 * math.sqrt(2)
"""25.46, the longest gradient at the optimum: from here nothing is clipped."""


def mean_gradient(offset: np.ndarray) -> np.ndarray:
  """Returns the mean gradient [2] at (a, b) + offset; 0 at offset 0 only."""
  return _HESSIAN @ np.asarray(offset, np.float64)


def mean_clipped_gradient(offset: np.ndarray, *,
                          clip_norm: float) -> np.ndarray:
  """Returns the mean [2] of g min(1, clip_norm / ||g||) at (a, b) + offset."""
  errors.check_positive('clip_norm', clip_norm)

  def corners(slope, constant):
    # ||g|| = clip_norm, squared. Real parts of complex roots are harmless: a
    # cut more changes no integral.
    quartic = 4 * np.array([slope**2, 2 * slope * constant,
                            slope**2 + constant**2, 2 * slope * constant,
                            constant**2])
    return np.roots(quartic - [0, 0, 0, 0, clip_norm**2]).real

  def integral(slope, constant, low, high):
    middle = (low + high) / 2
    residual = slope * middle + constant
    if 2 * abs(residual) * math.hypot(1, middle) <= clip_norm:
      return _linear_integral(slope, constant, low, high)
    return clip_norm * math.copysign(1, residual) * _unit_integral(low, high)

  return _mean(offset, corners, integral)


def mean_normalised_gradient(offset: np.ndarray) -> np.ndarray:
  """Returns the mean [2] of g / ||g||, as Algorithm 7 is printed (E21).

  The listing of Barczewski (2025, Algorithm 7) prints clip_norm g / ||g||.
  """

  def corners(slope, constant):
    return [-constant / slope] if slope else []

  def integral(slope, constant, low, high):
    residual = slope * (low + high) / 2 + constant
    return np.sign(residual) * _unit_integral(low, high)

  return _mean(offset, corners, integral)


def clipped_zero(*, clip_norm: float) -> np.ndarray:
  """Returns the bias [2]: where the mean clipped gradient is 0, minus (a, b).

  BIAS-01. While every gradient with e = 9 is clipped and none with e = -1 is,

    H (u_1, u_2 + 1) = (clip_norm / 9) (sqrt(2) - 1, asinh 1),

  for the Hessian H of the loss. For larger clip norms it is found numerically;
  from 18 sqrt(2) on it is (0, 0).
  The text prints (0.01765, 0.94221) for clip_norm = 1, with both signs wrong
  (erratum E21).
  """
  errors.check_positive('clip_norm', clip_norm)
  if clip_norm >= UNBIASED_FROM:
    return np.zeros(2)
  linear = np.array([0.0, -1.0]) + clip_norm * _SLOPE
  if clip_norm <= LARGEST_LINEAR:
    return linear
  result = optimize.root(
      lambda u: mean_clipped_gradient(u, clip_norm=clip_norm), linear,
      tol=1e-14)
  if not np.abs(result.fun).max() < 1e-10:
    raise ArithmeticError(f'no zero found for clip_norm {clip_norm}: '
                          f'{result.message}')
  return result.x


def excess_risk(offset: np.ndarray) -> float:
  """Returns E (u_1 x + u_2)^2: the expected loss above its minimum 9."""
  offset = np.asarray(offset, np.float64)
  return float(offset @ _HESSIAN @ offset) / 2


def _mean(offset: np.ndarray, corners: Callable,
          integral: Callable) -> np.ndarray:
  """Returns the mean over e of integrals over [0, 1], split at the corners.

  Args:
    offset: u, parameters minus (a, b).
    corners: (slope, constant) of the residual -> where the form changes.
    integral: (slope, constant, low, high) -> [2], of one form.
  """
  slope, level = np.asarray(offset, np.float64)
  total = np.zeros(2)
  for error, probability in ERRORS:
    inner = [x for x in corners(slope, level - error) if 0 < x < 1]
    cuts = [0.0, *sorted(inner), 1.0]
    for low, high in zip(cuts, cuts[1:]):
      total += probability * integral(slope, level - error, low, high)
  return total


def _unit_integral(low: float, high: float) -> np.ndarray:
  """Returns the integral [2] of (x, 1) / sqrt(1 + x^2) from low to high."""
  return np.array([math.hypot(1, high) - math.hypot(1, low),
                   math.asinh(high) - math.asinh(low)])


def _linear_integral(slope: float, constant: float, low: float,
                     high: float) -> np.ndarray:
  """Returns the integral [2] of 2 (slope x + constant) (x, 1)."""

  def primitive(x):
    return np.array([2 * slope * x**3 / 3 + constant * x**2,
                     slope * x**2 + 2 * constant * x])

  return primitive(high) - primitive(low)
