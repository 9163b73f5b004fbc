"""An estimated density: coefficients in one of six forms, and its errors.

  histogram  heights [m] of equal bins
  polygon    heights [m] at the middles of equal bins, of `polygons`
  fourier    complex [K]: 1 + 2 Re sum theta_k e^(2 pi i k x)
  cosine     real [K]: 1 + sum theta_k sqrt 2 cos(pi k x)
  spectrum   complex [1 + K]: theta_0, a released mass, then as fourier
  spline     means [m] over equal bins, of the curve of `histospline`

Errors are exact in each form: sums over bins, or by Parseval (item DEN-C4).
"""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.stats import frequencies
from dpjax.stats import precision
from dpjax.stats.density_methods import histospline
from dpjax.stats.density_methods import polygons
from dpjax.stats.density_methods.densities import Density
from dpjax.typing import Array, PRNGKey

KINDS = ('histogram', 'polygon', 'fourier', 'cosine', 'spectrum', 'spline')
_SQRT2 = math.sqrt(2)
_FINE = 2**13


def errors_of(kind: str, coefficients: np.ndarray, density: Density
              ) -> np.ndarray:
  """Returns integrals of (estimate - f)^2 for estimates [..., c], shape [...].

  Args:
    kind: one of `KINDS`.
    coefficients: [..., c].
    density: the true density f.
  """
  errors.check_choice('kind', kind, KINDS)
  estimates = np.asarray(coefficients)
  size = estimates.shape[-1]
  if kind == 'histogram':
    masses = density.masses(size)
    # Error relative to the best heights, plus bias: no large terms cancel.
    bias = density.square - size * np.sum(masses**2)
    return np.mean((estimates - size * masses)**2, -1) + max(bias, 0.0)
  if kind == 'spectrum':
    return np.abs(estimates[..., 0] - 1)**2 + errors_of(
        'fourier', estimates[..., 1:], density)
  if kind == 'spline':
    return _spline_errors(estimates, density)
  if kind == 'polygon':
    return polygons.squared_errors(estimates, density)
  if kind == 'fourier':
    theta, weight = density.fourier(size), 2
  else:
    theta, weight = density.cosine(size), 1
  # Parseval: errors of the coefficients, and all energy beyond them.
  tail_energy = density.energy - weight * np.sum(np.abs(theta)**2)
  return weight * np.sum(np.abs(estimates - theta)**2, -1) + max(tail_energy,
                                                                 0.0)


class _Truth(NamedTuple):
  """A density compared with the curve of its own bin means.

  Attributes:
    heights: [m] exact means over bins.
    slope: [m] integrals of the curves of unit heights times (curve - f).
    bias: integral of (curve - f)^2.
  """
  heights: np.ndarray
  slope: np.ndarray
  bias: float


