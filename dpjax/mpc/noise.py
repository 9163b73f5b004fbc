"""Noise of integers that parties bring along: discrete Laplace, by parts.

P(z) proportional to e^(-|z| / scale) is the difference of two geometric
numbers, and a geometric number the sum of m numbers of Polya's law (negative
binomial of shape 1/m). Each of P parties, of which T may tell each other all
they know, draws a difference of two such numbers with m = P - T: what the
others drew adds up to the law of the curator, the rest is noise on top. Two
servers that pay for neither use `joint_noise`.

Numbers are drawn by 64 bits each from a table of probabilities, and differ from
the law by `total_variation`, which counts (1 + e^epsilon) times towards delta.
A key fixes all that is drawn: who is asked again adds the same noise. Source:
item EC-08.
"""

import dataclasses
import fractions
import functools
import math

import numpy as np

from dpjax import errors
from dpjax.mpc import prg
from dpjax.privacy import exact

Fraction = fractions.Fraction

LARGEST_SCALE = 2**14
"""Tables have some fifty times as many entries."""

_WORK = 160  # bits of fixed-point weights
_TAIL = 70   # 2^-70 of the law is cut off


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contributions:
  """Noise of which each party brings a part.

  Attributes:
    scale: of the noise of all parties but `num_colluding`.
    num_parties: P.
    num_colluding: T < P; those who know their own parts may be so many.
  """
  scale: Fraction
  num_parties: int
  num_colluding: int

  def __post_init__(self):
    check_scale(self.scale)
    errors.check_at_least('num_colluding', self.num_colluding, 0)
    errors.check_at_least('num_parties', self.num_parties,
                          self.num_colluding + 1)

  @property
  def shape(self) -> Fraction:
    """Of a party's negative binomial numbers."""
    return Fraction(1, self.num_parties - self.num_colluding)

  @property
  def variance(self) -> float:
    """Of the noise of all parties: P / (P - T) times the curator's."""
    return float(self.shape * self.num_parties) * variance(self.scale)

  @property
  def total_variation(self) -> float:
    """Of all parties' noise of one number from its law, at most."""
    entries = len(polya_table(self.scale, self.shape)) + 1
    return 2 * self.num_parties * (entries * 2.0**-64 + 2.0**-_TAIL)

  def draw(self, key: bytes, count: int) -> np.ndarray:
    """A party's part [count] int64, the same for the same key (32 bytes)."""
    drawn = prg.words(prg.Stream(key, label='noise'), (2, count))
    table = polya_table(self.scale, self.shape)
    first, second = np.searchsorted(table, drawn, side='right')
    return first - second


def check_scale(scale: Fraction) -> None:
  """Refuses scales of noise that tables are not made for."""
  if not 0 < scale <= LARGEST_SCALE:
    raise ValueError(f'scale must lie in (0, {LARGEST_SCALE}], got {scale}')


def variance(scale: Fraction) -> float:
  """Of the discrete Laplace law: 2 a / (1 - a)^2 with a = e^(-1 / scale)."""
  return 0.5 / math.sinh(0.5 / float(scale))**2


@functools.lru_cache(maxsize=16)
def polya_table(scale: Fraction, shape: Fraction) -> np.ndarray:
  """P(X <= x) 2^64, rounded down, x = 0, 1, ..., of Polya's law; uint64.

  P(x) is proportional to C(shape + x - 1, x) e^(-x / scale), shape at most 1.
  A uniform word is the number of entries that do not exceed it. Weights are
  whole numbers and each is at most e^(-1 / scale) times the one before.
  """
  ratio = exact.exp_between(1 / Fraction(scale), _WORK)[0]
  gap = (1 << _WORK) - ratio
  weight, sums, x = 1 << _WORK, [1 << _WORK], 0
  # What is left out is a geometric series at most.
  while weight * ratio // gap > sums[-1] >> _TAIL:
    weight = weight * ratio * (shape.numerator + x * shape.denominator) // (
        ((x + 1) * shape.denominator) << _WORK)
    x += 1
    sums.append(sums[-1] + weight)
  table = np.asarray([(part << 64) // sums[-1] for part in sums[:-1]],
                     np.uint64)
  table.flags.writeable = False
  return table
