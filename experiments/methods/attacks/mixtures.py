"""Exact privacy curves between two known Gaussian mixtures on the line.

If a release's distribution is known on both data sets, its epsilon is an
integral and needs no attack. Here both distributions are finite mixtures of
Gaussians, such as that of a noisy sum over a random batch. The curve of one
pair of data sets bounds the mechanism's epsilon from below.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import optimize
from scipy import special

from dpjax import errors

_POINTS_PER_STDDEV = 100
# The grid extends this many standard deviations past the outermost means.
_TAIL_STDDEVS = 9.0
# Components of smaller weight do not extend the integration grid.
_NEGLIGIBLE = 1e-20
# Points evaluated at once, to bound memory.
_CHUNK = 1024


class GaussianMixture(NamedTuple):
  """The mixture sum_k weights[k] N(means[k], stddevs[k]^2), host float64.

  Attributes:
    weights: [k], positive, with sum 1.
    means: [k], means of the components.
    stddevs: [k], positive.
  """
  weights: np.ndarray
  means: np.ndarray
  stddevs: np.ndarray


def mixture(weights: ArrayLike, means: ArrayLike,
            stddevs: ArrayLike) -> GaussianMixture:
  """Builds a mixture from arguments that broadcast, with weights normalised.

  Components of weight zero are dropped.
  """
  arrays = np.broadcast_arrays(*(np.atleast_1d(np.asarray(a, np.float64))
                                 for a in (weights, means, stddevs)))
  kept = arrays[0] > 0
  weights, means, stddevs = (array[kept] for array in arrays)
  if not (weights.size and np.isfinite(means).all() and (stddevs > 0).all()):
    raise ValueError('a mixture must have positive weights and stddevs and '
                     f'finite means, got {arrays}')
  return GaussianMixture(weights / weights.sum(), means, stddevs)


def log_density(distribution: GaussianMixture,
                points: np.ndarray) -> np.ndarray:
  """Returns the log-density at [m] points, accurate far out in the tails."""
  weights, means, stddevs = distribution
  constants = np.log(weights / (stddevs * np.sqrt(2 * np.pi)))
  parts = []
  # In place: a temporary array of [points, k] costs more than the arithmetic.
  for part in np.array_split(points, 1 + points.size // _CHUNK):
    exponents = part[:, None] - means
    exponents /= stddevs
    np.square(exponents, out=exponents)
    exponents *= -0.5
    exponents += constants
    largest = exponents.max(1)  # Factored out, so that no sum underflows to 0.
    exponents -= largest[:, None]
    parts.append(largest + np.log(np.exp(exponents, out=exponents).sum(1)))
  return np.concatenate(parts)


def log_tail(distribution: GaussianMixture, threshold: float) -> float:
  """Returns ln P(X > threshold), accurate where the probability underflows."""
  weights, means, stddevs = distribution
  tails = special.log_ndtr((means - threshold) / stddevs)
  return float(special.logsumexp(np.log(weights) + tails))


def delta(first: GaussianMixture, second: GaussianMixture, *,
          epsilon: float) -> float:
  """Returns the hockey-stick divergence E_first[(1 - e^epsilon Q/P)_+].

  P is the density of `first`, Q that of `second`.
  """
  errors.check_non_negative('epsilon', epsilon)
  return _excess(*_losses(first, second), epsilon)


def epsilon(first: GaussianMixture, second: GaussianMixture, *,
            delta: float) -> float:
  """Returns the least epsilon with P(S) <= e^epsilon Q(S) + delta, both ways.

  Args:
    first: distribution of the release on one data set.
    second: distribution of the release on a neighbour.
    delta: strictly between 0 and 1.
  """
  errors.check_open_unit('delta', delta)
  return max(_one_sided(first, second, delta),
             _one_sided(second, first, delta))


def _one_sided(first: GaussianMixture, second: GaussianMixture,
               target: float) -> float:
  """Returns the least epsilon >= 0 with divergence `target`, in one order."""
  losses, masses = _losses(first, second)
  surplus = lambda value: _excess(losses, masses, value) - target
  if surplus(0.0) <= 0:
    return 0.0
  # Above the largest loss the divergence is 0, below the target.
  return float(optimize.brentq(surplus, 0.0, losses.max() + 1, xtol=1e-10))


def _losses(first: GaussianMixture,
            second: GaussianMixture) -> tuple[np.ndarray, np.ndarray]:
  """Returns privacy losses ln(P/Q) on a grid, and their masses under P.

  At this spacing the trapezoid rule is exact to rounding for Gaussians. The
  integrand's kink adds at most the squared spacing of losses over 8, relative
  to the density there: a relative error of 1e-5 to 1e-4 for a usual epsilon.
  """
  # P alone decides the range: where it is negligible, so is the integrand.
  seen = first.weights > _NEGLIGIBLE
  means, stddevs = first.means[seen], first.stddevs[seen]
  spacing = stddevs.min() / _POINTS_PER_STDDEV
  lower = (means - _TAIL_STDDEVS * stddevs).min()
  upper = (means + _TAIL_STDDEVS * stddevs).max()
  points = lower + spacing * np.arange(int((upper - lower) / spacing) + 2)
  log_first = log_density(first, points)
  return (log_first - log_density(second, points),
          np.exp(log_first) * spacing)


def _excess(losses: np.ndarray, masses: np.ndarray, value: float) -> float:
  """Returns E[(1 - e^(value - loss))_+], the divergence at epsilon `value`."""
  gains = -np.expm1(np.minimum(0.0, value - losses))
  return float(masses @ gains)
