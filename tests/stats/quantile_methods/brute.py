"""Enumerates distributions of quantile mechanisms, and neighbours for them.

This is plain NumPy, written apart from the package: nothing of `dpjax` is
imported except the names of adjacencies. Records lie in [0, 1].
"""

from collections.abc import Callable, Sequence
import dataclasses
import itertools
import math

import numpy as np
from scipy import special

from dpjax.privacy.adjacency import Adjacency

ADD = Adjacency.ADD_OR_REMOVE_ONE
REPLACE = Adjacency.REPLACE_ONE

Cost = Callable[[np.ndarray, int], np.ndarray]
"""(ranks [..., m] of a release, n) -> minus its log-density [...], but for a
constant. Ranks of increasing points: how many records lie below each."""


@dataclasses.dataclass(frozen=True)
class Pairs:
  """Neighbours that share a grid: each leaves out one of its points, or none.

  Attributes:
    grid: [pairs, size + 1], sorted, in [0, 1].
    left: [pairs], index of the point that the first data set lacks.
    right: the same for the second; None if it lacks none.
  """
  grid: np.ndarray
  left: np.ndarray
  right: np.ndarray | None

  def records(self, lacking: np.ndarray | None) -> np.ndarray:
    """Returns the sorted records [pairs, n] of one side."""
    if lacking is None:
      return self.grid
    keep = np.arange(self.grid.shape[1]) != lacking[:, None]
    return self.grid[keep].reshape(len(self.grid), -1)

  @property
  def sides(self) -> list[np.ndarray]:
    """The sorted records of both data sets."""
    return [self.records(self.left), self.records(self.right)]

  @property
  def widths(self) -> np.ndarray:
    """Widths [pairs, size + 2] of the cells where both
    sides have fixed ranks."""
    return np.diff(_edges(self.grid))

  @property
  def midpoints(self) -> np.ndarray:
    """Midpoints [pairs, size + 2] of these cells."""
    ends = _edges(self.grid)
    return (ends[:, 1:] + ends[:, :-1]) / 2


def pairs(rng: np.random.Generator, count: int, size: int, spread: float,
          adjacency: Adjacency) -> Pairs:
  """Draws neighbours of `size` records, with log-normal gaps.

  `spread` is the standard deviation of the logarithm of a gap.
  """
  gaps = np.exp(spread * rng.standard_normal((count, size + 2)))
  grid = np.cumsum(gaps, -1)
  grid = grid[:, :-1] / grid[:, -1:]
  left = rng.integers(size + 1, size=count)
  if adjacency is ADD:
    return Pairs(grid, left, None)
  right = (left + rng.integers(1, size + 1, size=count)) % (size + 1)
  return Pairs(grid, left, right)


def outputs(rng: np.random.Generator, both: Pairs, count: int,
            num_orders: int) -> np.ndarray:
  """Draws increasing points [pairs, count, m], in each cell equally often."""
  ends = _edges(both.grid)
  cells = rng.integers(ends.shape[1] - 1,
                       size=(len(ends), count * num_orders))
  low, high = (np.take_along_axis(ends, cells + i, -1) for i in (0, 1))
  points = low + rng.random(cells.shape) * (high - low)
  return np.sort(points.reshape(len(ends), count, num_orders), -1)


def tuples(num_examples: int, num_orders: int) -> np.ndarray:
  """Returns all intervals i_1 <= ... <= i_m [tuples, m] of 0 to n."""
  return np.array(list(itertools.combinations_with_replacement(
      range(num_examples + 1), num_orders)))


