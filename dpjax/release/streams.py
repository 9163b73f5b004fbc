"""Uniform integers that a secret determines, for noise that can be drawn again.

A release that was interrupted is finished with the noise that it would have
had, so that nobody gets a second draw by interrupting it. Whoever has the
secret can take the noise off: it is destroyed when the answer is on disk.
"""

import hashlib

SECRET_BYTES = 32
_BLOCK = 2**13


class SecretStream:
  """Draws uniform integers, always the same ones for a secret and a context.

  Block i of the stream is SHAKE-256(secret, SHA-256(context), i): of fixed
  lengths, so that no two inputs are alike, and as random as the secret for all
  who do not have it (SHAKE-256 as a pseudo-random function; FIPS 202). Integers
  come from it by rejection: the least number of bits, drawn again while they
  are too large.

  Examples:
    >>> from dpjax.release import streams
    >>> below = streams.SecretStream(bytes(32), b'only for this example')
    >>> [below(10) for _ in range(8)]
    [4, 1, 0, 9, 2, 9, 1, 5]
  """

  def __init__(self, secret: bytes, context: bytes):
    """Starts at the first block.

    Args:
      secret: 32 bytes from the random source of the system.
      context: what the integers are for; another context has other integers.
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
    while True:
      value = int.from_bytes(self._take(size)) >> 8 * size - bits
      if value < n:
        return value

  def _take(self, size: int) -> bytes:
    """The next bytes of the stream."""
    while len(self._left) < size:
      self._left += hashlib.shake_256(
          self._key + self._blocks.to_bytes(8)).digest(_BLOCK)
      self._blocks += 1
    taken, self._left = self._left[:size], self._left[size:]
    return taken
