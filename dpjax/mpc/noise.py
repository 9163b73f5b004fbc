"""Discrete Laplace noise as a sum of parts that the parties contribute.

Discrete Laplace noise, P(z) proportional to e^(-|z| / scale), is the difference
of two geometric numbers. A geometric number is the sum of m Polya numbers
(negative binomial of shape 1/m). Of P parties, T may collude. Each party draws
the difference of two Polya numbers with m = P - T: the parts of any P - T
parties add up to the curator's noise, and the other T parts are extra noise.
`joint_noise` is for two servers and has no extra noise.

Each number is drawn from a table of probabilities with 64 random bits. The
distribution is within `total_variation` of the ideal one, which adds
(1 + e^epsilon) times as much to delta. A key determines all draws, so a party
that is asked again adds the same noise. Source: item EC-08.
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
"""Largest scale of the noise; tables have about fifty entries per unit of it.
"""

_WORK = 160  # bits of the fixed-point weights
_TAIL = 70   # the tail cut off has probability at most 2^-70


@dataclasses.dataclass(frozen=True, kw_only=True)
class Contributions:
  """Noise to which each party contributes a part.

  Attributes:
    scale: scale of the discrete Laplace noise that any P - T parties add.
    num_parties: P.
    num_colluding: T < P, how many parties may pool what they know.
  """
  scale: Fraction
  num_parties: int
  num_colluding: int

  def __post_init__(self) -> None:
    check_scale(self.scale)
    errors.check_at_least('num_colluding', self.num_colluding, 0)
    errors.check_at_least('num_parties', self.num_parties,
                          self.num_colluding + 1)

  @property
  def shape(self) -> Fraction:
    """Returns the shape 1 / (P - T) of the negative binomial numbers."""
    return Fraction(1, self.num_parties - self.num_colluding)

  @property
  def variance(self) -> float:
    """Returns the variance of the total noise: P / (P - T) times a curator's.
    """
    return float(self.shape * self.num_parties) * variance(self.scale)

  @property
  def total_variation(self) -> float:
    """Returns a bound on the total variation from the ideal distribution.

    The bound is for the noise of one number, summed over all parties.
    """
    # Each entry is off by less than 2^-64; a party draws two numbers.
    entries = len(polya_table(self.scale, self.shape)) + 1
    return 2 * self.num_parties * (entries * 2.0**-64 + 2.0**-_TAIL)

  def draw(self, key: bytes, count: int) -> np.ndarray:
    """Returns a party's part, int64 [count]; equal keys give equal parts.

    Args:
      key: 32 secret random bytes.
      count: number of noise variables.
    """
    drawn = prg.words(prg.Stream(key, label='noise'), (2, count))
    table = polya_table(self.scale, self.shape)
    first, second = np.searchsorted(table, drawn, side='right')
    return first - second


def check_scale(scale: Fraction) -> None:
  """Raises a ValueError unless 0 < scale <= `LARGEST_SCALE`."""
  if not 0 < scale <= LARGEST_SCALE:
    raise ValueError(f'scale must lie in (0, {LARGEST_SCALE}], got {scale}')


def variance(scale: Fraction) -> float:
  """Returns the variance of discrete Laplace noise, 2 a / (1 - a)^2.

  Here a = e^(-1 / scale); the code uses the equal form 1 / (2 sinh^2(1 / (2
  scale))).
  """
  return 0.5 / math.sinh(0.5 / float(scale))**2


@functools.lru_cache(maxsize=16)
def polya_table(scale: Fraction, shape: Fraction) -> np.ndarray:
  """Returns P(X <= x) 2^64, rounded down, of a Polya number X; uint64.

  P(x) is proportional to C(shape + x - 1, x) e^(-x / scale), shape at most 1.
  A uniform 64-bit word is turned into X by counting the entries not above it.
  Weights are integers in fixed point, and each is at most e^(-1 / scale) times
  the one before, because (shape + x) / (x + 1) <= 1.
  """
  ratio = exact.exp_between(1 / Fraction(scale), _WORK)[0]
  gap = (1 << _WORK) - ratio
  weight, sums, x = 1 << _WORK, [1 << _WORK], 0
  # The remaining tail is at most this geometric series.
  while weight * ratio // gap > sums[-1] >> _TAIL:
    weight = weight * ratio * (shape.numerator + x * shape.denominator) // (
        ((x + 1) * shape.denominator) << _WORK)
    x += 1
    sums.append(sums[-1] + weight)
  table = np.asarray([(part << 64) // sums[-1] for part in sums[:-1]],
                     np.uint64)
  table.flags.writeable = False
  return table
