"""Sums ranks from few tree nodes, by the digits of the rank's position.

Plain: whole nodes from the left on every level (Dwork et al. 2010, Chan et al.
2011; item EC-41). Signed: take a whole node and subtract its remainder where
that is better (Andersson et al. 2025; EC-42). Bottom up: each node is estimated
from all nodes below it (Honaker 2015; EC-43). Less accurate than least squares
over the tree, but a plain rank needs no node that starts after it, so it suits
streams.
"""

from collections.abc import Sequence
import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dpjax.stats.ecdf_methods import hierarchy
from dpjax.typing import Array, ArrayLike

# The most parts that the search for a tree shape tries.
_MOST_PARTS = 40


class Plan(NamedTuple):
  """Which nodes are summed for each rank, and the resulting variances.

  Attributes:
    turned: by level from the top down, a row for each node of the level above:
      the boundaries between its parts at which a rank is the rank at the node's
      right end minus the parts to the right.
    variances: [N] exact variances of the errors of the ranks.
  """
  turned: tuple[np.ndarray, ...]
  variances: np.ndarray


def ranks(values: Sequence[Array], shape: hierarchy.Shape,
          turned: Sequence[ArrayLike], total: Array | None = None) -> Array:
  """Returns the ranks at the ends of all leaves.

  Args:
    values: counts of nodes by level from the top down; 0 for empty ones.
    shape: shape of the tree.
    turned: see `Plan`.
    total: n if public, else None.
  """
  end = jnp.sum(values[0]) if total is None else total
  ranks_at_ends = jnp.stack([jnp.zeros_like(end), end])
  for counts, parts, from_right in zip(values, shape, turned, strict=True):
    counts = counts.reshape(-1, parts)
    # Sums of the parts left and right of each boundary within a node.
    before = jnp.cumsum(counts, 1) - counts
    rest = jnp.sum(counts, 1, keepdims=True) - before
    inner = jnp.where(from_right, ranks_at_ends[1:, None] - rest,
                      ranks_at_ends[:-1, None] + before)
    ranks_at_ends = jnp.concatenate([inner.reshape(-1), ranks_at_ends[-1:]])
  return ranks_at_ends[1:]


def plan(shape: hierarchy.Shape, variances: Sequence[float] | np.ndarray,
         num_thresholds: int, *, known: bool, signed: bool,
         bottom_up: bool) -> Plan:
  """Chooses the sums of least variance, level by level.

  A rank depends on the nodes below a given node only through that node's value.
  So it suffices to follow each rank's variance, and its derivatives with
  respect to the nodes left and right of it; a node's value follows that of a
  child by the ratio of the node's variance to the variance of its children's
  sum.

  Args:
    shape: shape of the tree.
    variances: variances of the noise of counts, by level from the top down.
    num_thresholds: N; leaves beyond are empty.
    known: whether n is public.
    signed: whether remainders may be subtracted from the right.
    bottom_up: whether nodes are estimated from the nodes below them.
  """
  widths, shrinkage = _widths(shape, variances, num_thresholds, bottom_up)
  # The rank n is exact if public, else the sum of the top level's noise.
  end = 0.0 if known else 1.0
  variance = np.array([0.0, end * np.sum(widths[0])])
  # Derivatives of each rank with respect to the node on its left and right.
  left, right = np.array([0.0, end]), np.zeros(2)
  turned = []
  for width, slope in zip(widths, shrinkage, strict=True):
    before = np.cumsum(width, 1) - width
    rest = np.sum(width, 1, keepdims=True) - before
    ahead, behind = slope * right[:-1, None], slope * left[1:, None]
    from_left = variance[:-1, None] + before * (1 + 2 * ahead)
    from_right = variance[1:, None] + rest * (1 - 2 * behind)
    # The margin makes ties independent of rounding: they stay plain.
    turn = (from_right < from_left * (1 - 1e-9)) & signed
    # The first boundary of a node is its left end, where nothing is added.
    turn[:, 0] = False
    turned.append(turn)
    first = np.append(0.0, (left[1:] * slope[:, 0]))
    inner = np.where(turn, behind, 1 + ahead)
    inner[:, 0] = first[:-1]
    left = np.append(inner, first[-1])
    right = np.append(np.where(turn, behind - 1, ahead), 0.0)
    variance = np.append(np.where(turn, from_right, from_left), variance[-1])
  rank_variances = np.maximum(variance[1:num_thresholds + 1], 0.0)
  if known:
    rank_variances[-1] = 0.0
  return Plan(tuple(turned), rank_variances)


def _widths(shape: hierarchy.Shape, variances: Sequence[float] | np.ndarray,
            num_thresholds: int, bottom_up: bool
            ) -> tuple[list[np.ndarray], list[np.ndarray]]:
  """Returns variances of nodes [parents, parts], and slopes [parents, 1].

  A slope is the derivative of a node's estimate with respect to a child's.
  """
  alive = hierarchy.levels(
      (np.arange(np.prod(shape)) < num_thresholds).astype(float), shape)
  zeros = [np.zeros(level.size) for level in alive]
  if not bottom_up:
    widths = [variance * (level > 0)
              for variance, level in zip(variances, alive, strict=True)]
    slopes = [np.zeros(level.size) for level in alive[:-1]]
  else:
    estimates, sums = hierarchy.upward(zeros, shape, variances, alive[-1])
    widths = [width for _, width in estimates]
    slopes = [width / np.maximum(below, 1e-300)
              for width, (_, below) in zip(widths, sums)]
  return ([width.reshape(-1, parts)
           for width, parts in zip(widths, shape, strict=True)],
          [slope[:, None] for slope in [np.ones(1), *slopes]])


@functools.cache
def best_shape(num_thresholds: int, *, known: bool, pure: bool, signed: bool,
               bottom_up: bool) -> hierarchy.Shape:
  """Returns the shape of least mean variance found near equal numbers of parts.

  Arguments are those of `plan` and `hierarchy.best_shape`.
  """
  def cost(shape: hierarchy.Shape) -> float:
    height = len(shape)
    candidate = plan(shape, (1.0,) * height, num_thresholds, known=known,
                     signed=signed, bottom_up=bottom_up)
    # With an even budget, Laplace scales grow with the height, variances with
    # its square; Gaussian variances grow with the height.
    return float(np.mean(candidate.variances)) * (
        height**2 if pure else height)

  # Start from equal parts on all levels, then improve the best of these.
  shapes: list[hierarchy.Shape] = []
  for parts in range(2, _MOST_PARTS + 1):
    lower: hierarchy.Shape = ()
    top = num_thresholds
    while top > parts:
      lower, top = (*lower, parts), -(-top // parts)
    shapes.append(hierarchy.filled(lower, num_thresholds))
  return hierarchy.improved(min(shapes, key=cost), num_thresholds, cost)
