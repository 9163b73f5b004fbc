"""Draws quantiles from slices of the records, around correlated noisy ranks.

Each quantile level uses only the 2 h records around its rank, by an exponential
mechanism, so that a record is used once however many levels there are. The
ranks need noise, because replacing a record shifts the ranks of others. The
noise is that of a tree of partial sums: one number for each node and at most
log2(m) numbers in a sum. Source: Imola et al. 2025 (item QB-10).

Statement. Under REPLACE_ONE the release is (epsilon, delta)-DP, with epsilon =
epsilon_1 + 4 rate + ln(2 h / (2 h - 1)) and delta = P(two ranks are 2 h apart
or less); the proof is in docs/theory/slicing.md.
"""

from collections.abc import Sequence
import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import draws
from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats.quantile_methods import independent
from dpjax.stats.quantile_methods import mechanism
from dpjax.stats.quantile_methods import quantile_levels
from dpjax.stats.quantile_methods import records
from dpjax.stats.quantile_methods.records import Records
from dpjax.typing import Array, PRNGKey


class SliceParameters(NamedTuple):
  """Arrays of m slices of records.

  Attributes:
    ranks: [m] target ranks, without noise.
    sums: [m, nodes], 1 where the noise of a node is part of a rank's noise.
    scale: scale of the noise of a node.
    half: h, half the length of a slice.
    rate: rate of the cost within a slice.
  """
  ranks: np.ndarray
  sums: np.ndarray
  scale: np.float64
  half: np.float64
  rate: np.float64


@functools.cache
def tree(num_orders: int) -> tuple[np.ndarray, int]:
  """Returns (sums [m, nodes], budget) of partial sums up to each of m levels.

  A node is a block of 2^l levels that starts at an even multiple of 2^l, with
  its own noise; a sum has one node for each one-bit of its length. `budget` is
  the most nodes that contain exactly one end of a run of levels.
  """
  lengths = np.arange(1, num_orders + 1)[:, None]
  nodes = [(level, start) for level in range(num_orders.bit_length())
           for start in range(0, num_orders - 2**level + 1, 2**(level + 1))]
  levels, starts = np.array(nodes).T
  # The node of a one-bit starts where the higher bits of the length end.
  sums = (lengths >> levels) % 2 * (
      (lengths >> levels << levels) - 2**levels == starts)
  is_held = (starts < lengths) & (lengths <= starts + 2**levels)
  # Runs that end with the last level have one end only: an all-zero row.
  is_held = np.concatenate([is_held, np.zeros((1, len(nodes)), bool)])
  common = is_held.astype(np.float64) @ is_held.T
  alone = np.diag(common)
  # Size of the symmetric difference of the nodes of two ends.
  budget = int(np.max(alone[:, None] + alone[None] - 2 * common))
  return sums.astype(np.float64), budget


def slices(data: Records, ranks: Array, half: Array, width: int) -> Array:
  """Returns [m, width], sorted: 2 h records around each rank, then `upper`.

  A rank is the number of records below it. Outside the records are the bounds.
  """
  offsets = jnp.arange(width, dtype=jnp.float64)
  places = (ranks - half)[:, None] + offsets[None]
  count = data.count.astype(jnp.float64)
  inside = jnp.clip(places, 0.0, count - 1).astype(jnp.int32)
  values = jnp.where(places < 0, data.lower, data.ordered[inside])
  return jnp.where((places >= count) | (offsets >= 2 * half)[None],
                   data.upper, values)


@functools.cache
def _draw(width: int) -> mechanism.Draw:
  """Returns the sampler for slices padded to `width` records."""
  def draw(key: PRNGKey, data: Records, parameters: SliceParameters) -> Array:
    ranks, sums, scale, half, rate = map(jnp.asarray, parameters)
    noise_key, blind_key, key = jax.random.split(key, 3)
    noise = scale * draws.standard_laplace(noise_key, sums.shape[1:],
                                           jnp.float64)
    # Step 1 of the proof couples ranks that differ by whole numbers.
    ranks = ranks + jnp.floor(sums @ noise + 0.5)
    apart = jnp.all(jnp.diff(ranks) >= 2 * half)

    def one(inputs: tuple[PRNGKey, Array]) -> Array:
      slice_records = Records(inputs[1], (2 * half).astype(jnp.int32),
                              data.lower, data.upper)
      # The rank is in the middle of its slice: level 1/2.
      return independent.point(inputs[0], slice_records, jnp.float64(0.5), rate,
                               'real')

    answers = jax.lax.map(one, (jax.random.split(key, ranks.size),
                                slices(data, ranks, half, width)))
    # Drawn without the records: used if two slices overlap (step 4 of the
    # proof).
    blind = data.lower + (data.upper - data.lower) * jax.random.uniform(
        blind_key, ranks.shape, jnp.float64)
    return jnp.sort(jnp.where(apart, answers, blind))
  return draw


