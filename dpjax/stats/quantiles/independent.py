"""QExp and IndExp: the exponential mechanism for one order, or for each of m.

The cost of a point q is how far its rank #{X < q} is from n p. Three forms of
it: rounded, as printed, where n p is floor(n p); real, which is worth a factor
1 / max(p, 1 - p) under addition and deletion; and interpolated, where the rank
runs linearly between records, of the same sensitivity and more precise at large
epsilon. Source: thesis 000, sections 6.1.2 and 6.1.3; Smith 2011; Durfee 2025
(item QF-03, QF-05, QB-01, QB-03).
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.stats.quantiles import choice
from dpjax.stats.quantiles import mechanism
from dpjax.stats.quantiles import orders
from dpjax.stats.quantiles import rates
from dpjax.stats.quantiles import records
from dpjax.stats.quantiles.records import Records
from dpjax.typing import Array, PRNGKey

COSTS = ('rounded', 'real', 'interpolated')


class Parameters(NamedTuple):
  """Of m exponential mechanisms.

  Attributes:
    probs: [m] orders.
    rates: [m], of the cost.
  """
  probs: np.ndarray
  rates: np.ndarray


def log_masses(data: Records, prob: Array, rate: Array, cost: str) -> Array:
  """Logarithms [capacity + 1] of the weights of intervals.

  Args:
    data: records.
    prob: p.
    rate: of the cost.
    cost: one of `COSTS`.
  """
  ranks = jnp.arange(data.ordered.size + 1, dtype=jnp.float64)
  return records.log_widths(data) + log_decline(
      ranks, target(prob, data.count, cost), rate, cost)


def target(prob: Array, count: Array, cost: str) -> Array:
  """The rank that a cost is 0 at, of orders and numbers of records [...]."""
  return orders.target(prob, count, 'floor' if cost == 'rounded' else 'real')


def log_decline(ranks: Array, target: Array, rate: Array, cost: str) -> Array:
  """Logarithms [...] of mean densities of intervals of these ranks."""
  lead = ranks - target
  if cost != 'interpolated':
    return -rate * jnp.abs(lead)
  # Beyond the target on either side, from the nearer end of the interval.
  nearer = jnp.where(lead >= 0, lead, -lead - 1)
  beyond = jnp.log(-jnp.expm1(-rate) / rate)
  # The mean of exp(-rate |lead + s|) over s in [0, 1], in one interval alone.
  turn = target - jnp.floor(target)
  around = jnp.log((-jnp.expm1(-rate * turn)
                    - jnp.expm1(-rate * (1 - turn))) / rate)
  return jnp.where((lead > -1) & (lead < 0), around, beyond - rate * nearer)


def place(key: PRNGKey, lead: Array, rate: Array, cost: str) -> Array:
  """Shares [...] at which points divide their intervals, `lead` [...]."""
  uniform = jax.random.uniform(key, lead.shape, jnp.float64)
  return _place(uniform, lead, rate) if cost == 'interpolated' else uniform


def _place(uniform: Array, lead: Array, rate: Array) -> Array:
  """A share s in [0, 1] of density exp(-rate |lead + s|), by inversion."""
  turn = jnp.clip(-lead, 0.0, 1.0)
  # Weights of [0, turn] and [turn, 1], where the density rises and falls.
  left, right = -jnp.expm1(-rate * turn), -jnp.expm1(-rate * (1 - turn))
  mass = uniform * (left + right)
  rising = turn + jnp.log1p(jnp.minimum(mass - left, 0.0)) / rate
  falling = turn - jnp.log1p(-jnp.clip(mass - left, 0.0, right)) / rate
  return jnp.clip(jnp.where(mass < left, rising, falling), 0.0, 1.0)


def point(key: PRNGKey, data: Records, prob: Array, rate: Array,
          cost: str) -> Array:
  """One draw, a float64 scalar; arguments as of `log_masses`."""
  which, where = jax.random.split(key)
  interval = choice.choose(which, log_masses(data, prob, rate, cost))
  lead = interval.astype(jnp.float64) - target(prob, data.count, cost)
  return records.inside(data, interval, place(where, lead, rate, cost))


def _draw(cost: str) -> mechanism.Draw:
  def draw(key: PRNGKey, data: Records, parameters: Parameters) -> Array:
    keys = jax.random.split(key, len(parameters.probs))
    one = lambda of: point(of[0], data, of[1], of[2], cost)
    # In turn: what is side by side holds m times as many weights.
    return jnp.sort(jax.lax.map(one, (keys, *map(jnp.asarray, parameters))))
  return draw


_DRAWS = {cost: _draw(cost) for cost in COSTS}


@dataclasses.dataclass(frozen=True, kw_only=True)
class IndependentQuantiles(mechanism.ExponentialQuantiles):
  """IndExp: an exponential mechanism for each order, sorted; one order: QExp.

  Guarantee: epsilon-DP under `adjacency`, epsilon / m for each order, or
  rho-zCDP, rho / m for each.

  Attributes:
    cost: one of `COSTS`.
  """
  cost: str = 'real'

  def __post_init__(self):
    super().__post_init__()
    errors.check_choice('cost', self.cost, COSTS)

  @property
  def steps(self) -> int:
    """m."""
    return len(self.probs)

  @property
  def draw(self) -> mechanism.Draw:
    """The law."""
    return _DRAWS[self.cost]

  @property
  def parameters(self) -> Parameters:
    """Orders and rates."""
    return Parameters(orders.check_orders(self.probs), rates.singles(
        self.probs, epsilon=self.share(self.steps), adjacency=self.adjacency,
        rounded=self.cost == 'rounded'))
