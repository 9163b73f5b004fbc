"""Discrete Laplace noise shared by two servers, neither of which knows it.

The distribution is that of a trusted curator's noise. The digits D_j in base B
of a geometric number D = sum of B^j D_j are independent, with P(D_j >= g) =
(A^g - A^B) / (1 - A^B), where A = e^(-B^j / scale). For u uniform on 0, ...,
2^w - 1 and T_g = 2^w P(D_j >= g), rounded, D_j is the number of g with u < T_g.

No party knows u = z - r modulo 2^w. A dealer draws r and gives the servers keys
of x -> [x < r] (`comparison`). Once both servers have their keys, they toss z
jointly and keep it from the dealer. Each server then computes locally

  [u < T] = [(z - T mod 2^w) < r] - [z < r] + [z < T],

which gives it shares of each digit, of the geometric number, and of the
difference of two geometric numbers: discrete Laplace noise.

If all follow the protocol, the dealer knows r only and a server knows z and a
key only; neither learns anything about u. A dealer who colludes with a server
learns all the noise, so choose a dealer who would not, such as a data owner.
A dealer who breaks the protocol can deal zero noise undetected. Source:
item EC-08; Boyle et al. (2021) for the keys.
"""

from collections.abc import Sequence
import dataclasses
import fractions
import functools
import hashlib
import hmac
import math

import numpy as np

from dpjax import errors
from dpjax.mpc import additive
from dpjax.mpc import comparison
from dpjax.mpc import noise
from dpjax.mpc import packing
from dpjax.mpc import prg
from dpjax.privacy import exact

Fraction = fractions.Fraction

