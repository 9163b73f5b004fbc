"""Test densities with exact bin probabilities and Fourier coefficients.

A density on [0, 1] is given by its distribution function and the integral of
its square, both exact. Probabilities ("masses") of bins follow from the former,
and coefficients from masses of fine bins (item DEN-C3). All is computed on the
host in float64.
"""

from collections.abc import Callable
import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.stats import precision
from dpjax.typing import Array, PRNGKey

# Coefficients are computed from masses of this many bins. The aliasing error is
# k / _FINE times a coefficient of a frequency of _FINE - k or more.
_FINE = 2**15
# Number of frequencies of the densities of Sobolev classes.
_SERIES = 2048
_SQRT2 = math.sqrt(2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Density:
  """A density on [0, 1].

  Attributes:
    name: name of the density.
    pdf: x [...] in [0, 1] -> f(x).
    cdf: x [...] in [0, 1] -> integral of f up to x.
    square: integral of f^2.
    lipschitz: an L with |f(x) - f(y)| <= L |x - y|; infinite if there is none.
    periodic: whether f is continuous on the circle.
  """
  name: str
  pdf: Callable[[np.ndarray], np.ndarray]
  cdf: Callable[[np.ndarray], np.ndarray]
  square: float
  lipschitz: float = math.inf
  periodic: bool = True

  @property
  def energy(self) -> float:
    """Integral of (f - 1)^2: the error of the uniform density as an estimate.
    """
    return self.square - 1

  @functools.lru_cache
  def masses(self, num_bins: int) -> np.ndarray:
    """Returns probabilities [m] of equal bins."""
    errors.check_at_least('num_bins', num_bins, 1)
    probabilities = np.diff(self.cdf(np.linspace(0, 1, num_bins + 1)))
    probabilities.setflags(write=False)  # The cache hands out this array.
    return probabilities

  @functools.lru_cache
  def fourier(self, count: int) -> np.ndarray:
    """Returns theta_k = integral of f e^(-2 pi i k x), k = 1..K, complex [K].
    """
    k = np.arange(1, count + 1)
    # Undo the phase of half a bin and the damping by averages over bins.
    coefficients = (np.fft.rfft(self.masses(_FINE))[1:count + 1]
                    * np.exp(-1j * np.pi * k / _FINE) / np.sinc(k / _FINE))
    coefficients.setflags(write=False)
    return coefficients

  @functools.lru_cache
  def cosine(self, count: int) -> np.ndarray:
    """Returns sqrt 2 times the integral of f cos(pi k x), k = 1..K, real [K].
    """
    k = np.arange(1, count + 1)
    # Fourier coefficients of the even extension, on a circle of length 2.
    spectrum = np.fft.rfft(np.concatenate([self.masses(_FINE),
                                           self.masses(_FINE)[::-1]]))
    coefficients = (
        spectrum[1:count + 1] * np.exp(-0.5j * np.pi * k / _FINE)).real / (
            _SQRT2 * np.sinc(0.5 * k / _FINE))
    coefficients.setflags(write=False)
    return coefficients

  def energies(self, count: int) -> np.ndarray:
    """Returns e_k = 2 |theta_k|^2 of frequencies 1..K, [K]."""
    return 2 * np.abs(self.fourier(count))**2

  def sobolev(self, smoothness: int, count: int = _SERIES) -> float:
    """Returns the L2 norm of the derivative of this order, from K frequencies.
    """
    k = np.arange(1, count + 1)
    return math.sqrt(np.sum((2 * np.pi * k)**(2 * smoothness)
                            * self.energies(count)))

  def counts(self, generator: np.random.Generator, *, num_records: int,
             num_bins: int, repetitions: int) -> np.ndarray:
    """Draws counts of records in equal bins, [R, m] int64, without records."""
    # Rounding can leave masses slightly below 0 and a sum off 1.
    probs = np.maximum(self.masses(num_bins), 0)
    return generator.multinomial(num_records, probs / probs.sum(), repetitions)

  @precision.in_float64
  def sample(self, key: PRNGKey, num_records: int) -> Array:
    """Draws records [n] float64 from the density averaged over 2^15 bins."""
    top = jnp.asarray(np.concatenate([[0], np.cumsum(self.masses(_FINE))]))
    uniform = jax.random.uniform(key, (num_records,), jnp.float64) * top[-1]
    return jnp.interp(uniform, top, jnp.linspace(0, 1, _FINE + 1,
                                                 dtype=jnp.float64))


def uniform() -> Density:
  """Returns the uniform density f = 1."""
  return Density(name='uniform', pdf=np.ones_like, cdf=np.array, square=1.0,
                 lipschitz=0.0)
