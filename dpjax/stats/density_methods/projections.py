"""Projections on the trigonometric basis, as published and improved.

The published estimator releases N sums with one noise scale (Lalanne, Garivier
and Gribonval 2023, equation (8) and Theorem 4; Lalanne 2023, Theorem 5.2.3;
items DEN-P1 to P5). The published scale is twice what is needed, and noise is
added to a constant that is public (item DEN-B1). Under zCDP frequencies need
not be treated alike: `WeightedProjection` has the least noise for a given
smoothing, and on a class of smooth densities a quarter of the published error
(item DEN-B4).
"""

import dataclasses
import functools
import math

import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import sensitivities
from dpjax.stats.density_methods import trigonometric

ALLOCATIONS = ('proportional', 'least')
TUNINGS = ('exact', 'printed')
_STEPS = 500


@dataclasses.dataclass(frozen=True, kw_only=True)
class Projection(trigonometric.SumsMechanism):
  """N sums with noise of one scale: Laplace for epsilon, Gaussian for rho.

  Guarantee: epsilon-DP or rho-zCDP under `adjacency`, on the circle.

  Attributes:
    num_functions: N = 2 K + 1, odd, with the constant.
    tuning: 'exact' sensitivities, or 'printed' ones: safe, with 3.3 times (rho)
      or 4.2 times (epsilon) the variance.
    fix_mass: whether the mean is kept at 1 if n is public; the published
      estimator adds noise to it.
  """
  num_functions: int
  tuning: str = 'exact'
  fix_mass: bool = True

  def __post_init__(self) -> None:
    errors.check_choice('tuning', self.tuning, TUNINGS)
    sensitivities.frequencies_of(self.num_functions)
    super().__post_init__()

  basis = 'fourier'

  @property
  def num_frequencies(self) -> int:
    """Number K of frequencies in the sums."""
    return sensitivities.frequencies_of(self.num_functions)

  @property
  def weights(self) -> np.ndarray:
    """Weights [K] of the coefficients: all 1."""
    return np.ones(self.num_frequencies)

  @property
  def sensitivity(self) -> float:
    """Sensitivity of the noisy sums: in l1 for epsilon, in l2 for rho."""
    order, printed = 1 if self.pure else 2, self.tuning == 'printed'
    sensitivity = sensitivities.trigonometric(
        self.num_functions, order=order, adjacency=self.adjacency,
        printed=printed)
    if self.knows_total or printed:
      return sensitivity
    # The sum of the constant, which is n, is released too and changes by 1.
    return sensitivity + 1 if self.pure else math.hypot(sensitivity, 1)

  @property
  def scales(self) -> np.ndarray:
    """Noise scales [K + 1], the same for all frequencies."""
    size = self.num_frequencies + 1
    if self.epsilon is not None:
      return np.full(size, self.sensitivity / self.epsilon)
    if self.rho is None:
      return np.zeros(size)
    return np.full(size, self.sensitivity / math.sqrt(2 * self.rho))


