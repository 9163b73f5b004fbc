"""All cut-offs at once under zCDP: sums with noise that grows with frequency.

The variance of the noise of frequency k is a multiple of k, so that a cut-off
has the noise that one chosen for it would have, but for a factor of ln K; then
coefficients are shrunk by their own size. Neither beta nor L is needed. Item
DEN-B5.
"""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.density import mechanism
from dpjax.stats.density import pooling
from dpjax.stats.density import projections
from dpjax.stats.density import shrinkage
from dpjax.stats.density import trigonometric
from dpjax.stats.density.laws import Density
from dpjax.typing import Array, PRNGKey

_MOST = 120


class Parameters(NamedTuple):
  """Numbers of a release.

  Attributes:
    sums: of the noisy sums.
    variances: of coefficients, of noise and sampling, [K].
    penalty: of the shrinkage.
  """
  sums: trigonometric.Parameters
  variances: np.ndarray
  penalty: np.ndarray


@functools.cache
def _draw(linear: mechanism.Draw) -> mechanism.Draw:
  def draw(key: PRNGKey, sums: Array, parameters: Parameters) -> Array:
    found = linear(key, sums, parameters.sums)
    return pooling.shrunk(found, jnp.asarray(parameters.variances),
                          parameters.penalty)
  return draw


@dataclasses.dataclass(frozen=True, kw_only=True)
class AdaptiveProjection(projections.WeightedProjection):
  """Sums with noise of variance kappa / weight, shrunk; made by `adaptive`.

  Guarantee: rho-zCDP under `adjacency`; shrinkage is post-processing.

  Attributes:
    penalty: c of `shrinkage`.
  """
  penalty: float = shrinkage.PENALTY

  def __post_init__(self):
    super().__post_init__()
    errors.check_positive('penalty', self.penalty)

  @property
  def draw(self) -> mechanism.Draw:
    """The law of coefficients [K]."""
    return _draw(super().draw)

  @property
  def parameters(self) -> Parameters:
    """Numbers that the law takes."""
    sums = super().parameters
    # Weights say how noise is shared out; what is told is the sums themselves.
    sums = sums._replace(weights=np.ones_like(sums.weights))
    # |theta|^2 is half that of its cosine and its sine.
    noise = self.noise_variances[1:] / self.num_records**2
    return Parameters(sums, noise + 1 / self.num_records,
                      np.float64(self.penalty))

  def expected(self, density: Density) -> mechanism.Risk:
    """Refused: it is not linear."""
    return mechanism.DensityMechanism.expected(self, density)

  def worst_case(self, smoothness: int, radius: float) -> mechanism.Risk:
    """Refused: it is not linear."""
    raise NotImplementedError('there is no closed form of its worst case')


def adaptive(*, num_records: int, rho: float, adjacency: Adjacency,
             basis: str = 'fourier', num_cells: int | None = None,
             penalty: float = shrinkage.PENALTY) -> AdaptiveProjection:
  """Frequencies by public numbers: 1.5 min((n sqrt rho)^(1/2), 1.5 n^(1/3)).

  Args:
    num_records: n.
    rho: of the release.
    adjacency: which data sets are neighbours.
    basis: 'fourier' for a circle, or 'cosine'.
    num_cells: as of `SumsMechanism`.
    penalty: c of `shrinkage`.
  """
  errors.check_positive('rho', rho)
  errors.check_at_least('num_records', num_records, 1)
  wanted = 1.5 * min(math.sqrt(num_records * math.sqrt(rho)),
                     1.5 * num_records**(1 / 3))
  count = min(_MOST, max(2, math.ceil(wanted)))
  return AdaptiveProjection(
      num_records=num_records, rho=rho, adjacency=adjacency, basis=basis,
      num_cells=num_cells, penalty=penalty,
      coefficient_weights=tuple(1 / np.arange(1, count + 1)))
