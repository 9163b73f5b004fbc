"""Quantiles of slices of the records, around ranks with correlated noise.

Each order asks the 2 h records around its rank alone, by an exponential
mechanism, so that a record is asked once however many orders there are. For
that ranks need noise, under which records before them may become records behind
them: that of a tree of partial sums, a number for each node and log2(m) in a
sum. Source: Imola et al. 2025 (item QB-10).

Guarantee, under REPLACE_ONE: (epsilon, delta)-DP, delta = P(ranks are 2 h
apart or less). Proof. Let records be endless, `lower` before and `upper` behind
them, and x be replaced by y > x, in two steps.

1. Without x, records behind it move up by one. Couple ranks whose slices lie
   before x with the same ranks, and those behind it with one less. Where the
   slice holds x at its t-th place, from 0, the rank stays with probability t /
   (2 h - 1) and is one less otherwise: 2 h ranks on 2 h - 1, none of which is
   met by more than 2 h / (2 h - 1) in all. If slices are disjoint, all are the
   same but that one, which lost x and got the record next to its end: counts of
   records below any point moved one way by 1, and a density by e^(2 rate).
2. With y, ranks of slices behind it are one more. No two become the same, and
   at most one slice got y and lost its last record: e^(2 rate) again.

Together, ranks of one run of orders are one less. So they are if the noise of
those nodes moves by 1 that hold one of the two ends of the run, `budget` nodes
at most: e^epsilon_1. Step 1 brings two ranks nearer by 1, step 2 none, so that
all slices are disjoint if ranks were more than 2 h apart; where ranks are less
than 2 h apart, the answer is drawn without the records. Hence epsilon =
epsilon_1 + 4 rate + ln(2 h / (2 h - 1)).
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
from dpjax.stats.quantiles import independent
from dpjax.stats.quantiles import mechanism
from dpjax.stats.quantiles import orders
from dpjax.stats.quantiles import records
from dpjax.stats.quantiles.records import Records
from dpjax.typing import Array, PRNGKey


class Parameters(NamedTuple):
  """Of m slices.

  Attributes:
    ranks: [m], without noise.
    sums: [m, nodes], which noise is that of a rank.
    scale: of the noise of a node.
    half: h.
    rate: of the cost within a slice.
  """
  ranks: np.ndarray
  sums: np.ndarray
  scale: np.ndarray
  half: np.ndarray
  rate: np.ndarray


@functools.cache
def tree(num_orders: int) -> tuple[np.ndarray, np.ndarray]:
  """(sums [m, nodes], budget) of partial sums up to each of m orders.

  Nodes are blocks of 2^l orders at even multiples of it, each its own noise; a
  sum has one for each bit of its length. Noise of the nodes that hold an order
  moves the sums from it on.
  """
  ends = np.arange(1, num_orders + 1)[:, None]
  nodes = [(level, start) for level in range(num_orders.bit_length())
           for start in range(0, num_orders - 2**level + 1, 2**(level + 1))]
  levels, starts = np.array(nodes).T
  sums = (ends >> levels) % 2 * ((ends >> levels << levels) - 2**levels
                                 == starts)
  held = (starts < ends) & (ends <= starts + 2**levels)
  # Runs that end with the last order have one end.
  held = np.concatenate([held, np.zeros((1, len(nodes)), bool)])
  common = held.astype(np.float64) @ held.T
  alone = np.diag(common)
  budget = int(np.max(alone[:, None] + alone[None] - 2 * common))
  return sums.astype(np.float64), budget


def slices(data: Records, ranks: Array, half: Array, width: int) -> Array:
  """[m, width], sorted: 2 h records around each rank, then `upper`.

  A rank has as many records below it. Beyond the records are the bounds.
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
  def draw(key: PRNGKey, data: Records, parameters: Parameters) -> Array:
    ranks, sums, scale, half, rate = map(jnp.asarray, parameters)
    noise_key, blind_key, key = jax.random.split(key, 3)
    noise = scale * draws.standard_laplace(noise_key, sums.shape[1:],
                                           jnp.float64)
    ranks = ranks + jnp.floor(sums @ noise + 0.5)
    apart = jnp.all(jnp.diff(ranks) >= 2 * half)

    def one(of: tuple[PRNGKey, Array]) -> Array:
      part = Records(of[1], (2 * half).astype(jnp.int32), data.lower,
                     data.upper)
      return independent.point(of[0], part, jnp.float64(0.5), rate, 'real')

    found = jax.lax.map(one, (jax.random.split(key, ranks.size),
                              slices(data, ranks, half, width)))
    blind = data.lower + (data.upper - data.lower) * jax.random.uniform(
        blind_key, ranks.shape, jnp.float64)
    return jnp.sort(jnp.where(apart, found, blind))
  return draw


