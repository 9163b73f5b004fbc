"""Communication costs in bits, by formula; `evaluation` counts the real bits.

Notation: n owners, m servers, numbers modulo 2^k, seeds of lambda = 128 bits,
|B| query points out of N = 2^L thresholds. Source: Barczewski (2025, sections
6.4 and 6.6, Figure 6.6.6; items EC-13, EC-21), corrected: every server gets a
key, so the owners' cost is proportional to n m, and |B| stands on both sides of
the printed condition and cancels (erratum C17 of experiments/ERRATA.md).
"""

import math

from dpjax import errors
from dpjax.mpc import comparison
from dpjax.mpc import prg
from dpjax.mpc.scheme import Scheme


def value_bits(num_owners: int, noise_stddev: float) -> int:
  """Returns the fewest bits k in which no noisy rank wraps around.

  Args:
    num_owners: n, the largest possible rank.
    noise_stddev: standard deviation of the noise of a rank; noise of up to 12
      standard deviations fits.
  """
  errors.check_at_least('num_owners', num_owners, 1)
  errors.check_non_negative('noise_stddev', noise_stddev)
  # One more bit is for the sign, since noise can make a rank negative.
  return math.ceil(math.log2(num_owners + 12 * noise_stddev)) + 1


def check_width(scheme: Scheme, num_owners: int, noise_stddev: float) -> None:
  """Raises a ValueError if noisy ranks may wrap around; see `value_bits`."""
  needed = value_bits(num_owners, noise_stddev)
  # This is k for a modulus of 2^k, and log2 rounded down for a prime.
  if scheme.modulus.bit_length() - 1 < needed:
    raise ValueError(
        f'{num_owners} owners and noise of standard deviation '
        f'{noise_stddev:.6g} need numbers of {needed} bits (value_bits), got '
        f'modulus {scheme.modulus}')


def collecting(scheme: Scheme, num_owners: int) -> int:
  """Returns the bits that all owners send: n m K for comparison keys of K bits.
  """
  return num_owners * scheme.bits_per_owner


def answering(scheme: Scheme, num_points: int) -> int:
  """Returns the bits of |B| answers: |B| (m ceil(log2 N) + m k).

  The client sends each point to every server, and each server sends one number
  back. If one server combines the shares for the client, the sum is the same:
  (m - 1) k + k.
  """
  index = (scheme.num_thresholds - 1).bit_length()
  return num_points * scheme.num_servers * (
      index + scheme.num_classes * scheme.answer_bits)


def pointwise(num_owners: int, num_points: int, *, num_servers: int,
              bits: int, masked: bool) -> int:
  """Returns the bits that owners send if they answer each point separately.

  Args:
    num_owners: n.
    num_points: |B|.
    num_servers: m; each server gets a share.
    bits: k, length of a share.
    masked: True if each owner sends one masked number instead of m shares. The
      set-up of the masks is not counted.
  """
  return num_owners * num_points * bits * (1 if masked else num_servers)


def one_shot(num_owners: int, num_points: int, *, num_servers: int,
             bits: int) -> int:
  """Returns the bits that owners send for all |B| answers at once.

  All servers but the last get a seed in place of the shares.
  """
  return num_owners * (num_points * bits + (num_servers - 1) * prg.SEED_BITS)


def break_even(depth: int, bits: int, *, against: str) -> float:
  """Returns the number of points above which two comparison keys cost less.

  Args:
    depth: L.
    bits: k.
    against: the alternative for two servers: 'shares' (`pointwise`), 'masked'
      (`pointwise` with masks) or 'one_shot'.
  """
  key = comparison.key_bits(depth, bits)
  errors.check_choice('against', against, ('shares', 'masked', 'one_shot'))
  # An owner's two keys cost 2 key bits, the alternatives 2 |B| k, |B| k and
  # |B| k + 128 bits. Each value is the |B| where both costs agree.
  return {'shares': key, 'masked': 2 * key,
          'one_shot': 2 * key - prg.SEED_BITS}[against] / bits


def earlier_key_bits(depth: int, bits: int) -> int:
  """Returns the bits of a 2016 comparison key: 4 L (lambda + 1) + L k + lambda.

  Approximate length of the keys of Boyle, Gilboa and Ishai (2016), as quoted by
  Boyle et al. (2021); Barczewski (2025, section 6.4.2) uses these keys.
  """
  return 4 * depth * (prg.SEED_BITS + 1) + depth * bits + prg.SEED_BITS
