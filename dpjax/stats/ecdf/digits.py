"""Ranks as sums of few nodes of a tree, along the digits of their place.

Plain: whole nodes from the left on every level (Dwork et al. 2010, Chan et al.
2011; item EC-41). Signed: what is left over of a node may be taken off instead
(Andersson et al. 2025; EC-42). Bottom up: nodes as estimated from all that lies
below them (Honaker 2015; EC-43). Less exact than least squares over the tree,
but a rank needs no node that begins after it when it is plain.
"""

from collections.abc import Sequence
import functools
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from dpjax.stats.ecdf import hierarchy
from dpjax.typing import Array

# Beyond it a tree of any use has one level.
_MOST_PARTS = 40


class Plan(NamedTuple):
  """How ranks are summed.

  Attributes:
    turned: by level from the top down, a row for each node of the level above:
      at which boundaries between its parts a rank comes from the right.
    variances: of the errors of the ranks [N], exact.
  """
  turned: tuple[np.ndarray, ...]
  variances: np.ndarray


def ranks(values: Sequence[Array], shape: hierarchy.Shape,
          turned: Sequence[Array], total: Array | None = None) -> Array:
  """Ranks at the ends of all leaves.

  Args:
    values: counts of nodes by level from the top down; 0 for empty ones.
    shape: of the tree.
    turned: see `Plan`.
    total: n, if it is known.
  """
  end = jnp.sum(values[0]) if total is None else total
  found = jnp.stack([jnp.zeros_like(end), end])
  for counts, parts, right in zip(values, shape, turned, strict=True):
    counts = counts.reshape(-1, parts)
    before = jnp.cumsum(counts, 1) - counts
    rest = jnp.sum(counts, 1, keepdims=True) - before
    inner = jnp.where(right, found[1:, None] - rest, found[:-1, None] + before)
    found = jnp.concatenate([inner.reshape(-1), found[-1:]])
  return found[1:]


def plan(shape: hierarchy.Shape, variances: Sequence[float],
         num_thresholds: int, *, known: bool, signed: bool,
         bottom_up: bool) -> Plan:
  """Chooses the ways of least variance, level by level, and follows that.

  A rank depends on what is below a node through the node's value alone. So of
  every rank the variance is kept, and its slopes in the nodes left and right of
  it; a node's value moves with that of a child by the ratio of its variance to
  that of its children's sum.

  Args:
    shape: of the tree.
    variances: of the noise of counts, by level from the top down.
    num_thresholds: N; nodes beyond are empty.
    known: whether n is.
    signed: whether ranks may come from the right.
    bottom_up: whether nodes are estimated from what lies below them.
  """
  widths, shrinkage = _widths(shape, variances, num_thresholds, bottom_up)
  end = 0.0 if known else 1.0
  spread = np.array([0.0, end * np.sum(widths[0])])
  left, right = np.array([0.0, end]), np.zeros(2)
  turned = []
  for width, slope in zip(widths, shrinkage, strict=True):
    before = np.cumsum(width, 1) - width
    rest = np.sum(width, 1, keepdims=True) - before
    ahead, behind = slope * right[:-1, None], slope * left[1:, None]
    forth = spread[:-1, None] + before * (1 + 2 * ahead)
    back = spread[1:, None] + rest * (1 - 2 * behind)
    turn = (back < forth * (1 - 1e-9)) & signed
    turn[:, 0] = False
    turned.append(turn)
    first = np.append(0.0, (left[1:] * slope[:, 0]))
    inner = np.where(turn, behind, 1 + ahead)
    inner[:, 0] = first[:-1]
    left = np.append(inner, first[-1])
    right = np.append(np.where(turn, behind - 1, ahead), 0.0)
    spread = np.append(np.where(turn, back, forth), spread[-1])
  found = np.maximum(spread[1:num_thresholds + 1], 0.0)
  if known:
    found[-1] = 0.0
  return Plan(tuple(turned), found)


def _widths(shape, variances, num_thresholds, bottom_up):
  """Variances of nodes [parents, parts], and slopes [parents, 1] in children.
  """
  alive = hierarchy.levels(
      (np.arange(np.prod(shape)) < num_thresholds).astype(float), shape)
  nothing = [np.zeros(each.size) for each in alive]
  if not bottom_up:
    widths = [variance * (each > 0)
              for variance, each in zip(variances, alive, strict=True)]
    slopes = [np.zeros(each.size) for each in alive[:-1]]
  else:
    found, sums = hierarchy.upward(nothing, shape, variances, alive[-1])
    widths = [width for _, width in found]
    slopes = [width / np.maximum(below, 1e-300)
              for width, (_, below) in zip(widths, sums)]
  return ([width.reshape(-1, parts)
           for width, parts in zip(widths, shape, strict=True)],
          [slope[:, None] for slope in [np.ones(1), *slopes]])


@functools.cache
def best_shape(num_thresholds: int, *, known: bool, pure: bool, signed: bool,
               bottom_up: bool) -> hierarchy.Shape:
  """The shape of least mean variance near one of equal parts.

  Arguments as of `plan` and `hierarchy.best_shape`.
  """
  def cost(shape):
    high = len(shape)
    made = plan(shape, (1.0,) * high, num_thresholds, known=known,
                signed=signed, bottom_up=bottom_up)
    return np.mean(made.variances) * (high**2 if pure else high)

  shapes = []
  for parts in range(2, _MOST_PARTS + 1):
    lower, top = (), num_thresholds
    while top > parts:
      lower, top = (*lower, parts), -(-top // parts)
    shapes.append(hierarchy.filled(lower, num_thresholds))
  return hierarchy.improved(min(shapes, key=cost), num_thresholds, cost)
