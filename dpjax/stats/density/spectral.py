"""Coefficients of one noisy histogram: pure privacy at the optimal rate.

The noise of a histogram does not grow with its number of bins, that of N
Fourier coefficients does. Coefficients that are computed from noisy counts of m
bins, and divided by what bins take off them, have noise of m 8 / (n epsilon)^2
each, where Laplace noise on the coefficients has 16 N^2 / (n epsilon)^2: the
error falls by (n epsilon)^(-2 beta / (beta + 1)), which is the lower bound
(Theorem 5 of paper 001), and not by (n epsilon)^(-2 beta / (beta + 3/2)).
`pure_rate.md` has the proof. Item DEN-B2, B3, B7.
"""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density import bases
from dpjax.stats.density import mechanism
from dpjax.stats.density import noisy_counts
from dpjax.stats.density.laws import Density
from dpjax.typing import Array, PRNGKey

TAPERS = ('none', 'pinsker')
# Terms of aliasing that are told apart; what is beyond is of order -2 beta - 2.
_ALIASES = 30


class Parameters(NamedTuple):
  """Numbers of a release.

  Attributes:
    counts: of the noisy counts.
    analysis: shares to weighted coefficients, [m, K].
  """
  counts: noisy_counts.Parameters
  analysis: np.ndarray


@functools.cache
def _draw(law: str | None, known: bool) -> mechanism.Draw:
  def draw(key: PRNGKey, counts: Array, parameters: Parameters) -> Array:
    noisy = noisy_counts.noisy(key, counts, parameters.counts.scale, law)
    share = noisy / noisy_counts.total(noisy, parameters.counts, known)
    analysis = jnp.asarray(parameters.analysis)
    return share.astype(analysis.dtype) @ analysis
  return draw


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpectralHistogram(noisy_counts.CountsMechanism):
  """A linear estimate in one of the bases of `bases`.

  Guarantee: that of the counts; the coefficients are post-processing.

  Attributes:
    basis: 'fourier' (a circle), or 'cosine' (an interval, flat at its ends).
    weights: lambda [K], as a tuple; () for 1 at all frequencies there are.
  """
  basis: str = 'fourier'
  weights: tuple[float, ...] = ()

  def __post_init__(self):
    super().__post_init__()
    errors.check_choice('basis', self.basis, ('fourier', 'cosine'))
    self._basis  # refuses bins and weights that do not fit

  @property
  def _basis(self) -> bases.Basis:
    return bases.basis(self.basis, self.num_bins, len(self.weights) or None)

  @property
  def kind(self) -> str:
    """Of the estimate: the basis."""
    return self.basis

  @property
  def draw(self) -> mechanism.Draw:
    """The law of coefficients [K]."""
    return _draw(self.law, self.knows_total)

  @property
  def parameters(self) -> Parameters:
    """Numbers that the law takes."""
    return Parameters(super().parameters, self._basis.analysis * self._lambda)

  @property
  def _lambda(self) -> np.ndarray:
    return np.array(self.weights or np.ones(self._basis.gains.size))

  def expected(self, density: Density) -> mechanism.Risk:
    """Exact, for a known n: of any density, aliasing and all."""
    found, weights = self._basis, self._lambda
    masses = density.masses(self.num_bins)
    mean = masses @ found.analysis
    spread = masses @ np.abs(found.analysis)**2 - np.abs(mean)**2
    if self.basis == 'fourier':
      exact, times = density.fourier(mean.size), 2
    else:
      exact, times = density.cosine(mean.size), 1
    beyond = density.energy - times * np.sum(np.abs(exact)**2)
    return mechanism.Risk(
        sampling=times * float(np.sum(weights**2 * spread)) / self.num_records,
        privacy=times * self.noise_variance * float(np.sum(
            weights**2 * found.gains)) / self.num_records**2,
        bias=times * float(np.sum(np.abs(weights * mean - exact)**2))
        + max(float(beyond), 0.0))


