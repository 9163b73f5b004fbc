"""Releases quantiles without an upper bound, by a scan of growing candidates.

Candidates are lower + scale (base^i - 1). The answer is the first candidate
whose noisy rank reaches the noisy n p. A bound too wide by 10^6 costs some
dozens of candidates; it would ruin the exponential mechanism. Noise is
one-sided. Source: Durfee 2023 (item QB-05).

The sampler is exact and has no loop over candidates: those between two records
have the same rank, so the index of the first that stops is geometric among
them.
"""

import dataclasses
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import draws
from dpjax.stats.quantile_methods import mechanism
from dpjax.stats.quantile_methods import quantile_levels
from dpjax.stats.quantile_methods import rates
from dpjax.stats.quantile_methods import records
from dpjax.stats.quantile_methods.records import Records
from dpjax.typing import Array, PRNGKey


class ScanParameters(NamedTuple):
  """Arrays of m scans of candidates.

  Attributes:
    probs: [m] quantile levels, as the scan meets them.
    rates: [m] rates of the exponential noise on threshold and ranks alike.
    scale: scale of the candidates.
    log_base: logarithm of the candidates' base.
    last: index of the last candidate; it stops whatever its rank.
  """
  probs: np.ndarray
  rates: np.ndarray
  scale: np.float64
  log_base: np.float64
  last: np.float64


def entries(data: Records, parameters: ScanParameters,
            downwards: bool) -> Array:
  """Returns the index [capacity] of the first candidate past each record.

  Indices are float64. The rounding of each depends on its record alone. So the
  rank of a candidate, the number of these indices up to its own, changes as the
  proof in `rates.scan` needs.
  """
  distances = (data.upper - data.ordered if downwards else
               data.ordered - data.lower)
  steps = jnp.log1p(distances / parameters.scale) / parameters.log_base
  return jnp.where(records.filled(data), jnp.minimum(
      jnp.floor(steps) + 1, parameters.last), parameters.last)


def stop(key: PRNGKey, entered: Array, threshold: Array, rate: Array,
         last: Array) -> Array:
  """Returns the index of the candidate that stops a scan, float64.

  Args:
    key: random key of the noise on ranks.
    entered: [capacity], see `entries`, sorted.
    threshold: noisy threshold.
    rate: rate of the noise on ranks.
    last: index of the last candidate.
  """
  # Runs of candidates with equal rank; the very last candidate always stops.
  starts = jnp.concatenate([jnp.zeros(1), entered, last[None]])
  sizes = jnp.diff(starts, append=last + 1)
  deficits = rate * jnp.maximum(threshold - jnp.arange(
      starts.size, dtype=jnp.float64), 0.0)
  # -log of the probability that a candidate's noise stays below its deficit,
  # in the form that does not cancel.
  hazards = jnp.where(deficits > 1, -jnp.log1p(-jnp.exp(-deficits)),
                      -jnp.log(-jnp.expm1(-deficits))).at[-1].set(jnp.inf)
  totals = jnp.cumsum(jnp.where(sizes > 0, sizes * hazards, 0.0))
  level = draws.standard_exponential(key, (), jnp.float64)
  run = jnp.argmax(totals >= level)
  before = jnp.where(run > 0, totals[run - 1], 0.0)
  # Within a run of equal hazards the stopping index is geometric.
  index = jnp.floor((level - before) / hazards[run])
  return starts[run] + jnp.clip(index, 0.0, sizes[run] - 1)


def _draw(downwards: bool) -> mechanism.Draw:
  """Returns the sampler of scans in one direction."""
  def draw(key: PRNGKey, data: Records, parameters: ScanParameters) -> Array:
    entered = jnp.sort(entries(data, parameters, downwards))
    last = jnp.asarray(parameters.last)

    def one(args: tuple[PRNGKey, Array, Array]) -> Array:
      key, prob, rate = args
      first, second = jax.random.split(key)
      noise = draws.standard_exponential(first, (), jnp.float64) / rate
      threshold = quantile_levels.target(prob, data.count, 'real') + noise
      return stop(second, entered, threshold, rate, last)

    stops = jax.lax.map(one, (
        jax.random.split(key, len(parameters.probs)),
        jnp.asarray(parameters.probs), jnp.asarray(parameters.rates)))
    distances = parameters.scale * jnp.expm1(parameters.log_base * stops)
    bound = data.upper - distances if downwards else data.lower + distances
    return jnp.sort(bound)
  return draw


_DRAWS = {downwards: _draw(downwards) for downwards in (False, True)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnboundedQuantiles(mechanism.PureQuantiles):
  """Scans candidates for each quantile level from the one known bound; sorted.

  Privacy: epsilon-DP under `adjacency`, epsilon / m for each level
  (`rates.scan`). Its error is about twice that of the exponential mechanism
  between good bounds, but smaller for extreme levels and bounds too wide. It
  stops early: many candidates below the quantile have a chance to stop, so the
  rank falls short of n p by at most about ln(candidates) / rate.

  Attributes:
    bound: the public bound.
    downwards: whether `bound` is the upper one.
    base: factor by which distances from the bound grow from candidate to
      candidate.
    scale: distance at which candidates become geometric; below it they are
      about scale (base - 1) apart.
    num_candidates: number of candidates in a scan; the last is the other bound.
  """
  lower: float = dataclasses.field(init=False, repr=False)
  upper: float = dataclasses.field(init=False, repr=False)
  bound: float
  downwards: bool = False
  base: float = 1.001
  scale: float = 1.0
  num_candidates: int = 50_000

  def __post_init__(self) -> None:
    errors.check_positive('scale', self.scale)
    errors.check_positive('base - 1', self.base - 1)
    errors.check_at_least('num_candidates', self.num_candidates, 2)
    steps = (self.num_candidates - 1) * math.log(self.base)
    if steps + math.log(self.scale) > 700:
      raise ValueError(f'the last of {self.num_candidates} candidates of base '
                       f'{self.base} overflows: lower num_candidates or base')
    longest = self.scale * math.expm1(steps)
    bounds = ((self.bound - longest, self.bound) if self.downwards else
              (self.bound, self.bound + longest))
    for name, bound in zip(('lower', 'upper'), bounds, strict=True):
      object.__setattr__(self, name, bound)
    super().__post_init__()

  @property
  def draw(self) -> mechanism.Draw:
    """Jittable sampler (key, records, parameters) -> quantiles."""
    return _DRAWS[self.downwards]

  @property
  def parameters(self) -> ScanParameters:
    """Levels as the scan meets them, rates and candidates, as arrays."""
    probs = quantile_levels.check_levels(self.probs)
    # A scan downwards counts records from the upper bound.
    met = 1 - probs if self.downwards else probs
    rates_each = [rates.scan(prob, epsilon=self.epsilon / met.size,
                             adjacency=self.adjacency) for prob in met.tolist()]
    return ScanParameters(met, np.array(rates_each), np.float64(self.scale),
                          np.float64(math.log(self.base)),
                          np.float64(self.num_candidates - 1))
