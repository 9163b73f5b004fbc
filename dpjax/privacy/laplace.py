"""The Laplace mechanism, with outputs on a public grid.

Floating point: as in `additive`, the output is rounded to a public grid of
1/512 to 1/256 of the noise scale. Rounding is post-processing, and every grid
point within 38 scales remains possible. The textbook mechanism with float64
noise leaks the exact value through the set of floats that can occur.
"""

import dataclasses

import jax

from dpjax import errors
from dpjax import tree
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.privacy import draws
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.privacy.adjacency import sum_sensitivity
from dpjax.typing import PRNGKey, PyTree


def add_laplace_noise(key: PRNGKey, values: PyTree, scales: PyTree) -> PyTree:
  """Returns `values` plus independent Laplace noise, rounded to the grid.

  Args:
    key: fresh for this call.
    values: pytree of float32 arrays.
    scales: scales b of the noise, a tree prefix of `values` with positive
      scalars that do not depend on the private data of this release.
  """
  leaves, structure = jax.tree.flatten(values)
  keys = jax.tree.unflatten(structure, list(jax.random.split(key, len(leaves))))
  return tree.map_blocks(
      lambda scale, value, leaf_key: additive.on_grid(
          value + scale * draws.standard_laplace(leaf_key, value.shape), scale),
      scales, values, keys)


@dataclasses.dataclass(frozen=True, kw_only=True)
class LaplaceMechanism:
  """Releases a sum of records, each of l1 norm at most `record_norm`.

  Guarantee: epsilon-DP under `adjacency`, in real arithmetic. The event is that
  of Laplace noise, which composes better than its epsilon alone. Source: Dwork
  et al. (2006); Barczewski (2025, Algorithm 2; item DP-10).

  Attributes:
    record_norm: l1 bound on one record's contribution; callers enforce it.
    epsilon: budget of one release, positive. (Barczewski 2025, Theorem 3.1.7
      allows 0, for which no noise scale exists; erratum E23.)
    adjacency: neighbouring relation of the guarantee.

  Examples:
    >>> from dpjax.privacy import keys
    >>> from dpjax.privacy.adjacency import Adjacency
    >>> from dpjax.privacy.laplace import LaplaceMechanism
    >>> noisy = LaplaceMechanism(record_norm=1.0, epsilon=0.5,
    ...                          adjacency=Adjacency.REPLACE_ONE)
    >>> noisy.scale  # One record goes, another comes.
    4.0
    >>> key, = keys.system_keys(1)  # Known to nobody, used once.
    >>> total = noisy.release(key, jnp.float32(1000.0))
    >>> bool(abs(total - 1000) < 20 * noisy.scale)
    True
  """
  record_norm: float
  epsilon: float
  adjacency: Adjacency

  def __post_init__(self) -> None:
    errors.check_scale('record_norm', self.record_norm)
    errors.check_positive('epsilon', self.epsilon)
    check_adjacency(self.adjacency)

  @property
  def l1_sensitivity(self) -> float:
    """Largest l1 change of the sum between neighbouring data sets."""
    return sum_sensitivity(self.adjacency, record_norm=self.record_norm)

  @property
  def scale(self) -> float:
    """Scale b of the noise in every coordinate; its variance is 2 b^2."""
    return self.l1_sensitivity / self.epsilon

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy cost of one release."""
    return accounting.laplace_event(
        noise_multiplier=self.scale / self.record_norm)

  def release(self, key: PRNGKey, data: PyTree) -> PyTree:
    """Returns the noisy sum; `data` is the exact sum, a float32 pytree."""
    return add_laplace_noise(key, data, self.scale)

  def risk(self, num_values: int) -> float:
    """Returns the expected squared l2 error of `num_values` numbers."""
    return num_values * 2 * self.scale**2
