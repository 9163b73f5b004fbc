"""Base class of estimators from noisy sums of trigonometric functions.

  fourier  sums of sqrt 2 cos 2 pi k x, then sqrt 2 sin 2 pi k x, k <= K: for
           a circle
  cosine   sums of sqrt 2 cos pi k x, k <= K: for an interval

The first sum is n, that of the constant function, which changes only under
ADD_OR_REMOVE_ONE. The error is an exact sum over frequencies (Lalanne, Garivier
and Gribonval 2023, Lemma 2, published with constants that are twice too large;
items DEN-P1, P2 and B4).
"""

import abc
import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
import numpy as np

from dpjax import errors
from dpjax.stats.density_methods import mechanism
from dpjax.stats.density_methods import noisy_counts
from dpjax.stats.density_methods.densities import Density
from dpjax.typing import Array, PRNGKey, PyTree

BASES = ('fourier', 'cosine')
_SQRT2 = math.sqrt(2)


class SumParameters(NamedTuple):
  """Public numbers that the sampler takes.

  Attributes:
    scales: [s] noise scales of the sums, n first.
    weights: [K] multipliers of the coefficients.
    num_records: n, or a public guess.
  """
  scales: ArrayLike
  weights: ArrayLike
  num_records: ArrayLike


@dataclasses.dataclass(frozen=True, kw_only=True)
class SumsMechanism(mechanism.DensityMechanism):
  """Base class of estimators from noisy sums; the noise gives the guarantee.

  Attributes:
    num_cells: if given, records are rounded to the middle of one of this many
      cells, and the sums are one Fourier transform. Each wave is off by a
      relative (pi k / cells)^2 / 6, and the sensitivity does not increase. None
      sums the exact waves.
  """
  num_cells: int | None = None

  fix_mass = True

  def __post_init__(self) -> None:
    super().__post_init__()
    if self.num_cells is not None:
      errors.check_at_least('num_cells', self.num_cells,
                            2 * self.num_frequencies + 1)
    if not (self.fix_mass or self.knows_total):
      raise ValueError('fix_mass=False needs a public n: use replace_one')

  @property
  @abc.abstractmethod
  def num_frequencies(self) -> int:
    """Number K of frequencies in the sums."""

  @property
  @abc.abstractmethod
  def basis(self) -> str:
    """Basis of the sums, one of `BASES`."""

  @property
  @abc.abstractmethod
  def weights(self) -> np.ndarray:
    """Multipliers [K] of the coefficients."""

  @property
  @abc.abstractmethod
  def scales(self) -> np.ndarray:
    """Noise scales [K + 1] of frequencies 0..K."""

  @property
  def kind(self) -> str:  # type: ignore[override]  # The base has a constant.
    """Form of the estimate, see `estimate.KINDS`."""
    return self.basis if self.fix_mass else 'spectrum'

  @property
  def noise_distribution(self) -> str | None:
    """Noise distribution: 'laplace', 'gaussian' or None."""
    if self.pure:
      return 'laplace'
    return None if self.rho is None else 'gaussian'

  @property
  def noise_variances(self) -> np.ndarray:
    """Noise variances [K + 1] of the sums of frequencies 0..K."""
    variances = (2 if self.pure else 1) * self.scales**2
    if self.fix_mass and self.knows_total:
      variances[0] = 0.0  # A public n gets no noise.
    return variances

  def statistic(self, unit: np.ndarray) -> np.ndarray:
    """Returns sums [s] over records [n] in [0, 1]."""
    if self.num_cells is not None:
      return self.of_counts(mechanism.bin_counts(unit, self.num_cells))
    turn = np.exp((2j if self.basis == 'fourier' else 1j) * np.pi * unit)
    # Powers by multiplication: one complex exponential per record.
    waves, power = [], np.ones_like(turn)
    for _ in range(self.num_frequencies):
      power = power * turn
      waves.append(power.sum())
    return self._laid_out(np.float64(unit.size), np.array(waves))

  def of_counts(self, counts: np.ndarray) -> np.ndarray:
    """Returns sums [..., s] of counts [..., cells]; see `num_cells`."""
    # A cosine series on [0, 1] is a Fourier series on a circle of length 2.
    cells = errors.check_at_least('cells', counts.shape[-1],
                                  2 * self.num_frequencies + 1)
    length = cells if self.basis == 'fourier' else 2 * cells
    k = np.arange(1, self.num_frequencies + 1)
    waves = np.fft.rfft(counts, length)[..., k] * np.exp(-1j * np.pi * k
                                                         / length)
    return self._laid_out(counts.sum(-1), waves.conj())

  def _laid_out(self, total: ArrayLike, waves: np.ndarray) -> np.ndarray:
    """Concatenates n, the cosine sums and the sine sums to [..., s]."""
    parts = [np.asarray(total, np.float64)[..., None], _SQRT2 * waves.real]
    if self.basis == 'fourier':
      parts.append(_SQRT2 * waves.imag)
    return np.concatenate(parts, -1)

  @property
  def draw(self) -> mechanism.Draw:
    """Jittable sampler (key, sums, parameters) -> coefficients."""
    return _draw(self.basis, self.noise_distribution, self.fix_mass,
                 self.knows_total)

  @property
  def parameters(self) -> PyTree:
    """Float64 NumPy arrays that `draw` takes as parameters."""
    return self._sum_parameters(self.weights)

  def _sum_parameters(self, weights: np.ndarray) -> SumParameters:
    """Returns the parameters with these multipliers [K]."""
    scales = self.scales
    if self.basis == 'fourier':
      scales = np.concatenate([scales, scales[1:]])
    return SumParameters(scales, weights,
                         np.array(self.num_records, np.float64))

  def expected(self, density: Density) -> mechanism.Risk:
    """Returns the exact mean integrated squared error, for a public n."""
    if not self.knows_total:
      return super().expected(density)
    if self.basis == 'fourier':
      energies = density.energies(self.num_frequencies)
      spreads = 2 - energies
    else:
      theta = density.cosine(2 * self.num_frequencies)
      energies = theta[:self.num_frequencies]**2
      # The square of a cosine is half a constant plus half the cosine of twice
      # the frequency.
      spreads = 1 + theta[1::2] / _SQRT2 - energies
    tail_energy = density.energy - energies.sum()
    return mechanism.Risk(
        float(np.sum(self.weights**2 * spreads)) / self.num_records,
        self._privacy(),
        float(np.sum((1 - self.weights)**2 * energies)) + max(tail_energy, 0.0))

  def worst_case(self, smoothness: int, radius: float) -> mechanism.Risk:
    """Bounds the risk over a class of smooth densities.

    On the circle: densities whose derivative of order beta has norm at most L,
    so that sum (2 pi k)^(2 beta) e_k <= L^2 (Lalanne, Garivier and Gribonval
    2023, Fact 1, without the condition C^beta; DEN-E3). On the interval the
    same with pi k; for beta = 1 this includes all L-Lipschitz densities. Bias
    and noise are attained.

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
    # What is left of a coefficient after weighting; all of it beyond K.
    left = np.append(np.abs(1 - self.weights), 1)
    return mechanism.Risk(
        float(np.sum(self.weights**2 * spreads)) / self.num_records,
        self._privacy(), float(np.max(left / rates) * radius)**2)

  def _privacy(self) -> float:
    """Returns the error that the noise adds."""
    variances = self.noise_variances
    num_sums = 2 if self.basis == 'fourier' else 1  # of a frequency
    return float(variances[0] + num_sums * np.sum(
        self.weights**2 * variances[1:])) / self.num_records**2


@functools.cache
def _draw(basis: str, distribution: str | None, fix_mass: bool,
          knows_total: bool) -> mechanism.Draw:
  """Returns the sampler of a `SumsMechanism`."""
  def draw(key: PRNGKey, sums: Array, parameters: SumParameters) -> Array:
    # A public total is used without noise; it is the same for all neighbours.
    first = 1 if fix_mass and knows_total else 0
    noisy = noisy_counts.noisy(
        key, sums[first:], jnp.asarray(parameters.scales)[first:], distribution)
    weights = jnp.asarray(parameters.weights)
    if knows_total:
      shares = noisy / parameters.num_records
    else:
      # noisy[0] is the noisy n; at least 1, so that shares stay bounded.
      shares = noisy / jnp.maximum(noisy[0], 1.0)
    waves = shares[1 - first:]
    if basis == 'cosine':
      return weights * waves
    # theta_k is the mean cosine minus i times the mean sine; the sums are
    # sqrt 2 times as large.
    real, imaginary = (weights / _SQRT2 * part
                       for part in jnp.split(waves, 2))
    theta = jax.lax.complex(real, -imaginary)
    if fix_mass:
      return theta
    return jnp.concatenate([shares[:1].astype(theta.dtype), theta])
  return draw
