"""Additive secret sharing modulo 2^k: shares that add up to the secret.

All parties are needed; any fewer learn nothing, whatever they can compute. In
the shorter form all parties but the last get a seed, by the assumption of
`prg`. Sums of shares are shares of sums. Source: thesis 003, section 4.2.1;
item EC-16.
"""

import numpy as np

from dpjax.mpc import prg

_CHUNK = 2**20  # numbers that are expanded at once


def mask(value_bits: int) -> np.uint64:
  """2^k - 1; a number modulo 2^k is what it leaves."""
  return np.uint64((1 << value_bits) - 1)


def share(secrets: np.ndarray, *, num_parties: int, value_bits: int,
          source: prg.Source) -> np.ndarray:
  """Shares [parties, ...] of secrets [...], whole numbers of any sign."""
  shares = prg.words(source, (num_parties - 1, *np.shape(secrets)))
  last = np.asarray(secrets).astype(np.uint64) - shares.sum(0)
  return np.concatenate([shares, last[np.newaxis]]) & mask(value_bits)


def combine(shares: np.ndarray, *, value_bits: int) -> np.ndarray:
  """The secrets [...] of shares [parties, ...].

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
  """The int64 from -2^(k - 1) to 2^(k - 1) - 1 that equal values mod 2^k."""
  spare = np.uint64(64 - value_bits)
  return (values << spare).view(np.int64) >> spare.astype(np.int64)


def share_by_seeds(secrets: np.ndarray, *, num_parties: int, value_bits: int,
                   source: prg.Source) -> tuple[np.ndarray, np.ndarray]:
  """Seeds [parties - 1, n, 2] and the words [n, d] of the last party."""
  seeds = prg.words(source, (num_parties - 1, len(secrets), 2))
  rest = np.asarray(secrets).astype(np.uint64)
  for part in seeds:
    rest = rest - expand(part, rest.shape[1], value_bits=value_bits)
  return seeds, rest & mask(value_bits)


def expand(seeds: np.ndarray, length: int, *, value_bits: int) -> np.ndarray:
  """The shares [n, length] of who got seeds [n, 2]."""
  word = np.uint32 if value_bits <= 32 else np.uint64
  blocks = -(-length * np.dtype(word).itemsize // 16)
  shape = (len(seeds), blocks, 2)
  expanded = prg.expand(np.broadcast_to(seeds[:, np.newaxis], shape),
                        np.arange(blocks))
  numbers = expanded.reshape(len(seeds), 2 * blocks).view(word)[:, :length]
  return numbers.astype(np.uint64) & mask(value_bits)


def sum_of_expanded(seeds: np.ndarray, length: int, *,
                    value_bits: int) -> np.ndarray:
  """The sum [length] of `expand` over all seeds, some at a time."""
  total = np.zeros(length, np.uint64)
  step = max(1, _CHUNK // length)
  for start in range(0, len(seeds), step):
    total += expand(seeds[start:start + step], length,
                    value_bits=value_bits).sum(0)
  return total & mask(value_bits)