@functools.lru_cache(maxsize=128)
def _truth(density: Density, num_bins: int) -> _Truth:
  """Returns `_Truth` for m bins, exact up to variation within 2^-13."""
  fine = num_bins * -(-_FINE // num_bins)  # A multiple of m, at least _FINE.
  heights = num_bins * density.masses(num_bins)
  parts, masses = histospline.refined(num_bins, fine), density.masses(fine)
  difference = heights @ parts - fine * masses
  within = max(density.square - fine * float(np.sum(masses**2)), 0.0)
  return _Truth(heights, parts @ difference / fine,
                float(np.mean(difference**2)) + within)


def _spline_errors(heights: np.ndarray, density: Density) -> np.ndarray:
  """Returns integrals of (curve - f)^2 for heights [..., m], shape [...]."""
  estimates = np.asarray(heights)
  truth = _truth(density, estimates.shape[-1])
  # ||(estimate - curve) + (curve - f)||^2, expanded; the curve is linear in
  # the heights.
  off = estimates - truth.heights
  return (np.sum((off @ histospline.gram(estimates.shape[-1])) * off, -1)
          + 2 * off @ truth.slope + truth.bias)


def on_bins(kind: str, coefficients: Array, num_bins: int) -> Array:
  """Returns means [..., G] of estimates [..., c] over equal bins; jittable.

  For a histogram G must be a multiple of its number of bins.
  """
  size = coefficients.shape[-1]
  if kind == 'histogram':
    if num_bins % size:
      raise ValueError(f'{num_bins} bins do not cut {size} bins evenly; '
                       'num_bins must be a multiple of the latter')
    return jnp.repeat(coefficients, num_bins // size, -1)
  if kind == 'spectrum':
    return coefficients[..., :1].real - 1 + on_bins(
        'fourier', coefficients[..., 1:], num_bins)
  if kind == 'spline':
    return coefficients @ jnp.asarray(histospline.refined(size, num_bins))
  if kind == 'polygon':
    return coefficients @ jnp.asarray(polygons.refined(size, num_bins))
  length = num_bins if kind == 'fourier' else 2 * num_bins
  if 2 * size >= length:
    raise ValueError(f'{size} frequencies need more bins than {num_bins}')
  k = np.arange(1, size + 1)
  # The mean over a bin multiplies frequency k by a sinc and half a bin's phase.
  factors = np.sinc(k / length) * np.exp(1j * np.pi * k / length)
  scaled = coefficients.astype(factors.dtype) * jnp.asarray(
      factors if kind == 'fourier' else factors / _SQRT2)
  spectrum = jnp.pad(scaled, [(0, 0)] * (scaled.ndim - 1)
                     + [(1, length // 2 - size)])
  return 1 + length * jnp.fft.irfft(spectrum, length)[..., :num_bins]


@dataclasses.dataclass(frozen=True, kw_only=True)
class DensityEstimate:
  """An estimate on [lower, upper]. It may be negative; see `proper`.

  Attributes:
    kind: one of `KINDS`.
    coefficients: [c] for the unit interval, in the form of `kind`.
    lower: lower end of the support.
    upper: upper end of the support.
  """
  kind: str
  coefficients: np.ndarray
  lower: float = 0.0
  upper: float = 1.0

  def __post_init__(self) -> None:
    errors.check_choice('kind', self.kind, KINDS)
    errors.check_range(self.lower, self.upper)

  def __call__(self, x: np.ndarray) -> np.ndarray:
    """Returns values [...] at points [...]; 0 outside the bounds."""
    unit = (np.asarray(x, np.float64) - self.lower) / (self.upper - self.lower)
    values = self._on_unit(np.clip(unit, 0, 1)) / (self.upper - self.lower)
    return np.where((unit >= 0) & (unit <= 1), values, 0.0)

  def _on_unit(self, unit: np.ndarray) -> np.ndarray:
    """Returns values at points of the unit interval, for unit bounds."""
    size = self.coefficients.shape[-1]
    if self.kind == 'histogram':
      return self.coefficients[np.minimum((unit * size).astype(int), size - 1)]
    if self.kind == 'spectrum':
      rest = dataclasses.replace(self, kind='fourier',
                                 coefficients=self.coefficients[1:])
      return self.coefficients[0].real - 1 + rest._on_unit(unit)
    if self.kind == 'spline':
      return histospline.cumulative(size)(unit, 1) @ self.coefficients
    if self.kind == 'polygon':
      return np.interp(unit, polygons.middles(size), self.coefficients)
    waves = np.pi * np.multiply.outer(unit, np.arange(1, size + 1))
    if self.kind == 'cosine':
      return 1 + _SQRT2 * np.cos(waves) @ self.coefficients
    return 1 + 2 * (np.exp(2j * waves) @ self.coefficients).real

  def ise(self, density: Density) -> float:
    """Returns the integrated squared error, on the unit interval."""
    return float(errors_of(self.kind, self.coefficients, density))

  @precision.in_float64
  def proper(self, num_bins: int = 2048) -> 'DensityEstimate':
    """Returns the nearest density that is constant on bins; post-processing.

    It is never farther from any density on these bins than the estimate is.

    Args:
      num_bins: number of bins of the result; for a histogram raised to a
        multiple of its own.
    """
    if self.kind == 'histogram':
      size = self.coefficients.shape[-1]
      num_bins = size * -(-num_bins // size)
    values = on_bins(self.kind, jnp.asarray(self.coefficients), num_bins)
    # Projection on a convex set never increases the distance to its points.
    shares = frequencies.project_on_simplex(values / num_bins)
    return dataclasses.replace(self, kind='histogram', coefficients=np.asarray(
        shares * num_bins))

  @precision.in_float64
  def sample(self, key: PRNGKey, num_records: int) -> np.ndarray:
    """Draws synthetic records [n] from `proper`, as private as the estimate."""
    heights = self.proper().coefficients
    # Inverse transform sampling with a piecewise linear distribution function.
    tops = jnp.concatenate([jnp.zeros(1), jnp.cumsum(jnp.asarray(heights))])
    places = jnp.interp(
        tops[-1] * jax.random.uniform(key, (num_records,), jnp.float64), tops,
        jnp.linspace(0, 1, tops.size, dtype=jnp.float64))
    return self.lower + (self.upper - self.lower) * np.asarray(places)
