"""Integer noise whose law is known to the last bit.

A law is a table of integer weights that add up to 2^96, made on the host from
probabilities of 160 bits: each is rounded down, and what is left over goes to
the mode. So the total variation from the ideal law *is* what is left over, and
a symmetric law stays symmetric. Draws look their outcome up by Walker's alias
method (a column, one comparison) in integer arithmetic: no float is rounded
anywhere.

A draw takes two words: the first bits name one of 2^b columns, the other 64 - b
are compared with its threshold. A tie, of probability 2^(b - 64), is decided by
32 bits more, of one word for all draws of a call: each draw has its law
exactly, and they are independent up to `tie_variation`.
"""

from collections.abc import Sequence
import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import mpmath
import numpy as np

from dpjax import errors
from dpjax.privacy import additive
from dpjax.typing import Array, PRNGKey

RESOLUTION = 96
"""Weights are multiples of 2^-96."""

_PRECISION = 160
_MOST_COLUMN_BITS = 13
_MOST_HALF_WIDTH = 2**(_MOST_COLUMN_BITS - 1) - 1

# Beyond so many standard deviations of a Gaussian, and so many scales of a
# Laplace law, lies less than 2^-96.
_GAUSSIAN_REACH = 11.3
_LAPLACE_REACH = 66.6

LARGEST_STDDEV = _MOST_HALF_WIDTH / _GAUSSIAN_REACH - 1
"""Of a Gaussian law in one table."""

