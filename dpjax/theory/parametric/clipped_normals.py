"""Exact bias and variance of a clipped normal record.

A record X ~ N(theta, s^2 I_d) is projected on the ball of radius T around 0.
Only the norm a of theta matters, and by Stein's identity

  E X g(|X|) = theta E g(N'),   E g(|X|) = E g(N),

where N and N' are the norms of normal vectors of d and d + 2 coordinates whose
mean has norm a. Each is one integral over a noncentral chi distribution.
Source: item MOD-GAUSS, EST-TRUNC; the reduction is our own.
"""

from collections.abc import Callable

import numpy as np
from scipy import stats

from dpjax import errors

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(48)
# Integrate over this many standard deviations around the typical norm; the
# density outside is negligible in float64.
_REACH = 12.0


def moments(distance: np.ndarray | float, clip: np.ndarray | float, *,
            dimension: int, sigma: float) -> tuple[np.ndarray, np.ndarray]:
  """Returns the bias and the variance of a clipped record; arrays broadcast.

  The bias grows with the distance: a projection moves no further than what it
  projects.

  Args:
    distance: a >= 0, from the centre of the ball to the mean.
    clip: clipping radius T > 0.
    dimension: d.
    sigma: s, standard deviation of every coordinate.

  Returns:
    |E pi(X) - theta| and E |pi(X) - E pi(X)|^2, at most d s^2.
  """
  errors.check_at_least('dimension', dimension, 1)
  errors.check_positive('sigma', sigma)
  a, t = np.broadcast_arrays(np.asarray(distance, np.float64) / sigma,
                             np.asarray(clip, np.float64) / sigma)
  if not ((a >= 0) & (t > 0)).all():
    raise ValueError('distances must be at least 0 and clips positive')
  bias = a * _above(a, t, dimension + 2, lambda x, t: 1 - t / x)
  removed = _above(a, t, dimension, lambda x, t: x**2 - t**2)
  variance = dimension + a**2 - removed - (a - bias)**2
  # Without clipping, rounding may leave a value slightly outside [0, d].
  return sigma * bias, sigma**2 * np.clip(variance, 0, dimension)


def excess(clip: float, *, dimension: int, sigma: float
           ) -> tuple[float, float]:
  """Returns mean and mean square of (|X - theta| - T)+; T may be negative."""
  t = np.asarray(clip / sigma)
  mean, square = (float(_above(np.zeros(()), t, dimension,
                               lambda x, t: (x - t)**power))
                  for power in (1, 2))
  return sigma * mean, sigma**2 * square


def _above(distance: np.ndarray, clip: np.ndarray, degrees: int,
           function: Callable[[np.ndarray, np.ndarray], np.ndarray]
           ) -> np.ndarray:
  """Returns E function(N, T) 1{N > T}, by Gauss-Legendre quadrature from T on.
  """
  low = np.maximum(np.maximum(clip, distance - _REACH), 0.0)[..., None]
  # The 1e-9 keeps high above low for very large radii.
  high = np.maximum(np.sqrt(degrees) + distance + _REACH,
                    np.maximum(clip, 0.0) + 1e-9)[..., None]
  x = low + (high - low) * (_NODES + 1) / 2
  # The density of the norm, from the noncentral chi-square one of its square.
  density = 2 * x * stats.ncx2.pdf(x**2, degrees, distance[..., None]**2)
  values = function(x, clip[..., None]) * density
  return np.sum(values * _WEIGHTS, -1) * (high - low)[..., 0] / 2
