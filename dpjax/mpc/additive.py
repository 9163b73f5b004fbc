"""Additive secret sharing modulo 2^k: shares that add up to the secret.

All parties together recover the secret; any smaller set learns nothing, even
with unlimited computing power. In the shorter form, `share_by_seeds`, every
party but the last gets a seed instead of a share, and secrecy rests on the
assumption of `prg`. Sums of shares are shares of sums. Source: Barczewski
(2025, section 4.2.1; item EC-16).
"""

import numpy as np

from dpjax.mpc import prg

_CHUNK = 2**20  # numbers expanded at once; bounds memory


def mask(value_bits: int) -> np.uint64:
  """Returns the bit mask 2^k - 1, so that x & mask is x modulo 2^k."""
  return np.uint64((1 << value_bits) - 1)


def share(secrets: np.ndarray, *, num_parties: int, value_bits: int,
          source: prg.Source) -> np.ndarray:
  """Splits secrets into additive shares modulo 2^k.

  Args:
    secrets: integers [...] of any sign.
    num_parties: how many shares to make of each secret.
    value_bits: k, 1 to 64.
    source: randomness; all secrecy rests on it.

  Returns:
    Shares [parties, ...] uint64 below 2^k.
  """
  # uint64 arithmetic wraps modulo 2^64, of which 2^k is a divisor, so masking
  # once at the end gives the same result as reducing at each step.
  shares = prg.words(source, (num_parties - 1, *np.shape(secrets)))
  # Any m - 1 of the m shares are uniform and independent of the secret.
  last = np.asarray(secrets).astype(np.uint64) - shares.sum(0)
  return np.concatenate([shares, last[np.newaxis]]) & mask(value_bits)


def combine(shares: np.ndarray, *, value_bits: int) -> np.ndarray:
  """Returns the secrets [...] modulo 2^k from the shares [parties, ...].

  Examples:
    >>> import os
    >>> from dpjax.mpc import additive
    >>> shares = additive.share([5, -7], num_parties=3, value_bits=32,
    ...                         source=os.urandom)
    >>> additive.centred(additive.combine(shares, value_bits=32), value_bits=32)
    array([ 5, -7])
  """
  return shares.sum(0) & mask(value_bits)


def centred(values: np.ndarray, *, value_bits: int) -> np.ndarray:
  """Returns the signed int64 in [-2^(k-1), 2^(k-1)) equal to values mod 2^k."""
  # The left shift moves bit k - 1 to the sign bit; the arithmetic right shift
  # of the signed view then extends the sign.
  spare = np.uint64(64 - value_bits)
  return (values << spare).view(np.int64) >> spare.astype(np.int64)


def share_by_seeds(secrets: np.ndarray, *, num_parties: int, value_bits: int,
                   source: prg.Source) -> tuple[np.ndarray, np.ndarray]:
  """Splits secrets so that all parties but the last get a short seed.

  Args:
    secrets: integers [n, d] of any sign.
    num_parties: how many parties hold a part.
    value_bits: k, 1 to 64.
    source: randomness of the seeds.

  Returns:
    Seeds [parties - 1, n, 2] uint64, and the share [n, d] of the last party.
  """
  seeds = prg.words(source, (num_parties - 1, len(secrets), 2))
  rest = np.asarray(secrets).astype(np.uint64)
  for part in seeds:
    rest = rest - expand(part, rest.shape[1], value_bits=value_bits)
  return seeds, rest & mask(value_bits)


def expand(seeds: np.ndarray, length: int, *, value_bits: int) -> np.ndarray:
  """Expands seeds [n, 2] into the shares [n, length] that they stand for."""
  # A block of 16 bytes gives four shares of up to 32 bits, else two.
  word = np.uint32 if value_bits <= 32 else np.uint64
  blocks = -(-length * np.dtype(word).itemsize // 16)
  shape = (len(seeds), blocks, 2)
  expanded = prg.expand(np.broadcast_to(seeds[:, np.newaxis], shape),
                        np.arange(blocks))
  numbers = expanded.reshape(len(seeds), 2 * blocks).view(word)[:, :length]
  # A uniform word is uniform modulo 2^k, too.
  return numbers.astype(np.uint64) & mask(value_bits)


def sum_of_expanded(seeds: np.ndarray, length: int, *,
                    value_bits: int) -> np.ndarray:
  """Returns the sum [length] of `expand` over all seeds [n, 2], in chunks."""
  total = np.zeros(length, np.uint64)
  step = max(1, _CHUNK // length)
  for start in range(0, len(seeds), step):
    total += expand(seeds[start:start + step], length,
                    value_bits=value_bits).sum(0)
  return total & mask(value_bits)
