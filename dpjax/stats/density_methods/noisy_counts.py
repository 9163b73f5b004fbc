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
from jax.typing import ArrayLike
import numpy as np

from dpjax import errors
from dpjax.privacy import additive
from dpjax.privacy import draws
from dpjax.stats.density_methods import mechanism
from dpjax.typing import Array, PRNGKey, PyTree

NOISES = ('discrete_laplace', 'laplace')


class CountParameters(NamedTuple):
  """Public numbers that a release of counts takes.

  Attributes:
    scale: noise scale of a count; 0 without noise.
    variance: variance V of the noise of a count.
    num_records: n, or a public guess of it.
  """
  scale: ArrayLike
  variance: ArrayLike
  num_records: ArrayLike


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

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_at_least('num_bins', self.num_bins, 1)
    errors.check_choice('noise', self.noise, NOISES)

  def statistic(self, unit: np.ndarray) -> np.ndarray:
    """Returns counts [m] of records [n] in [0, 1]."""
    return mechanism.bin_counts(unit, self.num_bins)

  @property
  def scale(self) -> float:
    """Noise scale of a count: 2 / epsilon or 1 / sqrt(rho) for a public n."""
    # A replaced record changes two counts by 1: l1 norm 2, squared l2 norm 2.
    changed = 2 if self.knows_total else 1
    if self.epsilon is not None:
      return changed / self.epsilon
    return 0.0 if self.rho is None else math.sqrt(changed / (2 * self.rho))

  @property
  def noise_variance(self) -> float:
    """Variance V of the noise of one count."""
    if not self.pure:
      return self.scale**2
    if self.noise == 'laplace':
      return 2 * self.scale**2
    return draws.discrete_laplace_variance(self.scale)

  @property
  def noise_distribution(self) -> str | None:
    """Distribution of the noise: one of `NOISES`, 'gaussian', or None."""
    if self.pure:
      return self.noise
    return None if self.rho is None else 'gaussian'

  @property
  def parameters(self) -> PyTree:
    """Float64 NumPy arrays that `draw` takes as parameters."""
    return self.count_parameters

  @property
  def count_parameters(self) -> CountParameters:
    """Parameters of the noisy counts alone."""
    return CountParameters(*(np.array(value, np.float64) for value in (
        self.scale, self.noise_variance, self.num_records)))


def noisy(key: PRNGKey, counts: Array, scale: ArrayLike,
          distribution: str | None) -> Array:
  """Returns counts [m] float64 with independent noise.

  Args:
    key: used for nothing else.
    counts: [m] float64, private.
    scale: noise scale of a count, public; one for all or [m].
    distribution: see `CountsMechanism.noise_distribution`.
  """
  if distribution is None:
    return counts
  scale = jnp.asarray(scale)
  if distribution == 'discrete_laplace':
    return counts + draws.discrete_laplace(key, counts.shape, scale,
                                           counts.dtype)
  # Continuous noise is rounded to a public grid, because the low-order bits of
  # a sum of floats may reveal the count.
  if distribution == 'laplace':
    return additive.on_grid(counts + scale * draws.standard_laplace(
        key, counts.shape, counts.dtype), scale)
  return additive.on_grid(counts + scale * additive.standard_normal(
      key, counts.shape).astype(counts.dtype), scale)


def total(counts: Array, num_records: ArrayLike, known: bool) -> Array:
  """Returns the denominator of shares: a public n, or the noisy sum.

  Args:
    counts: noisy counts, of any shape.
    num_records: n, used only if it is public.
    known: whether n is public.
  """
  if known:
    return jnp.asarray(num_records)
  # At least one record, so that a sum near 0 does not blow up the shares.
  return jnp.maximum(jnp.sum(counts), 1.0)
