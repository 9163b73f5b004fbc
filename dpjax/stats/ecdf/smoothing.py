"""Projections of noisy ranks on those of nonnegative counts, exactly.

Noisy ranks S_1, ..., S_N of n records have increments g_0 = S_1, g_k = S_(k+1)
- S_k, g_N = n - S_N at the vertices 0, ..., N between rows. A noise variable of
rows a + 1 to b adds to g at vertex a what it takes from it at b: it is an edge
(a, b), and those of a binary hierarchy of rows make a planar graph. Smoothing
takes noise nu off again, as little as makes all increments w = g + B nu
nonnegative, B the incidence matrix (spec EC-09, equation 6.3.6 corrected by
C12).

`least_squares` weighs nu by its variances: K = B Sigma B^T is a Laplacian, and
mu >= 0, w = g + K mu >= 0, mu w = 0 are an obstacle problem. The set I = {mu >
0} is approached from below: with K mu = -g on I every vertex whose w is
negative belongs to I, since K is an M-matrix (Chandrasekaran 1970), and none
ever leaves. A system is solved in O(N) by eliminating the middle of every node,
level by level; that gives the w of all others too. A vertex found to belong to
I is given its value at once, in the same pass from the top to the leaves: what
is below sees it, and that saves passes.

Arrays of a level are ordered by reversed bits, so that left and right halves of
nodes are halves of arrays. Rows are filled up to a power of two: vertices from
N on are one, and share a value.

All in float64, jittable, vmappable; see `precision.in_float64`.
"""

from collections.abc import Sequence
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.typing import Array

ENDS = ('equal', 'at_most', 'free')
"""What the last rank is: the total, no more than that, or anything."""

_ROUNDING = 2.0**-40


class _Eliminated(NamedTuple):
  """Middles of the nodes of a level, [M] each.

  Attributes:
    left: conductance to the left end.
    right: to the right end.
    inverse: of their sum with that to the ground.
    pull: right side of the equation.
  """
  left: Array
  right: Array
  inverse: Array
  pull: Array


class _Edges(NamedTuple):
  """Nodes of a level, [M] each, once all inside them is eliminated.

  Attributes:
    conductance: from end to end.
    ground_left: from the left end to the ground.
    ground_right: from the right one.
    pull_left: to the right side of the left end's equation.
    pull_right: of the right end's.
  """
  conductance: Array
  ground_left: Array
  ground_right: Array
  pull_left: Array
  pull_right: Array


def num_levels(num_rows: int) -> int:
  """L, the least with 2^L >= N."""
  return (errors.check_at_least('num_rows', num_rows, 1) - 1).bit_length()


@functools.cache
def middles(num_rows: int) -> tuple[np.ndarray, ...]:
  """Vertices in the middle of the nodes of levels 1, ..., L, leaves first.

  Int32 [2^(L - 1)], ..., [1], in the order of reversed bits.
  """
  depth = num_levels(num_rows)
  return tuple((2 * in_reversed_order(1 << (depth - level)) + 1) << (level - 1)
               for level in range(1, depth + 1))


@functools.cache
def in_reversed_order(size: int) -> np.ndarray:
  """0, ..., size - 1 by their reversed bits, int32; a power of two of them."""
  order = np.zeros(1, np.int32)
  while order.size < size:
    order = np.concatenate([2 * order, 2 * order + 1])
  return order


def increments(ranks: Array, total: Array) -> Array:
  """g [2^L + 1]; that of vertex N is at the end, others from N on are 0."""
  size = 1 << num_levels(ranks.size)
  inner = jnp.concatenate([ranks[:1], jnp.diff(ranks)])
  gap = jnp.zeros([size - ranks.size], ranks.dtype)
  return jnp.concatenate([inner, gap, (total - ranks[-1])[None]])


def _eliminate(edges: _Edges, free: Array, increment: Array,
               joined: np.ndarray | None,
               variance: Array) -> tuple[_Edges, _Eliminated]:
  """One level: nodes in pairs, the vertices between them eliminated."""
  half = edges.conductance.size // 2
  (a, b), (outer_left, inner_left), (inner_right, outer_right), (
      pull_left, pull_from_right), (pull_from_left, pull_right) = (
          (part[:half], part[half:]) for part in edges)
  ground = inner_right + inner_left
  pull = pull_from_left + pull_from_right - increment
  whole = a + b + ground
  inverse = _inverse(whole)
  to_left, to_right = a * inverse, b * inverse
  if joined is not None:
    to_left, to_right = (jnp.where(joined, 0.0, to_left),
                         jnp.where(joined, 1.0, to_right))
  found = _Edges(
      variance + jnp.where(free, a * to_right, 0.0),
      outer_left + jnp.where(free, to_left * ground, a),
      outer_right + jnp.where(free, to_right * ground, b),
      pull_left + jnp.where(free, to_left * pull, 0.0),
      pull_right + jnp.where(free, to_right * pull, 0.0))
  return found, _Eliminated(a, b, inverse, pull)


