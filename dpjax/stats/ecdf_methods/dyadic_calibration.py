"""Computes the exact privacy cost of dyadic noise, for any number of rows.

Node (j, l) adds its noise to rows (j-1) 2^l + 1 .. j 2^l. Between rows there
are boundaries 0..N, and a node is an edge between two boundaries. A record that
moves from bin s + 1 to bin t + 1 changes rows s + 1 .. t by 1. Shifting the
noise of the nodes hides that change if the shifts form a unit flow from s to t
through the edges. The privacy cost is that of the cheapest flow. For Laplace
noise of scales b_l this is a shortest path with lengths 1 / b_l; for Gaussian
noise it is the current in a network of resistances sigma_l^-2, and the cost is
the effective resistance. Both are attained, so the maximum over pairs (s, t) is
the exact cost. Source: Barczewski (2025, Lemma 6.3.1 and Theorems 6.3.1 and
6.3.2), who counts nodes (corrections C2, C3).

A block of rows is connected to the rest only at its two ends. For each boundary
inside, it suffices to know its distances to both ends, or the share of a
current that leaves at the right end and the resistance to both. Pairs in
different halves of a block are then compared without computing paths. Pairs in
one half cost at most as much as in that half by itself, since the surroundings
only add edges; so most blocks can be skipped. The work is proportional to N,
plus the pairs on two Pareto fronts.
"""

from collections.abc import Callable
import functools
import math
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.stats.ecdf_methods import levels

NORMS = ('l1', 'l2')
# Pairs of boundaries compared at a time: 32 MiB of float64.
_PAIRS_AT_ONCE = 2**22


def num_levels(num_rows: int) -> int:
  """Returns L + 1, the number of levels with the root: 2^L >= `num_rows`."""
  return levels.num_levels(num_rows) + 1


class _Distances(NamedTuple):
  """Distances of a block's boundaries to its left and right end.

  The link is the distance between the two ends.
  """
  left: np.ndarray
  right: np.ndarray
  link: float

  @classmethod
  def of_edge(cls, scale: float) -> '_Distances':
    """Returns the block of one row: two ends and the edge between them."""
    return cls(np.array([0.0, 1 / scale]), np.array([1 / scale, 0.0]),
               1 / scale)

  @staticmethod
  def edge(scale: float) -> float:
    """Returns the length of a node's edge, infinite without noise."""
    return 1 / scale if scale else math.inf

  @staticmethod
  def series(one: float, other: float) -> float:
    """Returns the length of two edges in series."""
    return one + other

  @staticmethod
  def parallel(one: float, other: float) -> float:
    """Returns the length of two parallel edges."""
    return min(one, other)

  def opened(self) -> '_Distances':
    """Returns the block without its last boundary."""
    return self._replace(left=self.left[:-1], right=self.right[:-1])

  def beside(self, edge: float) -> '_Distances':
    """Returns the block with an extra edge between its ends."""
    return _Distances(np.minimum(self.left, self.right + edge),
                      np.minimum(self.right, self.left + edge),
                      min(self.link, edge))

  def join(self, other: '_Distances', edge: float) -> '_Distances':
    """Joins two blocks that share an end, and adds an edge around both."""
    left = np.concatenate([self.left, other.left[1:] + self.link])
    right = np.concatenate([self.right + other.link, other.right[1:]])
    return _Distances(left, right, self.link + other.link).beside(edge)

  def ends(self) -> float:
    """Returns the distance between the ends of the block, by itself."""
    return self.link

  def to_last(self) -> float:
    """Returns the largest distance from the right end."""
    return float(self.right.max())

  def farthest(self, other: '_Distances', edge: float) -> float:
    """Returns the largest distance between boundaries of the two halves.

    Args:
      other: the right half; `self` is the left one.
      edge: length of the edge around both.
    """
    # Only Pareto-maximal boundaries matter: one that is no farther from either
    # end than another is no farther from any point outside.
    (left, right), (near, far) = _front(self.left, self.right), _front(
        other.left, other.right)
    # From either end of the left half to either end of the right one.
    around = min(edge, self.link + other.link)
    paths = [(right, near, 0.0), (left, far, around),
             (left, near, min(self.link, edge + other.link)),
             (right, far, min(other.link, edge + self.link))]
    return float(np.min([one[:, None] + two + between
                         for one, two, between in paths], 0).max())


