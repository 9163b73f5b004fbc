"""Draws sorted points whose density is a product over bins, exactly.

The density of q_1 <= ... <= q_m is proportional to prod_j phi_j(#bin_j), where
bin_j holds the records between q_(j-1) and q_j, and phi_j falls exponentially
on both sides of a wanted number. Let i_j be the interval between records in
which q_j lies. The sum over i_1 <= ... <= i_m is a sum over paths:

  B_l(i) = sum_(s < i) A_(l-1)(s) phi_l(i - s)
  A_l(i) = sum_k B_(l-k+1)(i) phi(0) ... phi(0) w_i^k / k!

where w_i is the width of interval i and k the number of quantiles in it. A draw
follows a path backwards from the last quantile.

Because of the shape of phi, a convolution with it is three running sums. So a
table takes time n m + n m^2 / 2. A Fourier transform would have an absolute
error of the size of the largest weight, which makes the distribution wrong when
records are separated by little noise only (erratum QE-24). Numbers are `wide`:
exact to about 10^-12 in relative terms over any range. Source: Lalanne (2023,
sections 6.1.4 and 6.1.6); Gillenwater, Joseph and Kulesza 2021 (item QF-07).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy import special
import numpy as np

from dpjax.stats.quantile_methods import choice
from dpjax.stats.quantile_methods import columns
from dpjax.stats.quantile_methods import records
from dpjax.stats.quantile_methods import wide
from dpjax.stats.quantile_methods.records import Records
from dpjax.stats.quantile_methods.wide import Wide
from dpjax.typing import Array, PRNGKey

# Elements of a table processed at a time: about what a cache holds.
_AT_ONCE = 2**13


class Bins(NamedTuple):
  """log phi_j(d) = left_j + rate d up to `split_j`, right_j - rate d after it.

  Attributes:
    rate: scalar > 0.
    left: [m + 1] intercepts of the rising side.
    right: [m + 1] intercepts of the falling side.
    split: [m + 1] int32 >= 0, the last d of the rising side.
  """
  rate: Array
  left: Array
  right: Array
  split: Array

  def log_factor(self, index: Array | int, count: Array) -> Array:
    """Returns log phi of bin `index`, from 0, at `count` records (int32 >= 0).
    """
    number = count.astype(jnp.float64)
    return jnp.where(count <= self.split[index],
                     self.left[index] + self.rate * number,
                     self.right[index] - self.rate * number)

  @property
  def log_empty(self) -> Array:
    """Returns log phi_j(0) [m + 1]: the log-weight of empty bins."""
    return self.left


class Table(NamedTuple):
  """Weights of paths, laid out as in `columns`.

  Attributes:
    ends: A_l [m, K, B]: weight of the l-th quantile lying in interval i and the
      next one in a later interval.
    begins: B_l [m, K, B]: weight up to the first quantile in interval i.
  """
  ends: Wide
  begins: Wide


def _product(before: Wide, bins: Bins, index: Array) -> Wide:
  """Returns B_l(i) = sum_(1 <= d <= i) phi_l(d) A_(l-1)(i - d), of [K, B].

  Behind the split this is one running sum. Before it, it is a window of the
  last `split` places. Cut the sequence into blocks of that length: the window
  is the end of one block plus the beginning of the next, so that nothing is
  subtracted and no precision is lost.
  """
  layout = columns.Shape(*before.mantissa.shape)
  split, rate = bins.split[index], bins.rate
  place = columns.places(layout)
  width = jnp.maximum(split, 1)
  within = _modulo(place, width)
  # The third sequence runs backwards, to sum the remainder of a block.
  back = lambda x: x[::-1, ::-1]
  terms = jax.tree.map(lambda x: jnp.stack([x, x, back(x)], 1), before)
  starts = jnp.stack([jnp.zeros(place.shape, bool), within == 0,
                      back(within == width - 1)], 1)
  sums = columns.decayed_sums(
      terms, wide.exp(rate * jnp.array([-1.0, 1.0, -1.0])), starts)
  falling, end, begin = (
      jax.tree.map(lambda x: x[:, row], sums) for row in range(3))
  begin = jax.tree.map(back, begin)
  lagged = columns.delayed(
      jax.tree.map(lambda *x: jnp.stack(x), falling, begin), split)
  falling, begin = (jax.tree.map(lambda x: x[row], lagged) for row in range(2))
  one = jnp.int32(1)
  # d counts from 1, so every sum is delayed by one place more.
  number = split.astype(jnp.float64)
  right = wide.times(columns.delayed(falling, one), wide.exp(
      bins.right[index] - rate * (number + 1)))
  left = wide.add(
      wide.times(columns.delayed(end, one), wide.exp(bins.left[index] + rate)),
      wide.where((place > split) & (within != 0), wide.times(
          begin, wide.exp(bins.left[index] + rate * number)),
          wide.zeros(place.shape)))
  left = wide.where(split > 0, left, wide.zeros(place.shape))
  return wide.normalised(wide.add(left, right))


def _modulo(place: Array, width: Array) -> Array:
  """Returns place % width, int32; vector integer division is slow."""
  number, divisor = place.astype(jnp.float64), width.astype(jnp.float64)
  return (number - jnp.floor(number / divisor) * divisor).astype(jnp.int32)


def _ends(begins: Wide, widths: Wide, log_empty: Array, last: Array) -> Wide:
  """Returns A_l(i) [K, B] from B_1 .. B_l by Horner's rule; `last` is l - 1."""
  empty = wide.exp(log_empty)
  steps, count = widths.mantissa.shape
  rows = min(steps, 2**max(0, (_AT_ONCE // count).bit_length() - 1))

  def part(start: Array) -> Wide:
    cut = lambda x: jax.lax.dynamic_slice_in_dim(x, start, rows, -2)
    width = jax.tree.map(cut, widths)

    def step(index: Array, total: Wide) -> Wide:
      # Horner's rule for the sum of w^k / k!: each step divides by the next k.
      divisor = (last - index + 2).astype(jnp.float64)
      factor = Wide(empty.mantissa[index] / divisor, empty.exponent[index])
      return wide.add(
          jax.tree.map(lambda x: jax.lax.dynamic_slice(
              x, (index, start, jnp.int32(0)), (1, rows, count))[0], begins),
          wide.times(wide.times(total, factor), width))

    total = jax.lax.fori_loop(jnp.int32(0), last + 1, step,
                              wide.zeros((rows, count)))
    return wide.normalised(wide.times(total, width))

  if rows == steps:
    return part(jnp.int32(0))
  parts = jax.lax.map(part, jnp.arange(0, steps, rows, dtype=jnp.int32))
  return jax.tree.map(lambda x: x.reshape(steps, count), parts)


def table(data: Records, bins: Bins) -> Table:
  """Returns the weights of all paths.

  It takes time n m + n m^2 / 2 and memory 24 n m bytes.
  """
  num_levels = bins.left.shape[0] - 1
  layout = columns.shape(data.ordered.size + 1)
  place = columns.places(layout)
  widths = wide.of(columns.laid_out(jnp.diff(records.edges(data)), layout))
  first = wide.exp(bins.log_factor(0, place))
  begins = wide.zeros((num_levels, layout.steps, layout.columns))

  def step(carry: tuple[Wide, Wide],
           index: Array) -> tuple[tuple[Wide, Wide], Wide]:
    begins, begin = carry
    begins = jax.tree.map(
        lambda x, row: jax.lax.dynamic_update_index_in_dim(x, row, index, 0),
        begins, begin)
    end = _ends(begins, widths, bins.log_empty, index)
    return (begins, _product(end, bins, index + 1)), end

  (begins, _), ends = jax.lax.scan(
      step, (begins, first), jnp.arange(num_levels, dtype=jnp.int32))
  return Table(ends, begins)


def _log_paths(weights: Table, bins: Bins, used: Array, last: Array,
               inclusive: Array) -> Array:
  """Returns log-weights [K, B] of the interval of quantile number `used`.

  Args:
    weights: the table.
    bins: the bins of the mechanism.
    used: number of quantiles not yet placed; the last of them is placed now.
    last: interval of the next quantile, or n.
    inclusive: whether both may share an interval.
  """
  ends = jax.tree.map(lambda x: x[used - 1], weights.ends)
  place = columns.places(columns.Shape(*ends.mantissa.shape))
  # Relative to the largest exponent, the logs that matter are precise.
  top = jnp.max(ends.exponent)
  logs = wide.log(Wide(ends.mantissa, ends.exponent - top))
  allowed = (place < last) | ((place == last) & inclusive)
  return jnp.where(allowed, logs + bins.log_factor(
      used, jnp.maximum(last - place, 0)), -jnp.inf)


def _log_shares(weights: Table, bins: Bins, log_width: Array, used: Array,
                place: Array) -> Array:
  """Returns log-weights [m] of k = 1, ..., m quantiles in interval `place`."""
  size = bins.left.shape[0] - 1
  begins = wide.log(jax.tree.map(lambda x: columns.at(x, place),
                                 weights.begins))
  # Quantiles that share an interval have empty bins between them, and are the
  # order statistics of uniform points: w^k / k!.
  paid = jnp.cumsum(bins.log_empty)
  shared = jnp.arange(1, size + 1, dtype=jnp.int32)
  first = used - shared
  number = shared.astype(jnp.float64)
  logs = (begins[first] + paid[used - 1] - paid[first] + number * log_width
          - special.gammaln(number + 1))
  return jnp.where(first >= 0, logs, -jnp.inf)


def intervals(key: PRNGKey, data: Records, bins: Bins) -> Array:
  """Draws the intervals [m] int32 of the quantiles, from their distribution."""
  size = bins.left.shape[0] - 1
  weights = table(data, bins)
  log_widths = records.log_widths(data)
  layout = columns.Shape(*weights.ends.mantissa.shape[1:])

  # Backwards from the last quantile, an interval and what it holds at a time.
  def step(state: tuple[PRNGKey, Array, Array, Array]
           ) -> tuple[PRNGKey, Array, Array, Array]:
    key, used, last, drawn = state
    key, which, many = jax.random.split(key, 3)
    flat = choice.choose(which, _log_paths(
        weights, bins, used, last, used == size).reshape(-1))
    # `flat` runs over [K, B]; place s is stored at [s % K, s // K].
    place = flat // layout.columns + flat % layout.columns * layout.steps
    shared = 1 + choice.choose(many, _log_shares(
        weights, bins, log_widths[place], used, place))
    index = jnp.arange(size, dtype=jnp.int32)
    drawn_now = (index >= used - shared) & (index < used)
    return key, used - shared, place, jnp.where(drawn_now, place, drawn)

  start = key, jnp.int32(size), data.count, jnp.zeros([size], jnp.int32)
  return jax.lax.while_loop(lambda state: state[1] > 0, step, start)[-1]


def quantiles(key: PRNGKey, data: Records, bins: Bins) -> Array:
  """Draws quantiles [m] from the density that the bins define."""
  which, where = jax.random.split(key)
  drawn = intervals(which, data, bins)
  fractions = jax.random.uniform(where, drawn.shape, jnp.float64)
  return jnp.sort(records.inside(data, drawn, fractions))


def log_total(data: Records, bins: Bins) -> Array:
  """Returns the log of the integral of the unnormalised density."""
  weights = table(data, bins)
  size = bins.left.shape[0] - 1
  top = jnp.max(weights.ends.exponent[-1])
  logs = _log_paths(weights, bins, jnp.int32(size), data.count,
                    jnp.bool_(True))
  return (choice.log_sums(logs.reshape(1, -1))[0]
          + top.astype(jnp.float64) * np.log(2))
