"""An estimated density: coefficients in one of a few forms, and what they say.

  histogram  heights [m] of equal bins
  polygon    heights [m] at the middles of equal bins, lines between them
  fourier    complex [K]: 1 + 2 Re sum theta_k e^(2 pi i k x)
  cosine     real [K]: 1 + sum theta_k sqrt 2 cos(pi k x)

Errors are exact in each form: sums over bins, by Parseval, and for polygons by
quadrature of the distribution function (spec DEN-C4).
"""

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.stats import frequencies
from dpjax.stats import precision
from dpjax.stats.density.laws import Density
from dpjax.typing import Array, PRNGKey

KINDS = ('histogram', 'polygon', 'fourier', 'cosine')
_SQRT2 = math.sqrt(2)
# Quadrature for polygons: panels in [0, 1], at least, and nodes in each.
_PANELS, _NODES = 512, 4


def errors_of(kind: str, coefficients: np.ndarray, density: Density
              ) -> np.ndarray:
  """Integrals of (estimate - f)^2 of estimates [..., c], shape [...].

  Args:
    kind: one of `KINDS`.
    coefficients: [..., c].
    density: the truth.
  """
  errors.check_choice('kind', kind, KINDS)
  found = np.asarray(coefficients)
  size = found.shape[-1]
  if kind == 'histogram':
    masses = density.masses(size)
    # Around the best heights there are, so that nothing large is subtracted.
    bias = density.square - size * np.sum(masses**2)
    return np.mean((found - size * masses)**2, -1) + max(bias, 0.0)
  if kind == 'polygon':
    return np.maximum(gram_product(found, found) + density.square
                      - 2 * found @ _hats(density, size), 0.0)
  if kind == 'fourier':
    theta, weight = density.fourier(size), 2
  else:
    theta, weight = density.cosine(size), 1
  beyond = density.energy - weight * np.sum(np.abs(theta)**2)
  return weight * np.sum(np.abs(found - theta)**2, -1) + max(beyond, 0.0)


def gram_product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
  """Integrals [...] of products of polygons of heights [..., m]."""
  size = left.shape[-1]
  ends = left[..., 0] * right[..., 0] + left[..., -1] * right[..., -1]
  both = (2 * left[..., :-1] * right[..., :-1]
          + 2 * left[..., 1:] * right[..., 1:]
          + left[..., :-1] * right[..., 1:] + left[..., 1:] * right[..., :-1])
  return (ends / 2 + np.sum(both, -1) / 6) / size


