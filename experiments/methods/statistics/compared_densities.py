"""Densities to compare estimators on, with exact quantities (item DEN-C3).

Experiments draw their records from them: Fourier series, tents, beta
distributions and steps. `densities.Density` is the interface of a density.
"""

from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np
from scipy import special

from dpjax import errors
from dpjax.stats.density_methods.densities import Density

# Number of coefficients of a series.
_SERIES = 2048
_SQRT2 = math.sqrt(2)
_ALTERNATING = {1: 0.3, 2: 0.5, 3: 0.6}
_RANDOM = {1: 0.7432802, 2: 0.7554523, 3: 0.7207926}


def tent(slope: float) -> Density:
  """Returns 1 + L (1/4 - |x - 1/2|), L <= 4; on the border of Sobolev(L, 1)."""
  _check_slope('tent', slope, 4)

  def cdf(x: np.ndarray) -> np.ndarray:
    lower = np.minimum(x, 1 - x)
    part = lower + slope * (lower**2 / 2 - lower / 4)
    return np.where(x <= 0.5, part, 1 - part)
  return Density(name=f'tent{slope:g}', cdf=cdf, lipschitz=slope,
                 pdf=lambda x: 1 + slope * (0.25 - np.abs(x - 0.5)),
                 square=1 + slope**2 / 48)


def linear(slope: float) -> Density:
  """Returns 1 + L (x - 1/2), L <= 2; not periodic."""
  _check_slope('linear', slope, 2)
  return Density(name=f'linear{slope:g}', lipschitz=slope, periodic=False,
                 pdf=lambda x: 1 + slope * (x - 0.5),
                 cdf=lambda x: x + slope * (x**2 - x) / 2,
                 square=1 + slope**2 / 12)


def zigzag(num_bins: int, slope: float = 1.0) -> Density:
  """Returns a density that rises in a bin and falls in the next, of bin mean 1.

  Among all L-Lipschitz densities, histograms of m bins have the largest bias on
  it; L <= 2 m.
  """
  errors.check_at_least('num_bins', num_bins, 1)
  _check_slope('zigzag', slope, 2 * num_bins)

  def cdf(x: np.ndarray) -> np.ndarray:
    place = np.asarray(x, np.float64) * num_bins
    part = place - np.minimum(np.floor(place), num_bins - 1)
    sign = 1 - 2 * (np.minimum(np.floor(place), num_bins - 1) % 2)
    return x + sign * slope * part * (part - 1) / (2 * num_bins**2)
  return Density(
      name=f'zigzag{num_bins}', lipschitz=slope, periodic=num_bins % 2 == 0,
      pdf=lambda x: 1 + slope / num_bins * (
          0.5 - np.abs(np.asarray(x) * num_bins % 2 - 1)),
      cdf=cdf, square=1 + slope**2 / (12 * num_bins**2))


def beta(a: float, b: float) -> Density:
  """Returns the Beta density, a and b at least 2; in general not periodic."""
  if min(a, b) < 2:
    raise ValueError(f'beta needs a, b >= 2 to be Lipschitz, got {a} and {b}')

  def pdf(x: np.ndarray) -> np.ndarray:
    return np.exp(special.xlogy(a - 1, x) + special.xlog1py(b - 1, -x)
                  - special.betaln(a, b))

  def steepness(x: np.ndarray) -> np.ndarray:
    return abs((a - 1) * x**(a - 2) * (1 - x)**(b - 1)
               - (b - 1) * x**(a - 1) * (1 - x)**(b - 2))
  square = math.exp(special.betaln(2 * a - 1, 2 * b - 1)
                    - 2 * special.betaln(a, b))
  # The slope is smooth: a fine grid finds its largest value closely.
  top = np.max(steepness(np.linspace(0, 1, 10001)))
  return Density(name=f'beta{a:g}{b:g}', pdf=pdf, square=square,
                 cdf=lambda x: special.betainc(a, b, x),
                 lipschitz=float(top * math.exp(-special.betaln(a, b))))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Series(Density):
  """A density of finitely many frequencies.

  Attributes:
    coefficients: theta_1, theta_2, ..., as a tuple.
  """
  coefficients: tuple[complex, ...]

  @functools.lru_cache
  def masses(self, num_bins: int) -> np.ndarray:
    """Returns probabilities [m] of equal bins, exact.

    Frequencies that coincide on the bins are added.
    """
    errors.check_at_least('num_bins', num_bins, 1)
    k = np.arange(1, len(self.coefficients) + 1)
    # The mean over [x, x + h] multiplies each frequency by a phase and a sinc.
    means = (np.array(self.coefficients) * np.sinc(k / num_bins)
             * np.exp(1j * np.pi * k / num_bins))
    folded = np.zeros(num_bins, np.complex128)
    np.add.at(folded, k % num_bins, means)
    probabilities = (1 + 2 * num_bins * np.fft.ifft(folded).real) / num_bins
    probabilities.setflags(write=False)
    return probabilities

  @functools.lru_cache
  def fourier(self, count: int) -> np.ndarray:
    """Returns exact coefficients theta_k, complex [K]."""
    padded = np.zeros(count, np.complex128)
    known = np.array(self.coefficients[:count])
    padded[:known.size] = known
    padded.setflags(write=False)
    return padded


