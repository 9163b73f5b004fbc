"""RecExp: the middle order first, then either side from its own records.

A balanced tree of orders, level by level: the nodes of a level have disjoint
records, between points that were released before, and each is one exponential
mechanism. A record counts once a level, so m orders cost log2(m + 1) times one.
Source: thesis 000, section 6.1.5; Kaplan, Schnapp and Stemmer 2022 (item QF-08,
QB-02).

Records stay where they are: a node is a range of them. The ranges of a level
are cut into rows of one length, and all nodes choose side by side a row by its
sum and an interval in it by its weight, as `choice` does.
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
from dpjax.stats.quantiles import choice
from dpjax.stats.quantiles import independent
from dpjax.stats.quantiles import mechanism
from dpjax.stats.quantiles import orders
from dpjax.stats.quantiles import rates
from dpjax.stats.quantiles import records
from dpjax.stats.quantiles.independent import Parameters
from dpjax.stats.quantiles.records import Records
from dpjax.typing import Array, PRNGKey

BUDGETS = ('depth', 'printed')


class _Cuts(NamedTuple):
  """Points [m + 3] and the records below them: 0 and m + 1 are the bounds.

  Nodes that only fill up a level read and write the last place.
  """
  points: Array
  ranks: Array


class _Nodes(NamedTuple):
  """The nodes of a level, [nodes] each.

  Attributes:
    low: left end of the first interval, which is `first`.
    high: right end of the last one, which is `last`.
    first: an interval, of those between all records.
    last: the same.
    target: the rank, among all records, at which the cost is 0.
    rate: of the cost.
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
    node: [rows], not decreasing; rows to spare are empty ones of the last.
    first: [rows], the interval that a row begins with.
    logs: [rows, length], logarithms of weights, -inf beyond the node.
  """
  node: Array
  first: Array
  logs: Array


def _nodes(level: Array, cuts: _Cuts, parameters: Parameters,
           cost: str) -> _Nodes:
  """The nodes that a level [nodes, 3] of the schedule stands for."""
  low, middle, high = level.T
  first, last = cuts.ranks[low], cuts.ranks[high]
  order = jnp.clip(middle - 1, 0, len(parameters.probs) - 1)
  target = independent.target(jnp.asarray(parameters.probs)[order],
                              last - first, cost)
  return _Nodes(cuts.points[low], cuts.points[high], first, last,
                first.astype(jnp.float64) + target,
                jnp.asarray(parameters.rates)[order])


def _rows(nodes: _Nodes, edges: Array, log_widths: Array, length: int,
          cost: str) -> _Rows:
  """All intervals of all nodes, and their weights."""
  number = nodes.rate.size
  counts = (nodes.last - nodes.first) // length + 1
  ends = jnp.cumsum(counts, dtype=jnp.int32)
  # At most one row more for each node than records fill.
  rows = jnp.arange(log_widths.size // length + number, dtype=jnp.int32)
  node = jnp.minimum(jnp.searchsorted(ends, rows, side='right'), number - 1)
  first = nodes.first[node] + length * (rows - (ends - counts)[node])
  places = first[:, None] + jnp.arange(length, dtype=jnp.int32)[None]
  own = _Nodes(*(value[node][:, None] for value in nodes))
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
  """An interval [number] of each node, by its weight."""
  which, where = jax.random.split(key)
  sums = choice.log_sums(rows.logs)
  noisy = sums + draws.standard_gumbel(which, sums.shape, jnp.float64)
  best = jax.ops.segment_max(noisy, rows.node, number, True)
  largest = draws.is_largest(noisy, best[rows.node])
  places = jnp.arange(noisy.size, dtype=jnp.int32)
  row = jax.ops.segment_min(jnp.where(largest, places, noisy.size - 1),
                            rows.node, number, True)
  logs = rows.logs[row]
  noise = draws.standard_gumbel(where, logs.shape, jnp.float64)
  return rows.first[row] + draws.place_of_largest(logs + noise)


def _schedule(num_orders: int) -> np.ndarray:
  """`orders.halvings`, filled up to [levels, nodes, 3]."""
  levels = orders.halvings(num_orders)
  full = np.full([len(levels), max(map(len, levels)), 3], num_orders + 2,
                 np.int32)
  for row, nodes in zip(full, levels, strict=True):
    row[:len(nodes)] = nodes
  return full


def _draw(key: PRNGKey, data: Records, parameters: Parameters, *,
          cost: str) -> Array:
  schedule = _schedule(len(parameters.probs))
  edges, log_widths = records.edges(data), records.log_widths(data)
  # As many rows as places in a row, about: the fewest draws.
  ratio = log_widths.size / schedule.shape[1]
  length = 2**max(3, round(math.log2(ratio) / 2))
  blank = jnp.zeros([len(parameters.probs) + 3])
  start = _Cuts(blank.at[0].set(data.lower).at[-2].set(data.upper),
                blank.astype(jnp.int32).at[-2].set(data.count))

  def step(cuts, of):
    (which, where), level = jax.random.split(of[0]), of[1]
    nodes = _nodes(level, cuts, parameters, cost)
    rows = _rows(nodes, edges, log_widths, length, cost)
    interval = _choose(which, rows, len(level))
    lead = interval.astype(jnp.float64) - nodes.target
    share = independent.place(where, lead, nodes.rate, cost)
    left = jnp.maximum(edges[interval], nodes.low)
    right = jnp.minimum(edges[interval + 1], nodes.high)
    # Never beyond an end, whatever the rounding.
    point = jnp.clip(left + share * (right - left), left, right)
    middle = level[:, 1]
    return _Cuts(cuts.points.at[middle].set(point),
                 cuts.ranks.at[middle].set(interval)), None

  keys = jax.random.split(key, len(schedule))
  found, _ = jax.lax.scan(step, start, (keys, jnp.asarray(schedule)))
  return found.points[1:-2]


_DRAWS = {cost: functools.partial(_draw, cost=cost)
          for cost in independent.COSTS}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecursiveQuantiles(mechanism.ExponentialQuantiles):
  """RecExp: orders on a balanced tree, a level at a time.

  Guarantee: epsilon-DP, or rho-zCDP, under `adjacency`; proof of the rates in
  `rates.recursive`. The mechanism of the thesis has cost 'rounded' and budget
  'printed', the one of Kaplan, Schnapp and Stemmer 'real' and 'printed'; they
  spend less than epsilon but for one order. Records that are equal fall to one
  side together: separate them first (`records.separated`).

  Attributes:
    cost: one of `independent.COSTS`, of all nodes.
    budget: 'depth', an even part for each level, or 'printed'.
  """
  cost: str = 'real'
  budget: str = 'depth'

  def __post_init__(self):
    super().__post_init__()
    errors.check_choice('cost', self.cost, independent.COSTS)
    errors.check_choice('budget', self.budget, BUDGETS)

  @property
  def steps(self) -> float:
    """Levels, or what is printed for them."""
    return rates.levels(len(self.probs), printed=self.budget == 'printed')

  @property
  def draw(self) -> mechanism.Draw:
    """The law."""
    return _DRAWS[self.cost]

  @property
  def parameters(self) -> Parameters:
    """Orders among the records of their nodes, and rates."""
    return Parameters(orders.relative(self.probs), rates.recursive(
        self.probs, share=self.share, adjacency=self.adjacency,
        rounded=self.cost == 'rounded', printed=self.budget == 'printed'))
