"""RecExp: draws the middle quantile, then recurses on the records on each side.

Quantile levels form a balanced tree that is answered depth by depth. The nodes
at one depth have disjoint records, between points released before, and each is
one exponential mechanism. A record counts once at each depth, so m levels cost
about log2(m + 1) times as much as one. Source: Lalanne (2023, section 6.1.5);
Kaplan, Schnapp and Stemmer 2022 (item QF-08, QB-02).

Records are not moved: a node is a range of them. The ranges at one depth are
cut into rows of one length. All nodes in parallel choose a row by its sum and
then an interval in it by its weight, as `choice` does.
"""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.privacy import draws
from dpjax.stats.quantile_methods import choice
from dpjax.stats.quantile_methods import independent
from dpjax.stats.quantile_methods import mechanism
from dpjax.stats.quantile_methods import quantile_levels
from dpjax.stats.quantile_methods import rates
from dpjax.stats.quantile_methods import records
from dpjax.stats.quantile_methods.independent import ExponentialParameters
from dpjax.stats.quantile_methods.records import Records
from dpjax.typing import Array, PRNGKey

BUDGETS = ('depth', 'printed')


class _Cuts(NamedTuple):
  """Points [m + 3] and the records below them: 0 and m + 1 are the bounds.

  Nodes that pad a depth of the tree read and write the last entry.
  """
  points: Array
  ranks: Array


class _Nodes(NamedTuple):
  """The nodes at one depth of the tree, [nodes] each.

  Attributes:
    low: left end of the first interval.
    high: right end of the last interval.
    first: index of the first interval, among those between all records.
    last: index of the last interval.
    target: rank, among all records, at which the cost is 0.
    rate: rate of the cost.
  """
  low: Array
  high: Array
  first: Array
  last: Array
  target: Array
  rate: Array


class _Rows(NamedTuple):
  """Rows of intervals, each of one node.

  Attributes:
    node: [rows], not decreasing; padding rows are empty rows of the last node.
    first: [rows], index of a row's first interval.
    logs: [rows, length], log-weights, -inf outside the node.
  """
  node: Array
  first: Array
  logs: Array


def _nodes(triples: Array, cuts: _Cuts, parameters: ExponentialParameters,
           cost: str) -> _Nodes:
  """Returns the nodes of one depth, given as (low, middle, high) [nodes, 3]."""
  low, middle, high = triples.T
  first, last = cuts.ranks[low], cuts.ranks[high]
  # Padding points past the levels; whatever it reads is never used.
  index = jnp.clip(middle - 1, 0, len(parameters.probs) - 1)
  target = independent.target(jnp.asarray(parameters.probs)[index],
                              last - first, cost)
  return _Nodes(cuts.points[low], cuts.points[high], first, last,
                first.astype(jnp.float64) + target,
                jnp.asarray(parameters.rates)[index])


