"""Releases a distribution function on a public grid and inverts it.

One release serves every quantile level: the error does not grow with the number
of levels, and levels may be chosen after the release. Bins are (e_(k-1), e_k],
the first one closed, so that the rank at edge e_k is n P(X <= e_k).
"""

import abc
from collections.abc import Callable
import dataclasses
import functools
from typing import NamedTuple, TYPE_CHECKING

import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import precision
from dpjax.stats.quantile_methods import inversion
from dpjax.stats.quantile_methods import mechanism
from dpjax.stats.quantile_methods import quantile_levels
from dpjax.stats.quantile_methods import records
from dpjax.stats.quantile_methods.records import Records
from dpjax.typing import Array, PRNGKey

INTERPOLATIONS = {'linear': inversion.inverse,
                  'smooth': inversion.smooth_inverse}


class CurveParameters(NamedTuple):
  """Arrays that a curve needs.

  Attributes:
    probs: [m] quantile levels, which the curve itself does not use.
    shares: [N + 1] edges of the bins as fractions of the public range.
    scale: scale of the noise, scalar.
  """
  probs: np.ndarray
  shares: np.ndarray
  scale: np.float64


Curve = Callable[[PRNGKey, Records, CurveParameters], Array]
"""(key, records, parameters) -> values [N + 1] at the edges, float64."""


def edges(data: Records, shares: Array) -> Array:
  """Returns the edges [N + 1] of the grid, from the lower bound to the upper.
  """
  within = data.lower + (data.upper - data.lower) * shares
  return jnp.clip(within, data.lower, data.upper)


def ranks(data: Records, shares: Array) -> Array:
  """Returns how many records lie at or below each edge [N + 1].

  The first is set to 0 and the last to n.
  """
  inner = jnp.searchsorted(data.ordered, edges(data, shares)[1:-1],
                           side='right')
  # Padding lies at the upper bound and is not a record.
  inner = jnp.minimum(inner, data.count).astype(jnp.float64)
  outer = jnp.stack([jnp.zeros_like(data.count), data.count])
  outer = outer.astype(jnp.float64)
  return jnp.concatenate([outer[:1], inner, outer[1:]])


def total(data: Records, noisy_sum: Array, known: bool) -> Array:
  """Returns n if it is public, else its estimate from noisy counts.

  The estimate is at least 1. With independent noise on the counts, the noisy
  rank at fraction u of the bins minus u times the noisy sum is uncorrelated
  with that sum. So dividing by the noisy sum is as precise, where F = u, as
  dividing by n itself, and no part of epsilon need be spent on n.

  Args:
    data: the records.
    noisy_sum: sum of the noisy counts.
    known: whether n is public.
  """
  return (data.count.astype(jnp.float64) if known
          else jnp.maximum(noisy_sum, 1.0))


def from_counts(noisy: Array) -> Array:
  """Returns ranks [N + 1] at the edges from counts [N]."""
  return jnp.concatenate([jnp.zeros([1], noisy.dtype), jnp.cumsum(noisy)])


def with_total(noisy: Array, amount: Array) -> Array:
  """Returns counts [N] corrected evenly to the sum `amount` (least squares)."""
  return noisy - (jnp.sum(noisy) - amount) / noisy.size


@functools.cache
def inverted(curve: Curve, interpolation: str) -> mechanism.Draw:
  """Returns the sampler of quantiles that inverts a curve; cached per curve."""
  inverse = INTERPOLATIONS[interpolation]

  def draw(key: PRNGKey, data: Records, parameters: CurveParameters) -> Array:
    # Only the release of the curve costs privacy: inverting is post-processing.
    return inverse(curve(key, data, parameters),
                   edges(data, jnp.asarray(parameters.shares)),
                   jnp.asarray(parameters.probs))
  return draw


@dataclasses.dataclass(frozen=True, kw_only=True)
class CurveQuantiles(mechanism.QuantileMechanism):
  """Base class of mechanisms that invert a noisy distribution function.

  Attributes:
    interpolation: how the curve runs between edges, one of `INTERPOLATIONS`.
  """
  interpolation: str = 'linear'

  if TYPE_CHECKING:
    # A field of some subclasses, a property of others.
    @property
    def num_bins(self) -> int:
      """Number of bins of the grid, N."""

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_choice('interpolation', self.interpolation, INTERPOLATIONS)
    # With one bin both ends are known and the curve carries no information.
    errors.check_at_least('num_bins', self.num_bins, 2)

  @property
  @abc.abstractmethod
  def scale(self) -> float:
    """Scale of the noise that is drawn."""

  @property
  @abc.abstractmethod
  def curve(self) -> Curve:
    """Jittable sampler of the curve; one function for equal static options."""

  @property
  def knows_total(self) -> bool:
    """Whether the number of records, n, is public."""
    return self.adjacency is Adjacency.REPLACE_ONE

  @property
  def draw(self) -> mechanism.Draw:
    """Jittable sampler (key, records, parameters) -> quantiles."""
    return inverted(self.curve, self.interpolation)

  @property
  def parameters(self) -> CurveParameters:
    """Quantile levels, grid and noise scale, as arrays."""
    return CurveParameters(quantile_levels.check_levels(self.probs),
                      np.linspace(0.0, 1.0, self.num_bins + 1),
                      np.float64(self.scale))

  @precision.in_float64
  def release_curve(self, key: PRNGKey, data: Array) -> tuple[Array, Array]:
    """Returns edges and noisy distribution function, [N + 1] float64 each.

    With the same key and data, `release` inverts this very curve: publishing
    both is one release, not two.
    """
    ordered = records.of(data, self.lower, self.upper)
    parameters = self.parameters
    return (edges(ordered, jnp.asarray(parameters.shares)),
            self.curve(key, ordered, parameters))

  @abc.abstractmethod
  def stddevs(self) -> np.ndarray:
    """Returns the standard deviations of the noise of the ranks [N + 1].

    Exact, once the last rank is corrected to n and before ranks are made
    monotone.
    """
