"""The generator of JAX, written out.

The library's own lowering for CPUs keeps the rounds in a loop whose state is
copied in each of them. Written out, a compiler makes one kernel of all rounds
and of what becomes of the words: half the time of a draw of Gaussian noise, the
same bits, and no more to compile.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp

from dpjax.typing import Array

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_GROUPS_OF_ROUNDS = 5


def threefry_2x32(key: tuple[Array, Array],
                  blocks: tuple[Array, Array]) -> tuple[Array, Array]:
  """Threefry-2x32 of 20 rounds (Salmon et al. 2011) of each block of two words.

  Args:
    key: two uint32 scalars.
    blocks: two uint32 arrays of one shape.
  """
  schedule = (*key, key[0] ^ key[1] ^ jnp.uint32(_PARITY))
  left, right = blocks[0] + schedule[0], blocks[1] + schedule[1]
  for group in range(1, _GROUPS_OF_ROUNDS + 1):
    left, right = _rounds(left, right, _ROTATIONS[(group - 1) % 2])
    left = left + schedule[group % 3]
    right = right + schedule[(group + 1) % 3] + jnp.uint32(group)
  return left, right


def _rounds(left: Array, right: Array,
            rotations: Sequence[int]) -> tuple[Array, Array]:
  for rotation in rotations:
    left = left + right
    right = left ^ (
        jax.lax.shift_left(right, jnp.uint32(rotation))
        | jax.lax.shift_right_logical(right, jnp.uint32(32 - rotation)))
  return left, right


def words(key: tuple[Array, Array], start: int, size: int) -> Array:
  """Words `jax.extend.random.threefry_2x32` makes of start, start + 1, ...

  It pairs the first half of these counts with the second, and an odd one with
  zero.

  Args:
    key: two uint32 scalars.
    start: the first count, static.
    size: how many words, static.
  """
  half = -(-size // 2)
  places = jax.lax.iota(jnp.uint32, half)
  first = jnp.uint32(start) + places
  second = first + jnp.uint32(half)
  if size % 2:
    second = jnp.where(places == half - 1, jnp.uint32(0), second)
  return jnp.concatenate(threefry_2x32(key, (first, second)))[:size]
