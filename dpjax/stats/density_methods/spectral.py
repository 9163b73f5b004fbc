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
from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import ArrayLike
import numpy as np

from dpjax import errors
from dpjax.stats.density_methods import bases
from dpjax.stats.density_methods import mechanism
from dpjax.stats.density_methods import noisy_counts
from dpjax.stats.density_methods.densities import Density
from dpjax.typing import Array, PRNGKey


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