def block_log_probs(records: np.ndarray, cost: Cost,
                    num_orders: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns log-probabilities [..., tuples] of `tuples`, and the normaliser.

  Args:
    records: [..., n], sorted.
    cost: cost function of a release.
    num_orders: the number m of quantile levels.

  Returns:
    Log-probabilities, and log [...] of the integral of e^-cost over increasing
    points, which normalises the density.
  """
  size = records.shape[-1]
  with np.errstate(divide='ignore'):
    logs = np.log(np.diff(_edges(records)))
  blocks = tuples(size, num_orders)
  # Of k points in one interval, one order in k! is increasing.
  shared = np.array([sum(math.log(math.factorial(list(block).count(i)))
                         for i in set(block)) for block in blocks.tolist()])
  masses = logs[..., blocks].sum(-1) - shared - cost(blocks, size)
  total = special.logsumexp(masses, axis=-1)
  return masses - total[..., None], total


def worst_loss(both: Pairs, cost: Cost, num_orders: int) -> float:
  """Returns the largest |log-ratio| of densities over releases and pairs."""
  cells = tuples(both.grid.shape[1], num_orders)
  possible = (both.widths[:, cells] > 0).all(-1)
  density = []
  for lacking, records in zip((both.left, both.right), both.sides, strict=True):
    ranks = np.broadcast_to(cells, (len(both.grid), *cells.shape))
    if lacking is not None:
      ranks = ranks - (ranks > lacking[:, None, None])
    total = block_log_probs(records, cost, num_orders)[1]
    density.append(-cost(ranks, records.shape[-1]) - total[:, None])
  return float(np.abs(density[0] - density[1])[possible].max())


def node_log_masses(records: np.ndarray, low: np.ndarray, high: np.ndarray,
                    prob: float, rate: float, cost: str) -> np.ndarray:
  """Returns log-weights [..., n + 1] of the intervals between two points.

  Args:
    records: [..., n], sorted; those between `low` and `high` are the node's.
    low: [...], lower end of the node.
    high: [...], upper end of the node.
    prob: quantile level among these records.
    rate: rate of the cost.
    cost: 'real', 'rounded' or 'interpolated'.
  """
  widths = np.diff(np.clip(_edges(records), low[..., None], high[..., None]))
  lead = np.arange(widths.shape[-1]) - _node_target(records, low, high, prob,
                                                    cost)[..., None]
  decline = -rate * np.abs(lead)
  if cost == 'interpolated':
    # This is the mean over the interval, on both sides of the target (QB-03).
    ahead, turn = -np.expm1(-rate) / rate, np.clip(-lead, 0, 1)
    decline = np.where(
        lead >= 0, -rate * lead + np.log(ahead), np.where(
            lead <= -1, rate * (lead + 1) + np.log(ahead), np.log(
                -(np.expm1(-rate * turn) + np.expm1(-rate * (1 - turn))) / rate)))
  with np.errstate(divide='ignore'):
    return np.log(widths) + decline


def _node_target(records, low, high, prob, cost):
  """Returns the rank [...] among all records at which the cost is 0."""
  before = (records < low[..., None]).sum(-1)
  share = ((records <= high[..., None]).sum(-1) - before) * prob
  return before + (np.floor(share + 1e-9) if cost == 'rounded' else share)


def node_log_density(records: np.ndarray, low: np.ndarray, high: np.ndarray,
                     point: np.ndarray, prob: float, rate: float,
                     cost: str) -> np.ndarray:
  """Returns a node's log-density [...] at points [...]; arguments as above."""
  total = special.logsumexp(
      node_log_masses(records, low, high, prob, rate, cost), axis=-1)
  rank = (records < point[..., None]).sum(-1).astype(float)
  if cost == 'interpolated':
    ends = np.clip(_edges(records), low[..., None], high[..., None])
    place = rank.astype(int)[..., None]
    left, right = (np.take_along_axis(ends, place + i, -1)[..., 0]
                   for i in (0, 1))
    rank += (point - left) / (right - left)
  target = _node_target(records, low, high, prob, cost)
  return -rate * np.abs(rank - target) - total


def recursive_log_density(records: np.ndarray, points: np.ndarray,
                          probs: Sequence[float], rates: Sequence[float],
                          cost: str) -> np.ndarray:
  """Returns RecExp's log-density [...] at increasing points [..., m].

  Records are [..., n]; rates [m] are those of the nodes that choose the
  quantile levels.
  """
  known = [0.0, *probs, 1.0]
  cuts = _edges(points)

  def node(low, high):
    if high - low < 2:
      return 0.0
    middle = (low + high) // 2
    prob = (known[middle] - known[low]) / (known[high] - known[low])
    return node(low, middle) + node(middle, high) + node_log_density(
        records, cuts[..., low], cuts[..., high], cuts[..., middle], prob,
        rates[middle - 1], cost)

  return node(0, len(probs) + 1)


def worst_recursive_loss(rng: np.random.Generator, both: Pairs, count: int,
                         probs, rates, cost: str) -> float:
  """Returns RecExp's largest |log-ratio| at `count` releases of each pair."""
  points = outputs(rng, both, count, len(probs))
  grid = np.broadcast_to(both.grid[:, None], (*points.shape[:2],
                                              both.grid.shape[-1]))
  ends = np.sort(_edges(np.concatenate([points, grid], -1)), -1)
  distinct = (np.diff(ends) > 0).all(-1)
  # Each pair with a release gets its records once.
  pair = np.nonzero(distinct)[0]
  one, other = (recursive_log_density(records[pair], points[distinct], probs,
                                      rates, cost) for records in both.sides)
  return float(np.abs(one - other).max())


def recursive_probs(records: np.ndarray, probs, rates, cost: str) -> np.ndarray:
  """Returns probabilities [n + 1] * m of RecExp's intervals, for m up to 3.

  The root is integrated over by Gauss-Legendre quadrature; given it, the others
  are independent.
  """
  size, num_orders = len(records) + 1, len(probs)
  middle = (num_orders + 1) // 2
  ends = _edges(records)
  probs_at = np.zeros([size] * num_orders)

  def of(low, high, prob, rate):
    masses = node_log_masses(records, np.float64(low), np.float64(high), prob,
                             rate, cost)
    return special.softmax(masses)

  root = probs[middle - 1]
  # Interpolated costs have a kink inside an interval.
  kink = np.interp(root * len(records), np.arange(size + 1), ends)
  for interval, low, high in _pieces(ends, kink):
    for node, weight in zip(*np.polynomial.legendre.leggauss(40), strict=True):
      point = low + (high - low) * (node + 1) / 2
      part = np.exp(node_log_density(
          records, np.float64(0), np.float64(1), np.float64(point), root,
          rates[middle - 1], cost)) * (high - low) * weight / 2
      here = np.eye(size)[interval]
      before = [of(0, point, probs[0] / root, rates[0])] * (middle - 1)
      after = [of(point, 1, (probs[-1] - root) / (1 - root), rates[-1])] * (
          num_orders - middle)
      for factor in (*before, here, *after):
        part = part[..., None] * factor
      probs_at += part
  return probs_at


def _pieces(ends, kink):
  """Yields intervals of positive width, split at a kink inside."""
  for interval, (low, high) in enumerate(itertools.pairwise(ends)):
    turn = np.clip(kink, low, high)
    yield from ((interval, *piece) for piece in ((low, turn), (turn, high))
                if piece[0] < piece[1])


def _edges(records: np.ndarray) -> np.ndarray:
  ends = np.zeros((*records.shape[:-1], 1))
  return np.concatenate([ends, records, ends + 1], -1)
