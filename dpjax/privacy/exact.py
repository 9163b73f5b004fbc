"""Discrete noise without rounding, from the random source of the system.

For releases that have to withstand whoever gets them: every decision is between
integers, of any size, so that the law of what is drawn is the stated one, not
near it. Some ten thousand draws a second; simulations use `draws`. Source:
Canonne, Kamath and Steinke 2020, Algorithms 1-3.

Time is not hidden: who can measure how long a draw took learns something of it.
"""

import bisect
from collections.abc import Callable, Sequence
import fractions
import itertools
import math
import secrets

Fraction = fractions.Fraction
Draw = Callable[[int], int]
"""n -> a uniform integer from 0 to n - 1."""


def bernoulli(prob: Fraction, below: Draw = secrets.randbelow) -> bool:
  """True with probability `prob`, in [0, 1]."""
  return below(prob.denominator) < prob.numerator


def bernoulli_exp(rate: Fraction, below: Draw = secrets.randbelow) -> bool:
  """True with probability e^-rate, rate >= 0, which is not rational."""
  if rate < 0:
    raise ValueError(f'rate must be at least 0, got {rate}')
  while rate > 1:
    if not _bernoulli_exp_unit(Fraction(1), below):
      return False
    rate -= 1
  return _bernoulli_exp_unit(rate, below)


def _bernoulli_exp_unit(rate: Fraction, below: Draw) -> bool:
  """The same for rates up to 1: the alternating series, term by term."""
  count = 1
  while bernoulli(rate / count, below):
    count += 1
  return count % 2 == 1


def discrete_laplace(scale: Fraction, below: Draw = secrets.randbelow) -> int:
  """Integers of probability proportional to e^(-|z| / scale), scale > 0.

  The two-sided geometric distribution; its variance is 2 a / (1 - a)^2 with
  a = e^(-1 / scale).

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
    magnitude = (rest + whole * count) // divisor
    negative = bool(below(2))
    if magnitude or not negative:
      return -magnitude if negative else magnitude


def discrete_gaussian(variance: Fraction,
                      below: Draw = secrets.randbelow) -> int:
  """Integers of probability proportional to e^(-z^2 / (2 variance)).

  Added to an integer of sensitivity D it is D^2 / (2 variance)-zCDP, as the
  continuous one is (Theorem 4 of the source), and costs no more.
  """
  if variance <= 0:
    raise ValueError(f'variance must be positive, got {variance}')
  scale = Fraction(math.isqrt(variance.numerator // variance.denominator) + 1)
  while True:
    draw = discrete_laplace(scale, below)
    gap = abs(draw) - variance / scale
    if bernoulli_exp(gap * gap / (2 * variance), below):
      return draw


def choice(weights: Sequence[int], scores: Sequence[int], rate: Fraction,
           below: Draw = secrets.randbelow) -> int:
  """An index of probability proportional to weight * e^(-rate * score).

  By inversion of a uniform number whose bits are drawn when they are asked
  for: sums are known between two integers, and if those leave the answer open,
  both are made finer. It ends with probability 1, and the law has no error.

  Args:
    weights: [m] integers >= 0, one of them positive.
    scores: [m] integers.
    rate: positive.
    below: uniform draws.
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
    before = upper[index - 1] if index else 0
    if index < len(lower) and uniform * lower[-1] >= before << bits:
      return index


def _cumulative(weights: Sequence[int], scores: Sequence[int], rate: Fraction,
                bits: int) -> tuple[list[int], list[int]]:
  """Running sums of the weights times 2^bits, from below and above."""
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
  """Integers below and above 2^bits e^-rate, at most a few apart; rate >= 0.

  Neighbouring partial sums of the alternating series for e^(-rate / 2^k), of
  which one is too small and one too large, squared k times.
  """
  halvings = math.ceil(rate).bit_length()
  work = bits + 2 * halvings + 8
  small = rate / 2**halvings
  total, term, count = Fraction(0), Fraction(1), 0
  while abs(term) * 2**work > 1 or count % 2:
    total += term
    count += 1
    term *= -small / count
  # The next term is not negative: the sum so far is too small by less.
  low = math.floor(total * 2**work)
  high = math.ceil((total + term) * 2**work)
  for _ in range(halvings):
    low, high = low * low >> work, -(-high * high >> work)
  extra = work - bits
  return low >> extra, -(-high >> extra)