# A smaller base means more digits, hence longer messages; a larger base means
# more comparisons per digit.
_LARGEST_BASE = 32
_TAIL = 64          # a number needs more digits with probability 2^-64
_CHUNK = 2**12      # keys evaluated at once; bounds memory


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointNoise:
  """Shares of discrete Laplace noise: P(z) proportional to e^(-|z| / scale).

  Attributes:
    scale: scale of the noise, sensitivity / epsilon.
    count: number of noise variables.
    value_bits: k; shares are modulo 2^k.
    coin_bits: w; probabilities of digits are rounded to multiples of 2^-w.
  """
  scale: Fraction
  count: int
  value_bits: int = 32
  coin_bits: int = 64

  def __post_init__(self) -> None:
    noise.check_scale(self.scale)
    errors.check_at_least('count', self.count, 1)
    for name in ('value_bits', 'coin_bits'):
      if errors.check_at_least(name, getattr(self, name), 1) > 64:
        raise ValueError(f'{name} must be at most 64')

  @property
  def output_bound(self) -> int:
    """Returns a number that a geometric one reaches with probability < 2^-64.
    """
    # P(D >= g) is e^(-g / scale); the last 1 covers rounding of floats.
    return math.ceil(_TAIL * math.log(2) * float(self.scale)) + 1

  @property
  def num_digits(self) -> int:
    """Returns J, the fewest digits for which a base of 32 suffices."""
    # Without 1e-9, rounding could carry log_32(32^J) = J up to J + 1.
    return math.ceil(math.log(self.output_bound, _LARGEST_BASE) - 1e-9)

  @property
  def base(self) -> int:
    """Returns B, the smallest base with B^J >= `output_bound`."""
    base = 2
    while base**self.num_digits < self.output_bound:
      base += 1
    return base

  @property
  def num_keys(self) -> int:
    """Returns the keys per server: one per digit of two geometric numbers."""
    return self.count * 2 * self.num_digits

  @property
  def bits(self) -> int:
    """Returns the bits that the dealer sends each server, without padding."""
    return self.num_keys * comparison.key_bits(self.coin_bits, self.value_bits)

  @property
  def total_variation(self) -> float:
    """Returns a bound on the total variation from the ideal distribution.

    The bound is for all noise variables jointly: rounding of each probability
    by at most 2^-(w + 1), and the cut tail, for two geometric numbers each.
    """
    digits = self.num_digits * (self.base - 1) * 2.0**-(self.coin_bits + 1)
    return self.count * 2 * (digits + 2.0**-_TAIL)

  @functools.cached_property
  def thresholds(self) -> np.ndarray:
    """Returns 2^w P(D_j >= g), rounded, for g = 1, ..., B - 1; [J, B - 1]."""
    # At 160 bits the errors of the exponentials are far below 2^-w.
    rows, bits = [], 160
    for digit in range(self.num_digits):
      rate = Fraction(self.base**digit) / Fraction(self.scale)
      last, *powers = (exact.exp_between(rate * power, bits)[0]
                       for power in (self.base, *range(1, self.base)))
      whole = (1 << bits) - last
      # floor((floor(2 q) + 1) / 2) rounds q to the nearest integer.
      rows.append([(((power - last) << (self.coin_bits + 1)) // whole + 1) // 2
                   for power in powers])
    return np.asarray(rows, np.uint64)

  def deal(self, *, source: prg.Source) -> list[np.ndarray]:
    """Returns the dealer's messages to both servers, uint8 [keys, bytes] each.
    """
    secrets = prg.words(source, (self.num_keys,)) >> np.uint64(
        64 - self.coin_bits)
    pair = comparison.generate(
        secrets, np.ones(self.num_keys, np.int64), depth=self.coin_bits,
        value_bits=self.value_bits, source=source)
    return [keys.to_bytes() for keys in pair]

  def share(self, server: int, dealt: np.ndarray, toss: bytes) -> np.ndarray:
    """Returns a server's share of the noise, uint64 [count] modulo 2^k.

    Args:
      server: 0 or 1.
      dealt: the dealer's message to this server, uint8 [keys, bytes].
      toss: the 32 bytes that both servers tossed (`coin`): the same for both,
        and unknown to the dealer.

    Raises:
      ValueError: if the message has the wrong shape or nonzero padding bits.
    """
    length = packing.num_bytes(comparison.key_bits(self.coin_bits,
                                                   self.value_bits))
    if dealt.shape != (self.num_keys, length):
      raise ValueError(f'dealt must be {self.num_keys} rows of {length} bytes, '
                       f'as the dealer sent them, got shape {dealt.shape}')
    drawn = prg.words(prg.Stream(toss, label='coin'), (self.num_keys,))
    coins = drawn >> np.uint64(64 - self.coin_bits)
    # Keys are in the order [variable, geometric number, digit].
    limits = self.thresholds[np.arange(self.num_keys) % self.num_digits]
    digits = []
    for start in range(0, self.num_keys, _CHUNK):
      part = slice(start, start + _CHUNK)
      keys = comparison.from_bytes(dealt[part], party=server,
                                   depth=self.coin_bits,
                                   value_bits=self.value_bits)
      digits.append(counts_below(keys, coins[part], limits[part]))
    places = np.asarray([self.base**digit for digit in range(self.num_digits)],
                        np.uint64)
    numbers = (np.concatenate(digits).reshape(self.count, 2, -1) *
               places).sum(-1)
    return (numbers[:, 0] - numbers[:, 1]) & additive.mask(self.value_bits)


def counts_below(keys: comparison.Keys, coins: np.ndarray,
                 limits: np.ndarray) -> np.ndarray:
  """Returns shares [c] of the number of limits above u = z - r modulo 2^w.

  Args:
    keys: one server's keys of x -> [x < r], of depth w.
    coins: z [c], below 2^w.
    limits: T [c, g], below 2^w.
  """
  coins = coins[:, np.newaxis]
  # uint64 wraps modulo 2^64, so masking z - T reduces it modulo 2^w.
  points = np.concatenate([coins, coins - limits], 1)
  below = comparison.evaluate(keys, points & additive.mask(keys.depth))
  shares = below[:, 1:].sum(1) - np.uint64(limits.shape[1]) * below[:, 0]
  # [z < T] is known to both servers, so server 0 alone adds it.
  if keys.party == 0:
    shares += (coins < limits).sum(1).astype(np.uint64)
  return shares & additive.mask(keys.value_bits)


def commitment(seed: bytes, server: int) -> bytes:
  """Returns the digest by which a server commits to its seed of 32 bytes."""
  if len(seed) != 32:
    raise ValueError(f'seed must have 32 bytes, got {len(seed)}')
  # The number stops a server from sending a copy of another's digest.
  return hashlib.sha256(b'dpjax commitment' + bytes([server]) + seed).digest()


def coin(seeds: Sequence[bytes], commitments: Sequence[bytes]) -> bytes:
  """Returns a joint coin toss of the servers: 32 bytes that none can bias.

  Every server commits to its seed and reveals it once it has all commitments.

  Args:
    seeds: the revealed seeds, one per server.
    commitments: their `commitment`s, received before any seed was revealed.

  Raises:
    ValueError: if a seed does not match its commitment; names the server.
  """
  for server, (seed, digest) in enumerate(
      zip(seeds, commitments, strict=True)):
    if not hmac.compare_digest(commitment(seed, server), digest):
      raise ValueError(f'server {server} revealed another seed than it '
                       'committed to')
  # One random seed is enough, as all seeds were fixed before it was seen.
  return hashlib.sha256(b'dpjax coin' + b''.join(seeds)).digest()