def series(name: str, coefficients: Sequence[complex] | np.ndarray) -> Series:
  """Returns the density 1 + 2 Re sum theta_k e^(2 pi i k x).

  Args:
    name: name of the density.
    coefficients: theta [K]; f must not be negative anywhere.
  """
  theta = np.asarray(coefficients, np.complex128)
  rates = 2j * np.pi * np.arange(1, theta.size + 1)

  def summed(x: np.ndarray, factors: np.ndarray) -> np.ndarray:
    x = np.asarray(x, np.float64)
    parts = [np.exp(np.multiply.outer(part, rates)) @ factors
             for part in np.array_split(x.ravel(), x.size // 256 + 1)]
    return 2 * np.concatenate(parts).real.reshape(x.shape)
  constant = summed(np.zeros(1), theta / rates)[0]
  return Series(
      name=name, pdf=lambda x: 1 + summed(x, theta),
      cdf=lambda x: x + summed(x, theta / rates) - constant,
      square=1 + 2 * float(np.sum(np.abs(theta)**2)),
      lipschitz=float(2 * np.sum(np.abs(theta * rates))),
      coefficients=tuple(theta.tolist()))


def alternating(smoothness: int, amplitude: float | None = None) -> Series:
  """Returns a density on the border of its class, with alternating signs.

  theta_k = A (-1)^k k^-(beta + 1/2) / sqrt 2. The energy beyond K is A^2 K^(-2
  beta) / (2 beta), so errors fall at the rate of the class. Its name starts
  with sobdet.

  Args:
    smoothness: beta, the order of the bounded derivative.
    amplitude: A; by default one with f > 0, for beta in 1, 2, 3.
  """
  k = np.arange(1, _SERIES + 1)
  return series(f'sobdet{smoothness:g}', _amplitude(
      _ALTERNATING, smoothness, amplitude) / _SQRT2 * (-1.0)**k
                * k**-(smoothness + 0.5))


def random_phases(smoothness: int, amplitude: float | None = None) -> Series:
  """Returns the same with phases from a fixed seed; named sobrand."""
  k = np.arange(1, _SERIES + 1)
  phases = np.random.default_rng(0).uniform(0, 2 * np.pi, _SERIES)
  return series(f'sobrand{smoothness:g}', _amplitude(
      _RANDOM, smoothness, amplitude) / _SQRT2 * np.exp(1j * phases)
                * k**-(smoothness + 0.5))


def _amplitude(known: dict[int, float], smoothness: int, given: float | None
               ) -> float:
  """Returns the given amplitude, or the known one for this smoothness."""
  if given is None and smoothness not in known:
    raise ValueError(f'smoothness {smoothness} needs an amplitude: it is known '
                     f'for {", ".join(map(str, known))}')
  return known[smoothness] if given is None else given


def wrapped_mixture() -> Series:
  """Returns N(.3, .06^2) / 2 + N(.7, .1^2) / 2 on the circle; analytic."""
  k = np.arange(1, 65)
  return series('wrapmix', 0.5 * sum(
      np.exp(-2j * np.pi * k * mean - 2 * (np.pi * k * stddev)**2)
      for mean, stddev in ((0.3, 0.06), (0.7, 0.1))))


def cosine_wave(frequency: int = 30, amplitude: float = 0.9) -> Series:
  """Returns 1 + A cos(2 pi k x), a single high frequency."""
  theta = np.zeros(frequency)
  theta[-1] = amplitude / 2
  return series(f'cos{frequency}', theta)


def blocks() -> Density:
  """Returns a piecewise constant density with jumps: in none of the classes."""
  edges = np.array([0, .1, .13, .15, .23, .25, .40, .44, .65, .76, .78, .81, 1])
  heights = np.array([.4, 1.6, .5, 2.2, .8, 2.6, .6, 1.2, 1.8, .3, 1.4, .5])
  heights /= np.sum(heights * np.diff(edges))
  tops = np.concatenate([[0], np.cumsum(heights * np.diff(edges))])

  def pdf(x: np.ndarray) -> np.ndarray:
    places = np.searchsorted(edges, x, side='right') - 1
    return heights[np.minimum(places, heights.size - 1)]
  return Density(name='blocks', pdf=pdf, periodic=False,
                 cdf=lambda x: np.interp(x, edges, tops),
                 square=float(np.sum(heights**2 * np.diff(edges))))


def _check_slope(name: str, slope: float, most: float) -> None:
  """Raises unless the slope is in (0, most]."""
  if not 0 < slope <= most:
    raise ValueError(f'{name} needs a slope in (0, {most}], got {slope}')
