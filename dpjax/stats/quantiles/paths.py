"""Sorted points drawn together from a product over the bins between them.

The density of q_1 <= ... <= q_m is proportional to prod_j phi_j(#bin_j), where
bin_j are the records between q_(j-1) and q_j and phi_j falls exponentially on
both sides of a wanted number. With i_j the interval between records in which
q_j lies, the sum over i_1 <= ... <= i_m is one over paths:

  B_l(i) = sum_(s < i) A_(l-1)(s) phi_l(i - s)
  A_l(i) = sum_k B_(l-k+1)(i) phi(0) ... phi(0) w_i^k / k!

with w_i the width of interval i and k quantiles in it; a draw follows a path
from the last quantile back. Thanks to the shape of phi a product with it is
three running sums, so that a table takes time n m + n m^2 / 2 and no Fourier
transform, whose absolute error is of the size of the largest weight: with
records that a little noise keeps apart that gets the law wrong altogether
(erratum QE-24). Numbers are wide: exact to some 10^-12 in relative terms over
any range. Source: thesis 000, sections 6.1.4 and 6.1.6; Gillenwater, Joseph and
Kulesza 2021 (item QF-07).
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy import special
import numpy as np

from dpjax.stats.quantiles import choice
from dpjax.stats.quantiles import lanes
from dpjax.stats.quantiles import records
from dpjax.stats.quantiles import wide
from dpjax.stats.quantiles.records import Records
from dpjax.stats.quantiles.wide import Wide
from dpjax.typing import Array, PRNGKey

# Elements of a table that are worked on at a time: what a cache holds.
_AT_ONCE = 2**13


class Bins(NamedTuple):
  """log phi_j(d) = left_j + rate d up to `split_j`, right_j - rate d beyond.

  Attributes:
    rate: scalar > 0.
    left: [m + 1].
    right: [m + 1].
    split: [m + 1] int32 >= 0, the last d of the rising side.
  """
  rate: Array
  left: Array
  right: Array
  split: Array

  def log_factor(self, index: Array, count: Array) -> Array:
    """log phi of bin `index`, from 0, with so many records, int32 >= 0."""
    number = count.astype(jnp.float64)
    return jnp.where(count <= self.split[index],
                     self.left[index] + self.rate * number,
                     self.right[index] - self.rate * number)

  @property
  def log_empty(self) -> Array:
    """log phi_j(0) [m + 1]: all bins may be empty, at a price."""
    return self.left


class Table(NamedTuple):
  """Weights of paths, laid out in lanes.

  Attributes:
    ends: A_l [m, K, B]: the l-th quantile in interval i, the next in another.
    begins: B_l [m, K, B]: the same up to the entry into interval i.
  """
  ends: Wide
  begins: Wide


def _product(before: Wide, bins: Bins, index: Array) -> Wide:
  """B_l(i) = sum_(1 <= d <= i) phi_l(d) A_(l-1)(i - d), of [K, B].

  Right of the split one running sum. Left of it a window of the last `split`
  places: the part in the block (of as many places) of its end, and the part in
  that of its beginning, so that nothing is ever subtracted.
  """
  layout = lanes.Shape(*before.mantissa.shape)
  split, rate = bins.split[index], bins.rate
  place = lanes.places(layout)
  width = jnp.maximum(split, 1)
  within = _modulo(place, width)
  # The third sequence runs backwards.
  back = lambda x: x[::-1, ::-1]
  terms = jax.tree.map(lambda x: jnp.stack([x, x, back(x)], 1), before)
  starts = jnp.stack([jnp.zeros(place.shape, bool), within == 0,
                      back(within == width - 1)], 1)
  sums = lanes.decayed_sums(
      terms, wide.exp(rate * jnp.array([-1.0, 1.0, -1.0])), starts)
  falling, end, begin = (
      jax.tree.map(lambda x: x[:, row], sums) for row in range(3))
  begin = jax.tree.map(back, begin)
  late = lanes.delayed(jax.tree.map(lambda *x: jnp.stack(x), falling, begin),
                       split)
  falling, begin = (jax.tree.map(lambda x: x[row], late) for row in range(2))
  one = jnp.int32(1)
  number = split.astype(jnp.float64)
  right = wide.times(lanes.delayed(falling, one), wide.exp(
      bins.right[index] - rate * (number + 1)))
  left = wide.add(
      wide.times(lanes.delayed(end, one), wide.exp(bins.left[index] + rate)),
      wide.where((place > split) & (within != 0), wide.times(
          begin, wide.exp(bins.left[index] + rate * number)),
          wide.zeros(place.shape)))
  left = wide.where(split > 0, left, wide.zeros(place.shape))
  return wide.normalised(wide.add(left, right))


def _modulo(place: Array, width: Array) -> Array:
  """place % width, int32; integer division is slow on vectors."""
  number, divisor = place.astype(jnp.float64), width.astype(jnp.float64)
  return (number - jnp.floor(number / divisor) * divisor).astype(jnp.int32)


def _ends(begins: Wide, widths: Wide, log_empty: Array, last: Array) -> Wide:
  """A_l(i) from B_1 .. B_l by Horner's rule, of [K, B]; `last` is l - 1."""
  empty = wide.exp(log_empty)
  steps, count = widths.mantissa.shape
  rows = min(steps, 2**max(0, (_AT_ONCE // count).bit_length() - 1))

  def part(start: Array) -> Wide:
    cut = lambda x: jax.lax.dynamic_slice_in_dim(x, start, rows, -2)
    width = jax.tree.map(cut, widths)

    def step(index: Array, total: Wide) -> Wide:
      share = (last - index + 2).astype(jnp.float64)
      factor = Wide(empty.mantissa[index] / share, empty.exponent[index])
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
  """Weights of all paths; time n m + n m^2 / 2, memory 24 n m bytes."""
  num_orders = bins.left.shape[0] - 1
  layout = lanes.shape(data.ordered.size + 1)
  place = lanes.places(layout)
  widths = wide.of(lanes.laid_out(jnp.diff(records.edges(data)), layout))
  first = wide.exp(bins.log_factor(0, place))
  begins = wide.zeros((num_orders, layout.steps, layout.lanes))

  def step(carry: tuple[Wide, Wide], index: Array):
    begins, begin = carry
    begins = jax.tree.map(
        lambda x, row: jax.lax.dynamic_update_index_in_dim(x, row, index, 0),
        begins, begin)
    end = _ends(begins, widths, bins.log_empty, index)
    return (begins, _product(end, bins, index + 1)), end

  (begins, _), ends = jax.lax.scan(
      step, (begins, first), jnp.arange(num_orders, dtype=jnp.int32))
  return Table(ends, begins)


def _log_paths(found: Table, bins: Bins, used: Array, last: Array,
               inclusive: Array) -> Array:
  """Log-weights [K, B] of the interval of quantile `used`, from 1.

  Args:
    found: the table.
    bins: of the mechanism.
    used: quantiles that are not yet placed.
    last: interval of the next quantile, or n.
    inclusive: whether it may be the same.
  """
  ends = jax.tree.map(lambda x: x[used - 1], found.ends)
  place = lanes.places(lanes.Shape(*ends.mantissa.shape))
  # Exponents from the largest on: logarithms near 0 are precise.
  top = jnp.max(ends.exponent)
  logs = wide.log(Wide(ends.mantissa, ends.exponent - top))
  allowed = (place < last) | ((place == last) & inclusive)
  return jnp.where(allowed, logs + bins.log_factor(
      used, jnp.maximum(last - place, 0)), -jnp.inf)


def _log_shares(found: Table, bins: Bins, log_width: Array, used: Array,
                place: Array) -> Array:
  """Log-weights [m] of k = 1, ..., m quantiles in the interval `place`."""
  size = bins.left.shape[0] - 1
  begins = wide.log(jax.tree.map(lambda x: lanes.at(x, place), found.begins))
  paid = jnp.cumsum(bins.log_empty)
  shared = jnp.arange(1, size + 1, dtype=jnp.int32)
  first = used - shared
  number = shared.astype(jnp.float64)
  logs = (begins[first] + paid[used - 1] - paid[first] + number * log_width
          - special.gammaln(number + 1))
  return jnp.where(first >= 0, logs, -jnp.inf)


def intervals(key: PRNGKey, data: Records, bins: Bins) -> Array:
  """The intervals [m] int32 of the quantiles, drawn from their exact law."""
  size = bins.left.shape[0] - 1
  found = table(data, bins)
  log_widths = records.log_widths(data)
  layout = lanes.Shape(*found.ends.mantissa.shape[1:])

  def step(state):
    key, used, last, drawn = state
    key, which, many = jax.random.split(key, 3)
    flat = choice.choose(which, _log_paths(
        found, bins, used, last, used == size).reshape(-1))
    place = flat // layout.lanes + flat % layout.lanes * layout.steps
    shared = 1 + choice.choose(many, _log_shares(
        found, bins, log_widths[place], used, place))
    index = jnp.arange(size, dtype=jnp.int32)
    here = (index >= used - shared) & (index < used)
    return key, used - shared, place, jnp.where(here, place, drawn)

  start = key, jnp.int32(size), data.count, jnp.zeros([size], jnp.int32)
  return jax.lax.while_loop(lambda state: state[1] > 0, step, start)[-1]


def quantiles(key: PRNGKey, data: Records, bins: Bins) -> Array:
  """Quantiles [m] drawn from the density of the bins."""
  which, where = jax.random.split(key)
  drawn = intervals(which, data, bins)
  shares = jax.random.uniform(where, drawn.shape, jnp.float64)
  return jnp.sort(records.inside(data, drawn, shares))


def log_total(data: Records, bins: Bins) -> Array:
  """The logarithm of the integral of the density before it is normalised."""
  found = table(data, bins)
  size = bins.left.shape[0] - 1
  top = jnp.max(found.ends.exponent[-1])
  logs = _log_paths(found, bins, jnp.int32(size), data.count,
                    jnp.bool_(True))
  return (choice.log_sums(logs.reshape(1, -1))[0]
          + top.astype(jnp.float64) * np.log(2))
