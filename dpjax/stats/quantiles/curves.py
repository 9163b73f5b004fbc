"""Mechanisms that release a distribution function on a public grid.

One release serves every order: the error does not grow with their number, and
orders may be chosen afterwards. Bins are (e_(k-1), e_k], the first closed, so
that ranks at edges are those of P(X <= e_k).
"""

import abc
from collections.abc import Callable
import dataclasses
import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.quantiles import inversion
from dpjax.stats.quantiles import mechanism
from dpjax.stats.quantiles import orders
from dpjax.stats import precision
from dpjax.stats.quantiles import records
from dpjax.stats.quantiles.records import Records
from dpjax.typing import Array, PRNGKey

INTERPOLATIONS = {'linear': inversion.inverse,
                  'smooth': inversion.smooth_inverse}


class Parameters(NamedTuple):
  """Of a curve.

  Attributes:
    probs: [m] orders, which the curve itself does not see.
    shares: [N + 1] where the edges divide the range between the bounds.
    scale: of the noise.
  """
  probs: np.ndarray
  shares: np.ndarray
  scale: np.ndarray


Curve = Callable[[PRNGKey, Records, Parameters], Array]
"""(key, records, parameters) -> values [N + 1] at the edges, float64."""


def edges(data: Records, shares: Array) -> Array:
  """Edges [N + 1] of the grid, from the lower bound to the upper."""
  within = data.lower + (data.upper - data.lower) * shares
  return jnp.clip(within, data.lower, data.upper)


def ranks(data: Records, shares: Array) -> Array:
  """Numbers [N + 1] of records up to each edge; 0 at the first, n at the last.
  """
  inner = jnp.searchsorted(data.ordered, edges(data, shares)[1:-1],
                           side='right')
  inner = jnp.minimum(inner, data.count).astype(jnp.float64)
  ends = jnp.stack([jnp.zeros_like(data.count), data.count])
  ends = ends.astype(jnp.float64)
  return jnp.concatenate([ends[:1], inner, ends[1:]])


def total(data: Records, found: Array, known: bool) -> Array:
  """n where it is public, or else what noisy counts make it, at least 1.

  Of counts with independent noise the rank up to a share u of the bins, less u
  times their sum, is uncorrelated with that sum: over a sum with noise, the
  curve is as precise where F = u as if n were known, and no part of epsilon is
  worth spending on n.

  Args:
    data: records.
    found: the noisy sum.
    known: whether n is public.
  """
  return (data.count.astype(jnp.float64) if known
          else jnp.maximum(found, 1.0))


def from_counts(noisy: Array) -> Array:
  """Ranks [N + 1] from counts [N]."""
  return jnp.concatenate([jnp.zeros([1], noisy.dtype), jnp.cumsum(noisy)])


def with_total(noisy: Array, amount: Array) -> Array:
  """Counts [N] with their sum corrected, evenly; least squares."""
  return noisy - (jnp.sum(noisy) - amount) / noisy.size


@functools.cache
def inverted(curve: Curve, interpolation: str) -> mechanism.Draw:
  """The law of quantiles by a curve, the same function for the same curve."""
  inverse = INTERPOLATIONS[interpolation]

  def draw(key: PRNGKey, data: Records, parameters: Parameters) -> Array:
    return inverse(curve(key, data, parameters),
                   edges(data, jnp.asarray(parameters.shares)),
                   jnp.asarray(parameters.probs))
  return draw


@dataclasses.dataclass(frozen=True, kw_only=True)
class CurveQuantiles(mechanism.QuantileMechanism):
  """Base of what is inverted; adds the curve to quantiles.

  Those who derive from it have `num_bins`, N, as a field or property.

  Attributes:
    interpolation: of the curve between edges, one of `INTERPOLATIONS`.
  """
  interpolation: str = 'linear'

  def __post_init__(self):
    super().__post_init__()
    errors.check_choice('interpolation', self.interpolation, INTERPOLATIONS)
    # Of one bin nothing is left to estimate.
    errors.check_at_least('num_bins', self.num_bins, 2)

  @property
  @abc.abstractmethod
  def scale(self) -> float:
    """Of the noise that is drawn."""

  @property
  @abc.abstractmethod
  def curve(self) -> Curve:
    """The law of the curve; one function for equal static options."""

  @property
  def knows_total(self) -> bool:
    """Whether n is public."""
    return self.adjacency is Adjacency.REPLACE_ONE

  @property
  def draw(self) -> mechanism.Draw:
    """The law."""
    return inverted(self.curve, self.interpolation)

  @property
  def parameters(self) -> Parameters:
    """Orders, grid and noise."""
    return Parameters(orders.check_orders(self.probs),
                      np.linspace(0.0, 1.0, self.num_bins + 1),
                      np.float64(self.scale))

  @precision.in_float64
  def release_curve(self, key: PRNGKey, data: Array) -> tuple[Array, Array]:
    """Edges and noisy distribution function, [N + 1] float64 each.

    What `release` inverts with this key: they are one release, not two.
    """
    known = records.of(data, self.lower, self.upper)
    parameters = self.parameters
    return (edges(known, jnp.asarray(parameters.shares)),
            self.curve(key, known, parameters))

  @abc.abstractmethod
  def stddevs(self) -> np.ndarray:
    """Of the noise of ranks [N + 1] once their last is n, exact.

    Before they are made monotone.
    """
