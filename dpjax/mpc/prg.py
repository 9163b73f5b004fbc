"""Pseudorandom bits: from the system, from a seed, from a key and a place.

Seeds are blocks of 128 bits, two uint64 words in the order of memory. From one
seed come many blocks,

  expand(s, i) = AES(s xor i) xor s xor i,

with AES-128 under one public key (Matyas, Meyer and Oseas 1985): a generator if
AES under that key is as good as a random permutation, the assumption of
Guo, Katz, Wang and Yu 2020. A distinguisher that evaluates AES q times on m
blocks gains about q m / 2^128. One call enciphers all seeds of all owners.

What is drawn twice the same comes from `Stream`, ChaCha20 (RFC 8439). Both are
of the package `cryptography`. Source: thesis 003, section 4.2; item EC-15.
"""

from collections.abc import Callable
import os

import numpy as np

SEED_BITS = 128
"""lambda: length of a seed, and the level of security."""

Source = Callable[[int], bytes]
"""number of bytes -> that many random ones: `system`, or a `Stream`."""

system: Source = os.urandom
"""Of the operating system; what secrecy rests on."""

# The first digits of pi after the point: a key with nothing up its sleeve.
_PUBLIC_KEY = bytes.fromhex('243f6a8885a308d313198a2e03707344')
_SLACK = 15  # bytes that the cipher wants to have left


def _ciphers():
  """The module of ciphers, where the extra is installed."""
  try:
    from cryptography.hazmat.primitives import ciphers
    from cryptography.hazmat.primitives.ciphers import algorithms  # noqa: F401
    from cryptography.hazmat.primitives.ciphers import modes  # noqa: F401
  except ImportError as error:
    raise ImportError('several parties need the extra `mpc`: pip install '
                      'dpjax[mpc]') from error
  return ciphers


def aes_blocks(key: bytes, blocks: np.ndarray) -> np.ndarray:
  """AES of contiguous blocks [..., 2] uint64 under a key of 16 bytes."""
  buffer = np.empty(blocks.nbytes + _SLACK, np.uint8)
  ciphers = _ciphers()
  cipher = ciphers.Cipher(ciphers.algorithms.AES(key),
                          ciphers.modes.ECB()).encryptor()
  cipher.update_into(blocks.reshape(-1).view(np.uint8).data, buffer.data)
  return buffer[:blocks.nbytes].view(np.uint64).reshape(blocks.shape)


def expand(seeds: np.ndarray, place: int | np.ndarray) -> np.ndarray:
  """The blocks [..., 2] of seeds [..., 2] at a place, or at one [...] each."""
  placed = np.array(seeds, order='C')
  placed[..., 0] ^= np.uint64(place)
  blocks = aes_blocks(_PUBLIC_KEY, placed)
  blocks ^= placed
  return blocks


def words(source: Source, shape: tuple[int, ...]) -> np.ndarray:
  """Uniform uint64 of this shape."""
  count = int(np.prod(shape, dtype=np.int64))
  return np.frombuffer(source(8 * count), '<u8').astype(np.uint64).reshape(
      shape)


class Stream:
  """A `Source` that a key determines, for what has to be drawn twice."""

  def __init__(self, key: bytes, *, label: str = ''):
    """Starts the stream of a key and a label; others have nothing of it.

    Args:
      key: 32 bytes, secret to all that must not know what is drawn.
      label: what it is for, at most 12 bytes.
    """
    if len(key) != 32 or len(label.encode()) > 12:
      raise ValueError('a stream takes a key of 32 bytes and a label of at '
                       f'most 12, got {len(key)} and {len(label.encode())}')
    start = bytes(4) + label.encode().ljust(12, b'\0')
    ciphers = _ciphers()
    self._cipher = ciphers.Cipher(ciphers.algorithms.ChaCha20(key, start),
                                  None).encryptor()

  def __call__(self, length: int) -> bytes:
    """The next bytes of the stream."""
    return self._cipher.update(bytes(length))
