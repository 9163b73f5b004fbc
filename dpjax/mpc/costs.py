"""Bits that a protocol sends, by formula; `evaluation` counts them.

n owners, m servers, numbers modulo 2^k, seeds of lambda = 128 bits, |B| points
of N = 2^L. Source: thesis 003, sections 6.4 and 6.6 (Figure 6.6.6); corrected,
item EC-13, EC-21: keys go to every server, so that m stands with n, and with m
on both sides there is no condition on |B| in what the thesis prints (C17).
"""

import math

from dpjax import errors
from dpjax.mpc import comparison
from dpjax.mpc import prg
from dpjax.mpc.scheme import Scheme


def value_bits(num_owners: int, noise_stddev: float) -> int:
  """The least k for which no noisy rank wraps, within 12 deviations."""
  errors.check_at_least('num_owners', num_owners, 1)
  errors.check_non_negative('noise_stddev', noise_stddev)
  return math.ceil(math.log2(num_owners + 12 * noise_stddev)) + 1


def check_width(scheme: Scheme, num_owners: int, noise_stddev: float) -> None:
  """Refuses a scheme whose numbers may wrap: `value_bits`."""
  needed = value_bits(num_owners, noise_stddev)
  if scheme.modulus.bit_length() - 1 < needed:
    raise ValueError(
        f'{num_owners} owners and noise of deviation {noise_stddev:.6g} take '
        f'numbers of {needed} bits, got modulus {scheme.modulus}')


def collecting(scheme: Scheme, num_owners: int) -> int:
  """Bits that owners send, once: n m K for comparison keys of K bits."""
  return num_owners * scheme.bits_per_owner


def answering(scheme: Scheme, num_points: int) -> int:
  """Bits of |B| answers: |B| (m ceil(log2 N) + m k).

  A point goes to every server, and a number of each to whoever opens. Where one
  server opens for the client it is as many: (m - 1) k + k.
  """
  index = (scheme.num_thresholds - 1).bit_length()
  return num_points * scheme.num_servers * (
      index + scheme.num_classes * scheme.answer_bits)


def pointwise(num_owners: int, num_points: int, *, num_servers: int,
              bits: int, masked: bool) -> int:
  """Bits that owners send if they are asked for every point anew.

  Args:
    num_owners: n.
    num_points: |B|.
    num_servers: m, to each of which a share goes.
    bits: k, of a share.
    masked: whether one sum of masked numbers is sent instead of m shares; what
      owners agreed on to make masks is not counted.
  """
  return num_owners * num_points * bits * (1 if masked else num_servers)


def one_shot(num_owners: int, num_points: int, *, num_servers: int,
             bits: int) -> int:
  """Bits of shares of all |B| answers at once, from seeds but for the last."""
  return num_owners * (num_points * bits + (num_servers - 1) * prg.SEED_BITS)


def break_even(depth: int, bits: int, *, against: str) -> float:
  """Points |B| from which comparison keys of two servers send less.

  Args:
    depth: L.
    bits: k.
    against: 'shares', 'masked' or 'one_shot'.
  """
  key = comparison.key_bits(depth, bits)
  errors.check_choice('against', against, ('shares', 'masked', 'one_shot'))
  return {'shares': key, 'masked': 2 * key,
          'one_shot': 2 * key - prg.SEED_BITS}[against] / bits


def earlier_key_bits(depth: int, bits: int) -> int:
  """Of a key as in 2016: about 4 L (lambda + 1) + L k + lambda.

  As Boyle et al. 2021 quote it; the thesis builds on this one.
  """
  return 4 * depth * (prg.SEED_BITS + 1) + depth * bits + prg.SEED_BITS