def pinsker(num_bins: int, smoothness: float) -> np.ndarray:
  """1 - (2 k / m)^beta for k up to (m - 1) / 2: within .3 % of the best."""
  k = np.arange(1, (num_bins - 1) // 2 + 1)
  return 1 - (2 * k / num_bins)**smoothness


def gaussian_kernel(num_bins: int, bandwidth: float) -> np.ndarray:
  """Weights of a Gaussian kernel: a private kernel estimate, from bins."""
  k = np.arange(1, (num_bins - 1) // 2 + 1)
  return np.exp(-2 * (np.pi * k * bandwidth)**2)


class Constants(NamedTuple):
  """What the error is at worst, over densities of Sobolev(L, beta).

  bias L^2 (pi m)^(-2 beta) + noise (m / n + m^2 V / n^2), with V the variance
  of the noise of a count.

  Attributes:
    bias: b; of the worst frequency and all that alias with it.
    noise: mean over the bins of lambda^2 / sinc^2, 2 ln 2 without a taper.
  """
  bias: float
  noise: float


@functools.lru_cache
def constants(smoothness: float, taper: str = 'pinsker', *,
              num_places: int = 64) -> Constants:
  """Of many bins.

  Frequencies that bins do not tell apart, k + l m for one k, err by themselves:
  b is the largest of their norms, by singular values at places k / m of a grid.

  Args:
    smoothness: beta.
    taper: one of `TAPERS`.
    num_places: of the grid, on (0, 1/2].
  """
  errors.check_positive('smoothness', smoothness)
  errors.check_choice('taper', taper, TAPERS)
  place = (np.arange(num_places) + 1) / (2 * num_places)
  weight = (1 - (2 * place)**smoothness if taper == 'pinsker'
            else np.ones_like(place))
  shift = np.arange(-_ALIASES, _ALIASES + 1)
  frequency = place[:, None] + shift
  # Rows: what the estimate is off at k + l m; columns: theta at k + l m.
  operator = -np.eye(shift.size) * np.ones([num_places, 1, 1])
  operator[:, _ALIASES] += weight[:, None] * place[:, None] / frequency
  operator *= np.abs(2 * frequency[:, None, :])**-smoothness
  bias = float(np.max(np.linalg.svd(operator, compute_uv=False)[:, 0]))**2
  middle = (np.arange(2**10) + 0.5) / 2**11
  weight = 1 - (2 * middle)**smoothness if taper == 'pinsker' else 1.0
  return Constants(bias, float(np.mean((weight / np.sinc(middle))**2)))


def worst_risk(num_bins: np.ndarray, *, num_records: float,
               noise_variance: float, smoothness: float, lipschitz: float,
               taper: str = 'pinsker') -> np.ndarray:
  """Error of m bins [...] over Sobolev(L, beta), at worst; see `Constants`.

  Args:
    num_bins: m.
    num_records: n.
    noise_variance: V.
    smoothness: beta.
    lipschitz: L, the norm of the derivative of order beta.
    taper: one of `TAPERS`.
  """
  found = constants(smoothness, taper)
  bins = np.asarray(num_bins, np.float64)
  return (found.bias * lipschitz**2 * (np.pi * bins)**(-2 * smoothness)
          + found.noise * (bins / num_records
                           + bins**2 * noise_variance / num_records**2))


def tuned(num_records: int, *, smoothness: float, lipschitz: float,
          adjacency: Adjacency, epsilon: float | None = None,
          rho: float | None = None,
          taper: str = 'pinsker', num_bins: int | None = None
          ) -> SpectralHistogram:
  """The bins that make `worst_risk` least; by public numbers alone.

  Args:
    num_records: n.
    smoothness: beta of the class.
    lipschitz: L of the class.
    adjacency: which data sets are neighbours.
    epsilon: budget of pure privacy.
    rho: or of zero-concentrated privacy; or neither.
    taper: one of `TAPERS`.
    num_bins: odd; the best when not given.
  """
  errors.check_positive('lipschitz', lipschitz)
  public = dict(num_records=num_records, epsilon=epsilon, rho=rho,
                adjacency=adjacency)
  if num_bins is None:
    variance = SpectralHistogram(num_bins=3, **public).noise_variance
    most = 2 * math.ceil(num_records**(1 / (2 * smoothness + 1))
                         * (1 + lipschitz)) + 9
    bins = np.arange(3, min(most, 2001) + 1, 2)
    num_bins = int(bins[np.argmin(worst_risk(
        bins, num_records=num_records, noise_variance=variance,
        smoothness=smoothness, lipschitz=lipschitz, taper=taper))])
  weights = pinsker(num_bins, smoothness) if taper == 'pinsker' else ()
  return SpectralHistogram(num_bins=num_bins, weights=tuple(weights), **public)
