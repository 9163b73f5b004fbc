"""Finds the nearest nonnegative counts in l1, an exact minimum cost flow.

Smoothing with p = 1 subtracts the noise with the least sum of absolute values.
This is a minimum cost flow on the graph of `smoothing`. Its dual assigns
integer labels mu to the vertices that differ by at most 1 along an edge.
Dynamic programming over the nodes finds them: T(mu_c, mu_d) is the largest
contribution of the inside of a node with ends c and d (Barczewski 2025, section
6.3; item EC-11).

The optimal flow is not unique, and correct solvers differ (correction C16).
Here it follows from the labels without iterations. The amounts (x_c, x_d) that
a node can deliver to its ends within an optimal flow follow from the changes of
T when either label or both move by 1, because T is L-concave (Murota 2003):
x_c, x_d and x_c + x_d each lie in an interval. From the root down, each node's
amount is divided among its own edge and its two halves. The edge takes the
midpoint of the remaining interval, and the halves get equal parts, so that
noise is spread evenly over the possible paths.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax.stats.ecdf_methods import levels
from dpjax.typing import Array

_STEPS = (-1, 0, 1)
# Vertex N may have label -1, and one step below that is looked up as well.
_LOWEST = -2
_NONE = -np.inf


class _State(NamedTuple):
  """State of nodes on the way down, [M] each.

  Attributes:
    label: label of the left end.
    step: label of the right end minus that of the left end.
    given: amounts that the node delivers to the left and to the right end.
  """
  label: Array
  step: Array
  given: tuple[Array, Array]


class _Reach(NamedTuple):
  """Intervals (low, high) of the amounts that nodes can deliver, [M] each.

  Attributes:
    left: amounts to the left end.
    right: amounts to the right end.
    both: amounts to both ends together.
  """
  left: tuple[Array, Array]
  right: tuple[Array, Array]
  both: tuple[Array, Array]


def _shifted(table: Array, step: int) -> Array:
  """Returns the table with entry i + step at i, or -inf; along the first axis.
  """
  if step == 0:
    return table
  gap = jnp.full((1, *table.shape[1:]), _NONE, table.dtype)
  return (jnp.concatenate([table[1:], gap]) if step > 0
          else jnp.concatenate([gap, table[:-1]]))


def _leaves(joined: np.ndarray, num_labels: int) -> Array:
  """Returns T of single edges, [labels of c, steps to d, M]."""
  ends = np.arange(num_labels)[:, None] + np.array(_STEPS)
  table = np.where((ends >= 0) & (ends < num_labels), 0.0, _NONE)
  # Padded vertices are one and the same, so their labels are equal.
  apart = joined[None, None] & (np.array(_STEPS) != 0)[None, :, None]
  return jnp.where(apart, _NONE, table[:, :, None])


def _merged(left: Array, right: Array, increment: Array,
            joined: Array | np.ndarray) -> Array:
  """Returns T of nodes from that of their halves, [labels, steps, M]."""
  labels = jnp.arange(left.shape[0], dtype=left.dtype)[:, None] + _LOWEST
  inside = right + jnp.where((labels >= 0) | joined[None],
                             -labels * increment[None], _NONE)[:, None]
  best_by_step = []
  for step in _STEPS:
    # Via all labels of the middle that both halves allow.
    ways = [left[:, first + 1] + _shifted(inside[:, step - first + 1], first)
            for first in _STEPS if abs(step - first) <= 1]
    best_by_step.append(functools.reduce(jnp.maximum, ways))
  return jnp.stack(best_by_step, 1)


def _around(table: Array, label: Array, radius: int) -> Array:
  """Returns rows of labels [M] - radius .. + radius: [2 radius + 1, 3, M]."""
  rows, _, size = table.shape
  wanted = label[None] + (np.arange(-radius, radius + 1) - _LOWEST)[:, None]
  place = (jnp.clip(wanted, 0, rows - 1)[:, None] * 3
           + np.arange(3)[None, :, None])
  entries = jnp.take_along_axis(table.reshape(rows * 3, size),
                                place.reshape(-1, size), 0, mode='clip')
  inside = (wanted >= 0) & (wanted < rows)
  return jnp.where(inside[:, None], entries.reshape(-1, 3, size), _NONE)


def _at(rows: Array, change: int, step: Array) -> Array:
  """Returns entries [M] at steps [M], `change` labels from the middle row."""
  # Steps outside -1, 0, 1 are not allowed: value -inf.
  row = rows[rows.shape[0] // 2 + change]
  return jnp.where(step == 0, row[1], jnp.where(
      step == -1, row[0], jnp.where(step == 1, row[2], _NONE)))


def _reach(rows: Array, step: Array) -> _Reach:
  """Returns the deliverable intervals from T [3, 3, M] around the labels of c.
  """
  # T is concave along each direction: its one-sided differences bound the flow.
  here = _at(rows, 0, step)
  change = lambda c, d: here - _at(rows, c, step + d - c)
  return _Reach((-change(-1, 0), change(1, 0)), (-change(0, -1), change(0, 1)),
                (-change(-1, -1), change(1, 1)))


def _middle_step(left: Array, right: Array, increment: Array, label: Array,
                 step: Array, joined: Array | np.ndarray) -> Array:
  """Returns the step from c to the middle in an optimal labelling, [M]."""
  values = []
  for first in _STEPS:
    middle = label + first
    value = (left[left.shape[0] // 2, first + 1]
             + _at(right, first, step - first)
             - middle.astype(increment.dtype) * increment)
    values.append(jnp.where((middle >= 0) | joined, value, _NONE))
  return jnp.argmax(jnp.stack(values), 0).astype(label.dtype) - 1


def _centre(low: Array, high: Array) -> Array:
  """Returns the midpoint of an interval, also if both ends are equal."""
  return low + (high - low) / 2


def _split(left: _Reach, right: _Reach, given: tuple[Array, Array],
           increment: Array, step: Array, tight: Array
           ) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
  """Returns the amounts that the halves of a node deliver to their ends.

  If the edge carries x from d to c, the left half owes a - x to c and y to the
  middle, the right half owes z to the middle and b + x to d, and the middle
  keeps g + y + z >= 0. All constraints are linear in x with slope 1.

  Args:
    left: intervals of the left half.
    right: intervals of the right half.
    given: a and b, what node and edge deliver to c and d.
    increment: g of the middle.
    step: label of d minus that of c; x is 0 or has the opposite sign.
    tight: whether the middle keeps nothing.
  """
  a, b = given
  (l_low, l_high), (m_low, m_high), (s_low, s_high) = left
  (n_low, n_high), (r_low, r_high), (t_low, t_high) = right
  lows = [a - l_high, r_low - b, a - s_high + m_low, t_low - n_high - b,
          a - s_high - n_high - increment,
          jnp.where(tight, m_low + t_low - b + increment, _NONE),
          jnp.where(step < 0, 0.0, _NONE)]
  highs = [a - l_low, r_high - b, a - s_low + m_high, t_high - n_low - b,
           m_high + t_high - b + increment,
           jnp.where(tight, a - s_low - n_low - increment, -_NONE),
           jnp.where(step > 0, 0.0, -_NONE)]
  taken = jnp.where(step == 0, 0.0, _centre(_largest(lows), _smallest(highs)))
  a, b = a - taken, b + taken
  low, high = jnp.maximum(m_low, s_low - a), jnp.minimum(m_high, s_high - a)
  other, most = (jnp.maximum(n_low, t_low - b),
                 jnp.minimum(n_high, t_high - b))
  # If the middle keeps nothing, one amount follows from the other. Otherwise
  # both are at their midpoints, or as far above them as the middle needs to
  # stay nonnegative.
  alone = _centre(jnp.maximum(low, -increment - most),
                  jnp.minimum(high, -increment - other))
  width = high - low + most - other
  fraction = (-increment - low - other) / jnp.where(width > 0, width, 1.0)
  fraction = jnp.clip(fraction, 0.5, 1.0)
  to_middle = jnp.where(tight, alone, low + fraction * (high - low))
  rest = jnp.where(tight, -increment - alone, other + fraction * (most - other))
  return (a, to_middle), (rest, b)


def _largest(values: list[Array]) -> Array:
  """Returns the elementwise maximum of several arrays."""
  return functools.reduce(jnp.maximum, values)


def _smallest(values: list[Array]) -> Array:
  """Returns the elementwise minimum of several arrays."""
  return functools.reduce(jnp.minimum, values)


def _divided(state: _State, left: Array, right: Array, increment: Array,
             joined: Array | np.ndarray) -> tuple[_State, _State, Array]:
  """Returns the states of both halves of nodes, and the flow [M] kept between.

  That is the flow which the vertex in the middle of each node keeps.
  """
  label, step, given = state
  below, above = _around(left, label, 1), _around(right, label, 2)
  first = _middle_step(below, above, increment, label, step, joined)
  above = jnp.where(first < 0, above[:3],
                    jnp.where(first > 0, above[2:], above[1:4]))
  middle = label + first
  tight = (middle > 0) | joined
  to_left, to_right = _split(_reach(below, first), _reach(above, step - first),
                             given, increment, step, tight)
  return (_State(label, first, to_left),
          _State(middle, step - first, to_right),
          jnp.where(tight, 0.0, increment + to_left[1] + to_right[0]))


def _root(table: Array, increments: Array, end: str
          ) -> tuple[_State, Array]:
  """Returns the state [1] of the root node, and the least absolute noise sum.

  Args:
    table: T [labels, steps] of the root.
    increments: [2], of the first and the last vertex.
    end: see `least_absolute`.
  """
  labels = jnp.arange(table.shape[0]) + _LOWEST
  last = labels[:, None] + np.array(_STEPS)[None]
  allowed = (labels >= 0)[:, None] & {
      'equal': last >= -1, 'at_most': last >= 0, 'free': last == 0}[end]
  value = jnp.where(
      allowed, table[..., 0] - increments[0] * labels[:, None].astype(
          table.dtype) - increments[1] * last.astype(table.dtype), _NONE)
  # The flat index runs over (label, step).
  place = jnp.argmax(value)
  label, step = place[None] // 3 + _LOWEST, place[None] % 3 - 1
  (low, high), (n_low, n_high), (b_low, b_high) = _reach(_around(
      table, label, 1), step)
  if end != 'free':
    tight = label + step > 0 if end == 'at_most' else np.array([True])
    n_low = jnp.maximum(n_low, -increments[1])
    n_high = jnp.where(tight, -increments[1], n_high)
  high = jnp.where(label > 0, -increments[0], high)
  first = _centre(_largest([low, -increments[:1], b_low - n_high]),
                  _smallest([high, b_high - n_low]))
  other = _centre(jnp.maximum(n_low, b_low - first),
                  jnp.minimum(n_high, b_high - first))
  return _State(label, step, (first, other)), jnp.max(value)


def least_absolute(ranks: Array, total: Array, end: str = 'equal') -> Array:
  """Returns monotone ranks [N] after subtracting the least absolute noise.

  Minimises sum_e |nu_e| over noise nu of all nodes such that the ranks minus
  that noise are nondecreasing from 0 on: the most likely Laplace noise. Among
  all minima it takes one in the middle, see above. Post-processing.

  Args:
    ranks: noisy ranks [N], float64, N at least 2.
    total: n, or an estimate of it; ignored if `end` is 'free'.
    end: see `smoothing.least_squares`.
  """
  return absolute_and_value(ranks, total, end)[0]


def absolute_and_value(ranks: Array, total: Array,
                       end: str = 'equal') -> tuple[Array, Array]:
  """Returns `least_absolute` and the minimal sum."""
  errors.check_choice('end', end, levels.ENDS)
  layout = levels.layout(ranks.size)
  g = levels.increments(ranks, ranks[-1] if end == 'free' else total)
  parts, joined = layout.parts(g), layout.joined()
  rows = levels.reversed_bits(1 << layout.depth)
  table, below = _leaves(rows >= layout.size, layout.depth + 2 - _LOWEST), []
  for part, one in zip(parts[0], joined[0], strict=True):
    left, right = levels.halves(table)
    below.append((left, right, part, one))
    table = _merged(left, right, part, one)

  def up(table: Array, level: tuple[Array, Array | np.ndarray]
         ) -> tuple[Array, tuple[Array, Array]]:
    halves = levels.pairs(table)
    return levels.filled(_merged(*halves, *level)), halves

  table, above = jax.lax.scan(up, levels.in_plain_order(table),
                              (parts[1], joined[1]))
  state, value = _root(table[..., :1], parts[2], end)
  ends = parts[2] + jnp.concatenate(state.given)

  def down(state: _State,
           level: tuple[Array, Array, Array, Array | np.ndarray]
           ) -> tuple[_State, Array]:
    half: _State = jax.tree.map(lambda part: part[:layout.width // 2], state)
    left, right, rest = _divided(half, *level)
    return jax.tree.map(levels.interleaved, left, right), rest

  state = jax.tree.map(lambda part: jnp.pad(part, (0, layout.width - 1)), state)
  state, top = jax.lax.scan(down, state, (*above, parts[1], joined[1]),
                            reverse=True)
  state, rests = jax.tree.map(levels.in_plain_order, state), []
  for level in below[::-1]:
    *both, rest = _divided(state, *level)
    state = jax.tree.map(lambda *halves: jnp.concatenate(halves), *both)
    rests.append(rest)
  return levels.cumulated(layout.together(tuple(rests[::-1]), top, ends), total,
                          end), value