@dataclasses.dataclass(frozen=True, kw_only=True)
class WeightedProjection(trigonometric.SumsMechanism):
  """Releases sums with the least Gaussian noise for weighted coefficients.

  The noise variance of a sum is kappa / weight. In other words, a Gaussian
  process whose covariance is the kernel is added to a kernel estimate (form:
  Hall, Rinaldo and Wasserman 2013). This is the least noise under
  ADD_OR_REMOVE_ONE; under REPLACE_ONE `least_noise_weights` saves up to 11 %.
  Guarantee: rho-zCDP under `adjacency`; `sensitivities` certifies kappa.

  Attributes:
    coefficient_weights: weights of frequencies 1..K; 0 leaves one out.
    basis: 'fourier' for a circle, 'cosine' for an interval.
    allocation: allocation of the noise: 'proportional', or 'least' on a circle.
  """
  coefficient_weights: tuple[float, ...]
  basis: str = 'fourier'
  allocation: str = 'proportional'

  def __post_init__(self) -> None:
    errors.check_choice('basis', self.basis, trigonometric.BASES)
    errors.check_choice('allocation', self.allocation, ALLOCATIONS)
    if self.allocation == 'least' and self.basis == 'cosine':
      raise ValueError("allocation='least' is known on a circle alone: use "
                       "basis='fourier' or allocation='proportional'")
    object.__setattr__(self, 'coefficient_weights', sensitivities.as_weights(
        self.coefficient_weights))
    if self.pure:
      raise ValueError('weighted sums have Gaussian noise: give rho, not '
                       f'epsilon={self.epsilon}')
    super().__post_init__()

  @property
  def num_frequencies(self) -> int:
    """Number K of frequencies in the sums."""
    return len(self.coefficient_weights)

  @property
  def weights(self) -> np.ndarray:
    """Weights [K] of the coefficients: `coefficient_weights`."""
    return np.array(self.coefficient_weights)

  @property
  def noise_weights(self) -> np.ndarray:
    """Weights [K] to which noise variances are inversely proportional."""
    if self.allocation == 'least' and self.knows_total:
      return np.array(least_noise_weights(self.coefficient_weights))
    return self.weights

  @property
  def kappa(self) -> float:
    """Noise variance of a sum times its weight; 0 without privacy."""
    if self.rho is None:
      return 0.0
    weighted = (sensitivities.weighted_circle if self.basis == 'fourier'
                else sensitivities.weighted_cosine)
    squared = weighted(self.noise_weights, adjacency=self.adjacency)
    # If n is released too, its sum has weight 1 and changes by 1.
    return (squared if self.knows_total else squared + 1) / (2 * self.rho)

  @property
  def scales(self) -> np.ndarray:
    """Noise standard deviations [K + 1]: sqrt(kappa / weight).

    Frequencies of weight 0 are not released, so theirs does not matter.
    """
    weights = np.concatenate([[1.0], self.noise_weights])
    return np.sqrt(self.kappa / np.where(weights > 0, weights, 1))


@functools.cache
def least_noise_weights(weights: tuple[float, ...]) -> tuple[float, ...]:
  """Returns noise weights a of least error for weights lambda [K], REPLACE_ONE.

  Method:
  1. Minimise sum lambda_k^2 / a_k such that sum a_k g_k(d) <= 1 for all d, with
     g_k = 4 - 4 cos 2 pi k d.
  2. By duality this is the maximum over measures mu of (sum lambda_k sqrt(mu
     g_k))^2, with a_k = lambda_k / sqrt(mu g_k).
  3. The dual is concave, and is solved by multiplying mu by its gradient.

  Between kappa / lambda and the uniform measure, 4 (sum lambda)^2, there is a
  factor of at most 1.22. The result depends on public numbers only, and any
  weights are safe.

  Args:
    weights: lambda, of frequencies 1..K.
  """
  given = np.array(sensitivities.as_weights(weights))
  released = np.flatnonzero(given)
  # Differences d in (0, 1/2] on a grid of 16 points per highest wave.
  places = np.arange(1, 8 * given.size + 1) / (16 * given.size)
  changes = 8 * np.sin(np.pi * np.multiply.outer(places, released + 1))**2
  measure = np.full(places.size, 1 / places.size)
  for _ in range(_STEPS):
    inverse = given[released] / np.sqrt(measure @ changes)
    # Multiplicative ascent keeps the measure positive without a step size.
    measure *= changes @ inverse
    measure /= measure.sum()
  inverse = np.zeros(given.size)
  inverse[released] = given[released] / np.sqrt(measure @ changes)

  def error(shape: np.ndarray) -> float:
    return np.sum(
        given[released]**2 / shape[released]) * sensitivities.weighted_circle(
            shape, adjacency=Adjacency.REPLACE_ONE)
  # If no gain is possible, the steps end slightly above the given weights.
  best = min(inverse, given, key=error)
  return tuple(best.tolist())
