"""ChaCha20 as a generator of JAX keys with 256 secret bits.

Noise protects records only as long as nobody can search for its key. A typed
key of this generator, whose `jax.random.key_data` is [8] uint32, is a ChaCha20
key (Bernstein 2008; block function of RFC 8439, section 2.3). Every function of
JAX that takes keys accepts these keys, also under `jit`, `vmap` and `scan`.

Why all 256 bits count. A block is state + rounds(state), and the state contains
the eight words of the key unchanged, so different keys have different states.
An attacker sees outputs of the block function under one key at different
counters and nonces. Distinguishing them from uniform words means breaking
ChaCha20 as a pseudorandom function; no known attack on its 20 rounds is faster
than trying 2^256 keys. Children of a key (`split`, `fold_in`) are outputs too:
as long as the function is pseudorandom, they are as good as eight words of the
system's random source, and they reveal nothing about their parent or siblings.

Why the generators of JAX do not suffice. Keys of 'threefry2x32' hold two words,
so 2^64 guesses find any of them, and its authors claim no cryptographic
strength. Keys of 'rbg' hold four words, but `split` and `fold_in` pass each
half of two words through threefry separately, and the generator of XLA uses one
half as its key and the other as its initial counter: no secret has more than 64
bits.

Domain separation. No two uses of a key share a block, because the first word of
the nonce encodes the use, and each use takes every other input once:

  use              nonce          counter         words that are taken
  bits             (1, 0, 0)      0, 1, ...       all
  split            (2, 0, 0)      0, 1, ...       all, two children of a block
  fold_in of d     (3, d, 0)      0               the first eight
  words            (4, 0, 0)      start, ...      all
  pairs            (5, 0, 0)      start, ...      all

`bits`, `split` and `words` are deterministic, as in all generators of JAX: use
a key once for each. A key from an integer, `jax.random.key(7,
impl=chacha.GENERATOR)`, is that integer in two words followed by six zeros. It
has no more entropy than the integer, hides nothing, and is for research only.
For a release, use `keys.system_keys`.
"""

from collections.abc import Sequence
import itertools
import math

import jax
from jax.extend import random
import jax.numpy as jnp
import numpy as np

from dpjax.typing import Array

NAME = 'chacha20'
KEY_WORDS = 8
BLOCK_WORDS = 16

_CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
_DOUBLE_ROUNDS = 10
_BITS, _SPLIT, _FOLD_IN, _WORDS, _PAIRS = range(1, 6)


def blocks(key: Array, counters: Array, nonce: Sequence[Array | int]) -> Array:
  """Returns the ChaCha20 block of each counter, [16, n] uint32.

  Args:
    key: [8] uint32, the words of the key.
    counters: [n] uint32.
    nonce: three words, the same for all blocks.
  """
  constants = jnp.asarray(_CONSTANTS, jnp.uint32)
  fixed = jnp.concatenate([constants, key])
  last = jnp.stack([jnp.asarray(word, jnp.uint32) for word in nonce])
  size = counters.shape[0]
  state = jnp.concatenate([
      jnp.broadcast_to(fixed[:, None], (12, size)), counters[None],
      jnp.broadcast_to(last[:, None], (3, size))])
  # Rows of the state: constants; key; key; counter and nonce.
  rows = tuple(state.reshape(4, 4, size))
  # A loop: if the rounds were unrolled, XLA for CPUs would recompute what they
  # share for each of the words.
  rows = jax.lax.fori_loop(0, _DOUBLE_ROUNDS, lambda _, x: _double_round(*x),
                           rows)
  # The rounds can be inverted; adding their input makes the function one-way.
  return jnp.concatenate(rows) + state


def _double_round(a: Array, b: Array, c: Array, d: Array) -> tuple[Array, ...]:
  """Applies a column round and a diagonal round to rows [4, n] of the state."""
  a, b, c, d = _quarter_round(a, b, c, d)
  b, c, d = jnp.roll(b, -1, 0), jnp.roll(c, -2, 0), jnp.roll(d, -3, 0)
  a, b, c, d = _quarter_round(a, b, c, d)
  return a, jnp.roll(b, 1, 0), jnp.roll(c, 2, 0), jnp.roll(d, 3, 0)


def _quarter_round(a: Array, b: Array, c: Array,
                   d: Array) -> tuple[Array, ...]:
  """Applies the quarter round of RFC 8439 to four words, elementwise."""
  for first, second in ((16, 12), (8, 7)):
    a = a + b
    d = _rotated(d ^ a, first)
    c = c + d
    b = _rotated(b ^ c, second)
  return a, b, c, d


def _rotated(words: Array, count: int) -> Array:
  """Returns words rotated to the left by `count` bits."""
  return (jax.lax.shift_left(words, jnp.uint32(count))
          | jax.lax.shift_right_logical(words, jnp.uint32(32 - count)))


def _counters(start: int, size: int) -> Array:
  """Returns counters start, start + 1, ... for `size` blocks."""
  if start + size > 2**32:
    raise ValueError(f'a key has 2^32 blocks for each use, {start + size} were '
                     'requested; split the key')
  return jnp.uint32(start) + jax.lax.iota(jnp.uint32, size)


