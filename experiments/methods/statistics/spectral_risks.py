"""Risks and widths of spectral histograms at their limits, and other kernels.

The mechanism is `spectral.SpectralHistogram`; its constants are those of
docs/theory/pure_rate.md, which names earlier work (items DEN-B2, B3 and B7).
"""

import functools
import math
from typing import NamedTuple

import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods.spectral import SpectralHistogram

TAPERS = ('none', 'pinsker')
# Number of aliases that are included; the rest is of order -2 beta - 2.
_ALIASES = 30


def pinsker(num_bins: int, smoothness: float) -> np.ndarray:
  """Returns 1 - (2 k / m)^beta for k <= (m - 1) / 2: within .3 % of the best.
  """
  k = np.arange(1, (num_bins - 1) // 2 + 1)
  return 1 - (2 * k / num_bins)**smoothness


def gaussian_kernel(num_bins: int, bandwidth: float) -> np.ndarray:
  """Returns weights of a Gaussian kernel: a private kernel estimate, from bins.
  """
  k = np.arange(1, (num_bins - 1) // 2 + 1)
  return np.exp(-2 * (np.pi * k * bandwidth)**2)


class Constants(NamedTuple):
  """Constants of the largest error over densities of Sobolev(L, beta).

  The error is bias L^2 (pi m)^(-2 beta) + noise (m / n + m^2 V / n^2), with V
  the variance of the noise of a count.

  Attributes:
    bias: b, of the worst frequency and all that alias with it.
    noise: mean over the bins of lambda^2 / sinc^2, 2 ln 2 without a taper.
  """
  bias: float
  noise: float


@functools.lru_cache
def constants(smoothness: float, taper: str = 'pinsker', *,
              num_places: int = 64) -> Constants:
  """Returns `Constants` in the limit of many bins.

  Frequencies that coincide on the bins, k + l m for one k, contribute
  separately from all others: b is the largest of their operator norms, computed
  by singular values at places k / m of a grid.

  Args:
    smoothness: beta, the order of the bounded derivative.
    taper: one of `TAPERS`.
    num_places: number of places k / m of the grid, on (0, 1/2].
  """
  errors.check_positive('smoothness', smoothness)
  errors.check_choice('taper', taper, TAPERS)
  place = (np.arange(num_places) + 1) / (2 * num_places)
  weight = (1 - (2 * place)**smoothness if taper == 'pinsker'
            else np.ones_like(place))
  # Bins see theta at k + l m as one coefficient, damped by their sinc.
  shift = np.arange(-_ALIASES, _ALIASES + 1)
  frequency = place[:, None] + shift
  # Rows: error of the estimate at k + l m; columns: theta at k + l m.
  operator = -np.eye(shift.size) * np.ones([num_places, 1, 1])
  operator[:, _ALIASES] += weight[:, None] * place[:, None] / frequency
  operator *= np.abs(2 * frequency[:, None, :])**-smoothness
  bias = float(np.max(np.linalg.svd(operator, compute_uv=False)[:, 0]))**2
  # The mean over frequencies k / m in (0, 1/2), by the midpoint rule.
  middle = (np.arange(2**10) + 0.5) / 2**11
  weight = (1 - (2 * middle)**smoothness if taper == 'pinsker'
            else np.ones_like(middle))
  return Constants(bias, float(np.mean((weight / np.sinc(middle))**2)))


def worst_risk(num_bins: np.ndarray, *, num_records: float,
               noise_variance: float, smoothness: float, lipschitz: float,
               taper: str = 'pinsker') -> np.ndarray:
  """Returns the largest risk of m bins [...] over Sobolev(L, beta).

  See `Constants`.

  Args:
    num_bins: m, the number of bins.
    num_records: n, the number of records.
    noise_variance: V, the noise variance of a count.
    smoothness: beta, the order of the bounded derivative.
    lipschitz: L, the norm of the derivative of order beta.
    taper: one of `TAPERS`.
  """
  limits = constants(smoothness, taper)
  bins = np.asarray(num_bins, np.float64)
  return (limits.bias * lipschitz**2 * (np.pi * bins)**(-2 * smoothness)
          + limits.noise * (bins / num_records
                            + bins**2 * noise_variance / num_records**2))


def tuned(num_records: int, *, smoothness: float, lipschitz: float,
          adjacency: Adjacency, epsilon: float | None = None,
          rho: float | None = None,
          taper: str = 'pinsker', num_bins: int | None = None
          ) -> SpectralHistogram:
  """Returns the estimator with the bins of least `worst_risk`.

  The choice depends on public numbers only.

  Args:
    num_records: n, the number of records.
    smoothness: beta of the class.
    lipschitz: L of the class.
    adjacency: which data sets are neighbours.
    epsilon: budget of pure DP; give this or rho, or neither for no privacy.
    rho: budget of zero-concentrated DP.
    taper: one of `TAPERS`.
    num_bins: odd; the best by default.
  """
  errors.check_positive('lipschitz', lipschitz)
  histogram = functools.partial(
      SpectralHistogram, num_records=num_records, epsilon=epsilon, rho=rho,
      adjacency=adjacency)
  if num_bins is None:
    # The noise of a count does not depend on the number of bins.
    variance = histogram(num_bins=3).noise_variance
    most = 2 * math.ceil(num_records**(1 / (2 * smoothness + 1))
                         * (1 + lipschitz)) + 9
    bins = np.arange(3, min(most, 2001) + 1, 2)
    num_bins = int(bins[np.argmin(worst_risk(
        bins, num_records=num_records, noise_variance=variance,
        smoothness=smoothness, lipschitz=lipschitz, taper=taper))])
  weights = pinsker(num_bins, smoothness) if taper == 'pinsker' else ()
  return histogram(num_bins=num_bins, weights=tuple(weights))
