"""Interpolates many quantiles between a few private ones.

The budget of a mechanism is shared by the quantile levels it answers, and a
smooth quantile function is determined well by few of them. Interpolating
released quantiles is post-processing and costs nothing. The result is bad where
the distribution has atoms or gaps between knots. Source: item QB-09.
"""

from collections.abc import Callable
import dataclasses
import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.stats.quantile_methods import mechanism
from dpjax.stats.quantile_methods import quantile_levels
from dpjax.stats.quantile_methods.records import Records
from dpjax.typing import Array, PRNGKey, PyTree

BETWEEN = ('linear', 'cubic')


class KnotParameters(NamedTuple):
  """Arrays that the interpolation takes.

  Attributes:
    probs: [m] quantile levels to answer.
    knots: [k] levels that the inner mechanism answers.
    inner: parameters of the inner mechanism.
  """
  probs: np.ndarray
  knots: np.ndarray
  inner: PyTree


def num_knots(num_levels: int, *, epsilon: float, num_examples: int) -> int:
  """Returns a good number of knots for a joint mechanism and this many records.

  1.25 (n epsilon)^(1/5), at least 3: the error is within a third of the best of
  3, 5, 8, 13 and 20 knots for three beta distributions, 100 levels from 1/4 to
  3/4 and n epsilon from 100 to 10^4. A recursive mechanism is best with 3/5 of
  it. Under ADD_OR_REMOVE_ONE n must be a public guess.
  """
  errors.check_at_least('num_levels', num_levels, 1)
  errors.check_at_least('num_examples', num_examples, 1)
  errors.check_positive('epsilon', epsilon)
  most = max(3, round(1.25 * (num_examples * epsilon)**0.2))
  return max(2, min(num_levels, most))


def cubic(places: Array, knots: Array, values: Array) -> Array:
  """Interpolates increasing values [k], k >= 3, by a monotone cubic [m].

  Slopes are weighted harmonic means of those on either side (Fritsch and
  Butland 1984): no value between two knots leaves the range of their values.
  """
  steps = jnp.diff(knots)
  slopes = jnp.diff(values) / steps
  heavy, light = 2 * steps[1:] + steps[:-1], steps[1:] + 2 * steps[:-1]
  # A zero slope on one side forces a zero tangent, or the cubic overshoots.
  flat = (slopes[1:] <= 0) | (slopes[:-1] <= 0)
  # Avoids divisions by zero in the branch that `where` discards.
  safe = lambda x: jnp.where(flat, 1.0, x)
  inner = jnp.where(flat, 0.0, (heavy + light) / (
      heavy / safe(slopes[:-1]) + light / safe(slopes[1:])))

  # A one-sided slope of three points, for the first and the last knot.
  def end(first: Array, second: Array, near: Array, far: Array) -> Array:
    slope = ((2 * first + second) * near - first * far) / (first + second)
    return jnp.maximum(slope, 0.0)

  tangents = jnp.concatenate([
      end(steps[0], steps[1], slopes[0], slopes[1])[None], inner,
      end(steps[-1], steps[-2], slopes[-1], slopes[-2])[None]])
  left = jnp.clip(jnp.searchsorted(knots, places, side='right') - 1,
                  0, steps.size - 1)
  width = steps[left]
  # Hermite form on [0, 1], as the straight line and what bends it.
  s = (places - knots[left]) / width
  start, rise = values[left], values[left + 1] - values[left]
  bend = (1 - s) * tangents[left] - s * tangents[left + 1]
  values_at = start + rise * s * s * (3 - 2 * s) + width * s * (1 - s) * bend
  return jnp.clip(values_at, start, values[left + 1])


@functools.cache
def _draw(inner: mechanism.Draw, between: str) -> mechanism.Draw:
  """Returns the sampler that interpolates the answers of `inner`."""
  def draw(key: PRNGKey, data: Records, parameters: KnotParameters) -> Array:
    answers = inner(key, data, parameters.inner)
    probs, knots = jnp.asarray(parameters.probs), jnp.asarray(parameters.knots)
    if between == 'cubic' and knots.size > 2:
      return cubic(probs, knots, answers)
    return jnp.interp(probs, knots, answers)
  return draw


@dataclasses.dataclass(frozen=True, kw_only=True)
class KnotQuantiles(mechanism.OuterQuantiles, mechanism.PureQuantiles):
  """Answers evenly spread levels privately and interpolates between them.

  Privacy: that of the mechanism that answers the knots.

  Attributes:
    make: (probs, epsilon, lower, upper, adjacency) -> mechanism, by keywords: a
      mechanism class of this package, or a function that returns a mechanism.
    knots: number of knots; if no more levels are asked for, those are answered
      directly. See `num_knots`.
    between: 'linear' or 'cubic'; both are monotone.
  """
  make: Callable[..., mechanism.QuantileMechanism]
  knots: int = 5
  between: str = 'linear'

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_at_least('knots', self.knots, 2)
    errors.check_choice('between', self.between, BETWEEN)

  @property
  def asked(self) -> tuple[float, ...]:
    """Quantile levels of the knots."""
    if len(self.probs) <= self.knots:
      return tuple(self.probs)
    return tuple(np.linspace(self.probs[0], self.probs[-1],
                             self.knots).tolist())

  @property
  def inner(self) -> mechanism.QuantileMechanism:
    """Mechanism that answers the knots."""
    return self.make(probs=self.asked, epsilon=self.epsilon, lower=self.lower,
                     upper=self.upper, adjacency=self.adjacency)

  @property
  def draw(self) -> mechanism.Draw:
    """Jittable sampler (key, records, parameters) -> quantiles."""
    return _draw(self.inner.draw, self.between)

  @property
  def parameters(self) -> KnotParameters:
    """Quantile levels, knots, and parameters of the inner mechanism."""
    return KnotParameters(quantile_levels.check_levels(self.probs),
                      np.array(self.asked, np.float64), self.inner.parameters)