def words(key: Array, start: int, size: int) -> Array:
  """Returns uniform words [size] uint32 for the places start, start + 1, ...

  Calls whose places do not overlap share no block: a call uses at most as many
  blocks as it has places, and numbers them from its first place on.

  Args:
    key: [8] uint32.
    start: first place, static.
    size: number of places, static.
  """
  counters = _counters(start, -(-size // BLOCK_WORDS))
  return blocks(key, counters, (_WORDS, 0, 0)).reshape(-1)[:size]


def words_at(key: Array, places: Array, *, start: int, size: int) -> Array:
  """Returns `words(key, start, size)[places]`, computing only these.

  Args:
    key: [8] uint32.
    places: [n] uint32. Places of `size` or more get words without meaning.
    start: see `words`.
    size: see `words`.
  """
  columns = jnp.uint32(-(-size // BLOCK_WORDS))
  output = blocks(key, jnp.uint32(start) + places % columns, (_WORDS, 0, 0))
  # A sum over the words of each block is faster than an indexed read.
  row = jax.lax.iota(jnp.uint32, BLOCK_WORDS)[:, None]
  return jnp.sum(jnp.where(row == (places // columns)[None], output,
                           jnp.uint32(0)), 0, dtype=jnp.uint32)


def words_of_several(key: Array, start: int, sizes: Sequence[int]) -> Array:
  """Returns the blocks [16, n] of `words` of each size, one after another.

  Args:
    key: [8] uint32.
    start: place of the first word of the first size, static. The places of the
      others follow.
    sizes: numbers of words, static. A size s has ceil(s / 16) columns, whose
      first s words, row by row, are those of `words`.
  """
  starts = itertools.accumulate(sizes[:-1], initial=start)
  counters = np.concatenate([
      first + np.arange(-(-size // BLOCK_WORDS))
      for first, size in zip(starts, sizes, strict=True)])
  return blocks(key, jnp.asarray(counters, jnp.uint32), (_WORDS, 0, 0))


def pairs(key: Array, start: int, size: int) -> tuple[Array, Array]:
  """Returns two uniform words [size] uint32 for each place.

  Places are those of `words`; the blocks are different ones.
  """
  half = BLOCK_WORDS // 2
  output = blocks(key, _counters(start, -(-size // half)), (_PAIRS, 0, 0))
  return output[:half].reshape(-1)[:size], output[half:].reshape(-1)[:size]


def pairs_at(key: Array, places: Array, *, start: int,
             size: int) -> tuple[Array, Array]:
  """Returns `pairs(key, start, size)` at `places`, computing only these.

  Args: see `words_at`.
  """
  half = BLOCK_WORDS // 2
  columns = jnp.uint32(-(-size // half))
  output = blocks(key, jnp.uint32(start) + places % columns, (_PAIRS, 0, 0))
  chosen = jax.lax.iota(jnp.uint32, half)[:, None] == (places // columns)[None]
  left, right = (jnp.sum(jnp.where(chosen, part, jnp.uint32(0)), 0,
                         dtype=jnp.uint32)
                 for part in (output[:half], output[half:]))
  return left, right


def _seed(seed: Array) -> Array:
  """Returns the key of an integer: its two words, then zeros."""
  low = jax.lax.convert_element_type(seed, jnp.uint32)
  high = jnp.zeros_like(low)
  if seed.dtype.itemsize == 8:
    high = jax.lax.convert_element_type(
        jax.lax.shift_right_logical(seed, jnp.asarray(32, seed.dtype)),
        jnp.uint32)
  return jnp.concatenate([low[None], high[None],
                          jnp.zeros([KEY_WORDS - 2], jnp.uint32)])


def _split(key: Array, shape: tuple[int, ...]) -> Array:
  """Returns children [*shape, 8]; block b holds the children 2 b, 2 b + 1."""
  size = math.prod(shape)
  output = blocks(key, _counters(0, -(-size // 2)), (_SPLIT, 0, 0))
  return output.T.reshape(-1, KEY_WORDS)[:size].reshape(*shape, KEY_WORDS)


def _fold_in(key: Array, data: Array | int) -> Array:
  """Returns the child [8] of a key for the integer `data`."""
  return blocks(key, jnp.zeros([1], jnp.uint32),
                (_FOLD_IN, data, 0))[:KEY_WORDS, 0]


def _random_bits(key: Array, bit_width: int, shape: tuple[int, ...]) -> Array:
  """Returns uniform integers [*shape] of `bit_width` bits, for JAX."""
  size = math.prod(shape)
  num_words = -(-size * bit_width // 32)
  output = blocks(key, _counters(0, -(-num_words // BLOCK_WORDS)),
                (_BITS, 0, 0)).reshape(-1)[:num_words]
  dtype = jnp.dtype(f'uint{bit_width}')
  if bit_width == 64:
    output = output.reshape(-1, 2)
  # Narrow types add an axis of parts of a word, 64 bits join two words.
  output = jax.lax.bitcast_convert_type(output, dtype)
  return output.reshape(-1)[:size].reshape(shape)


GENERATOR = random.define_prng_impl(
    key_shape=(KEY_WORDS,), seed=_seed, split=_split, random_bits=_random_bits,
    fold_in=_fold_in, name=NAME, tag=NAME)
"""The generator: pass it as `impl` to `jax.random.wrap_key_data` or `key`."""
