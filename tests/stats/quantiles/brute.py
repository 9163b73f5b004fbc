"""Laws of quantile mechanisms by enumeration, and neighbours to try them on.

Plain NumPy, written apart from the package: nothing of `dpjax` is imported but
the names of relations. Records lie in [0, 1].
"""

from collections.abc import Callable
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
    left: [pairs] the point that the first data set lacks.
    right: the same of the second; None where it lacks none.
  """
  grid: np.ndarray
  left: np.ndarray
  right: np.ndarray | None

  def records(self, lacking: np.ndarray | None) -> np.ndarray:
    """Sorted records [pairs, n] of one side."""
    if lacking is None:
      return self.grid
    keep = np.arange(self.grid.shape[1]) != lacking[:, None]
    return self.grid[keep].reshape(len(self.grid), -1)

  @property
  def sides(self) -> list[np.ndarray]:
    """Records of both."""
    return [self.records(self.left), self.records(self.right)]

  @property
  def midpoints(self) -> np.ndarray:
    """[pairs, size + 2], of the cells in which both have constant ranks."""
    ends = _edges(self.grid)
    return (ends[:, 1:] + ends[:, :-1]) / 2


def pairs(rng: np.random.Generator, count: int, size: int, spread: float,
          adjacency: Adjacency) -> Pairs:
  """Random neighbours of `size` records, gaps log-normal of this `spread`."""
  gaps = np.exp(spread * rng.standard_normal((count, size + 2)))
  grid = np.cumsum(gaps, -1)
  grid = grid[:, :-1] / grid[:, -1:]
  left = rng.integers(size + 1, size=count)
  if adjacency is ADD:
    return Pairs(grid, left, None)
  right = (left + rng.integers(1, size + 1, size=count)) % (size + 1)
  return Pairs(grid, left, right)


def tuples(num_examples: int, num_orders: int) -> np.ndarray:
  """All intervals i_1 <= ... <= i_m [tuples, m] of 0 to n."""
  return np.array(list(itertools.combinations_with_replacement(
      range(num_examples + 1), num_orders)))


def block_law(records: np.ndarray, cost: Cost,
              num_orders: int) -> tuple[np.ndarray, np.ndarray]:
  """Logarithms [..., tuples] of the probabilities of `tuples`, normaliser.

  Args:
    records: [..., n], sorted.
    cost: of a release.
    num_orders: m.

  Returns:
    Log-probabilities, and log [...] of the integral of e^-cost over increasing
    points, of those the law is.
  """
  size = records.shape[-1]
  with np.errstate(divide='ignore'):
    logs = np.log(np.diff(_edges(records)))
  blocks = tuples(size, num_orders)
  # Of k points in one interval one order in k! is increasing.
  shared = np.array([sum(math.log(math.factorial(list(block).count(i)))
                         for i in set(block)) for block in blocks.tolist()])
  masses = logs[..., blocks].sum(-1) - shared - cost(blocks, size)
  total = special.logsumexp(masses, axis=-1)
  return masses - total[..., None], total


def worst_loss(both: Pairs, cost: Cost, num_orders: int) -> float:
  """The largest |log-ratio| of densities at any release, over all pairs."""
  cells = tuples(both.grid.shape[1], num_orders)
  widths = np.diff(_edges(both.grid))
  possible = (widths[:, cells] > 0).all(-1)
  density = []
  for lacking, records in zip((both.left, both.right), both.sides, strict=True):
    ranks = np.broadcast_to(cells, (len(both.grid), *cells.shape))
    if lacking is not None:
      ranks = ranks - (ranks > lacking[:, None, None])
    total = block_law(records, cost, num_orders)[1]
    density.append(-cost(ranks, records.shape[-1]) - total[:, None])
  return float(np.abs(density[0] - density[1])[possible].max())


def _edges(records: np.ndarray) -> np.ndarray:
  ends = np.zeros((*records.shape[:-1], 1))
  return np.concatenate([ends, records, ends + 1], -1)
