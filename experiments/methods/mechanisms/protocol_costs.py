"""Communication costs, in bits, of protocols that comparison keys replace.

`dpjax.mpc.costs` has those of the library's own protocol. Notation: n owners, m
servers, numbers of k bits, seeds of lambda = 128 bits, |B| query points out of
2^L thresholds. Source: Barczewski (2025, sections 6.4 and 6.6, Figure 6.6.6;
items EC-13, EC-21), corrected: |B| stands on both sides of the printed
condition and cancels (erratum C17 of experiments/ERRATA.md).
"""

from dpjax import errors
from dpjax.mpc import comparison
from dpjax.mpc import prg


def pointwise(num_owners: int, num_points: int, *, num_servers: int,
              bits: int, masked: bool) -> int:
  """Returns the bits that owners send if they answer each point separately.

  Args:
    num_owners: n, the number of owners.
    num_points: |B|, the number of query points.
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
    depth: L, where there are 2^L thresholds.
    bits: k, the length of a number in bits.
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