def _ends(edges: _Edges, free: Array,
          increments: Array) -> tuple[Array, Array]:
  """mu of vertices 0 and N, and what pulls at them besides; [2] each."""
  conductance = edges.conductance[0]
  grounds = jnp.stack([edges.ground_left[0], edges.ground_right[0]])
  pulls = jnp.stack([edges.pull_left[0], edges.pull_right[0]]) - increments
  wholes = conductance + grounds
  # Not by subtraction of products: it is that of the grounds that counts.
  both = conductance * (grounds[0] + grounds[1]) + grounds[0] * grounds[1]
  joint = (wholes[::-1] * pulls + conductance * pulls[::-1]) * _inverse(both)
  alone = jnp.where(free, pulls * _inverse(wholes), 0.0)
  mu = jnp.where(free[0] & free[1], joint, alone)
  pulls = pulls + conductance * mu[::-1]
  # A value for those that are about to join, given the other's.
  return jnp.where(free, mu, pulls * _inverse(wholes)), pulls


def _inverse(values: Array) -> Array:
  return 1 / jnp.where(values > 0, values, 1.0)


def _sweep(free: tuple[Array, ...], increments: tuple[Array, ...],
           joined: Sequence[np.ndarray | None], variances: Array, end: str,
           tolerance: Array) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
  """The next sets I, and w on this one, by levels and then the ends."""
  depth = len(increments) - 1
  none = jnp.zeros([1 << depth], variances.dtype)
  edges = _Edges(none + variances[0], none, none, none, none)
  kept = []
  for level in range(depth):
    edges, gone = _eliminate(edges, free[level], increments[level],
                             joined[level], variances[level + 1])
    kept.append(gone)
  mu, pulls = _ends(edges, free[-1], increments[-1])
  inside = free[-1] | (pulls > tolerance)
  if end == 'free':
    inside = inside & np.array([True, False])
  found, rests = [inside], [jnp.where(free[-1], 0.0, -pulls)]
  mu = jnp.where(inside, mu, 0.0)
  left, right = mu[:1], mu[1:]
  for level in range(depth - 1, -1, -1):
    gone = kept[level]
    pull = gone.pull + gone.left * left + gone.right * right
    inside = free[level] | (pull > tolerance)
    middle = jnp.where(inside, pull * gone.inverse, 0.0)
    if joined[level] is not None:
      middle = jnp.where(joined[level], right, middle)
    found.append(inside)
    rests.append(jnp.where(free[level], 0.0, -pull))
    left, right = (jnp.concatenate([left, middle]),
                   jnp.concatenate([middle, right]))
  return tuple(found[::-1]), tuple(rests[::-1])


def least_squares(ranks: Array, total: Array, variances: Array,
                  end: str = 'equal') -> Array:
  """Monotone ranks [N], from which noise takes least off by its variances.

  Minimises sum_e nu_e^2 / variances[level of e] over noise nu such that ranks
  less that noise increase from 0 on. That is the projection in the metric of
  the inverse covariance of the noise Z nu; with variances 1, 0, 0, ... it is
  isotonic regression. Post-processing.

  Args:
    ranks: noisy ranks [N], float64.
    total: n, or an estimate of it.
    variances: of the noise of nodes of 1, 2, ..., 2^L rows, [L + 1], L as
      `num_levels`; only ratios count. The first is positive.
    end: whether the last rank is `total`, at most that or 'free' (one of
      `ENDS`).
  """
  return squares_and_sweeps(ranks, total, variances, end)[0]


def squares_and_sweeps(ranks: Array, total: Array, variances: Array,
                       end: str = 'equal') -> tuple[Array, Array]:
  """`least_squares` and how many systems were solved, int32."""
  errors.check_choice('end', end, ENDS)
  size, places = ranks.size, middles(ranks.size)
  depth = len(places)
  g = increments(ranks, total)
  parts = (*(g[place] for place in places), g[np.array([0, 1 << depth])])
  joined = [place >= size if size < 1 << depth else None for place in places]
  free = (*(jnp.zeros(place.shape, bool) if mask is None else jnp.asarray(mask)
            for place, mask in zip(places, joined, strict=True)),
          jnp.array([False, end == 'equal']))
  tolerance = _ROUNDING * jnp.max(jnp.abs(g))

  def step(state):
    free, _, _, count = state
    found, rests = _sweep(free, parts, joined, variances, end, tolerance)
    moved = functools.reduce(jnp.logical_or, [
        jnp.any(new != old) for new, old in zip(found, free, strict=True)])
    return found, rests, moved, count + 1

  _, rests, _, count = jax.lax.while_loop(
      lambda state: state[2], step, (free, parts, True, jnp.int32(0)))
  return cumulated(jnp.concatenate(rests), total, size, end), count


def cumulated(rests: Array, total: Array, size: int, end: str) -> Array:
  """Ranks [N] from the w of all vertices in the order of elimination."""
  places = middles(size)
  order = np.argsort(np.concatenate(
      [*places, np.array([0, 1 << len(places)], np.int32)]))
  found = jnp.cumsum(jnp.maximum(rests[order[:size]], 0.0))
  if end == 'free':
    return found
  found = jnp.minimum(found, total)
  return found.at[-1].set(total) if end == 'equal' else found


def isotonic(ranks: Array, total: Array, end: str = 'equal') -> Array:
  """Isotonic regression of ranks [N], between 0 and the end; unweighted."""
  depth = num_levels(ranks.size)
  return least_squares(ranks, total, jnp.zeros(
      [depth + 1], ranks.dtype).at[0].set(1.0), end)
