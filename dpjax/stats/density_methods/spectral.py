"""Coefficients of one noisy histogram: pure privacy at the optimal rate.

The noise of a histogram does not grow with its number of bins; that of N
Fourier coefficients does. Coefficients computed from noisy counts of m bins,
and divided by the damping of the bins, have noise of variance 8 m / (n
epsilon)^2 each, while Laplace noise on the coefficients has 16 N^2 / (n
epsilon)^2. So the error falls with (n epsilon)^(-2 beta / (beta + 1)), the rate
of the lower bound (Lalanne, Garivier and Gribonval 2023, Theorem 5), and not
with (n epsilon)^(-2 beta / (beta + 3/2)). The proof and
earlier work are in docs/theory/pure_rate.md (items DEN-B2, DEN-B3, DEN-B7).
"""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import ArrayLike
import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import bases
from dpjax.stats.density_methods import mechanism
from dpjax.stats.density_methods import noisy_counts
from dpjax.stats.density_methods.densities import Density
from dpjax.typing import Array, PRNGKey

TAPERS = ('none', 'pinsker')
# Number of aliases that are included; the rest is of order -2 beta - 2.
_ALIASES = 30


class SpectralParameters(NamedTuple):
  """Public numbers that the sampler takes.

  Attributes:
    counts: see `noisy_counts.CountParameters`.
    analysis: [m, K] matrix from shares of bins to weighted coefficients.
  """
  counts: noisy_counts.CountParameters
  analysis: ArrayLike


@functools.cache
def _draw(distribution: str | None, known: bool) -> mechanism.Draw:
  """Returns the sampler of `SpectralHistogram`."""
  def draw(key: PRNGKey, counts: Array, parameters: SpectralParameters
           ) -> Array:
    public, analysis = parameters.counts, jnp.asarray(parameters.analysis)
    noisy = noisy_counts.noisy(key, counts, public.scale, distribution)
    shares = noisy / noisy_counts.total(noisy, public.num_records, known)
    return shares.astype(analysis.dtype) @ analysis
  return draw


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpectralHistogram(noisy_counts.CountsMechanism):
  """A linear estimate in one of the bases of `bases`.

  Guarantee: that of the counts; the coefficients are post-processing.

  Attributes:
    basis: 'fourier' (a circle), or 'cosine' (an interval, flat at its ends).
    weights: lambda [K], as a tuple; () for 1 at all possible frequencies.
  """
  basis: str = 'fourier'
  weights: tuple[float, ...] = ()

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_choice('basis', self.basis, ('fourier', 'cosine'))
    self._basis  # Raises if bins and weights do not fit.

  @property
  def _basis(self) -> bases.Basis:
    """The analysis matrix and its gains."""
    return bases.basis(self.basis, self.num_bins, len(self.weights) or None)

  @property
  def kind(self) -> str:  # type: ignore[override]  # The base has a constant.
    """Form of the estimate: the basis."""
    return self.basis

  @property
  def draw(self) -> mechanism.Draw:
    """Jittable sampler of coefficients [K]."""
    return _draw(self.noise_distribution, self.knows_total)

  @property
  def parameters(self) -> SpectralParameters:
    """Float64 NumPy arrays that `draw` takes as parameters."""
    return SpectralParameters(self.count_parameters,
                              self._basis.analysis * self._lambda)

  @property
  def _lambda(self) -> np.ndarray:
    """Weights [K] of the coefficients."""
    return np.array(self.weights or np.ones(self._basis.gains.size))

  def expected(self, density: Density) -> mechanism.Risk:
    """Returns the exact risk for a public n and any density, with aliasing."""
    basis, weights = self._basis, self._lambda
    masses = density.masses(self.num_bins)
    # Expected coefficients, with aliases of frequencies above m / 2.
    mean = masses @ basis.analysis
    spread = masses @ np.abs(basis.analysis)**2 - np.abs(mean)**2
    if self.basis == 'fourier':
      exact, times = density.fourier(mean.size), 2
    else:
      exact, times = density.cosine(mean.size), 1
    tail_energy = density.energy - times * np.sum(np.abs(exact)**2)
    return mechanism.Risk(
        sampling=times * float(np.sum(weights**2 * spread)) / self.num_records,
        privacy=times * self.noise_variance * float(np.sum(
            weights**2 * basis.gains)) / self.num_records**2,
        bias=times * float(np.sum(np.abs(weights * mean - exact)**2))
        + max(float(tail_energy), 0.0))


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
    smoothness: beta.
    taper: one of `TAPERS`.
    num_places: number of points of the grid, on (0, 1/2].
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
    num_bins: m.
    num_records: n.
    noise_variance: V.
    smoothness: beta.
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
    num_records: n.
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
