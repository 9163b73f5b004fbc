"""Many quantiles from a few private ones, by interpolation in the order.

The budget of a mechanism is shared by the orders it answers; a smooth quantile
function is known from few of them. Interpolating what was released costs
nothing. Bad where the law has atoms or gaps between knots. Source: item QB-09.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.stats.quantiles import mechanism
from dpjax.stats.quantiles import orders
from dpjax.stats.quantiles.records import Records
from dpjax.typing import Array, PRNGKey, PyTree

BETWEEN = ('linear', 'cubic')


class Parameters(NamedTuple):
  """Of an interpolation.

  Attributes:
    probs: [m] orders to answer.
    knots: [k] orders that are asked.
    inner: parameters of what is asked.
  """
  probs: np.ndarray
  knots: np.ndarray
  inner: PyTree


def num_knots(num_orders: int, *, epsilon: float, num_examples: int) -> int:
  """A number of knots for a joint mechanism and so many records.

  1.25 (n epsilon)^(1/5), at least 3: within a third of the best of 3, 5, 8,
  13 and 20 for three beta laws, 100 orders from 1/4 to 3/4 and n epsilon from
  100 to 10^4. A recursive mechanism is best with 3/5 of it. Under
  ADD_OR_REMOVE_ONE n must be a public guess.
  """
  errors.check_at_least('num_orders', num_orders, 1)
  errors.check_at_least('num_examples', num_examples, 1)
  errors.check_positive('epsilon', epsilon)
  most = max(3, round(1.25 * (num_examples * epsilon)**0.2))
  return max(2, min(num_orders, most))


def cubic(places: Array, knots: Array, values: Array) -> Array:
  """Monotone cubic interpolation [m] of increasing values [k], k >= 3.

  Slopes are harmonic means of those on either side, weighted by Fritsch and
  Butland 1984: no place between two knots leaves their values.
  """
  steps = jnp.diff(knots)
  slopes = jnp.diff(values) / steps
  heavy, light = 2 * steps[1:] + steps[:-1], steps[1:] + 2 * steps[:-1]
  flat = (slopes[1:] <= 0) | (slopes[:-1] <= 0)
  safe = lambda x: jnp.where(flat, 1.0, x)
  inner = jnp.where(flat, 0.0, (heavy + light) / (
      heavy / safe(slopes[:-1]) + light / safe(slopes[1:])))

  def end(first: Array, second: Array, near: Array, far: Array) -> Array:
    found = ((2 * first + second) * near - first * far) / (first + second)
    return jnp.maximum(found, 0.0)

  tangents = jnp.concatenate([
      end(steps[0], steps[1], slopes[0], slopes[1])[None], inner,
      end(steps[-1], steps[-2], slopes[-1], slopes[-2])[None]])
  left = jnp.clip(jnp.searchsorted(knots, places, side='right') - 1,
                  0, steps.size - 1)
  width = steps[left]
  s = (places - knots[left]) / width
  start, rise = values[left], values[left + 1] - values[left]
  bend = (1 - s) * tangents[left] - s * tangents[left + 1]
  found = start + rise * s * s * (3 - 2 * s) + width * s * (1 - s) * bend
  return jnp.clip(found, start, values[left + 1])


@functools.cache
def _draw(inner: mechanism.Draw, between: str) -> mechanism.Draw:
  def draw(key: PRNGKey, data: Records, parameters: Parameters) -> Array:
    found = inner(key, data, parameters.inner)
    probs, knots = jnp.asarray(parameters.probs), jnp.asarray(parameters.knots)
    if between == 'cubic' and knots.size > 2:
      return cubic(probs, knots, found)
    return jnp.interp(probs, knots, found)
  return draw


@dataclasses.dataclass(frozen=True, kw_only=True)
class KnotQuantiles(mechanism.OuterQuantiles):
  """Orders spread evenly over those asked for, and interpolation between them.

  Guarantee: that of the mechanism that answers the knots.

  Attributes:
    make: (probs, epsilon, lower, upper, adjacency) -> mechanism, by keywords: a
      class of this room, or a function that calls some.
    knots: how many; with as many orders or fewer, those are asked themselves.
      See `num_knots`.
    between: 'linear' or 'cubic'; either is monotone.
  """
  make: Callable[..., mechanism.QuantileMechanism]
  knots: int = 5
  between: str = 'linear'

  def __post_init__(self):
    super().__post_init__()
    errors.check_at_least('knots', self.knots, 2)
    errors.check_choice('between', self.between, BETWEEN)

  @property
  def asked(self) -> tuple[float, ...]:
    """Orders of the knots."""
    if len(self.probs) <= self.knots:
      return tuple(self.probs)
    return tuple(np.linspace(self.probs[0], self.probs[-1],
                             self.knots).tolist())

  @property
  def inner(self) -> mechanism.QuantileMechanism:
    """What answers the knots."""
    return self.make(probs=self.asked, epsilon=self.epsilon, lower=self.lower,
                     upper=self.upper, adjacency=self.adjacency)

  @property
  def draw(self) -> mechanism.Draw:
    """The law."""
    return _draw(self.inner.draw, self.between)

  @property
  def parameters(self) -> Parameters:
    """Orders, knots, and parameters of what answers them."""
    return Parameters(orders.check_orders(self.probs),
                      np.array(self.asked, np.float64), self.inner.parameters)
