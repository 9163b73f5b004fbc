"""Quantiles of prefix sums with Gaussian noise, by a square root of a matrix.

As `ecdf.toeplitz`. Worth it for zCDP, from some hundred bins on. Source:
Henzinger, Upadhyay and Upadhyay 2023 (item QB-08).
"""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.stats.ecdf import toeplitz
from dpjax.stats.quantiles import curves
from dpjax.stats.quantiles import inversion
from dpjax.stats.quantiles import orders
from dpjax.stats.quantiles.records import Records
from dpjax.typing import Array, PRNGKey


class Parameters(NamedTuple):
  """Of a curve; as `curves.Parameters`, and of C.

  Attributes:
    probs: [m] orders.
    shares: [N + 1] where the edges divide the range.
    scale: standard deviation of z.
    coefficients: [N], first column of C.
    regression: [N], of the noise of each rank on that of the last.
  """
  probs: np.ndarray
  shares: np.ndarray
  scale: np.ndarray
  coefficients: np.ndarray
  regression: np.ndarray


def noisy_ranks(key: PRNGKey, data: Records, parameters: Parameters) -> Array:
  """Ranks [N] at all edges but the first, with noise C z; unbiased."""
  counts = jnp.diff(curves.ranks(data, jnp.asarray(parameters.shares)))
  return toeplitz.noisy_ranks(key, counts, jnp.asarray(parameters.coefficients),
                              jnp.asarray(parameters.scale))


@functools.cache
def _curve(knows_total: bool) -> curves.Curve:
  def curve(key: PRNGKey, data: Records, parameters: Parameters) -> Array:
    ranks = noisy_ranks(key, data, parameters)
    total = curves.total(data, ranks[-1], knows_total)
    ranks -= jnp.asarray(parameters.regression) * (ranks[-1] - total)
    return inversion.distribution(
        jnp.concatenate([jnp.zeros([1], ranks.dtype), ranks]), total)
  return curve


@dataclasses.dataclass(frozen=True, kw_only=True)
class FactorisedQuantiles(curves.CurveQuantiles):
  """Prefix sums of counts of equal bins by factorisation, and inverted.

  Guarantee: that of a Gaussian release, rho-zCDP under `adjacency`; for a
  target of (epsilon, delta) rho is that of `notions.zcdp_from_approx_target`,
  and `event` has the exact curve.

  Attributes:
    epsilon: always None, the budget is rho.
    rho: of zCDP, of one release.
    num_bins: N.
  """
  epsilon: None = dataclasses.field(default=None, init=False)
  rho: float
  num_bins: int = 256

  def _check_budget(self):
    errors.check_positive('rho', self.rho)

  @property
  def l2_sensitivity(self) -> float:
    """Largest change of C x between neighbours."""
    return toeplitz.l2_sensitivity(toeplitz.square_root(self.num_bins),
                                   adjacency=self.adjacency)

  @property
  def scale(self) -> float:
    """Standard deviation of z."""
    return self.l2_sensitivity / math.sqrt(2 * self.rho)

  @property
  def event(self) -> accounting.DpEvent:
    """What one release costs."""
    # Under REPLACE_ONE a sum moves by twice the norm of a record.
    norm = self.l2_sensitivity / (2 if self.knows_total else 1)
    return accounting.gaussian_event(noise_multiplier=self.scale / norm)

  @property
  def curve(self) -> curves.Curve:
    """The law of the curve."""
    return _curve(self.knows_total)

  @property
  def parameters(self) -> Parameters:
    """Orders, grid, noise and factor."""
    root = toeplitz.square_root(self.num_bins)
    covariance = toeplitz.covariance_with_last(root)
    return Parameters(orders.check_orders(self.probs),
                      np.linspace(0.0, 1.0, self.num_bins + 1),
                      np.float64(self.scale), root,
                      covariance / covariance[-1])

  def stddevs(self) -> np.ndarray:
    """Of noise of ranks, what their regression on the last leaves."""
    return self.scale * np.sqrt(np.append(0.0, toeplitz.rank_variances(
        toeplitz.square_root(self.num_bins), known=True)))
