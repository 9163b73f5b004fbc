"""Draws quantiles by the ranks in a window, which smooths without noise.

The cost of a point q uses the best rank that records within a radius of it
could give it: the distance of n p from [#{X < q - radius}, #{X <= q + radius}].
Around an atom the cost is 0 in an interval twice as wide as the radius. This is
our own variant (item QB-12) of the smoothing in Lalanne (2023, section 6.3.3);
radius 0 on candidates is that of McKenna and Sheldon 2020 (item QB-04).
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.stats.quantile_methods import choice
from dpjax.stats.quantile_methods import mechanism
from dpjax.stats.quantile_methods import quantile_levels
from dpjax.stats.quantile_methods import rates
from dpjax.stats.quantile_methods import records
from dpjax.stats.quantile_methods.records import Records
from dpjax.typing import Array, PRNGKey

RADIUS = 1e-6
"""Default radius of a window, as a fraction of the range."""


class WindowParameters(NamedTuple):
  """Arrays of m exponential mechanisms.

  Attributes:
    probs: [m] quantile levels.
    rates: [m] rates of the cost.
    radius: radius of the window.
  """
  probs: np.ndarray
  rates: np.ndarray
  radius: np.float64


def cost(below: Array, up_to: Array, target: Array) -> Array:
  """Returns the distance of `target` = n p from [below, up_to].

  `rates.single` has the matching rate. Replacing a record moves either end by
  at most 1. Adding one moves both ends, relative to the target, by 1 - p or by
  -p, or one end by each: the distance changes by at most max(p, 1 - p).
  """
  below, up_to = (ranks.astype(jnp.float64) for ranks in (below, up_to))
  return jnp.maximum(jnp.maximum(below - target, target - up_to), 0.0)


def intervals(data: Records, radius: Array) -> tuple[Array, Array, Array]:
  """Returns edges [2 capacity + 2] of intervals, and both ranks inside.

  Ranks are [2 capacity + 1]: records below the window, and up to its end.
  """
  clip = lambda points: jnp.clip(points, data.lower, data.upper)
  # A record is in the window of q from X - radius on, and left behind after X +
  # radius.
  entered = clip(jnp.where(records.filled(data), data.ordered - radius,
                           data.upper))
  left = clip(data.ordered + radius)
  edges = jnp.concatenate([
      data.lower[None], jnp.sort(jnp.concatenate([entered, left])),
      data.upper[None]])
  # Ranks change at edges alone, so those at its left edge hold inside an
  # interval.
  below, up_to = (jnp.searchsorted(events, edges[:-1], side='right')
                  for events in (left, entered))
  return edges, jnp.minimum(below, data.count), jnp.minimum(up_to, data.count)


def _draw(key: PRNGKey, data: Records, parameters: WindowParameters) -> Array:
  """Samples one quantile for each level, and sorts them."""
  edges, below, up_to = intervals(data, jnp.asarray(parameters.radius))
  log_widths = records.log_of(jnp.diff(edges))

  def one(of: tuple[PRNGKey, Array, Array]) -> Array:
    key, prob, rate = of
    which, where = jax.random.split(key)
    target = quantile_levels.target(prob, data.count, 'real')
    interval = choice.choose(
        which, log_widths - rate * cost(below, up_to, target))
    fraction = jax.random.uniform(where, (), jnp.float64)
    return records.between(edges, interval, fraction)

  keys = jax.random.split(key, len(parameters.probs))
  return jnp.sort(jax.lax.map(one, (
      keys, jnp.asarray(parameters.probs), jnp.asarray(parameters.rates))))


@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowQuantiles(mechanism.ExponentialQuantiles):
  """An exponential mechanism for each level, on the cost of a window; sorted.

  Privacy: epsilon-DP or rho-zCDP under `adjacency`, an m-th of it for each
  level; sensitivity 1 under REPLACE_ONE, max(p, 1 - p) otherwise (`cost`).

  Attributes:
    radius: radius of the window; None for 10^-6 of the range.
  """
  radius: float | None = None

  def __post_init__(self) -> None:
    super().__post_init__()
    if self.radius is not None:
      errors.check_non_negative('radius', self.radius)

  @property
  def steps(self) -> int:
    """Returns the number of mechanisms that are composed, m."""
    return len(self.probs)

  @property
  def draw(self) -> mechanism.Draw:
    """Returns a jittable sampler (key, records, parameters) -> quantiles."""
    return _draw

  @property
  def parameters(self) -> WindowParameters:
    """Returns the quantile levels, rates and the radius, as arrays."""
    radius = self.radius
    if radius is None:
      radius = RADIUS * (self.upper - self.lower)
    return WindowParameters(
        quantile_levels.check_levels(self.probs), rates.singles(
            self.probs, epsilon=self.share(self.steps),
            adjacency=self.adjacency), np.float64(radius))