def overlap_prob(ranks: Sequence[float], *, half: int, scale: float) -> float:
  """Bounds the probability that ranks with noise are 2 h apart or less.

  For each two, of the sum of k Laplace variables by Chernoff's inequality,
  exp(-l t / scale) (1 - l^2)^-k at the best l; rounding takes 1 of t.
  """
  sums, _ = tree(len(ranks))
  terms = np.sum(np.abs(np.diff(sums, axis=0)), 1)
  spare = (np.diff(ranks) - 2 * half - 1) / scale
  if np.any(spare <= 0):
    return 1.0
  best = (np.sqrt(terms**2 + spare**2) - terms) / spare
  return float(np.sum(np.exp(-best * spare - terms * np.log1p(-best**2))))


@dataclasses.dataclass(frozen=True, kw_only=True)
class SlicedQuantiles(mechanism.QuantileMechanism):
  """An exponential mechanism for each order, among the records of its slice.

  Guarantee: (epsilon, delta)-DP under REPLACE_ONE (see the module); pure for
  one order. With probability 1 - failure_prob and unless slices overlap, an
  answer has a rank within h of that with noise, if the record intervals at the
  ranks are as wide as `resolution`. Errors grow more slowly with m than those
  of a recursive mechanism, but are 1.2 to 1.5 times those of it for 10 to 200
  orders of 5 10^5 records at epsilon 1.

  Attributes:
    num_examples: n, public.
    delta: of the guarantee.
    resolution: width of the record intervals that answers should be found in;
      no privacy rests on it.
    failure_prob: that some answer is outside its slice.
    rank_share: of epsilon, for noise on ranks.
  """
  num_examples: int
  delta: float
  resolution: float
  failure_prob: float = 0.05
  rank_share: float = 0.6

  def __post_init__(self):
    super().__post_init__()
    if self.adjacency is not Adjacency.REPLACE_ONE:
      raise ValueError('slices aim at ranks of a public number of records: '
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
                       f'{len(self.probs)} orders need about {needed} records, '
                       f'got {self.num_examples}')

  @property
  def half(self) -> int:
    """h, half the length of a slice."""
    needed = math.log(len(self.probs) * (self.upper - self.lower)
                      / (self.resolution * self.failure_prob))
    # What the uncertain place of a record costs takes 1/4 at most.
    return max(1, math.ceil((max(needed, 0.0) + 0.25)
                            / ((1 - self.rank_share) * self.epsilon / 4)))

  @property
  def scale(self) -> float:
    """Of the Laplace noise of each node of the tree."""
    return tree(len(self.probs))[1] / (self.rank_share * self.epsilon)

  @property
  def guarantee(self) -> notions.ApproxDP:
    """What is proved; compose it by `accounting.optimal_composition`."""
    return notions.ApproxDP(epsilon=self.epsilon,
                            delta=0.0 if len(self.probs) == 1 else self.delta)

  @property
  def event(self) -> accounting.DpEvent:
    """What one release costs: of one order."""
    if self.guarantee.delta:
      raise ValueError('slices have no event: their guarantee of (epsilon, '
                       'delta) composes by accounting.optimal_composition')
    return super().event

  def check_size(self, num_examples: int) -> None:
    """Refuses another number of records than the public one."""
    errors.check_records((num_examples,), self.num_examples)

  @property
  def draw(self) -> mechanism.Draw:
    """The law."""
    return _draw(records.capacity(2 * self.half))

  @property
  def parameters(self) -> Parameters:
    """Ranks, noise and rate."""
    slack = -math.log1p(-1 / (2 * self.half))
    rate = ((1 - self.rank_share) * self.epsilon - slack) / 4
    return Parameters(self._ranks(self.num_examples),
                      tree(len(self.probs))[0],
                      *map(np.float64, (self.scale, self.half, rate)))

  def _ranks(self, num_examples: int) -> np.ndarray:
    return np.floor(orders.check_orders(self.probs) * num_examples + 0.5)

  def _overlap(self, num_examples: int) -> float:
    return overlap_prob(self._ranks(num_examples), half=self.half,
                        scale=self.scale)
