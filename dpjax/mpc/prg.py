"""Random bits: from the operating system, from a seed, or from a stream key.

A seed is a block of 128 bits, stored as two uint64 words in memory order. One
seed expands into many blocks,

  expand(s, i) = AES(s xor i) xor s xor i,

with AES-128 under one public key (Matyas, Meyer and Oseas, 1985). This is a
pseudorandom generator if AES under that key behaves like a random permutation
(Guo, Katz, Wang and Yu, 2020): a distinguisher that evaluates AES q times on m
blocks has an advantage of about q m / 2^128. Because the key is fixed, one call
encrypts all seeds of all owners.

Values that must be drawn again identically come from `Stream`, which is
ChaCha20 (RFC 8439). Both ciphers come from the package `cryptography`. Source:
Barczewski (2025, section 4.2; item EC-15).
"""

from collections.abc import Callable
import os
import types

import numpy as np

SEED_BITS = 128
"""lambda: length of a seed and security level, in bits."""

Source = Callable[[int], bytes]
"""Function n -> n random bytes: `system`, or a `Stream`."""

system: Source = os.urandom
"""Randomness of the operating system, on which all secrecy rests."""

# The first fractional digits of pi: a nothing-up-my-sleeve key.
_PUBLIC_KEY = bytes.fromhex('243f6a8885a308d313198a2e03707344')
_SLACK = 15  # extra bytes that `update_into` demands of its buffer


def _ciphers() -> types.ModuleType:
  """Imports the ciphers, or says how to install them."""
  try:
    from cryptography.hazmat.primitives import ciphers
    from cryptography.hazmat.primitives.ciphers import algorithms  # noqa: F401
    from cryptography.hazmat.primitives.ciphers import modes  # noqa: F401
  except ImportError as error:
    raise ImportError('multi-party computation needs the extra `mpc`: pip '
                      'install dpjax[mpc]') from error
  return ciphers


def aes_blocks(key: bytes, blocks: np.ndarray) -> np.ndarray:
  """Encrypts contiguous blocks [..., 2] uint64 by AES with a 16-byte key."""
  buffer = np.empty(blocks.nbytes + _SLACK, np.uint8)
  ciphers = _ciphers()
  # ECB applies AES to each block by itself, as the construction needs.
  cipher = ciphers.Cipher(ciphers.algorithms.AES(key),
                          ciphers.modes.ECB()).encryptor()
  cipher.update_into(blocks.reshape(-1).view(np.uint8).data, buffer.data)
  return buffer[:blocks.nbytes].view(np.uint64).reshape(blocks.shape)


def expand(seeds: np.ndarray, place: int | np.ndarray) -> np.ndarray:
  """Expands seeds [..., 2] into their pseudorandom blocks number `place`.

  Args:
    seeds: [..., 2] uint64.
    place: number of the block, one for all seeds or one for each [...].

  Returns:
    Blocks [..., 2] uint64.
  """
  placed = np.array(seeds, order='C')
  placed[..., 0] ^= np.uint64(place)
  blocks = aes_blocks(_PUBLIC_KEY, placed)
  blocks ^= placed
  return blocks


def words(source: Source, shape: tuple[int, ...]) -> np.ndarray:
  """Returns uniform uint64 words of this shape."""
  count = int(np.prod(shape, dtype=np.int64))
  # Little-endian on every machine, so equal keys give equal words.
  return np.frombuffer(source(8 * count), '<u8').astype(np.uint64).reshape(
      shape)


class Stream:
  """A `Source` determined by a key, for values that must be drawn again."""

  def __init__(self, key: bytes, *, label: str = ''):
    """Starts the stream of a key and a label.

    Streams of other keys or labels are computationally independent of it.

    Args:
      key: 32 bytes, kept secret from all who must not know the draws.
      label: purpose of the stream, at most 12 bytes.
    """
    if len(key) != 32 or len(label.encode()) > 12:
      raise ValueError('a stream needs a key of 32 bytes and a label of at '
                       f'most 12, got {len(key)} and {len(label.encode())}')
    # A block counter of 4 bytes, then the label as the nonce of 12 bytes.
    start = bytes(4) + label.encode().ljust(12, b'\0')
    ciphers = _ciphers()
    self._cipher = ciphers.Cipher(ciphers.algorithms.ChaCha20(key, start),
                                  None).encryptor()

  def __call__(self, length: int) -> bytes:
    """Returns the next `length` bytes of the stream."""
    return self._cipher.update(bytes(length))
