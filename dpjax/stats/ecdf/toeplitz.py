"""Distribution functions from prefix sums with Gaussian noise, by square roots.

Ranks are A x of counts x. With A = C C, C lower triangular Toeplitz, C x + z is
released and C (C x + z) = A x + C z is as exact as C z is small: every rank has
noise of nearly one size, that grows with log N. The most exact curve of zCDP,
4 % above a lower bound. Source: Fichtenberger et al. 2023, Henzinger et al.
2023 (item EC-47).
"""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import signal

from dpjax.privacy import additive
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.stats.ecdf import mechanism
from dpjax.stats.ecdf import trees
from dpjax.typing import Array, PRNGKey

# Relative residual of linear systems, and what counts as negative.
_TOLERANCE = 1e-9
_MOST_STEPS = 500


class Parameters(NamedTuple):
  """Of the noise and of C.

  Attributes:
    scale: standard deviation of z.
    coefficients: [N], first column of C.
    regression: [N], of the noise of each rank on that of the last.
  """
  scale: np.ndarray
  coefficients: np.ndarray
  regression: np.ndarray


def square_root(size: int) -> np.ndarray:
  """First column [N] of C: coefficients of (1 - x)^(-1/2)."""
  steps = np.arange(1, size)
  return np.cumprod(np.append(1.0, (2 * steps - 1) / (2 * steps)))


def covariance_with_last(coefficients: np.ndarray) -> np.ndarray:
  """Of the noise C z of ranks [N], z standard, with that of the last."""
  return signal.fftconvolve(coefficients, coefficients[::-1])[
      :coefficients.size]


def l2_sensitivity(coefficients: np.ndarray, *,
                   adjacency: Adjacency) -> float:
  """L2 sensitivity of C x, where C [N, N] is lower triangular Toeplitz.

  Column i is the coefficients from place i on. The difference of columns i and
  i + t is that of columns 0 and t, cut off: the worst replacement is from the
  first bin, and the worst record is in it. Exact.

  Args:
    coefficients: [N], the first column; counts x of bins hold each record once.
    adjacency: which data sets are neighbours.
  """
  norms = np.cumsum(np.square(coefficients))
  if check_adjacency(adjacency) is not Adjacency.REPLACE_ONE:
    return math.sqrt(norms[-1])
  # At t, the product of columns 0 and t, both from t on.
  products = covariance_with_last(coefficients)[::-1]
  return math.sqrt(np.max(norms[-1] + norms[::-1] - 2 * products))


def apply(coefficients: Array, values: Array) -> Array:
  """C values [N], by Fourier transforms."""
  size = values.size
  product = (jnp.fft.rfft(coefficients, 2 * size)
             * jnp.fft.rfft(values, 2 * size))
  return jnp.fft.irfft(product, 2 * size)[:size]


def noisy_ranks(key: PRNGKey, counts: Array, coefficients: Array,
                scale: Array) -> Array:
  """Ranks [N] with noise C z; unbiased.

  C x + z is rounded to the public grid of its noise, see `additive`.

  Args:
    key: used for nothing else.
    counts: [N] float64.
    coefficients: [N], first column of C.
    scale: standard deviation of z.
  """
  noise = additive.standard_normal(key, counts.shape).astype(jnp.float64)
  noisy = apply(coefficients, counts) + scale * noise
  return apply(coefficients, additive.on_grid(noisy, scale))


