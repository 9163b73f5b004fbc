"""Noisy histogram counts: the private step shared by most density estimators.

Under REPLACE_ONE a record changes the counts by 2 in l1, sqrt 2 in l2 and 1 in
the maximum norm, for any number of bins; under ADD_OR_REMOVE_ONE by 1 in all
three (Lalanne, Garivier and Gribonval 2023, section 3.2; item DEN-H3). Integer
noise of weights e^(-|z| / scale) is exactly epsilon-DP and has a smaller
variance than Laplace noise (DEN-B14).
"""

import dataclasses
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import additive
from dpjax.privacy import draws
from dpjax.stats.density_methods import mechanism
from dpjax.typing import Array, PRNGKey

NOISES = ('discrete_laplace', 'laplace')


class Parameters(NamedTuple):
  """Parameters of a release of counts.

  Attributes:
    scale: of the noise of a count; 0 without noise.
    variance: V, of the noise of a count.
    num_records: n, or a public guess.
  """
  scale: np.ndarray
  variance: np.ndarray
  num_records: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True)
class CountsMechanism(mechanism.DensityMechanism):
  """Base class of estimators that use only noisy counts of equal bins.

  Guarantee: epsilon-DP, or rho-zCDP, under `adjacency`; all that follows the
  counts is post-processing.

  Attributes:
    num_bins: m.
    noise: for a budget of epsilon, one of `NOISES`; for rho it is Gaussian.
  """
  num_bins: int
  noise: str = 'discrete_laplace'

  def __post_init__(self):
    super().__post_init__()
    errors.check_at_least('num_bins', self.num_bins, 1)
    errors.check_choice('noise', self.noise, NOISES)

  def statistic(self, unit: np.ndarray) -> np.ndarray:
    """Returns counts [m] of records [n] in [0, 1]."""
    return mechanism.bin_counts(unit, self.num_bins)

  @property
  def scale(self) -> float:
    """Noise scale of a count: 2 / epsilon or 1 / sqrt(rho) for a public n."""
    if self.epsilon is None and self.rho is None:
      return 0.0
    if self.pure:
      return (2 if self.knows_total else 1) / self.epsilon
    return math.sqrt((2 if self.knows_total else 1) / (2 * self.rho))

  @property
  def noise_variance(self) -> float:
    """Variance V of the noise of one count."""
    if not self.pure:
      return self.scale**2
    if self.noise == 'laplace':
      return 2 * self.scale**2
    return draws.discrete_laplace_variance(self.scale)

  @property
  def law(self) -> str | None:
    """Noise that `noisy` adds: one of `NOISES`, 'gaussian', or None."""
    if self.pure:
      return self.noise
    return None if self.rho is None else 'gaussian'

  @property
  def parameters(self) -> Parameters:
    """Float64 NumPy arrays that `draw` takes as parameters."""
    return Parameters(*(np.array(value, np.float64) for value in (
        self.scale, self.noise_variance, self.num_records)))


def noisy(key: PRNGKey, counts: Array, scale: Array, law: str | None) -> Array:
  """Returns counts [m] float64 with independent noise.

  Args:
    key: used for nothing else.
    counts: [m] float64.
    scale: of the noise.
    law: see `CountsMechanism.law`.
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
  """Returns the denominator of shares: n, or the noisy sum, at least 1."""
  if known:
    return jnp.asarray(parameters.num_records)
  return jnp.maximum(jnp.sum(counts), 1.0)
