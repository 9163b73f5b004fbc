"""Noise of the counts of bins, the private part of most estimators here.

Under REPLACE_ONE counts move by 2 in l1, sqrt 2 in l2 and 1 in the largest,
however many bins there are; under ADD_OR_REMOVE_ONE by 1 in all three (paper
001, lines 294-303; item DEN-H3). Noise of weights e^(-|z| / scale) on integers
is exactly epsilon-DP and has less variance than that of Laplace (DEN-B14).
"""

import dataclasses
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import additive
from dpjax.privacy import draws
from dpjax.stats.density import mechanism
from dpjax.typing import Array, PRNGKey

NOISES = ('discrete_laplace', 'laplace')


class Parameters(NamedTuple):
  """Numbers of a release of counts.

  Attributes:
    scale: of the noise of a count; 0 without.
    variance: V, of the same.
    num_records: n, or a public guess.
  """
  scale: np.ndarray
  variance: np.ndarray
  num_records: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class CountsMechanism(mechanism.DensityMechanism):
  """Base of estimators that see nothing but noisy counts of equal bins.

  Guarantee: epsilon-DP, or rho-zCDP, under `adjacency`; what follows the counts
  is post-processing.

  Attributes:
    num_bins: m.
    noise: of a budget epsilon, one of `NOISES`; Gaussian for rho.
  """
  num_bins: int
  noise: str = 'discrete_laplace'

  def __post_init__(self):
    super().__post_init__()
    errors.check_at_least('num_bins', self.num_bins, 1)
    errors.check_choice('noise', self.noise, NOISES)

  def statistic(self, unit: np.ndarray) -> np.ndarray:
    """Counts [m] of records [n] in [0, 1]."""
    return mechanism.bin_counts(unit, self.num_bins)

  @property
  def scale(self) -> float:
    """Of the noise: 2 / epsilon or 1 / sqrt(rho) for a known n."""
    if self.epsilon is None and self.rho is None:
      return 0.0
    if self.pure:
      return (2 if self.knows_total else 1) / self.epsilon
    return math.sqrt((2 if self.knows_total else 1) / (2 * self.rho))

  @property
  def noise_variance(self) -> float:
    """V, of the noise of one count."""
    if not self.pure:
      return self.scale**2
    if self.noise == 'laplace':
      return 2 * self.scale**2
    return draws.discrete_laplace_variance(self.scale)

  @property
  def law(self) -> str | None:
    """Which noise `noisy` adds: one of `NOISES`, 'gaussian', or None."""
    if self.pure:
      return self.noise
    return None if self.rho is None else 'gaussian'

  @property
  def parameters(self) -> Parameters:
    """Numbers that the law takes."""
    return Parameters(*(np.array(value, np.float64) for value in (
        self.scale, self.noise_variance, self.num_records)))


def noisy(key: PRNGKey, counts: Array, scale: Array, law: str | None) -> Array:
  """Counts [m] float64 with independent noise.

  Args:
    key: used for nothing else.
    counts: [m] float64.
    scale: of the noise.
    law: as `CountsMechanism.law`.
  """
  if law is None:
    return counts
  if law == 'discrete_laplace':
    return counts + draws.discrete_laplace(key, counts.shape, scale,
                                           counts.dtype)
  if law == 'laplace':
    return additive.on_grid(counts + scale * draws.standard_laplace(
        key, counts.shape, counts.dtype), scale)
  return additive.on_grid(counts + scale * additive.standard_normal(
      key, counts.shape).astype(counts.dtype), scale)


def total(counts: Array, parameters: Parameters, known: bool) -> Array:
  """What counts are shares of: n, or their noisy sum, at least 1."""
  if known:
    return jnp.asarray(parameters.num_records)
  return jnp.maximum(jnp.sum(counts), 1.0)
