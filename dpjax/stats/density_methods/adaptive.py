"""Estimators that adapt to unknown smoothness, from one noisy histogram.

A histogram as fine as any density of the class needs, its coefficients in a
basis (`bases`), and shrinkage of each by its own size (`shrinkage`). If the
density is smoother than the bins, the fine coefficients are shrunk away (items
DEN-B6 (A1), DEN-B7). The error of the spline basis is half or less
if a density is smooth but not flat at its ends.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import ArrayLike
import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import bases
from dpjax.stats.density_methods import mechanism
from dpjax.stats.density_methods import noisy_counts
from dpjax.stats.density_methods import pooling
from dpjax.stats.density_methods import shrinkage
from dpjax.typing import Array, PRNGKey


class AdaptiveParameters(NamedTuple):
  """Public numbers that the sampler takes.

  Attributes:
    counts: see `noisy_counts.CountParameters`.
    analysis: [m, K] matrix from shares of bins to coefficients.
    gains: [K], noise gains of the analysis, see `bases.Basis`.
    synthesis: [K, m] matrix from coefficients to heights; empty if the estimate
      is coefficients.
    penalty: penalty of the shrinkage.
  """
  counts: noisy_counts.CountParameters
  analysis: ArrayLike
  gains: ArrayLike
  synthesis: ArrayLike
  penalty: ArrayLike


@functools.cache
def _draw(distribution: str | None, known: bool) -> mechanism.Draw:
  """Returns the sampler (key, counts, parameters) -> coefficients."""
  def draw(key: PRNGKey, counts: Array, parameters: AdaptiveParameters
           ) -> Array:
    public = parameters.counts
    noisy = noisy_counts.noisy(key, counts, public.scale, distribution)
    total = noisy_counts.total(noisy, public.num_records, known)
    analysis = jnp.asarray(parameters.analysis)
    coefficients = (noisy / total).astype(analysis.dtype) @ analysis
    # Noise of the counts plus sampling, about 1 / n for each coefficient.
    variances = (jnp.asarray(parameters.gains) * public.variance
                 / jnp.square(total) + 1 / total)
    coefficients = pooling.shrunk(coefficients, variances, parameters.penalty)
    synthesis = jnp.asarray(parameters.synthesis)
    return 1 + coefficients @ synthesis if synthesis.size else coefficients
  return draw


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaptiveHistogram(noisy_counts.CountsMechanism):
  """One noisy histogram, shrunk in a basis; the default estimator.

  Guarantee: that of the counts, epsilon-DP or rho-zCDP under `adjacency`; the
  rest is post-processing. Build it with `adaptive`, which chooses the bins.

  Attributes:
    basis: one of `bases.BASES`.
    penalty: c of `shrinkage`.
  """
  basis: str = 'spline'
  penalty: float = shrinkage.PENALTY

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_positive('penalty', self.penalty)
    bases.basis(self.basis, self.num_bins)

  @property
  def kind(self) -> str:  # type: ignore[override]  # The base has a constant.
    """Form of the estimate: the basis."""
    return self.basis

  @property
  def draw(self) -> mechanism.Draw:
    """Jittable sampler of coefficients [K], or heights [m] of a spline."""
    return _draw(self.noise_distribution, self.knows_total)

  @property
  def parameters(self) -> AdaptiveParameters:
    """Float64 NumPy arrays that `draw` takes as parameters."""
    basis = bases.basis(self.basis, self.num_bins)
    # The spline basis is orthogonal, so its transpose maps back to heights.
    return AdaptiveParameters(
        self.count_parameters, *basis, synthesis=basis.analysis.T
        if self.basis == 'spline' else np.zeros(0),
        penalty=np.float64(self.penalty))


def adaptive(num_records: int, *, adjacency: Adjacency,
             epsilon: float | None = None, rho: float | None = None,
             boundary: str = 'interval',
             penalty: float = shrinkage.PENALTY) -> AdaptiveHistogram:
  """Returns the default estimator, with bins chosen from public numbers.

  Args:
    num_records: n, or a public guess of it under ADD_OR_REMOVE_ONE.
    adjacency: which data sets are neighbours.
    epsilon: budget of pure DP; give this or rho, or neither for no privacy.
    rho: budget of zero-concentrated DP.
    boundary: 'interval', or 'circle' if 0 and 1 are the same point.
    penalty: c of `shrinkage`.
  """
  errors.check_choice('boundary', boundary, tuple(bases.BOUNDARIES))
  # The number of bins follows from n and the noise, which are public.
  histogram = functools.partial(
      AdaptiveHistogram, num_records=num_records, epsilon=epsilon, rho=rho,
      adjacency=adjacency, basis=bases.BOUNDARIES[boundary], penalty=penalty)
  return histogram(num_bins=bases.adaptive_bins(
      num_records, histogram(num_bins=3).noise_variance))