@functools.lru_cache
def _hats(density: Density, size: int) -> np.ndarray:
  """Integrals [m] of f times the polygons of height 1 in one place, else 0."""
  if size == 1:
    return np.ones(1)
  # By parts, for the distribution function has no jumps; edges of bins are
  # between panels.
  panels = 2 * -(-_PANELS // (2 * size))
  nodes, weights = np.polynomial.legendre.leggauss(_NODES)
  count = (size - 1) * panels
  x = (np.arange(count)[:, None] + (nodes + 1) / 2) / (size * panels) + (
      0.5 / size)
  pieces = np.sum((density.cdf(x) @ weights / (2 * panels)).reshape(
      size - 1, panels), -1)
  return np.diff(np.concatenate([[0.0], pieces, [1.0]]))


def on_bins(kind: str, coefficients: Array, num_bins: int) -> Array:
  """Means [..., G] of estimates [..., c] over equal bins; jittable.

  Of a histogram G must be a multiple of the number of bins, of a polygon of
  twice that.
  """
  size = coefficients.shape[-1]
  if kind == 'histogram':
    if num_bins % size:
      raise ValueError(f'{num_bins} bins do not cut {size} bins evenly')
    return jnp.repeat(coefficients, num_bins // size, -1)
  if kind == 'polygon':
    return _lines_on_bins(coefficients, num_bins)
  length = num_bins if kind == 'fourier' else 2 * num_bins
  if 2 * size >= length:
    raise ValueError(f'{size} frequencies need more bins than {num_bins}')
  k = np.arange(1, size + 1)
  factors = np.sinc(k / length) * np.exp(1j * np.pi * k / length)
  scaled = coefficients * jnp.asarray(
      factors if kind == 'fourier' else factors / _SQRT2)
  spectrum = jnp.pad(scaled, [(0, 0)] * (scaled.ndim - 1)
                     + [(1, length // 2 - size)])
  return 1 + length * jnp.fft.irfft(spectrum, length)[..., :num_bins]


def _lines_on_bins(heights: Array, num_bins: int) -> Array:
  size = heights.shape[-1]
  if num_bins % (2 * size):
    raise ValueError(f'{num_bins} bins do not cut {2 * size} halves evenly')
  # No corner is inside a bin: the mean is what is at its middle.
  place = np.clip((np.arange(num_bins) + 0.5) * size / num_bins - 0.5, 0,
                  size - 1)
  left = place.astype(int)
  share = jnp.asarray(place - left, heights.dtype)
  share = jnp.broadcast_to(share, (*heights.shape[:-1], num_bins))
  return (heights[..., left] * (1 - share)
          + heights[..., np.minimum(left + 1, size - 1)] * share)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DensityEstimate:
  """An estimate, on [lower, upper]. It may be negative; see `proper`.

  Attributes:
    kind: one of `KINDS`.
    coefficients: [c], see above; for the unit interval.
    lower: where it begins.
    upper: where it ends.
  """
  kind: str
  coefficients: np.ndarray
  lower: float = 0.0
  upper: float = 1.0

  def __post_init__(self):
    errors.check_choice('kind', self.kind, KINDS)
    errors.check_range(self.lower, self.upper)

  def __call__(self, x: np.ndarray) -> np.ndarray:
    """Values [...] at points [...]; 0 beyond the bounds."""
    unit = (np.asarray(x, np.float64) - self.lower) / (self.upper - self.lower)
    found = self._on_unit(np.clip(unit, 0, 1)) / (self.upper - self.lower)
    return np.where((unit >= 0) & (unit <= 1), found, 0.0)

  def _on_unit(self, unit: np.ndarray) -> np.ndarray:
    size = self.coefficients.shape[-1]
    if self.kind == 'histogram':
      return self.coefficients[np.minimum((unit * size).astype(int), size - 1)]
    if self.kind == 'polygon':
      return np.interp(unit, (np.arange(size) + 0.5) / size, self.coefficients)
    waves = np.pi * np.multiply.outer(unit, np.arange(1, size + 1))
    if self.kind == 'cosine':
      return 1 + _SQRT2 * np.cos(waves) @ self.coefficients
    return 1 + 2 * (np.exp(2j * waves) @ self.coefficients).real

  def ise(self, density: Density) -> float:
    """Integral of the squared error, on the unit interval."""
    return float(errors_of(self.kind, self.coefficients, density))

  @precision.in_float64
  def proper(self, num_bins: int = 2048) -> 'DensityEstimate':
    """The nearest density that is constant on bins; free, and never farther.

    Args:
      num_bins: of a histogram or polygon, raised to a multiple of its own.
    """
    if self.kind in ('histogram', 'polygon'):
      parts = self.coefficients.shape[-1] * (1 + (self.kind == 'polygon'))
      num_bins = parts * -(-num_bins // parts)
    values = on_bins(self.kind, jnp.asarray(self.coefficients), num_bins)
    shares = frequencies.project_on_simplex(values / num_bins)
    return dataclasses.replace(self, kind='histogram', coefficients=np.asarray(
        shares * num_bins))

  @precision.in_float64
  def sample(self, key: PRNGKey, num_records: int) -> np.ndarray:
    """Synthetic records [n] from `proper`, as private as the estimate."""
    heights = self.proper().coefficients
    tops = jnp.concatenate([jnp.zeros(1), jnp.cumsum(jnp.asarray(heights))])
    places = jnp.interp(
        tops[-1] * jax.random.uniform(key, (num_records,), jnp.float64), tops,
        jnp.linspace(0, 1, tops.size, dtype=jnp.float64))
    return self.lower + (self.upper - self.lower) * np.asarray(places)
