"""Uniform integers from a secret, so that noise can be drawn a second time.

An interrupted release is finished with the same noise, so that nobody gets a
second draw by interrupting it. Whoever has the secret can subtract the noise,
so the secret is destroyed when the answer is on disk.
"""

import hashlib

SECRET_BYTES = 32
# Bytes of a block: many, because each call absorbs the whole key again.
_BLOCK = 2**13


class SecretStream:
  """Draws uniform integers that depend on a secret and a context alone.

  Block i of the stream is SHAKE-256(secret, SHA-256(context), i). The inputs
  have fixed lengths, so no two of them coincide. Without the secret the stream
  is as good as random (SHAKE-256 as a pseudo-random function; FIPS 202).

  Examples:
    >>> from dpjax.release import streams
    >>> below = streams.SecretStream(bytes(32), b'only for this example')
    >>> [below(10) for _ in range(8)]
    [4, 1, 0, 9, 2, 9, 1, 5]
  """

  def __init__(self, secret: bytes, context: bytes):
    """Starts at the first block.

    Args:
      secret: 32 bytes from the random source of the operating system.
      context: purpose of the integers; other contexts give other integers.
    """
    if len(secret) != SECRET_BYTES:
      raise ValueError(f'a secret has {SECRET_BYTES} bytes, got {len(secret)}')
    self._key = secret + hashlib.sha256(context).digest()
    self._blocks, self._left = 0, b''

  def __call__(self, n: int) -> int:
    """Returns a uniform integer from 0 to n - 1."""
    if n < 1:
      raise ValueError(f'n must be at least 1, got {n}')
    bits = (n - 1).bit_length()
    size = (bits + 7) // 8
    # Values of n or more are rejected: a remainder would favour small values.
    # 2^bits < 2 n, so more than half of the values are kept.
    while True:
      value = int.from_bytes(self._take(size)) >> 8 * size - bits
      if value < n:
        return value

  def _take(self, size: int) -> bytes:
    """Returns the next `size` bytes of the stream."""
    while len(self._left) < size:
      self._left += hashlib.shake_256(
          self._key + self._blocks.to_bytes(8)).digest(_BLOCK)
      self._blocks += 1
    chunk, self._left = self._left[:size], self._left[size:]
    return chunk
