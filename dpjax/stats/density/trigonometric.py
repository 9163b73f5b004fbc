"""Estimators that see noisy sums of trigonometric functions, and their errors.

  fourier  of sqrt 2 cos 2 pi k x and then sqrt 2 sin 2 pi k x, k <= K: a circle
  cosine   of sqrt 2 cos pi k x, k <= K: an interval

and before them n, the sum of the constant function, which moves under
ADD_OR_REMOVE_ONE alone. The error is a sum over frequencies, exact (paper 001,
Lemma 2, lines 553-564, printed with constants that are twice too large; item
DEN-P1, P2 and B4).
"""

import abc
import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.stats.density import mechanism
from dpjax.stats.density import noisy_counts
from dpjax.stats.density.laws import Density
from dpjax.typing import Array, PRNGKey

BASES = ('fourier', 'cosine')
_SQRT2 = math.sqrt(2)


class Parameters(NamedTuple):
  """Numbers of a release of sums.

  Attributes:
    scales: of the noise of the sums, [s]; of n first.
    weights: that coefficients are multiplied by, [K].
    num_records: n, or a public guess.
  """
  scales: np.ndarray
  weights: np.ndarray
  num_records: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class SumsMechanism(mechanism.DensityMechanism):
  """Base of estimators that see noisy sums; the noise is their guarantee.

  Attributes:
    num_cells: of records in so many cells, each taken for the middle of its
      cell, sums are one Fourier transform; each wave is off by (pi k / cells)^2
      / 6 of itself, and no record moves them farther. Directly when not given.
  """
  num_cells: int | None = None

  fix_mass = True

  def __post_init__(self):
    super().__post_init__()
    if self.num_cells is not None:
      errors.check_at_least('num_cells', self.num_cells,
                            2 * self.num_frequencies + 1)
    if not (self.fix_mass or self.knows_total):
      raise ValueError('fix_mass=False needs a public n: use replace_one')

  @property
  @abc.abstractmethod
  def num_frequencies(self) -> int:
    """K."""

  @property
  @abc.abstractmethod
  def basis(self) -> str:
    """One of `BASES`."""

  @property
  @abc.abstractmethod
  def weights(self) -> np.ndarray:
    """What coefficients are multiplied by, [K]."""

  @property
  @abc.abstractmethod
  def scales(self) -> np.ndarray:
    """Of the noise of frequencies 0..K, [K + 1]."""

  @property
  def kind(self) -> str:
    """Of the estimate, see `estimate.KINDS`."""
    return self.basis if self.fix_mass else 'spectrum'

  @property
  def law(self) -> str | None:
    """Of the noise: 'laplace', 'gaussian' or None."""
    if self.pure:
      return 'laplace'
    return None if self.rho is None else 'gaussian'

  @property
  def noise_variances(self) -> np.ndarray:
    """V of frequencies 0..K, [K + 1], of the noise of each sum."""
    found = (2 if self.pure else 1) * self.scales**2
    if self.fix_mass and self.knows_total:
      found[0] = 0.0
    return found

  def statistic(self, unit: np.ndarray) -> np.ndarray:
    """Sums [s] over records [n] in [0, 1]."""
    if self.num_cells is not None:
      return self.of_counts(mechanism.bin_counts(unit, self.num_cells))
    turn = np.exp((2j if self.basis == 'fourier' else 1j) * np.pi * unit)
    waves, power = [], np.ones_like(turn)
    for _ in range(self.num_frequencies):
      power = power * turn
      waves.append(power.sum())
    return self._laid_out(np.float64(unit.size), np.array(waves))

  def of_counts(self, counts: np.ndarray) -> np.ndarray:
    """Sums [..., s] of counts [..., cells]; see `num_cells`."""
    cells = errors.check_at_least('cells', counts.shape[-1],
                                  2 * self.num_frequencies + 1)
    length = cells if self.basis == 'fourier' else 2 * cells
    k = np.arange(1, self.num_frequencies + 1)
    waves = np.fft.rfft(counts, length)[..., k] * np.exp(-1j * np.pi * k
                                                         / length)
    return self._laid_out(counts.sum(-1), waves.conj())

  def _laid_out(self, total, waves):
    parts = [np.asarray(total, np.float64)[..., None], _SQRT2 * waves.real]
    if self.basis == 'fourier':
      parts.append(_SQRT2 * waves.imag)
    return np.concatenate(parts, -1)

  @property
  def draw(self) -> mechanism.Draw:
    """The law."""
    return _draw(self.basis, self.law, self.fix_mass, self.knows_total)

  @property
  def parameters(self) -> Parameters:
    """Numbers that the law takes."""
    scales = self.scales
    if self.basis == 'fourier':
      scales = np.concatenate([scales, scales[1:]])
    return Parameters(scales, self.weights,
                      np.array(self.num_records, np.float64))

  def expected(self, density: Density) -> mechanism.Risk:
    """The mean integrated squared error, exact where n is public."""
    if not self.knows_total:
      return super().expected(density)
    if self.basis == 'fourier':
      energies = density.energies(self.num_frequencies)
      spreads = 2 - energies
    else:
      theta = density.cosine(2 * self.num_frequencies)
      energies = theta[:self.num_frequencies]**2
      # The square of a cosine is half a constant, half twice the frequency.
      spreads = 1 + theta[1::2] / _SQRT2 - energies
    beyond = density.energy - energies.sum()
    return mechanism.Risk(
        float(np.sum(self.weights**2 * spreads)) / self.num_records,
        self._privacy(),
        float(np.sum((1 - self.weights)**2 * energies)) + max(beyond, 0.0))

  def worst_case(self, smoothness: int, radius: float) -> mechanism.Risk:
    """What the error is at most over a class of smooth densities.

    Of the densities on the circle whose derivative of order beta has norm at
    most L, sum (2 pi k)^(2 beta) e_k <= L^2 (paper 001, Fact 1, in this form
    without the condition C^beta, erratum E3); or on the interval with pi k,
    where beta = 1 holds all that are L-Lipschitz. Bias and noise are attained.

    Args:
      smoothness: beta, an integer, at least 1.
      radius: L.
    """
    errors.check_at_least('smoothness', smoothness, 1)
    errors.check_positive('radius', radius)
    k = np.arange(1, self.num_frequencies + 2)
    rates = (np.pi * k * (2 if self.basis == 'fourier' else 1))**smoothness
    spreads = np.full(k.size - 1, 2.0)
    if self.basis == 'cosine':
      doubled = radius / (np.pi * 2 * k[:-1])**smoothness
      spreads = 1 + np.minimum(doubled / _SQRT2, 1)
    left = np.append(np.abs(1 - self.weights), 1)
    return mechanism.Risk(
        float(np.sum(self.weights**2 * spreads)) / self.num_records,
        self._privacy(), float(np.max(left / rates) * radius)**2)

  def _privacy(self) -> float:
    variances = self.noise_variances
    each = 2 if self.basis == 'fourier' else 1
    return float(variances[0] + each * np.sum(
        self.weights**2 * variances[1:])) / self.num_records**2


@functools.cache
def _draw(basis: str, law: str | None, fix_mass: bool,
          knows_total: bool) -> mechanism.Draw:
  def draw(key: PRNGKey, sums: Array, parameters: Parameters) -> Array:
    # A total that is public is told as it is, and moves nothing.
    first = 1 if fix_mass and knows_total else 0
    noisy = noisy_counts.noisy(key, sums[first:], parameters.scales[first:],
                               law)
    if knows_total:
      shares = noisy / parameters.num_records
    else:
      shares = noisy / jnp.maximum(noisy[0], 1.0)
    waves = shares[1 - first:]
    if basis == 'cosine':
      return parameters.weights * waves
    real, imaginary = (parameters.weights / _SQRT2 * part
                       for part in jnp.split(waves, 2))
    theta = jax.lax.complex(real, -imaginary)
    if fix_mass:
      return theta
    return jnp.concatenate([shares[:1].astype(theta.dtype), theta])
  return draw
