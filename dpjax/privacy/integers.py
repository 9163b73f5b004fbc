"""Integer noise of an exactly known distribution, drawn from tables.

A distribution is a table of integer weights that sum to 2^96. The host computes
it from probabilities of 160 bits: each is rounded down, and the remaining
weight goes to the mode. So the total variation distance from the ideal
distribution *is* the remaining weight, and a symmetric distribution stays
symmetric. Draws look up their outcome by Walker's alias method (one column, one
comparison) in integer arithmetic, without any rounding of floats.

A draw uses two words: the first bits select one of 2^b columns, the other 64 -
b are compared with the column's threshold. A tie, of probability 2^(b - 64), is
resolved by 32 more bits, from one word that all draws of a call share. So each
draw has exactly its distribution, and the draws are independent up to
`tie_variation`.
"""

from collections.abc import Sequence
import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
import mpmath
import numpy as np

from dpjax import errors
from dpjax import tree
from dpjax.privacy import additive
from dpjax.privacy import sharded
from dpjax.typing import Array, PRNGKey, PyTree

RESOLUTION = 96
"""Weights are multiples of 2^-96."""

# Bits of mpmath in which probabilities are computed.
_PRECISION = 160
_MOST_COLUMN_BITS = 13
_MOST_HALF_WIDTH = 2**(_MOST_COLUMN_BITS - 1) - 1

# A Gaussian has less than 2^-96 of its mass beyond 11.3 standard deviations, a
# Laplace distribution beyond 66.6 scales.
_GAUSSIAN_REACH = 11.3
_LAPLACE_REACH = 66.6

LARGEST_STDDEV = _MOST_HALF_WIDTH / _GAUSSIAN_REACH - 1
"""Largest parameter of a discrete or rounded Gaussian that fits one table."""