def nonnegative(counts: Array) -> Array:
  """The counts >= 0 of the same sum nearest to noisy ones, in their metric.

  Noise of counts is C^-1 z. Its covariance has no positive entry off the
  diagonal, also where the sum is given: counts that come out negative are 0 in
  the solution, and what pushes them there only grows, round by round (item
  EC-47). Systems are solved by conjugate gradients: counts that are 0 lie
  scattered, which keeps their covariance well conditioned.

  Args:
    counts: [N] noisy ones, of a sum >= 0.
  """
  steps = jnp.arange(1.0, counts.size)
  inverse = jnp.cumprod(jnp.concatenate(
      [jnp.ones([1]), (2 * steps - 3) / (2 * steps)]))

  def covariance(values):
    return apply(inverse, apply(inverse, values[::-1])[::-1])

  with_sum = covariance(jnp.ones_like(counts))

  def moved(force):
    return covariance(force) - with_sum * (jnp.vdot(with_sum, force)
                                           / jnp.sum(with_sum))

  def solve(bound, force):
    def within(values):
      return bound * moved(bound * values) + (1 - bound) * values
    return jax.scipy.sparse.linalg.cg(within, -bound * counts, force,
                                      tol=_TOLERANCE, maxiter=_MOST_STEPS)[0]

  slack = _TOLERANCE * jnp.max(jnp.abs(counts))

  def closer(state):
    bound, force, found = state
    bound = jnp.maximum(bound, (found < -slack).astype(counts.dtype))
    force = bound * solve(bound, force)
    return bound, force, (1 - bound) * (counts + moved(force))

  start = jnp.zeros_like(counts)
  found = jax.lax.while_loop(lambda state: jnp.any(state[2] < -slack), closer,
                             (start, start, counts))[2]
  return jnp.maximum(found, 0.0)


@functools.cache
def _law(known: bool, monotone: bool) -> mechanism.Draw:
  def draw(key: PRNGKey, counts: Array, parameters: Parameters) -> Array:
    coefficients = jnp.asarray(parameters.coefficients)
    ranks = noisy_ranks(key, counts, coefficients,
                        jnp.asarray(parameters.scale))
    total = jnp.sum(counts) if known else None
    if known or monotone:
      # An unknown n is kept at its estimate, as in `hierarchy.nonnegative`.
      end = total if known else jnp.maximum(ranks[-1], 0.0)
      ranks -= jnp.asarray(parameters.regression) * (ranks[-1] - end)
    if monotone:
      ranks = jnp.cumsum(nonnegative(
          jnp.diff(ranks, prepend=jnp.zeros([1]))))
    return trees.ended(ranks, total, monotone=monotone)
  return draw


@dataclasses.dataclass(frozen=True, kw_only=True)
class SquareRootEcdf(mechanism.EcdfMechanism):
  """Prefix sums of counts by a factorisation, for a budget of rho.

  Guarantee: that of a Gaussian release whose mean moves by `l2_sensitivity`.

  Attributes:
    epsilon: always None.
  """
  epsilon: None = dataclasses.field(default=None, init=False)

  @functools.cached_property
  def _coefficients(self) -> np.ndarray:
    return square_root(self.num_thresholds)

  @functools.cached_property
  def l2_sensitivity(self) -> float:
    """Largest change of C x between neighbours."""
    return l2_sensitivity(self._coefficients, adjacency=self.adjacency)

  @property
  def scale(self) -> float:
    """Standard deviation of z."""
    return self.l2_sensitivity / math.sqrt(2 * self.rho)

  @property
  def draw(self) -> mechanism.Draw:
    """The law."""
    return _law(self.knows_total, self.monotone)

  @property
  def parameters(self) -> Parameters:
    """Noise and factor."""
    covariance = covariance_with_last(self._coefficients)
    return Parameters(np.float64(self.scale), self._coefficients,
                      covariance / covariance[-1])

  def variances(self) -> np.ndarray:
    """Of the errors of the ranks [N], exact, before they are made monotone."""
    return self.scale**2 * rank_variances(self._coefficients,
                                          known=self.knows_total)


def rank_variances(coefficients: np.ndarray, *, known: bool) -> np.ndarray:
  """Of the noise C z of ranks [N], z standard; what the known sum leaves."""
  own = np.cumsum(np.square(coefficients))
  if not known:
    return own
  covariance = covariance_with_last(coefficients)
  left = np.maximum(own - np.square(covariance) / covariance[-1], 0.0)
  left[-1] = 0.0
  return left
