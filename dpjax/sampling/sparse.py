"""Poisson samples from many records, drawn on the host in the size of a batch.

Independent inclusion with probability p is the same distribution as this:

1. The number of selected records K is binomial, from n trials with chance p
   (`binomial`, which is exact).
2. Given K, all sets of K records are equally likely. The first K distinct
   numbers in a sequence of uniform numbers below n are such a set.

Proof: independent inclusion gives each set of k records the chance
p^k (1 - p)^(n - k), which depends on k alone. So the size of the set is
binomial, and given the size all sets are equally likely.

Time and memory are those of K numbers, not of n. If p is above 1/2, the records
that are left out are drawn in the same way, which takes a byte for each record.

Words come from SHAKE-256 (FIPS 202), an extendable-output function, of the
secret key and the step. Without the key nobody can predict them, as long as
SHAKE-256 with a secret prefix is a pseudorandom function. No device is needed,
so a batch can be drawn while devices compute.
"""

import hashlib

import numpy as np

from dpjax.sampling import binomial

PROB_BITS = 32
"""Probabilities are multiples of 2^-32."""

_LABEL = b'dpjax.sampling.sparse: words of one step'
_BLOCK_BYTES = 2**14


class Words:
  """Uniform words of one step, from SHAKE-256; each is returned once."""

  def __init__(self, key: bytes, step: int):
    """Starts the sequence of a step.

    Args:
      key: secret key of all batches of a run.
      step: number of the step, from 0.
    """
    # Parts of fixed length, so that no two (key, step) have the same prefix.
    self._prefix = (_LABEL + len(key).to_bytes(8, 'little') + key +
                    step.to_bytes(8, 'little'))
    self._num_blocks = 0
    self._left = np.zeros([0], np.uint32)

  def take(self, count: int) -> np.ndarray:
    """Returns the next `count` words of 32 bits, uint32."""
    parts, missing = [self._left], count - len(self._left)
    while missing > 0:
      parts.append(self._block())
      missing -= len(parts[-1])
    words = np.concatenate(parts)
    self._left = words[count:]
    return words[:count]

  def _block(self) -> np.ndarray:
    number = self._num_blocks.to_bytes(8, 'little')
    self._num_blocks += 1
    content = hashlib.shake_256(self._prefix + number).digest(_BLOCK_BYTES)
    return np.frombuffer(content, '<u4').astype(np.uint32)

  def wide(self) -> int:
    """Returns a word of 64 bits."""
    high, low = self.take(2).tolist()
    return high << 32 | low


def draw(size: int, threshold: int, words: Words) -> np.ndarray:
  """Returns the selected record numbers, int32 in increasing order.

  Args:
    size: number of records, below 2^31.
    threshold: 2^32 times the probability of inclusion, in [0, 2^32].
    words: of this batch only.
  """
  whole = 1 << PROB_BITS
  if threshold > whole // 2:
    chosen = np.ones([size], np.bool_)
    chosen[draw(size, whole - threshold, words)] = False
    return np.flatnonzero(chosen).astype(np.int32)
  if not threshold:
    return np.zeros([0], np.int32)
  count = binomial.draw(size, threshold, whole, words.wide)
  return distinct(size, count, words)


def distinct(size: int, count: int, words: Words) -> np.ndarray:
  """Returns a uniformly random set of `count` numbers below `size`, sorted.

  Args:
    size: at least `count`, below 2^31.
    count: size of the set; time is that of so many numbers if it is at most
      about half of `size`.
    words: of this set only.
  """
  mask = np.uint32((1 << (size - 1).bit_length()) - 1)
  numbers = np.zeros([0], np.uint32)
  while len(numbers) < count:
    # About as many words as are needed: most numbers that are left are new.
    missing = count - len(numbers)
    drawn = words.take(
        missing * (int(mask) + 1) // (size - count + 1) + 16) & mask
    numbers = np.concatenate([numbers, drawn[drawn < size]])
    # The first of equal numbers stays, and the order in which they came.
    places = np.unique(numbers, return_index=True)[1]
    numbers = numbers[np.sort(places)]
  return np.sort(numbers[:count]).astype(np.int32)
