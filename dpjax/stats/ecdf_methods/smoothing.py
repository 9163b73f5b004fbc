"""Projects noisy ranks exactly on those of nonnegative counts.

Noisy ranks S_1, ..., S_N of n records have increments g_0 = S_1, g_k =
S_(k+1)-S_k, g_N = n - S_N at the vertices 0, ..., N between rows. A noise
variable of rows a + 1 to b adds to g at vertex a the amount that it subtracts
at b: it is an edge (a, b), and the edges of a binary hierarchy of rows form a
planar graph. Smoothing subtracts the smallest noise nu that makes all
increments w = g + B nu nonnegative, where B is the incidence matrix (item
EC-09, equation 6.3.6 of Barczewski (2025) with correction C12).

`least_squares` weighs nu by its variances. Then K = B Sigma B^T is a Laplacian,
and mu >= 0, w = g + K mu >= 0, mu w = 0 is an obstacle problem. The set I =
{mu>0} is approached from below: with K mu = -g on I, every vertex with negative
w belongs to I, because K is an M-matrix (Chandrasekaran 1970), and none ever
leaves. Each system is solved in O(N) by eliminating the middle of every node,
level by level, which also gives w at the other vertices. A vertex that joins I
gets its value at once, in the same pass from the top to the leaves; the levels
below use it, which saves passes.

All in float64, jittable, vmappable; see `precision.in_float64`.
"""

from collections.abc import Sequence
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.stats.ecdf_methods import levels
from dpjax.typing import Array

# Increments below this part of the largest one count as 0, being rounding.
_ROUNDING = 2.0**-40


class _Eliminated(NamedTuple):
  """The eliminated middles of the nodes of a level, [M] each.

  Attributes:
    left: conductance to the left end.
    right: conductance to the right end.
    inverse: 1 / (sum of both and of the conductance to the ground).
    pull: right-hand side of the equation.
  """
  left: Array
  right: Array
  inverse: Array
  pull: Array


class _Edges(NamedTuple):
  """The nodes of a level, [M] each, after eliminating everything inside them.

  Attributes:
    conductance: from end to end.
    ground_left: from the left end to the ground.
    ground_right: from the right end to the ground.
    pull_left: added to the right-hand side of the left end's equation.
    pull_right: added to the right-hand side of the right end's equation.
  """
  conductance: Array
  ground_left: Array
  ground_right: Array
  pull_left: Array
  pull_right: Array


class _Level(NamedTuple):
  """The given quantities at the middles of a level, [M] each.

  Attributes:
    free: whether they are in I.
    joined: whether they are the same vertex as N; those are free.
    increment: g.
    variance: variance of the noise of nodes of the level above, [].
  """
  free: Array
  joined: Array | np.ndarray
  increment: Array
  variance: Array


_Parts = tuple[tuple[Array, ...], Array, Array]
"""Values of all vertices, split as by `levels.Layout.parts`."""


def _eliminate(halves: Sequence[tuple[Array, Array]], level: _Level
               ) -> tuple[_Edges, _Eliminated]:
  """Merges nodes in pairs and eliminates the vertices between them."""
  free, joined, increment, variance = level
  (a, b), (outer_left, inner_left), (inner_right, outer_right), (
      pull_left, pull_from_right), (pull_from_left, pull_right) = halves
  ground = inner_right + inner_left
  pull = pull_from_left + pull_from_right - increment
  whole = a + b + ground
  inverse = _inverse(whole)
  to_left = jnp.where(joined, 0.0, a * inverse)
  to_right = jnp.where(joined, 1.0, b * inverse)
  edges = _Edges(
      variance + jnp.where(free, a * to_right, 0.0),
      outer_left + jnp.where(free, to_left * ground, a),
      outer_right + jnp.where(free, to_right * ground, b),
      pull_left + jnp.where(free, to_left * pull, 0.0),
      pull_right + jnp.where(free, to_right * pull, 0.0))
  return edges, _Eliminated(a, b, inverse, pull)


def _ends(edges: _Edges, free: Array,
          increments: Array) -> tuple[Array, Array]:
  """Returns mu of vertices 0 and N, and their right-hand sides; [2] each."""
  conductance = edges.conductance[0]
  grounds = jnp.stack([edges.ground_left[0], edges.ground_right[0]])
  pulls = jnp.stack([edges.pull_left[0], edges.pull_right[0]]) - increments
  # Two equations for mu of the ends, solved jointly if both are in I.
  wholes = conductance + grounds
  # The determinant, expanded by hand: subtracting the two products would lose
  # the small ground terms.
  both = conductance * (grounds[0] + grounds[1]) + grounds[0] * grounds[1]
  joint = (wholes[::-1] * pulls + conductance * pulls[::-1]) * _inverse(both)
  alone = jnp.where(free, pulls * _inverse(wholes), 0.0)
  mu = jnp.where(free[0] & free[1], joint, alone)
  pulls = pulls + conductance * mu[::-1]
  # An end that is not in I yet gets the value it would have on joining.
  return jnp.where(free, mu, pulls * _inverse(wholes)), pulls


def _inverse(values: Array) -> Array:
  """Returns 1 / values, with 1 for values <= 0."""
  return 1 / jnp.where(values > 0, values, 1.0)