def overlap_prob(ranks: Sequence[float] | np.ndarray, *, half: int,
                 scale: float) -> float:
  """Bounds the probability that noisy ranks are 2 h apart or less.

  A union bound over consecutive ranks. The noise of a difference of 2 h + t has
  k Laplace variables, for which Chernoff's inequality gives exp(-l t / scale)
  (1 - l^2)^-k at the best l; rounding takes 1 off t.
  """
  sums, _ = tree(len(ranks))
  terms = np.sum(np.abs(np.diff(sums, axis=0)), 1)
  spare = (np.diff(ranks) - 2 * half - 1) / scale
  if np.any(spare <= 0):
    return 1.0
  best = (np.sqrt(terms**2 + spare**2) - terms) / spare
  return float(np.sum(np.exp(-best * spare - terms * np.log1p(-best**2))))


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlicedQuantiles(mechanism.PureQuantiles):
  """An exponential mechanism for each quantile level, within its slice.

  Privacy: (epsilon, delta)-DP under REPLACE_ONE (docs/theory/slicing.md); pure
  for one level. With probability 1 - failure_prob and unless slices overlap,
  the rank of an answer is within h of the noisy rank, if the record intervals
  at the ranks are as wide as `resolution`. Errors grow more slowly with m than
  those of a recursive mechanism, but are 1.2 to 1.5 times as large for 10 to
  200 levels of 5 10^5 records at epsilon 1.

  Attributes:
    num_examples: n, the public number of records.
    delta: delta of the guarantee.
    resolution: width of the record intervals in which answers should be found;
      privacy does not depend on it.
    failure_prob: probability that some answer is outside its slice.
    rank_share: fraction of epsilon spent on noise of the ranks.
  """
  num_examples: int
  delta: float
  resolution: float
  failure_prob: float = 0.05
  rank_share: float = 0.6

  def __post_init__(self) -> None:
    super().__post_init__()
    if self.adjacency is not Adjacency.REPLACE_ONE:
      raise ValueError('slices need a public number of records: '
                       'adjacency must be REPLACE_ONE')
    errors.check_at_least('num_examples', self.num_examples, 1)
    for name in ('delta', 'failure_prob', 'rank_share'):
      errors.check_open_unit(name, getattr(self, name))
    errors.check_positive('resolution', self.resolution)
    if self._overlap(self.num_examples) > self.delta:
      needed = self.num_examples
      while self._overlap(needed) > self.delta:
        needed = math.ceil(1.02 * needed) + 1
      raise ValueError(f'slices of {2 * self.half} records around '
                       f'{len(self.probs)} levels need about {needed} records, '
                       f'got {self.num_examples}')

  @property
  def half(self) -> int:
    """Returns half the length of a slice, h, in records."""
    needed = math.log(len(self.probs) * (self.upper - self.lower)
                      / (self.resolution * self.failure_prob))
    # The added 1/4 covers h ln(2 h / (2 h - 1)) / 4, see `parameters`.
    return max(1, math.ceil((max(needed, 0.0) + 0.25)
                            / ((1 - self.rank_share) * self.epsilon / 4)))

  @property
  def scale(self) -> float:
    """Returns the scale of the Laplace noise of each node of the tree."""
    return tree(len(self.probs))[1] / (self.rank_share * self.epsilon)

  @property
  def guarantee(self) -> notions.ApproxDP:
    """Returns the guarantee; compose it by `accounting.optimal_composition`."""
    return notions.ApproxDP(epsilon=self.epsilon,
                            delta=0.0 if len(self.probs) == 1 else self.delta)

  @property
  def event(self) -> accounting.DpEvent:
    """Returns the privacy cost of one release; defined for one level only."""
    if self.guarantee.delta:
      raise ValueError('slices have no event: their guarantee of (epsilon, '
                       'delta) composes by accounting.optimal_composition')
    return super().event

  def check_size(self, num_examples: int) -> None:
    """Raises ValueError unless there are `num_examples` records."""
    errors.check_records((num_examples,), self.num_examples)

  @property
  def draw(self) -> mechanism.Draw:
    """Returns a jittable sampler (key, records, parameters) -> quantiles."""
    return _draw(records.capacity(2 * self.half))

  @property
  def parameters(self) -> SliceParameters:
    """Ranks, noise scale, slice length and rate, as arrays."""
    slack = -math.log1p(-1 / (2 * self.half))
    rate = ((1 - self.rank_share) * self.epsilon - slack) / 4
    return SliceParameters(
        self._ranks(self.num_examples), tree(len(self.probs))[0],
        np.float64(self.scale), np.float64(self.half), np.float64(rate))

  def _ranks(self, num_examples: int) -> np.ndarray:
    """Returns the target ranks [m], rounded."""
    levels = quantile_levels.check_levels(self.probs)
    return np.floor(levels * num_examples + 0.5)

  def _overlap(self, num_examples: int) -> float:
    """Bounds the probability that slices overlap."""
    return overlap_prob(self._ranks(num_examples), half=self.half,
                        scale=self.scale)
