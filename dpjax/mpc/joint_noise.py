"""Noise of two servers that neither of them knows, of the curator's law.

A geometric number is written with digits, D = sum of B^j D_j, which are
independent, P(D_j >= g) = (A^g - A^B) / (1 - A^B) with A = e^(-B^j / scale).
With u uniform from 0 to 2^w - 1 and T_g = 2^w P(D_j >= g), rounded, a digit is
the number of g with u < T_g.

Nobody knows u = z - r modulo 2^w. A dealer draws r and gives the servers keys
of x -> [x < r] (`comparison`); once both have them, the servers toss z
together, and keep it. Each adds up, without another word,

  [u < T] = [(z - T mod 2^w) < r] - [z < r] + [z < T],

and has a share of the digit, of the number, and of the difference of two
numbers: discrete Laplace noise.

Who learns what, if all follow the protocol: the dealer r, and so nothing of u;
a server z and a key, and so nothing of u. A dealer and a server that tell each
other all they know know all noise: the dealer is to be somebody who would not,
an owner of records for one. A dealer that breaks the protocol can deal noise
that is not there, unseen. Source: item EC-08; Boyle et al. 2021 for the keys.
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

_LARGEST_BASE = 32  # more digits make longer messages, fewer more comparisons
_TAIL = 64          # a number is beyond all digits with probability 2^-64
_CHUNK = 2**12      # keys that are evaluated at once


@dataclasses.dataclass(frozen=True, kw_only=True)
class JointNoise:
  """Integers of probability proportional to e^(-|z| / scale), as shares.

  Attributes:
    scale: of the noise.
    count: how many numbers.
    value_bits: k; shares are modulo 2^k.
    coin_bits: w; probabilities of digits are rounded to multiples of 2^-w.
  """
  scale: Fraction
  count: int
  value_bits: int = 32
  coin_bits: int = 64

  def __post_init__(self):
    noise.check_scale(self.scale)
    errors.check_at_least('count', self.count, 1)
    for name in ('value_bits', 'coin_bits'):
      if errors.check_at_least(name, getattr(self, name), 1) > 64:
        raise ValueError(f'{name} must be at most 64')

  @property
  def reach(self) -> int:
    """A geometric number is below it but for 2^-64."""
    return math.ceil(_TAIL * math.log(2) * float(self.scale)) + 1

  @property
  def num_digits(self) -> int:
    """J, the fewest of a base that is not large."""
    return math.ceil(math.log(self.reach, _LARGEST_BASE) - 1e-9)

  @property
  def base(self) -> int:
    """B, with B^J >= `reach`."""
    base = 2
    while base**self.num_digits < self.reach:
      base += 1
    return base

  @property
  def num_keys(self) -> int:
    """For each server: one for each digit of two geometric numbers."""
    return self.count * 2 * self.num_digits

  @property
  def bits(self) -> int:
    """Of what the dealer sends to each server, without the end of bytes."""
    return self.num_keys * comparison.key_bits(self.coin_bits, self.value_bits)

  @property
  def total_variation(self) -> float:
    """Of all numbers from their law, at most."""
    digits = self.num_digits * (self.base - 1) * 2.0**-(self.coin_bits + 1)
    return self.count * 2 * (digits + 2.0**-_TAIL)

  @functools.cached_property
  def thresholds(self) -> np.ndarray:
    """2^w P(D_j >= g), g = 1, ..., B - 1, rounded, uint64 [J, B - 1]."""
    found, bits = [], 160
    for digit in range(self.num_digits):
      rate = Fraction(self.base**digit) / Fraction(self.scale)
      last, *powers = (exact.exp_between(rate * power, bits)[0]
                       for power in (self.base, *range(1, self.base)))
      whole = (1 << bits) - last
      found.append([(((power - last) << (self.coin_bits + 1)) // whole + 1) // 2
                    for power in powers])
    return np.asarray(found, np.uint64)

  def deal(self, *, source: prg.Source) -> list[np.ndarray]:
    """The dealer's messages to both servers, uint8 [keys, bytes] each."""
    secrets = prg.words(source, (self.num_keys,)) >> np.uint64(
        64 - self.coin_bits)
    pair = comparison.generate(
        secrets, np.ones(self.num_keys, np.int64), depth=self.coin_bits,
        value_bits=self.value_bits, source=source)
    return [keys.to_bytes() for keys in pair]

  def share(self, server: int, dealt: np.ndarray, toss: bytes) -> np.ndarray:
    """A server's share of the noise, uint64 [count] modulo 2^k.

    Args:
      server: 0 or 1.
      dealt: the dealer's message.
      toss: what both servers tossed, `coin`: the same for both, and not known
        to the dealer.

    Raises:
      ValueError: for a message of another shape, or one no dealer sends.
    """
    length = packing.num_bytes(comparison.key_bits(self.coin_bits,
                                                   self.value_bits))
    if dealt.shape != (self.num_keys, length):
      raise ValueError(f'the dealer sends {self.num_keys} rows of {length} '
                       f'bytes, got an array of shape {dealt.shape}')
    drawn = prg.words(prg.Stream(toss, label='coin'), (self.num_keys,))
    coins = drawn >> np.uint64(64 - self.coin_bits)
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
  """Shares [c] of how many of the limits exceed u = coin - r modulo 2^w.

  Args:
    keys: of comparisons with r, w deep; values are 1.
    coins: z [c], below 2^w.
    limits: [c, g], below 2^w.
  """
  coins = coins[:, np.newaxis]
  points = np.concatenate([coins, coins - limits], 1)
  found = comparison.evaluate(keys, points & additive.mask(keys.depth))
  shares = found[:, 1:].sum(1) - np.uint64(limits.shape[1]) * found[:, 0]
  if keys.party == 0:
    shares += (coins < limits).sum(1).astype(np.uint64)
  return shares & additive.mask(keys.value_bits)


def commitment(seed: bytes, server: int) -> bytes:
  """What a server says of its seed (32 random bytes) before it tells it."""
  if len(seed) != 32:
    raise ValueError(f'seeds have 32 bytes, got {len(seed)}')
  return hashlib.sha256(b'dpjax commitment' + bytes([server]) + seed).digest()


def coin(seeds: Sequence[bytes], commitments: Sequence[bytes]) -> bytes:
  """What servers toss: 32 bytes of which none of them decides anything.

  Every server commits to its seed, and tells it when it knows all commitments.

  Raises:
    ValueError: names the server that told another seed.
  """
  for server, (seed, said) in enumerate(zip(seeds, commitments, strict=True)):
    if not hmac.compare_digest(commitment(seed, server), said):
      raise ValueError(f'server {server} told another seed than it committed '
                       'to')
  return hashlib.sha256(b'dpjax coin' + b''.join(seeds)).digest()
