"""Estimators that know neither beta nor L, and see one noisy histogram.

A histogram as fine as any density of the class needs, coefficients of it
(`bases`), and shrinkage of them by their own size (`shrinkage`). Of a density
smoother than the bins the fine coefficients are shrunk away. Item DEN-B6 (A1),
DEN-B7; the spline basis is new here, and has half the error or less where a
density is smooth but not flat at its ends.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density import bases
from dpjax.stats.density import mechanism
from dpjax.stats.density import noisy_counts
from dpjax.stats.density import pooling
from dpjax.stats.density import shrinkage
from dpjax.typing import Array, PRNGKey


class Parameters(NamedTuple):
  """Numbers of a release.

  Attributes:
    counts: of the noisy counts.
    analysis: shares to coefficients, [m, K].
    gains: of the analysis, [K].
    synthesis: coefficients to heights, [K, m]; empty where they stay.
    penalty: of the shrinkage.
  """
  counts: noisy_counts.Parameters
  analysis: np.ndarray
  gains: np.ndarray
  synthesis: np.ndarray
  penalty: np.ndarray


@functools.cache
def _draw(law: str | None, known: bool) -> mechanism.Draw:
  def draw(key: PRNGKey, counts: Array, parameters: Parameters) -> Array:
    noisy = noisy_counts.noisy(key, counts, parameters.counts.scale, law)
    total = noisy_counts.total(noisy, parameters.counts, known)
    analysis = jnp.asarray(parameters.analysis)
    found = (noisy / total).astype(analysis.dtype) @ analysis
    variances = (parameters.counts.variance * jnp.asarray(parameters.gains)
                 / jnp.square(total) + 1 / total)
    found = pooling.shrunk(found, variances, parameters.penalty)
    if parameters.synthesis.size:
      return 1 + found @ jnp.asarray(parameters.synthesis)
    return found
  return draw


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaptiveHistogram(noisy_counts.CountsMechanism):
  """One noisy histogram, shrunk in a basis; the default estimator.

  Guarantee: that of the counts, epsilon-DP or rho-zCDP under `adjacency`; the
  rest is post-processing. Made by `adaptive`, which chooses the bins.

  Attributes:
    basis: one of `bases.BASES`.
    penalty: c of `shrinkage`.
  """
  basis: str = 'spline'
  penalty: float = shrinkage.PENALTY

  def __post_init__(self):
    super().__post_init__()
    errors.check_positive('penalty', self.penalty)
    bases.basis(self.basis, self.num_bins)

  @property
  def kind(self) -> str:
    """Of the estimate: the basis."""
    return self.basis

  @property
  def draw(self) -> mechanism.Draw:
    """The law: coefficients [K], or heights [m] of a spline."""
    return _draw(self.law, self.knows_total)

  @property
  def parameters(self) -> Parameters:
    """Numbers that the law takes."""
    found = bases.basis(self.basis, self.num_bins)
    return Parameters(
        super().parameters, *found, synthesis=found.analysis.T
        if self.basis == 'spline' else np.zeros(0),
        penalty=np.float64(self.penalty))


def adaptive(num_records: int, *, adjacency: Adjacency,
             epsilon: float | None = None, rho: float | None = None,
             boundary: str = 'interval',
             penalty: float = shrinkage.PENALTY) -> AdaptiveHistogram:
  """The default estimator, of bins that public numbers choose.

  Args:
    num_records: n, or a public guess of it under ADD_OR_REMOVE_ONE.
    adjacency: which data sets are neighbours.
    epsilon: budget of pure privacy.
    rho: or of zero-concentrated privacy; or neither.
    boundary: 'interval', or 'circle' where 0 and 1 are one point.
    penalty: c of `shrinkage`.
  """
  errors.check_choice('boundary', boundary, tuple(bases.BOUNDARIES))
  public = dict(num_records=num_records, epsilon=epsilon, rho=rho,
                adjacency=adjacency, basis=bases.BOUNDARIES[boundary],
                penalty=penalty)
  variance = AdaptiveHistogram(num_bins=3, **public).noise_variance
  return AdaptiveHistogram(
      num_bins=bases.adaptive_bins(num_records, variance), **public)