def _substitute(gone: _Eliminated, level: _Level, left: Array, right: Array,
                tolerance: Array) -> tuple[Array, Array, Array]:
  """Returns mu of the middles given the ends, the next set I, and w."""
  pull = gone.pull + gone.left * left + gone.right * right
  inside = level.free | (pull > tolerance)
  middle = jnp.where(inside, pull * gone.inverse, 0.0)
  return (jnp.where(level.joined, right, middle), inside,
          jnp.where(level.free, 0.0, -pull))


def _sweep(below: Sequence[_Level], above: _Level, ends: tuple[Array, Array],
           leaf: Array, end: str, tolerance: Array) -> tuple[_Parts, _Parts]:
  """Solves one system: the next set I, and w on this one, by layout parts."""
  width = 2 * above.free.shape[1]
  none = jnp.zeros([width << len(below)], leaf.dtype)
  edges, eliminated = _Edges(none + leaf, none, none, none, none), []
  for level in below:
    edges, gone = _eliminate([levels.halves(part) for part in edges], level)
    eliminated.append(gone)

  def up(edges: _Edges, level: _Level) -> tuple[_Edges, _Eliminated]:
    edges, gone = _eliminate([levels.pairs(part) for part in edges], level)
    return _Edges(*map(levels.filled, edges)), gone

  def down(mu: tuple[Array, Array], level: tuple[_Eliminated, _Level]
           ) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    left, right = (part[:width // 2] for part in mu)
    middle, inside, rest = _substitute(*level, left, right, tolerance)
    return (levels.interleaved(left, middle),
            levels.interleaved(middle, right)), (inside, rest)

  edges, gone = jax.lax.scan(up, _Edges(*map(levels.in_plain_order, edges)),
                             above)
  mu, pulls = _ends(edges, *ends)
  inside = ends[0] | (pulls > tolerance)
  if end == 'free':
    inside = inside & np.array([True, False])
  mu = jnp.where(inside, mu, 0.0)
  outer = jnp.where(np.arange(width) == 0, mu[:, None], 0.0)
  nodes, (top, top_rest) = jax.lax.scan(
      down, (outer[0], outer[1]), (gone, above), reverse=True)
  left, right = map(levels.in_plain_order, nodes)
  next_sets, rests = [], []
  for gone, level in zip(eliminated[::-1], below[::-1], strict=True):
    middle, *new = _substitute(gone, level, left, right, tolerance)
    next_sets.append(new[0])
    rests.append(new[1])
    left, right = (jnp.concatenate([left, middle]),
                   jnp.concatenate([middle, right]))
  return ((tuple(next_sets[::-1]), top, inside),
          (tuple(rests[::-1]), top_rest, jnp.where(ends[0], 0.0, -pulls)))


def least_squares(ranks: Array, total: Array, variances: Array,
                  end: str = 'equal') -> Array:
  """Returns monotone ranks [N] after subtracting the least weighted noise.

  Minimises sum_e nu_e^2 / variances[level of e] over noise nu such that the
  ranks minus that noise are nondecreasing from 0 on. This is the projection in
  the metric of the inverse covariance of the noise Z nu; with variances 1, 0,
  0, ... it is isotonic regression. Post-processing.

  Args:
    ranks: noisy ranks [N], float64.
    total: n, or an estimate of it; ignored if `end` is 'free'.
    variances: variances of the noise of nodes of 1, 2, ..., 2^L rows, [L + 1],
      L as `levels.num_levels`; only ratios matter. The first is positive.
    end: whether the last rank is `total` ('equal'), at most that ('at_most') or
      anything ('free').
  """
  return squares_and_sweeps(ranks, total, variances, end)[0]


def squares_and_sweeps(ranks: Array, total: Array, variances: Array,
                       end: str = 'equal') -> tuple[Array, Array]:
  """Returns `least_squares` and the number of systems solved, int32."""
  errors.check_choice('end', end, levels.ENDS)
  layout = levels.layout(ranks.size)
  g = levels.increments(ranks, ranks[-1] if end == 'free' else total)
  parts, joined = layout.parts(g), layout.joined()
  tolerance = _ROUNDING * jnp.max(jnp.abs(g))
  inner = len(layout.below)

  def step(state: tuple[_Parts, _Parts, Array, Array]
           ) -> tuple[_Parts, _Parts, Array, Array]:
    free, _, _, count = state
    below = [_Level(*level) for level in zip(
        free[0], joined[0], parts[0], variances[1:inner + 1], strict=True)]
    next_free, rests = _sweep(
        below, _Level(free[1], joined[1], parts[1], variances[inner + 1:]),
        (free[2], parts[2]), variances[0], end, tolerance)
    changed = functools.reduce(jnp.logical_or, [
        jnp.any(new != old) for new, old in zip(
            jax.tree.leaves(next_free), jax.tree.leaves(free), strict=True)])
    return next_free, rests, changed, count + 1

  # I starts with the padded vertices, and with N if its rank is the total.
  free: _Parts = (*jax.tree.map(jnp.asarray, joined),
                  jnp.array([False, end == 'equal']))
  start = (free, parts, jnp.bool_(True), jnp.int32(0))
  _, rests, _, count = jax.lax.while_loop(lambda state: state[2], step, start)
  return levels.cumulated(layout.together(*rests), total, end), count


def isotonic(ranks: Array, total: Array, end: str = 'equal') -> Array:
  """Returns the isotonic regression of ranks [N], between 0 and the end."""
  depth = levels.num_levels(ranks.size)
  return least_squares(ranks, total, jnp.zeros(
      [depth + 1], ranks.dtype).at[0].set(1.0), end)
