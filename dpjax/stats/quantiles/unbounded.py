"""Quantiles without an upper bound, by a sparse vector over growing candidates.

Candidates are lower + scale (base^i - 1), and the answer is the first whose
rank, with noise, reaches n p with noise: a bound too wide by 10^6 costs some
dozens of candidates, where it costs the exponential mechanism everything. Noise
is one-sided. Source: Durfee 2023 (item QB-05).

Exact and without a loop over candidates: those between two records have the
same rank, so the first that stops has a geometric place among them.
"""

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import draws
from dpjax.stats.quantiles import mechanism
from dpjax.stats.quantiles import orders
from dpjax.stats.quantiles import rates
from dpjax.stats.quantiles import records
from dpjax.stats.quantiles.records import Records
from dpjax.typing import Array, PRNGKey


class Parameters(NamedTuple):
  """Of m scans.

  Attributes:
    probs: [m] orders, as met by the scan.
    rates: [m], of exponential noise on threshold and ranks alike.
    scale: of the candidates.
    log_base: of the candidates.
    last: number of the last candidate; it stops whatever its rank.
  """
  probs: np.ndarray
  rates: np.ndarray
  scale: np.ndarray
  log_base: np.ndarray
  last: np.ndarray


def entries(data: Records, parameters: Parameters,
            downwards: bool) -> Array:
  """Numbers [capacity] of the first candidate beyond each record, float64.

  However it is rounded, it is of one record alone, so that ranks of candidates,
  how many of these numbers are at most theirs, change as the proof says.
  """
  away = (data.upper - data.ordered if downwards else
          data.ordered - data.lower)
  steps = jnp.log1p(away / parameters.scale) / parameters.log_base
  return jnp.where(records.filled(data), jnp.minimum(
      jnp.floor(steps) + 1, parameters.last), parameters.last)


def stop(key: PRNGKey, entered: Array, threshold: Array, rate: Array,
         last: Array) -> Array:
  """Number of the candidate that stops a scan, float64.

  Args:
    key: of noise on ranks.
    entered: [capacity], as of `entries`, sorted.
    threshold: with its noise.
    rate: of noise on ranks.
    last: number of the last candidate.
  """
  # Candidates from each entry to the next; the last of all stops for sure.
  starts = jnp.concatenate([jnp.zeros(1), entered, last[None]])
  sizes = jnp.diff(starts, append=last + 1)
  lacking = rate * jnp.maximum(threshold - jnp.arange(
      starts.size, dtype=jnp.float64), 0.0)
  # -log of the probability that noise does not make up for what is lacking.
  hazards = jnp.where(lacking > 1, -jnp.log1p(-jnp.exp(-lacking)),
                      -jnp.log(-jnp.expm1(-lacking))).at[-1].set(jnp.inf)
  totals = jnp.cumsum(jnp.where(sizes > 0, sizes * hazards, 0.0))
  level = draws.standard_exponential(key, (), jnp.float64)
  part = jnp.argmax(totals >= level)
  before = jnp.where(part > 0, totals[part - 1], 0.0)
  place = jnp.floor((level - before) / hazards[part])
  return starts[part] + jnp.clip(place, 0.0, sizes[part] - 1)


def _draw(downwards: bool) -> mechanism.Draw:
  def draw(key: PRNGKey, data: Records, parameters: Parameters) -> Array:
    entered = jnp.sort(entries(data, parameters, downwards))
    last = jnp.asarray(parameters.last)

    def one(of: tuple[PRNGKey, Array, Array]) -> Array:
      key, prob, rate = of
      first, second = jax.random.split(key)
      noise = draws.standard_exponential(first, (), jnp.float64) / rate
      threshold = orders.target(prob, data.count, 'real') + noise
      return stop(second, entered, threshold, rate, last)

    found = jax.lax.map(one, (
        jax.random.split(key, len(parameters.probs)),
        jnp.asarray(parameters.probs), jnp.asarray(parameters.rates)))
    reach = parameters.scale * jnp.expm1(parameters.log_base * found)
    bound = data.upper - reach if downwards else data.lower + reach
    return jnp.sort(bound)
  return draw


_DRAWS = {downwards: _draw(downwards) for downwards in (False, True)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnboundedQuantiles(mechanism.QuantileMechanism):
  """A scan for each order, from the one bound that is known, sorted.

  Guarantee: epsilon-DP under `adjacency`, epsilon / m for each order
  (`rates.scan`). Worse than the exponential mechanism between good bounds, by a
  factor of 2; better for extreme orders and bounds too wide. It stops early:
  noise of many candidates below the quantile has many chances, and the rank is
  short of n p by ln(candidates) / rate at most, or so.

  Attributes:
    bound: the one that is public.
    downwards: whether it is the upper one.
    base: by which distances from the bound grow from candidate to candidate.
    scale: distance at which candidates become geometric; below it they are
      about scale (base - 1) apart.
    num_candidates: after which a scan ends; the last is the other bound.
  """
  lower: float = dataclasses.field(init=False, repr=False)
  upper: float = dataclasses.field(init=False, repr=False)
  bound: float
  downwards: bool = False
  base: float = 1.001
  scale: float = 1.0
  num_candidates: int = 50_000

  def __post_init__(self):
    errors.check_positive('scale', self.scale)
    errors.check_positive('base - 1', self.base - 1)
    errors.check_at_least('num_candidates', self.num_candidates, 2)
    steps = (self.num_candidates - 1) * math.log(self.base)
    if steps + math.log(self.scale) > 700:
      raise ValueError(f'the last of {self.num_candidates} candidates of base '
                       f'{self.base} overflows: fewer, or a smaller base')
    reach = self.scale * math.expm1(steps)
    ends = ((self.bound - reach, self.bound) if self.downwards else
            (self.bound, self.bound + reach))
    for name, end in zip(('lower', 'upper'), ends, strict=True):
      object.__setattr__(self, name, end)
    super().__post_init__()

  @property
  def draw(self) -> mechanism.Draw:
    """The law."""
    return _DRAWS[self.downwards]

  @property
  def parameters(self) -> Parameters:
    """Orders as the scan meets them, rates and candidates."""
    probs = orders.check_orders(self.probs)
    met = 1 - probs if self.downwards else probs
    shared = [rates.scan(prob, epsilon=self.epsilon / met.size,
                         adjacency=self.adjacency) for prob in met.tolist()]
    return Parameters(met, np.array(shared), *map(np.float64, (
        self.scale, math.log(self.base), self.num_candidates - 1)))