LARGEST_SCALE = _MOST_HALF_WIDTH / _LAPLACE_REACH - 1
"""Largest scale of a discrete Laplace distribution that fits one table."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class NoiseTable:
  """Noise distribution on the integers, stored as arrays to draw from.

  Attributes:
    first: smallest outcome.
    weights: weights of first, first + 1, ..., in units of 2^-96; 2^b of them.
    total_variation: distance from the ideal distribution.
    entries: [2^b] uint32: the first 32 - b bits of a column's threshold, then
      its alias in b bits.
    middle: [2^b] uint32: the next 32 bits of the thresholds.
    last: [2^b] uint32: their last 32 bits.
  """
  first: int
  weights: tuple[int, ...]
  total_variation: float
  entries: np.ndarray
  middle: np.ndarray
  last: np.ndarray

  @property
  def column_bits(self) -> int:
    """b: number of bits that select a column."""
    return len(self.weights).bit_length() - 1


def draw(table: NoiseTable, key: PRNGKey, shape: tuple[int, ...],
         start: int = 0) -> Array:
  """Draws int32 numbers from a distribution.

  Args:
    table: distribution of the draws.
    key: used only for draws at other places.
    shape: shape of the draws.
    start: first of the key's places that are used, static; `num_places(shape)`
      places are used.
  """
  size = math.prod(shape)
  high, low = additive.random_pairs(key, (size,), start)
  tie, _ = additive.random_pairs(key, (1,), start + size)
  return _look_up(table, high, low, tie).reshape(shape)


def draw_rows(table: NoiseTable, key: PRNGKey, shape: tuple[int, int]) -> Array:
  """Draws [rows, size] numbers from a distribution, row by row in a loop.

  The loop is compiled once, and keeps XLA for CPUs from recomputing the draws
  for each use of a slice of the result.

  Args:
    table: distribution of the draws.
    key: used for nothing else.
    shape: (rows, size).
  """
  high, low = additive.random_pairs(key, shape)
  ties, _ = additive.random_pairs(key, (shape[0], 1), math.prod(shape))
  return jax.lax.map(lambda words: _look_up(table, *words), (high, low, ties))


def draw_rows_in_parts(table: NoiseTable, key: PRNGKey, num_rows: int,
                       values: PyTree, shardings: PyTree) -> list[PyTree]:
  """Draws `draw_rows` for arrays that are divided over devices.

  Args:
    table: distribution of the draws.
    key: of threefry or ChaCha20, used for nothing else.
    num_rows: number of draws of each value.
    values: arrays or their shapes.
    shardings: a `NamedSharding` for each leaf of `values`, all of one mesh.

  Returns:
    A tree like `values` for each row: the numbers of `draw_rows(table, key,
    (num_rows, size))`, where size is that of all leaves, in order.
  """
  leaves, structure = jax.tree.flatten(values)
  total, start = tree.count(values), 0
  drawn = []
  for leaf, where in zip(leaves, jax.tree.leaves(shardings), strict=True):
    drawn.append(_leaf_in_parts(table, key, (num_rows, total), leaf.shape,
                                start, where))
    start += math.prod(leaf.shape)
  return [jax.tree.unflatten(structure, row) for row in zip(*drawn)]


def _leaf_in_parts(table: NoiseTable, key: PRNGKey, rows: tuple[int, int],
                   shape: tuple[int, ...], start: int, where: NamedSharding
                   ) -> tuple[Array, ...]:
  """Returns for each row the draws of one leaf, which begins at `start`."""
  num_rows, total = rows
  generator, size = jax.random.key_impl(key), num_rows * total
  additive.check_places(size + num_rows)

  def draw_at(words: Array, places: Array) -> tuple[Array, ...]:
    own = jax.random.wrap_key_data(words, impl=generator)
    ties, _ = additive.random_pairs(own, (num_rows, 1), size)
    return tuple(_look_up(table, *sharded.pairs_at(
        own, jnp.uint32(row * total + start) + places, size), ties[row])
                 for row in range(num_rows))

  return sharded.computed(draw_at, key, shape, where)


def num_places(shape: tuple[int, ...]) -> int:
  """Returns the number of places of a key that `draw` uses."""
  return math.prod(shape) + 1


def tie_variation(table: NoiseTable, count: int) -> float:
  """Returns the distance of `count` draws of a call from independent draws.

  In total variation. The draws share one word, which matters only if two of
  them tie.
  """
  return count**2 / 2 * 4.0**(table.column_bits - 64)


def _look_up(table: NoiseTable, high: Array, low: Array, tie: Array) -> Array:
  """Returns the outcomes [size] of words [size], [size] and tie words [1]."""
  bits = table.column_bits
  column = jax.lax.shift_right_logical(high, jnp.uint32(32 - bits))
  entry, middle, last = (
      jnp.asarray(array).at[column].get(mode='promise_in_bounds')
      for array in (table.entries, table.middle, table.last))
  # Compare the remaining bits with the threshold, from the highest part down.
  rest = high & jnp.uint32(2**(32 - bits) - 1)
  first = jax.lax.shift_right_logical(entry, jnp.uint32(bits))
  below = (rest < first) | (rest == first) & (
      (low < middle) | (low == middle) & (tie < last))
  index = jnp.where(below, column, entry & jnp.uint32(2**bits - 1))
  return index.astype(jnp.int32) + jnp.int32(table.first)


def make_table(first: int, probabilities: Sequence[Any]) -> NoiseTable:
  """Returns the table of probabilities, rounded down; the mode gets the rest.

  Args:
    first: smallest outcome.
    probabilities: probabilities of first, first + 1, ..., at most 1 in all;
      numbers of mpmath, with errors below 2^-130. The mass that is missing to 1
      belongs to omitted outcomes.

  Raises:
    ValueError: if there are more outcomes than a table can hold.
  """
  bits = max(1, (len(probabilities) - 1).bit_length())
  if bits > _MOST_COLUMN_BITS:
    raise ValueError(f'a table holds {2**_MOST_COLUMN_BITS} outcomes at most, '
                     f'got {len(probabilities)}')
  with mpmath.workprec(_PRECISION):
    weights = [int(mpmath.floor(mpmath.ldexp(p, RESOLUTION)))
               for p in probabilities]
  left_over = 2**RESOLUTION - sum(weights)
  weights[max(range(len(weights)), key=weights.__getitem__)] += left_over
  weights += [0] * (2**bits - len(weights))
  # One more unit covers the numerical errors of all probabilities together.
  return NoiseTable(first=first, weights=tuple(weights),
             total_variation=(left_over + 1) * 2.0**-RESOLUTION,
             **_columns(weights, bits))


def _columns(weights: Sequence[int], bits: int) -> dict[str, np.ndarray]:
  """Returns thresholds and aliases (Walker 1977, by the method of Vose 1991).
  """
  capacity = 2**(RESOLUTION - bits)
  left, alias = list(weights), list(range(len(weights)))
  threshold = [0] * len(left)
  small = [i for i, weight in enumerate(left) if weight < capacity]
  large = [i for i, weight in enumerate(left) if weight > capacity]
  # An outcome that fills its column exactly is its own alias; no threshold.
  # While there is a light outcome there is a heavy one: on average they fill
  # their columns.
  while small:
    light, heavy = small.pop(), large[-1]
    threshold[light], alias[light] = left[light], heavy
    left[heavy] -= capacity - left[light]
    if left[heavy] <= capacity:
      large.pop()
    if left[heavy] < capacity:
      small.append(heavy)
  words = [np.array([t >> shift & 2**32 - 1 for t in threshold], np.uint32)
           for shift in (64, 32, 0)]
  entries = words[0] << np.uint32(bits) | np.array(alias, np.uint32)
  return dict(entries=entries, middle=words[1], last=words[2])


@functools.lru_cache(maxsize=64)
def discrete_gaussian(stddev: float) -> NoiseTable:
  """Returns the table of weights exp(-x^2 / (2 stddev^2)), integer x.

  `stddev` is the parameter; the standard deviation is smaller for parameters
  below about 1/2. Source: Canonne, Kamath and Steinke (2020).
  """
  _check_size('stddev', stddev, LARGEST_STDDEV)
  with mpmath.workprec(_PRECISION):
    # Beyond 15 standard deviations less than 2^-160 of the mass is left out.
    masses = [mpmath.exp(-(mpmath.mpf(x) / stddev)**2 / 2)
              for x in range(math.ceil(15 * stddev) + 2)]
    total = 2 * mpmath.fsum(masses) - 1  # masses[0] = 1 counts once.
    half = masses[:math.ceil(_GAUSSIAN_REACH * stddev) + 1]
    return _symmetric([mass / total for mass in half])


def convolution_variation(first: float, second: float,
                          multiplier: float) -> float:
  """Bounds the distance of Z1 + multiplier Z2 from a discrete Gaussian.

  In total variation, for discrete Gaussians Z1 and Z2 of parameters `first` and
  `second`, and one of parameter r = sqrt(first^2 + (multiplier second)^2). The
  mass at x is the ideal one times a sum of a Gaussian of width t = first second
  / r over shifted integers. By Poisson summation, this sum is the same for all
  x up to a factor 1 + h, |h| <= 2 sum_m exp(-2 (pi t m)^2). Source: Micciancio
  and Walter (2017).
  """
  square = (first * second)**2 / (first**2 + (multiplier * second)**2)
  term = math.exp(-2 * math.pi**2 * square)
  factor = 2 * term / (1 - term)  # A geometric sum, since m^2 >= m.
  return factor / (1 - factor) if factor < 0.5 else 1.0


@functools.lru_cache(maxsize=64)
def rounded_gaussian(stddev: float) -> NoiseTable:
  """Returns the table of a Gaussian rounded to the nearest integer.

  Rounding is post-processing: it keeps the guarantee of the Gaussian.
  """
  _check_size('stddev', stddev, LARGEST_STDDEV)
  with mpmath.workprec(_PRECISION):
    width = stddev * mpmath.sqrt(2)
    tails = [mpmath.erfc((x + mpmath.mpf(0.5)) / width) / 2
             for x in range(math.ceil(_GAUSSIAN_REACH * stddev) + 2)]
    return _symmetric([1 - 2 * tails[0]] + [
        near - far for near, far in zip(tails, tails[1:])])


@functools.lru_cache(maxsize=64)
def discrete_laplace(scale: float) -> NoiseTable:
  """Returns the table of weights exp(-|x| / scale): two-sided geometric.

  Source: item MECH-02, with a = exp(-1 / scale).
  """
  _check_size('scale', scale, LARGEST_SCALE)
  with mpmath.workprec(_PRECISION):
    ratio = mpmath.exp(-1 / mpmath.mpf(scale))
    return _symmetric([(1 - ratio) / (1 + ratio) * ratio**x
                       for x in range(math.ceil(_LAPLACE_REACH * scale) + 1)])


@functools.lru_cache(maxsize=64)
def geometric_digits(scale: float, base: int) -> tuple[NoiseTable, NoiseTable]:
  """Returns the tables of the digits L and H of a geometric number.

  L + base H has weights exp(-x / scale), x >= 0. The digits of a geometric
  number are independent, so this is not an approximation.
  """
  errors.check_positive('scale', scale)
  errors.check_at_least('base', base, 1)
  with mpmath.workprec(_PRECISION):
    ratio = mpmath.exp(-1 / mpmath.mpf(scale))
    step = ratio**base
    low = [(1 - ratio) / (1 - step) * ratio**x for x in range(base)]
    high = [(1 - step) * step**x
            for x in range(math.ceil(_LAPLACE_REACH * scale / base) + 1)]
    return make_table(0, low), make_table(0, high)


def _check_size(name: str, value: float, most: float) -> None:
  """Checks that a positive scale is small enough for one table."""
  errors.check_positive(name, value)
  if value > most:
    raise ValueError(f'{name} must be at most {most:.5g} in one table, '
                     f'got {value}')


def _symmetric(half: Sequence[Any]) -> NoiseTable:
  """Returns the table of a symmetric distribution from masses of 0, 1, ..."""
  return make_table(1 - len(half), [*half[:0:-1], *half])