class _Resistances(NamedTuple):
  """Current shares and resistances of a block's boundaries.

  For a unit current that enters at a boundary and leaves at both ends held at
  one potential, `share` is the part that leaves at the right end and `rest` the
  resistance. The link is the conductance between the two ends.
  """
  share: np.ndarray
  rest: np.ndarray
  link: float

  @classmethod
  def of_edge(cls, scale: float) -> '_Resistances':
    """Returns the block of one row: two ends and the edge between them."""
    return cls(np.array([0.0, 1.0]), np.zeros(2), scale**2)

  @staticmethod
  def edge(scale: float) -> float:
    """Returns the conductance of a node's edge, 0 without noise."""
    return scale**2

  @staticmethod
  def series(one: float, other: float) -> float:
    """Returns the conductance of two edges in series."""
    return one * other / (one + other)

  @staticmethod
  def parallel(one: float, other: float) -> float:
    """Returns the conductance of two parallel edges."""
    return one + other

  def opened(self) -> '_Resistances':
    """Returns the block without its last boundary."""
    return self._replace(share=self.share[:-1], rest=self.rest[:-1])

  def beside(self, edge: float) -> '_Resistances':
    """Returns the block with an extra edge between its ends."""
    return self._replace(link=self.link + edge)

  def join(self, other: '_Resistances', edge: float) -> '_Resistances':
    """Joins two blocks that share an end, and adds an edge around both."""
    # A current that reaches the shared end divides by the links of both blocks.
    both = self.link + other.link
    middle = other.link / both
    share = np.concatenate([self.share * middle,
                            middle + other.share[1:] * (1 - middle)])
    rest = np.concatenate([
        self.rest + np.square(self.share) / both,
        other.rest[1:] + np.square(1 - other.share[1:]) / both])
    return _Resistances(share, rest, self.series(self.link, other.link) + edge)

  def ends(self) -> float:
    """Returns the resistance between the ends of the block, by itself."""
    return 1 / self.link

  def to_last(self) -> float:
    """Returns the largest resistance to the right end."""
    return float(np.max(self.rest + np.square(1 - self.share) / self.link))

  def farthest(self, other: '_Resistances', edge: float) -> float:
    """Returns the largest resistance between boundaries of the two halves.

    Args:
      other: the right half; `self` is the left one.
      edge: conductance of the edge around both.
    """
    one, two = self.link, other.link
    minor = one * two + (one + two) * edge
    left, right = 1 - self.share, other.share
    # The resistance is a term of each boundary minus a multiple of the product
    # of both shares, so only Pareto-maximal (share, term) pairs matter.
    left, high = _front(-left, self.rest + (two + edge) / minor * left**2)
    right, other_high = _front(-right,
                               other.rest + (one + edge) / minor * right**2)
    step = max(1, _PAIRS_AT_ONCE // right.size)
    return max(float(np.max(
        high[i:i + step, None] + other_high
        - 2 * edge / minor * left[i:i + step, None] * right))
               for i in range(0, left.size, step))


def _front(one: np.ndarray, two: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns the Pareto front: points that no other exceeds in both coordinates.
  """
  order = np.lexsort((-two, -one))
  one, two = one[order], two[order]
  best = np.concatenate([[-math.inf], np.maximum.accumulate(two)[:-1]])
  return one[two > best], two[two > best]


_Block = TypeVar('_Block', _Distances, _Resistances)


class _Rows(Generic[_Block]):
  """The blocks over the rows, and the largest cost of their pairs."""

  def __init__(self, kind: type[_Block], scales: tuple[float, ...]) -> None:
    self._kind: type[_Block] = kind
    self._edges = [kind.edge(scale) for scale in scales]
    self._first: _Block = kind.of_edge(scales[0])
    # Where nothing surrounds a block: an edge without noise.
    self.none = kind.edge(0.0)
    # Blocks of one level and length are alike, so that few are computed.
    self.block: Callable[[int, int], _Block] = functools.cache(self._block)
    self._alone = functools.cache(
        lambda level, rows: self.pairs(level, rows, self.none, 0.0, False))

  def _block(self, level: int, rows: int) -> _Block:
    """Returns the block of a level's last node, which has `rows` rows."""
    if level == 0:
      return self._first
    half = 2**(level - 1)
    if rows <= half:
      return self.block(level - 1, rows).beside(self._edges[level])
    return self.block(level - 1, half).join(
        self.block(level - 1, rows - half), self._edges[level])

  def pairs(self, level: int, rows: int, around: float, best: float,
            open_end: bool) -> float:
    """Returns the larger of `best` and the largest cost of a pair in a block.

    Args:
      level: level of the block.
      rows: number of rows in the block.
      around: the edge between its ends that replaces the rest of the graph.
      best: largest cost so far, which lets blocks be skipped.
      open_end: whether the last boundary is excluded.
    """
    kind = self._kind
    if level == 0:
      edge = self._first.beside(around).ends()
      return best if open_end else max(best, edge)
    half, edge = 2**(level - 1), kind.parallel(self._edges[level], around)
    if rows <= half:
      return self.pairs(level - 1, rows, edge, best, open_end)
    left = self.block(level - 1, half)
    right = self.block(level - 1, rows - half)
    best = max(best, left.farthest(right.opened() if open_end else right, edge))
    # By itself a half costs at least what it costs here: skip it if even that
    # is not the largest.
    if self._alone(level - 1, half) > best:
      best = self.pairs(level - 1, half, kind.series(edge, right.link), best,
                        False)
    if self._alone(level - 1, rows - half) > best:
      best = self.pairs(level - 1, rows - half, kind.series(edge, left.link),
                        best, open_end)
    return best


@functools.lru_cache(256)
def _largest(rows: int, norm: str, scales: tuple[float, ...],
             pairs: str) -> float:
  """Returns the largest cost over the pairs of boundaries that `pairs` names.
  """
  graph: _Rows[_Distances] | _Rows[_Resistances] = (
      _Rows(_Distances, scales) if norm == 'l1'
      else _Rows(_Resistances, scales))
  top = len(scales) - 1
  if pairs == 'last':
    return graph.block(top, rows).to_last()
  return graph.pairs(top, rows, graph.none, 0.0, pairs == 'inner')


def calibrate(num_thresholds: int, *, adjacency: Adjacency, norm: str,
              root: bool = True, known_last_row: bool = False,
              level_scales: tuple[float, ...] | None = None) -> float:
  """Returns the exact privacy cost of one record, for dyadic noise on N rows.

  Args:
    num_thresholds: N.
    adjacency: which data sets are neighbours; under REPLACE_ONE the last rank
      is public.
    norm: 'l1' returns the epsilon of Laplace noise, discrete or not; 'l2'
      returns the squared norm, 2 rho, of Gaussian noise.
    root: whether the node of all rows has noise.
    known_last_row: whether the last row has no noise; under REPLACE_ONE only.
    level_scales: scales or standard deviations of the levels, leaves first and
      root last (ignored without root); 0 above the leaves means no noise.
      Default 1 for all levels.

  Returns:
    Epsilon or 2 rho; noise of scale b on all levels costs that over b or b^2.

  Raises:
    ValueError: for unknown names, negative scales, or `known_last_row` without
      REPLACE_ONE.
  """
  errors.check_at_least('num_thresholds', num_thresholds, 2)
  errors.check_choice('norm', norm, NORMS)
  replaced = check_adjacency(adjacency) is Adjacency.REPLACE_ONE
  if known_last_row and not replaced:
    raise ValueError('known_last_row=True: the last row is known under '
                     'REPLACE_ONE only')
  rows = num_thresholds - known_last_row
  count = num_levels(rows)
  scales = (1.0,) * count if level_scales is None else tuple(level_scales)
  if len(scales) != count:
    raise ValueError(f'level_scales: there must be {count} scales of levels, '
                     f'got {len(scales)}')
  errors.check_positive('level_scales', scales[0])
  for scale in scales:
    errors.check_non_negative('level_scales', scale)
  if not root:
    if count == 1:
      raise ValueError('root=False needs two rows or more')
    scales = (*scales[:-1], 0.0)
  # An added record changes all rows from its own to the last. A replacement
  # changes the rows between two boundaries; 'inner' leaves out the last one,
  # whose row is the public n.
  pairs = 'last'
  if replaced:
    pairs = 'all' if known_last_row else 'inner'
  return _largest(rows, norm, tuple(map(float, scales)), pairs)
