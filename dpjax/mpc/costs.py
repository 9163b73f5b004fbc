"""Communication costs of protocols in bits, by formula; nothing is run.

Notation: n owners, m servers, numbers modulo 2^k, seeds of lambda = 128 bits,
|B| query points out of N = 2^L thresholds. Source: Barczewski (2025, sections
6.4 and 6.6, Figure 6.6.6; items EC-13, EC-21), corrected: every server gets a
key, so the owners' cost is proportional to n m (erratum C17 of
experiments/ERRATA.md).
"""

import math

from dpjax import errors
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
