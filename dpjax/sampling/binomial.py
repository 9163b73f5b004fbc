"""Exact draws from binomial distributions, by certified inversion.

The distribution function is not computed in floating point. All probabilities
are multiples of that of the mode, by ratios that are fractions of integers:

  P(X = k + 1) / P(X = k) = (n - k) p / ((k + 1) (1 - p)).

`_table` follows this recurrence away from the mode in integers, rounds down,
and bounds what rounding and the tails lose. So each value of the distribution
function lies in a known interval. A uniform number is read word by word: if the
words so far leave more than one value possible, another word is read and the
table is computed more precisely. The result has exactly the binomial
distribution if the words are uniform and independent.
"""

import bisect
from collections.abc import Callable
import functools
from typing import NamedTuple

WORD_BITS = 64
# Bits of the table beyond those of the word. Rounding and tails lose less than
# 2^42 units, for fewer than 2^20 weights, so one more word is seldom needed.
_GUARD_BITS = 48


class _Table(NamedTuple):
  """Bounds on a distribution function.

  For some total between sums[-1] and sums[-1] + error, and for each place i,
  total * P(X <= first + i) lies between sums[i] and sums[i] + error.
  """
  first: int
  sums: list[int]
  error: int


def draw(size: int, successes: int, outcomes: int, word: Callable[[], int], *,
         word_bits: int = WORD_BITS) -> int:
  """Draws the number of successes in independent trials, exactly.

  Args:
    size: number of trials.
    successes: number of equally likely outcomes of a trial that are successes,
      at least 1 and below `outcomes`.
    outcomes: number of all outcomes of a trial.
    word: returns a new uniform word in [0, 2^word_bits) at each call.
    word_bits: bits of a word; other numbers than the default are for tests.
  """
  value, bits = 0, 0
  while True:
    value, bits = value << word_bits | word(), bits + word_bits
    table = _table(size, successes, outcomes, bits + _GUARD_BITS)
    count = _decided(table, value, bits)
    if count is not None:
      return count


def _decided(table: _Table, value: int, bits: int) -> int | None:
  """Returns the quantile of all levels in [value, value + 1) / 2^bits.

  None if the table does not prove that they have the same one.
  """
  first, sums, error = table
  # The least place where even the lower bound is above all of the levels.
  place = bisect.bisect_left(
      sums, -(-(value + 1) * (sums[-1] + error) >> bits))
  if place == len(sums):
    return None
  # The value below must not reach any level, by its upper bound.
  below = (sums[place - 1] if place else 0) + error
  if first + place > 0 and below << bits > value * sums[-1]:
    return None
  return first + place


@functools.lru_cache(maxsize=4)
def _table(size: int, successes: int, outcomes: int, bits: int) -> _Table:
  """Returns bounds on the distribution function, in units of 2^-bits P(mode).
  """
  failures = outcomes - successes
  mode = (size + 1) * successes // outcomes
  # Downwards, successes and failures change places.
  lower, lower_error = _weights(size, failures, successes, size - mode, bits)
  upper, upper_error = _weights(size, successes, failures, mode, bits)
  sums, total = [], 0
  for weight in (*reversed(lower), 1 << bits, *upper):
    total += weight
    sums.append(total)
  return _Table(mode - len(lower), sums, lower_error + upper_error)


def _weights(size: int, successes: int, failures: int, mode: int, bits: int
             ) -> tuple[list[int], int]:
  """Returns rounded weights of the values above the mode.

  Each ratio above the mode is at most 1. So if a weight is rounded down by less
  than e, the next one is by less than e + 1, and the j-th by less than j.

  Args:
    size: number of trials.
    successes: odds of a success are successes : failures.
    failures: see `successes`.
    mode: the mode, which has the weight 2^bits.
    bits: precision.

  Returns:
    (weights of mode + 1, mode + 2, ... until they round to 0; bound on the sum
    of what all true weights above the mode exceed them by).
  """
  weights, weight, count = [], 1 << bits, mode
  while weight and count < size:
    weight = (weight * ((size - count) * successes)
              // ((count + 1) * failures))
    count += 1
    weights.append(weight)
  steps = len(weights)
  # If values are left, the last weight is rounded to 0 and is below `steps`.
  # Ratios fall from at most 1 at the mode, so those after it are below a
  # geometric series whose ratio is below 1.
  whole = (count + 1) * failures
  gap = whole - (size - count) * successes
  tail = -(-steps * whole // gap) if count < size else 0
  return weights, steps * (steps + 1) // 2 + tail
