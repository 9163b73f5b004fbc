"""Quantiles of prefix sums with Gaussian noise, by a square root of a matrix.

Ranks are A x of counts x. With A = C C, C lower triangular Toeplitz, C x + z is
released and C (C x + z) = A x + C z is as exact as C z is small: every rank has
noise of nearly one size, that grows with log N. Worth it for zCDP, from some
hundred bins on. Source: Henzinger, Upadhyay and Upadhyay 2023 (spec QB-08).
"""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.stats.quantiles import curves
from dpjax.stats.quantiles import inversion
from dpjax.stats.quantiles import orders
from dpjax.stats.quantiles import rates
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


def square_root(size: int) -> np.ndarray:
  """First column [N] of C: coefficients of (1 - x)^(-1/2)."""
  steps = np.arange(1, size)
  return np.cumprod(np.append(1.0, (2 * steps - 1) / (2 * steps)))


def covariance_with_last(coefficients: np.ndarray) -> np.ndarray:
  """Of the noise C z of ranks [N], z standard, with that of the last."""
  return np.convolve(coefficients, coefficients[::-1])[:coefficients.size]


def apply(coefficients: Array, values: Array) -> Array:
  """C values [N], by Fourier transforms."""
  size = values.size
  product = (jnp.fft.rfft(coefficients, 2 * size)
             * jnp.fft.rfft(values, 2 * size))
  return jnp.fft.irfft(product, 2 * size)[:size]


def noisy_ranks(key: PRNGKey, data: Records, parameters: Parameters) -> Array:
  """Ranks [N] at all edges but the first, with noise C z; unbiased.

  C x + z is rounded to the public grid of its noise, see `additive`.
  """
  coefficients = jnp.asarray(parameters.coefficients)
  counts = jnp.diff(curves.ranks(data, jnp.asarray(parameters.shares)))
  noise = additive.standard_normal(key, counts.shape).astype(jnp.float64)
  spacing = additive.grid_spacing(parameters.scale).astype(jnp.float64)
  noisy = apply(coefficients, counts) + parameters.scale * noise
  return apply(coefficients, jnp.round(noisy / spacing) * spacing)


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
    return rates.factorised(square_root(self.num_bins),
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
    root = square_root(self.num_bins)
    covariance = covariance_with_last(root)
    return Parameters(orders.check_orders(self.probs),
                      np.linspace(0.0, 1.0, self.num_bins + 1),
                      np.float64(self.scale), root,
                      covariance / covariance[-1])

  def stddevs(self) -> np.ndarray:
    """Of noise of ranks, what their regression on the last leaves."""
    root = square_root(self.num_bins)
    covariance = covariance_with_last(root)
    left = np.cumsum(np.square(root)) - np.square(covariance) / covariance[-1]
    return self.scale * np.sqrt(np.maximum(np.append(0.0, left), 0.0))