def _rows(nodes: _Nodes, edges: Array, log_widths: Array, length: int,
          cost: str) -> _Rows:
  """Returns all intervals of all nodes with their log-weights."""
  number = nodes.rate.size
  counts = (nodes.last - nodes.first) // length + 1
  row_ends = jnp.cumsum(counts, dtype=jnp.int32)
  # Each node may end with one partly filled row.
  rows = jnp.arange(log_widths.size // length + number, dtype=jnp.int32)
  node = jnp.minimum(jnp.searchsorted(row_ends, rows, side='right'), number - 1)
  first = nodes.first[node] + length * (rows - (row_ends - counts)[node])
  places = first[:, None] + jnp.arange(length, dtype=jnp.int32)[None]
  own = _Nodes(*(value[node][:, None] for value in nodes))
  # The first and the last interval of a node are cut by its bounds.
  left, right = (records.log_of(value)[node][:, None] for value in (
      jnp.minimum(edges[nodes.first + 1], nodes.high) - nodes.low,
      nodes.high - jnp.maximum(edges[nodes.last], nodes.low)))
  logs = log_widths[jnp.minimum(places, log_widths.size - 1)]
  logs = jnp.where(places == own.first, left, logs)
  logs = jnp.where(places == own.last, right, logs)
  logs = logs + independent.log_decline(places.astype(jnp.float64), own.target,
                                        own.rate, cost)
  return _Rows(node, first, jnp.where(places <= own.last, logs, -jnp.inf))


def _choose(key: PRNGKey, rows: _Rows, number: int) -> Array:
  """Draws an interval [number] of each node, by its weight."""
  which, where = jax.random.split(key)
  sums = choice.log_sums(rows.logs)
  noisy = sums + draws.standard_gumbel(which, sums.shape, jnp.float64)
  best = jax.ops.segment_max(noisy, rows.node, number, True)
  largest = draws.is_largest(noisy, best[rows.node])
  # Rounding can make ties; they go to the first row.
  places = jnp.arange(noisy.size, dtype=jnp.int32)
  row = jax.ops.segment_min(jnp.where(largest, places, noisy.size - 1),
                            rows.node, number, True)
  logs = rows.logs[row]
  noise = draws.standard_gumbel(where, logs.shape, jnp.float64)
  return rows.first[row] + draws.place_of_largest(logs + noise)


def _schedule(num_levels: int) -> np.ndarray:
  """Returns `quantile_levels.halvings`, padded to [levels, nodes, 3]."""
  levels = quantile_levels.halvings(num_levels)
  full = np.full([len(levels), max(map(len, levels)), 3], num_levels + 2,
                 np.int32)
  for row, nodes in zip(full, levels, strict=True):
    row[:len(nodes)] = nodes
  return full


def _draw(key: PRNGKey, data: Records, parameters: ExponentialParameters, *,
          cost: str) -> Array:
  """Samples all quantiles, one depth of the tree after the other."""
  schedule = _schedule(len(parameters.probs))
  edges, log_widths = records.edges(data), records.log_widths(data)
  # About as many rows as entries in a row minimises the number of draws.
  ratio = log_widths.size / schedule.shape[1]
  length = 2**max(3, round(math.log2(ratio) / 2))
  blank = jnp.zeros([len(parameters.probs) + 3])
  start = _Cuts(blank.at[0].set(data.lower).at[-2].set(data.upper),
                blank.astype(jnp.int32).at[-2].set(data.count))

  def step(cuts: _Cuts, inputs: tuple[PRNGKey, Array]) -> tuple[_Cuts, None]:
    (which, where), triples = jax.random.split(inputs[0]), inputs[1]
    nodes = _nodes(triples, cuts, parameters, cost)
    rows = _rows(nodes, edges, log_widths, length, cost)
    interval = _choose(which, rows, len(triples))
    lead = interval.astype(jnp.float64) - nodes.target
    fraction = independent.place(where, lead, nodes.rate, cost)
    left = jnp.maximum(edges[interval], nodes.low)
    right = jnp.minimum(edges[interval + 1], nodes.high)
    # Rounding must not move a point past the end of its interval.
    point = jnp.clip(left + fraction * (right - left), left, right)
    middle = triples[:, 1]
    return _Cuts(cuts.points.at[middle].set(point),
                 cuts.ranks.at[middle].set(interval)), None

  keys = jax.random.split(key, len(schedule))
  cuts_end, _ = jax.lax.scan(step, start, (keys, jnp.asarray(schedule)))
  return cuts_end.points[1:-2]


_DRAWS = {cost: functools.partial(_draw, cost=cost)
          for cost in independent.COSTS}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecursiveQuantiles(mechanism.ExponentialQuantiles):
  """RecExp: quantile levels on a balanced tree, one depth at a time.

  Privacy: epsilon-DP, or rho-zCDP, under `adjacency`; `rates.recursive` proves
  the rates. The mechanism of Lalanne (2023) has cost 'rounded' and budget
  'printed', that of Kaplan, Schnapp and Stemmer 'real' and 'printed'; with more
  than one level they use less than epsilon. Equal records always fall on the
  same side: separate them first (`records.separated`).

  Attributes:
    cost: one of `independent.COSTS`, for all nodes.
    budget: 'depth', an even part for each of the D depths of the tree, or
      'printed', a fraction 1 / (log2(m) + 1) for each, as the papers have it.
  """
  cost: str = 'real'
  budget: str = 'depth'

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_choice('cost', self.cost, independent.COSTS)
    errors.check_choice('budget', self.budget, BUDGETS)

  @property
  def steps(self) -> float:
    """Number of equal parts of the budget: D, or log2(m) + 1 if printed."""
    return rates.levels(len(self.probs), printed=self.budget == 'printed')

  @property
  def draw(self) -> mechanism.Draw:
    """Jittable sampler (key, records, parameters) -> quantiles."""
    return _DRAWS[self.cost]

  @property
  def parameters(self) -> ExponentialParameters:
    """Levels relative to the records of their nodes, and rates, as arrays."""
    return ExponentialParameters(
        quantile_levels.relative(self.probs), rates.recursive(
            self.probs, share=self.share, adjacency=self.adjacency,
            rounded=self.cost == 'rounded', printed=self.budget == 'printed'))
