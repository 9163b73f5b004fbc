"""Adaptive Fourier sums for zCDP: noise that grows with frequency.

The noise variance of frequency k is a multiple of k. So every cut-off has the
noise that would be optimal for it, up to a factor of ln K, and the coefficients
are then shrunk by their own size. Neither beta nor L is needed. Item DEN-B5.
"""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax.numpy as jnp
from jax.typing import ArrayLike
import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density_methods import mechanism
from dpjax.stats.density_methods import pooling
from dpjax.stats.density_methods import projections
from dpjax.stats.density_methods import shrinkage
from dpjax.stats.density_methods import trigonometric
from dpjax.stats.density_methods.densities import Density
from dpjax.typing import Array, PRNGKey

_MOST = 120


class WeightedParameters(NamedTuple):
  """Public numbers that the sampler takes.

  Attributes:
    sums: parameters of the noisy sums.
    variances: [K], variances of coefficients by noise and sampling.
    penalty: penalty of the shrinkage.
  """
  sums: trigonometric.SumParameters
  variances: ArrayLike
  penalty: ArrayLike


@functools.cache
def _draw(linear: mechanism.Draw) -> mechanism.Draw:
  """Returns the sampler of shrunk coefficients."""
  def draw(key: PRNGKey, sums: Array, parameters: WeightedParameters) -> Array:
    coefficients = linear(key, sums, parameters.sums)
    return pooling.shrunk(coefficients, jnp.asarray(parameters.variances),
                          parameters.penalty)
  return draw


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaptiveProjection(projections.WeightedProjection):
  """Sums with noise of variance kappa / weight, shrunk; build with `adaptive`.

  Guarantee: rho-zCDP under `adjacency`; shrinkage is post-processing.

  Attributes:
    penalty: c of `shrinkage`.
  """
  penalty: float = shrinkage.PENALTY

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_positive('penalty', self.penalty)

  @property
  def draw(self) -> mechanism.Draw:
    """Jittable sampler of coefficients [K]."""
    return _draw(super().draw)

  @property
  def parameters(self) -> WeightedParameters:
    """Float64 NumPy arrays that `draw` takes as parameters."""
    # Weights only divide the noise among frequencies here; the coefficients
    # are not multiplied by them.
    sums = self._sum_parameters(np.ones(self.num_frequencies))
    # |theta|^2 is half the sum of squares of its cosine and sine coefficients.
    noise = self.noise_variances[1:] / self.num_records**2
    return WeightedParameters(sums, noise + 1 / self.num_records,
                              np.float64(self.penalty))

  def expected(self, density: Density) -> mechanism.Risk:
    """Raises, because the estimator is not linear."""
    return mechanism.DensityMechanism.expected(self, density)

  def worst_case(self, smoothness: int, radius: float) -> mechanism.Risk:
    """Raises, because the estimator is not linear."""
    raise NotImplementedError('AdaptiveProjection is not linear: there is no '
                              'closed form of its worst case')


def adaptive(*, num_records: int, rho: float, adjacency: Adjacency,
             basis: str = 'fourier', num_cells: int | None = None,
             penalty: float = shrinkage.PENALTY) -> AdaptiveProjection:
  """Returns the estimator with frequencies up to a public cut-off.

  The cut-off is 1.5 min((n sqrt rho)^(1/2), 1.5 n^(1/3)), from 2 to 120.

  Args:
    num_records: n.
    rho: budget of the release.
    adjacency: which data sets are neighbours.
    basis: 'fourier' for a circle, or 'cosine'.
    num_cells: see `trigonometric.SumsMechanism`.
    penalty: c of `shrinkage`.
  """
  errors.check_positive('rho', rho)
  errors.check_at_least('num_records', num_records, 1)
  frequencies = 1.5 * min(math.sqrt(num_records * math.sqrt(rho)),
                          1.5 * num_records**(1 / 3))
  count = min(_MOST, max(2, math.ceil(frequencies)))
  return AdaptiveProjection(
      num_records=num_records, rho=rho, adjacency=adjacency, basis=basis,
      num_cells=num_cells, penalty=penalty,
      coefficient_weights=tuple(1 / np.arange(1, count + 1)))