LARGEST_SCALE = _MOST_HALF_WIDTH / _LAPLACE_REACH - 1
"""Of a Laplace law in one table."""


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Law:
  """A law on the integers, as it is drawn.

  Attributes:
    first: the least outcome.
    weights: of first, first + 1, ..., in units of 2^-96; 2^b of them.
    total_variation: from the ideal law.
    entries: [2^b] uint32: the first bits of a column's threshold, then its
      alias in b bits.
    middle: [2^b] uint32: 32 bits more of the thresholds.
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
    """b."""
    return len(self.weights).bit_length() - 1


def draw(law: Law, key: PRNGKey, shape: tuple[int, ...],
         start: int = 0) -> Array:
  """Draws of a law, int32.

  Args:
    law: any.
    key: used for nothing else but draws from other places.
    shape: of the draws.
    start: first of the key's places that are used, static; there are
      `num_places(shape)`.
  """
  size = math.prod(shape)
  high, low = additive.random_pairs(key, (size,), start)
  tie, _ = additive.random_pairs(key, (1,), start + size)
  return _look_up(law, high, low, tie).reshape(shape)


def draw_rows(law: Law, key: PRNGKey, shape: tuple[int, int]) -> Array:
  """Draws [rows, size] of a law, row by row, by a loop.

  It is compiled once, and slices of its results are not drawn anew by all that
  use them, on CPU.
  """
  high, low = additive.random_pairs(key, shape)
  ties, _ = additive.random_pairs(key, (shape[0], 1), math.prod(shape))
  return jax.lax.map(lambda words: _look_up(law, *words), (high, low, ties))


def num_places(shape: tuple[int, ...]) -> int:
  """Places of a key that `draw` uses."""
  return math.prod(shape) + 1


def tie_variation(law: Law, count: int) -> float:
  """Total variation of `count` draws of one call from independent ones.

  Only where two of them tie does it matter that they share a word.
  """
  return count**2 / 2 * 4.0**(law.column_bits - 64)


def _look_up(law: Law, high: Array, low: Array, tie: Array) -> Array:
  """The outcomes of words [size], [size] and [1]."""
  bits = law.column_bits
  column = jax.lax.shift_right_logical(high, jnp.uint32(32 - bits))
  entry, middle, last = (
      jnp.asarray(table).at[column].get(mode='promise_in_bounds')
      for table in (law.entries, law.middle, law.last))
  rest = high & jnp.uint32(2**(32 - bits) - 1)
  first = jax.lax.shift_right_logical(entry, jnp.uint32(bits))
  below = (rest < first) | (rest == first) & (
      (low < middle) | (low == middle) & (tie < last))
  index = jnp.where(below, column, entry & jnp.uint32(2**bits - 1))
  return index.astype(jnp.int32) + jnp.int32(law.first)


def make_law(first: int, probabilities: Sequence[Any]) -> Law:
  """The law of these probabilities, rounded down; the mode gets the rest.

  Args:
    first: the least outcome.
    probabilities: of first, first + 1, ..., at most 1 in all; numbers of
      mpmath, with errors below 2^-130. What they leave out lies elsewhere.

  Raises:
    ValueError: for more outcomes than a table has room for.
  """
  bits = max(1, (len(probabilities) - 1).bit_length())
  if bits > _MOST_COLUMN_BITS:
    raise ValueError(f'a table has room for {2**_MOST_COLUMN_BITS} outcomes, '
                     f'not for {len(probabilities)}')
  with mpmath.workprec(_PRECISION):
    weights = [int(mpmath.floor(mpmath.ldexp(p, RESOLUTION)))
               for p in probabilities]
  left_over = 2**RESOLUTION - sum(weights)
  weights[max(range(len(weights)), key=weights.__getitem__)] += left_over
  weights += [0] * (2**bits - len(weights))
  # One unit is more than all errors of the probabilities.
  return Law(first=first, weights=tuple(weights),
             total_variation=(left_over + 1) * 2.0**-RESOLUTION,
             **_columns(weights, bits))


def _columns(weights: Sequence[int], bits: int) -> dict[str, np.ndarray]:
  """Thresholds and aliases (Walker 1977, as Vose 1991 finds them)."""
  room = 2**(RESOLUTION - bits)
  left, alias = list(weights), list(range(len(weights)))
  threshold = [0] * len(left)
  small = [i for i, weight in enumerate(left) if weight < room]
  large = [i for i, weight in enumerate(left) if weight > room]
  # What fills a column needs no threshold: it is its own alias.
  while small:
    here, there = small.pop(), large[-1]
    threshold[here], alias[here] = left[here], there
    left[there] -= room - left[here]
    if left[there] <= room:
      large.pop()
    if left[there] < room:
      small.append(there)
  words = [np.array([t >> shift & 2**32 - 1 for t in threshold], np.uint32)
           for shift in (64, 32, 0)]
  entries = words[0] << np.uint32(bits) | np.array(alias, np.uint32)
  return dict(entries=entries, middle=words[1], last=words[2])


@functools.lru_cache(maxsize=64)
def discrete_gaussian(stddev: float) -> Law:
  """Probabilities proportional to exp(-x^2 / (2 stddev^2)), by the name.

  `stddev` is the parameter of the law; its standard deviation is smaller for
  stddev below 1/2 or so. Source: Canonne, Kamath and Steinke 2020.
  """
  _check_size('stddev', stddev, LARGEST_STDDEV)
  with mpmath.workprec(_PRECISION):
    masses = [mpmath.exp(-(mpmath.mpf(x) / stddev)**2 / 2)
              for x in range(math.ceil(15 * stddev) + 2)]
    total = 2 * mpmath.fsum(masses) - 1
    half = masses[:math.ceil(_GAUSSIAN_REACH * stddev) + 1]
    return _symmetric([mass / total for mass in half])


def convolution_variation(first: float, second: float,
                          multiplier: float) -> float:
  """Total variation of Z1 + multiplier Z2 from a discrete Gaussian, at most.

  For discrete Gaussians Z1 and Z2 of parameters `first` and `second`, and one
  of parameter sqrt(first^2 + (multiplier second)^2). The mass at x is the ideal
  one times a sum of a Gaussian of width t = first second / that parameter over
  shifted integers, which by Poisson summation is the same for all x up to a
  factor 1 + h, |h| <= 2 sum_m exp(-2 (pi t m)^2). Source: Micciancio and Walter
  2017.
  """
  square = (first * second)**2 / (first**2 + (multiplier * second)**2)
  term = math.exp(-2 * math.pi**2 * square)
  factor = 2 * term / (1 - term)
  return factor / (1 - factor) if factor < 0.5 else 1.0


@functools.lru_cache(maxsize=64)
def rounded_gaussian(stddev: float) -> Law:
  """The integer next to a Gaussian draw: an exact rounding, post-processing."""
  _check_size('stddev', stddev, LARGEST_STDDEV)
  with mpmath.workprec(_PRECISION):
    width = stddev * mpmath.sqrt(2)
    tails = [mpmath.erfc((x + mpmath.mpf(0.5)) / width) / 2
             for x in range(math.ceil(_GAUSSIAN_REACH * stddev) + 2)]
    return _symmetric([1 - 2 * tails[0]] + [
        near - far for near, far in zip(tails, tails[1:])])


@functools.lru_cache(maxsize=64)
def discrete_laplace(scale: float) -> Law:
  """Probabilities proportional to exp(-|x| / scale): two-sided geometric.

  Source: item MECH-02, with a = exp(-1 / scale).
  """
  _check_size('scale', scale, LARGEST_SCALE)
  with mpmath.workprec(_PRECISION):
    ratio = mpmath.exp(-1 / mpmath.mpf(scale))
    return _symmetric([(1 - ratio) / (1 + ratio) * ratio**x
                       for x in range(math.ceil(_LAPLACE_REACH * scale) + 1)])


@functools.lru_cache(maxsize=64)
def geometric_digits(scale: float, base: int) -> tuple[Law, Law]:
  """Laws of L and H, of which L + base H has weights exp(-x / scale), x >= 0.

  The digits of a geometric number are independent, so this is no approximation.
  """
  errors.check_positive('scale', scale)
  errors.check_at_least('base', base, 1)
  with mpmath.workprec(_PRECISION):
    ratio = mpmath.exp(-1 / mpmath.mpf(scale))
    step = ratio**base
    low = [(1 - ratio) / (1 - step) * ratio**x for x in range(base)]
    high = [(1 - step) * step**x
            for x in range(math.ceil(_LAPLACE_REACH * scale / base) + 1)]
    return make_law(0, low), make_law(0, high)


def _check_size(name: str, value: float, most: float) -> None:
  errors.check_positive(name, value)
  if value > most:
    raise ValueError(f'{name} must be at most {most:.5g} in one table, '
                     f'got {value}')


def _symmetric(half: Sequence[Any]) -> Law:
  """The law of probabilities of 0, 1, ... and, the same, of -1, ..."""
  return make_law(1 - len(half), [*half[:0:-1], *half])
