"""Exact discrete noise, drawn from the system's random source.

For releases against a strong adversary: all decisions compare integers of
unlimited size, so draws have exactly the stated distribution. It makes about
ten thousand draws per second; simulations use `draws`. Source: Canonne, Kamath
and Steinke (2020, Algorithms 1 to 3).

Limit: running time is not hidden. Anyone who can measure how long a draw took
learns something about it.
"""

import bisect
from collections.abc import Callable, Sequence
import fractions
import itertools
import math
import secrets

Fraction = fractions.Fraction
Draw = Callable[[int], int]
"""A uniform sampler: n -> an integer from 0 to n - 1."""


def bernoulli(prob: Fraction, below: Draw = secrets.randbelow) -> bool:
  """Returns True with probability `prob`, in [0, 1]."""
  return below(prob.denominator) < prob.numerator


def bernoulli_exp(rate: Fraction, below: Draw = secrets.randbelow) -> bool:
  """Returns True with probability e^-rate exactly, for a rational rate >= 0."""
  if rate < 0:
    raise ValueError(f'rate must be at least 0, got {rate}')
  while rate > 1:
    if not _bernoulli_exp_unit(Fraction(1), below):
      return False
    rate -= 1
  return _bernoulli_exp_unit(rate, below)


def _bernoulli_exp_unit(rate: Fraction, below: Draw) -> bool:
  """Returns True with probability e^-rate, for rate <= 1.

  Coins of probability rate / k, k = 1, 2, ... are thrown until the first
  failure. The number of successes is even with probability e^-rate.
  """
  count = 1
  while bernoulli(rate / count, below):
    count += 1
  return count % 2 == 1


def discrete_laplace(scale: Fraction, below: Draw = secrets.randbelow) -> int:
  """Draws an integer z with probability proportional to e^(-|z| / scale).

  The two-sided geometric distribution, scale > 0. Its variance is 2 a / (1 -
  a)^2 with a = e^(-1 / scale).

  Examples:
    >>> from fractions import Fraction
    >>> import random
    >>> from dpjax.privacy import exact
    >>> below = random.Random(0).randrange  # To be left out where data matter.
    >>> [exact.discrete_laplace(Fraction(3), below) for _ in range(8)]
    [-1, 1, 6, -4, 0, 3, 9, 3]
  """
  if scale <= 0:
    raise ValueError(f'scale must be positive, got {scale}')
  whole, divisor = scale.numerator, scale.denominator
  while True:
    rest = below(whole)
    if not bernoulli_exp(Fraction(rest, whole), below):
      continue
    count = 0
    while bernoulli_exp(Fraction(1), below):
      count += 1
    # The numerator is geometric of scale `whole`; division rescales it.
    magnitude = (rest + whole * count) // divisor
    negative = bool(below(2))
    # Rejecting -0 keeps 0 from being twice as likely.
    if magnitude or not negative:
      return -magnitude if negative else magnitude


def discrete_gaussian(variance: Fraction,
                      below: Draw = secrets.randbelow) -> int:
  """Draws an integer z with weight proportional to e^(-z^2 / (2 variance)).

  Added to an integer of sensitivity D, it is D^2 / (2 variance)-zCDP, as the
  continuous Gaussian is (Canonne, Kamath and Steinke 2020, Theorem 4).
  """
  if variance <= 0:
    raise ValueError(f'variance must be positive, got {variance}')
  scale = Fraction(math.isqrt(variance.numerator // variance.denominator) + 1)
  while True:
    draw = discrete_laplace(scale, below)
    # Rejection turns a discrete Laplace draw into a discrete Gaussian one.
    gap = abs(draw) - variance / scale
    if bernoulli_exp(gap * gap / (2 * variance), below):
      return draw


def choice(weights: Sequence[int], scores: Sequence[int], rate: Fraction,
           below: Draw = secrets.randbelow) -> int:
  """Draws an index of probability proportional to weight * e^(-rate * score).

  Inverts a uniform number whose bits are drawn as needed. The running sums are
  known to lie between two integers; while these leave the index undecided, more
  bits are drawn and the sums are computed more finely. This ends with
  probability 1, and the distribution of the index is exact.

  Args:
    weights: [m] integers >= 0, one of them positive.
    scores: [m] integers.
    rate: positive.
    below: uniform sampler.
  """
  if rate <= 0:
    raise ValueError(f'rate must be positive, got {rate}')
  if min(weights, default=0) < 0 or not any(weights):
    raise ValueError('weights must be at least 0, and one of them positive')
  bits, step = 0, 128
  uniform = 0
  while True:
    uniform = (uniform << step) | below(1 << step)
    bits += step
    lower, upper = _cumulative(weights, scores, rate, bits)
    index = bisect.bisect_left(lower, -(-(uniform + 1) * upper[-1] >> bits))
    # Decided if the uniform number is in the index's interval for all values
    # of the running sums between their bounds.
    before = upper[index - 1] if index else 0
    if index < len(lower) and uniform * lower[-1] >= before << bits:
      return index


def _cumulative(weights: Sequence[int], scores: Sequence[int], rate: Fraction,
                bits: int) -> tuple[list[int], list[int]]:
  """Returns integer bounds on the running sums of weights times 2^bits.

  The weights are those of `choice` divided by e^(-rate * least score).
  """
  factors, powers, last = {}, {}, None
  low = high = 1 << bits
  for score in sorted(set(scores)):
    if last is not None:
      gap = score - last
      if gap not in factors:
        factors[gap] = exp_between(gap * rate, bits)
      low = low * factors[gap][0] >> bits
      high = -(-high * factors[gap][1] >> bits)
    powers[score], last = (low, high), score
  sides = ([weight * powers[score][side]
            for weight, score in zip(weights, scores, strict=True)]
           for side in (0, 1))
  lower, upper = (list(itertools.accumulate(side)) for side in sides)
  return lower, upper


def exp_between(rate: Fraction, bits: int) -> tuple[int, int]:
  """Returns integers that bracket 2^bits e^-rate, a few apart; rate >= 0.

  Two consecutive partial sums of the alternating series bracket e^(-rate /
  2^k); both are then squared k times.
  """
  halvings = math.ceil(rate).bit_length()
  # Guard bits: each squaring doubles the relative error and adds a rounding.
  work = bits + 2 * halvings + 8
  small = rate / 2**halvings
  total, term, count = Fraction(0), Fraction(1), 0
  while abs(term) * 2**work > 1 or count % 2:
    total += term
    count += 1
    term *= -small / count
  # The loop ends before a term that is >= 0. So the partial sum is a lower
  # bound, and the sum with that term is an upper bound.
  low = math.floor(total * 2**work)
  high = math.ceil((total + term) * 2**work)
  for _ in range(halvings):
    low, high = low * low >> work, -(-high * high >> work)
  extra = work - bits
  return low >> extra, -(-high >> extra)
