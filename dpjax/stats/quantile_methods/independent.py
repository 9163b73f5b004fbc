"""QExp and IndExp: draws each quantile level by an exponential mechanism.

The cost of a point q is the distance of its rank #{X < q} from n p. It has
three forms. Rounded, as printed: n p becomes floor(n p). Real: under addition
and deletion its rate is larger by 1 / max(p, 1 - p). Interpolated: the rank
runs linearly between records, which has the same sensitivity and is more
precise at large epsilon.

Source: Lalanne (2023, sections 6.1.2 and 6.1.3); Smith 2011; Durfee 2025 (item
QF-03, QF-05, QB-01, QB-03).
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

COSTS = ('rounded', 'real', 'interpolated')


class ExponentialParameters(NamedTuple):
  """Arrays of m exponential mechanisms.

  Attributes:
    probs: [m] quantile levels.
    rates: [m] rates of the cost, public.
  """
  probs: np.ndarray
  rates: np.ndarray


def log_masses(data: Records, prob: Array, rate: Array, cost: str) -> Array:
  """Returns the log-weights [capacity + 1] of the intervals between records.

  Args:
    data: the records.
    prob: quantile level p.
    rate: rate of the cost.
    cost: one of `COSTS`.
  """
  ranks = jnp.arange(data.ordered.size + 1, dtype=jnp.float64)
  return records.log_widths(data) + log_decline(
      ranks, target(prob, data.count, cost), rate, cost)


def target(prob: Array, count: Array, cost: str) -> Array:
  """Returns the ranks at which the cost is 0, for levels and counts [...]."""
  return quantile_levels.target(prob, count,
                                'floor' if cost == 'rounded' else 'real')


def log_decline(ranks: Array, target: Array, rate: Array, cost: str) -> Array:
  """Returns the log of the mean density [...] in intervals of these ranks."""
  lead = ranks - target
  if cost != 'interpolated':
    return -rate * jnp.abs(lead)
  # Away from the target the density falls from the nearer end of the interval.
  nearer = jnp.where(lead >= 0, lead, -lead - 1)
  # Mean of exp(-rate s) over s in [0, 1].
  outer = jnp.log(-jnp.expm1(-rate) / rate)
  # In the interval that holds the target: the mean of exp(-rate |lead + s|)
  # over s in [0, 1].
  kink = target - jnp.floor(target)
  around = jnp.log((-jnp.expm1(-rate * kink)
                    - jnp.expm1(-rate * (1 - kink))) / rate)
  return jnp.where((lead > -1) & (lead < 0), around, outer - rate * nearer)


def place(key: PRNGKey, lead: Array, rate: Array, cost: str) -> Array:
  """Draws where points lie in their intervals, as fractions [...] in [0, 1]."""
  uniform = jax.random.uniform(key, lead.shape, jnp.float64)
  return _place(uniform, lead, rate) if cost == 'interpolated' else uniform


def _place(uniform: Array, lead: Array, rate: Array) -> Array:
  """Draws s in [0, 1] with density exp(-rate |lead + s|), by inversion."""
  kink = jnp.clip(-lead, 0.0, 1.0)
  # Weights of [0, kink] and [kink, 1], where the density rises and falls.
  left, right = -jnp.expm1(-rate * kink), -jnp.expm1(-rate * (1 - kink))
  mass = uniform * (left + right)
  # Each is valid on its own side; the bounds keep the other branch finite.
  rising = kink + jnp.log1p(jnp.minimum(mass - left, 0.0)) / rate
  falling = kink - jnp.log1p(-jnp.clip(mass - left, 0.0, right)) / rate
  return jnp.clip(jnp.where(mass < left, rising, falling), 0.0, 1.0)


def point(key: PRNGKey, data: Records, prob: Array, rate: Array,
          cost: str) -> Array:
  """Draws one quantile, a float64 scalar; for arguments see `log_masses`."""
  which, where = jax.random.split(key)
  interval = choice.choose(which, log_masses(data, prob, rate, cost))
  lead = interval.astype(jnp.float64) - target(prob, data.count, cost)
  return records.inside(data, interval, place(where, lead, rate, cost))


def _draw(cost: str) -> mechanism.Draw:
  """Returns the sampler of one form of the cost."""
  def draw(key: PRNGKey, data: Records,
           parameters: ExponentialParameters) -> Array:
    keys = jax.random.split(key, len(parameters.probs))
    one = lambda args: point(args[0], data, args[1], args[2], cost)
    # One level after the other: vmap would hold m times as many weights.
    return jnp.sort(jax.lax.map(one, (keys, *map(jnp.asarray, parameters))))
  return draw


_DRAWS = {cost: _draw(cost) for cost in COSTS}


@dataclasses.dataclass(frozen=True, kw_only=True)
class IndependentQuantiles(mechanism.ExponentialQuantiles):
  """IndExp: an exponential mechanism for each quantile level, sorted.

  With one level it is QExp. Privacy: epsilon-DP under `adjacency`, epsilon / m
  for each level, or rho-zCDP, rho / m for each.

  Attributes:
    cost: one of `COSTS`.
  """
  cost: str = 'real'

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_choice('cost', self.cost, COSTS)

  @property
  def steps(self) -> int:
    """Number of mechanisms that are composed, m."""
    return len(self.probs)

  @property
  def draw(self) -> mechanism.Draw:
    """Jittable sampler (key, records, parameters) -> quantiles."""
    return _DRAWS[self.cost]

  @property
  def parameters(self) -> ExponentialParameters:
    """Quantile levels and rates, as arrays."""
    return ExponentialParameters(
        quantile_levels.check_levels(self.probs), rates.singles(
            self.probs, epsilon=self.share(self.steps),
            adjacency=self.adjacency, rounded=self.cost == 'rounded'))
