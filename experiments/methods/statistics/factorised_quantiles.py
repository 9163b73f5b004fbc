"""Quantiles of prefix sums with correlated Gaussian noise (square-root matrix).

The noise is that of `ecdf.toeplitz`. It beats independent noise under zCDP from
a few hundred bins on. Source: Henzinger, Upadhyay and Upadhyay 2023 (item
QB-08).
"""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.stats.ecdf_methods import toeplitz
from dpjax.stats.quantile_methods import curves
from dpjax.stats.quantile_methods import inversion
from dpjax.stats.quantile_methods import quantile_levels
from dpjax.stats.quantile_methods.records import Records
from dpjax.typing import Array, PRNGKey


class FactorParameters(NamedTuple):
  """Arrays that the curve needs; C is the lower-triangular factor of the noise.

  Attributes:
    probs: [m] quantile levels.
    shares: [N + 1] edges of the bins as fractions of the public range.
    scale: standard deviation of z.
    coefficients: [N], first column of C.
    regression: [N], regression coefficients of each rank's noise on that of the
      last rank.
  """
  probs: np.ndarray
  shares: np.ndarray
  scale: np.ndarray
  coefficients: np.ndarray
  regression: np.ndarray


def noisy_ranks(key: PRNGKey, data: Records, parameters: FactorParameters
                ) -> Array:
  """Returns unbiased ranks [N] at all edges but the first, with noise C z."""
  counts = jnp.diff(curves.ranks(data, jnp.asarray(parameters.shares)))
  return toeplitz.noisy_ranks(key, counts, jnp.asarray(parameters.coefficients),
                              jnp.asarray(parameters.scale))


@functools.cache
def _curve(knows_total: bool) -> curves.Curve:
  """Returns the sampler of the curve for a public or private n."""
  def curve(key: PRNGKey, data: Records, parameters: FactorParameters) -> Array:
    ranks = noisy_ranks(key, data, parameters)
    total = curves.total(data, ranks[-1], knows_total)
    # Correct every rank by its regression on the error of the last one: the
    # least-squares estimate given the total.
    ranks -= jnp.asarray(parameters.regression) * (ranks[-1] - total)
    return inversion.distribution(
        jnp.concatenate([jnp.zeros([1], ranks.dtype), ranks]), total)
  return curve


@dataclasses.dataclass(frozen=True, kw_only=True)
class FactorisedQuantiles(curves.CurveQuantiles):
  """Inverts the prefix sums of equal bins' counts, with factorised noise.

  Privacy: a Gaussian release, rho-zCDP under `adjacency`. For a target of
  (epsilon, delta) take rho from `notions.zcdp_from_approx_target`; `event` has
  the exact privacy curve.

  Attributes:
    epsilon: always None; the budget is rho.
    rho: zCDP budget of one release.
    num_bins: number of bins, N.
  """
  epsilon: None = dataclasses.field(default=None, init=False)
  rho: float
  num_bins: int = 256

  def __post_init__(self):
    super().__post_init__()
    errors.check_positive('rho', self.rho)

  @property
  def l2_sensitivity(self) -> float:
    """Returns the largest l2 change of C x between neighbours, x the counts."""
    return toeplitz.l2_sensitivity(toeplitz.square_root(self.num_bins),
                                   adjacency=self.adjacency)

  @property
  def scale(self) -> float:
    """Returns the standard deviation of the independent noise z."""
    return self.l2_sensitivity / math.sqrt(2 * self.rho)

  @property
  def event(self) -> accounting.DpEvent:
    """Returns the privacy cost of one release."""
    # The event takes the norm of one record. Under REPLACE_ONE the sensitivity
    # is twice that norm, since one record leaves and another enters.
    norm = self.l2_sensitivity / (2 if self.knows_total else 1)
    return accounting.gaussian_event(noise_multiplier=self.scale / norm)

  @property
  def curve(self) -> curves.Curve:
    """Returns a jittable sampler of the curve."""
    return _curve(self.knows_total)

  @property
  def parameters(self) -> FactorParameters:
    """Returns the quantile levels, grid, noise scale and factor, as arrays."""
    root = toeplitz.square_root(self.num_bins)
    covariance = toeplitz.covariance_with_last(root)
    return FactorParameters(quantile_levels.check_levels(self.probs),
                      np.linspace(0.0, 1.0, self.num_bins + 1),
                      np.float64(self.scale), root,
                      covariance / covariance[-1])

  def stddevs(self) -> np.ndarray:
    """Standard deviations of ranks [N + 1] after regression on the last."""
    return self.scale * np.sqrt(np.append(0.0, toeplitz.rank_variances(
        toeplitz.square_root(self.num_bins), known=True)))
