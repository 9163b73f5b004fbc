"""Tests Threefry against its authors' vectors and the generator of JAX."""

import jax
from jax.extend import random
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.privacy import threefry

KNOWN = (  # Key, block and result, from Random123.
    ((0, 0), (0, 0), (0x6b200159, 0x99ba4efe)),
    ((0xffffffff,) * 2, (0xffffffff,) * 2, (0x1cb996fc, 0xbb002be7)),
    ((0x13198a2e, 0x03707344), (0x243f6a88, 0x85a308d3),
     (0xc4923a9c, 0x483df7a0)),
)


@pytest.mark.parametrize('key,block,wanted', KNOWN)
def test_known_answers(key, block, wanted):
  words = threefry.threefry_2x32(tuple(map(jnp.uint32, key)),
                                 tuple(map(jnp.uint32, block)))
  assert tuple(int(word) for word in words) == wanted


@pytest.mark.every(2)
@pytest.mark.parametrize('start,size', [(0, 1), (0, 2), (5, 7), (1000, 4096),
                                        (2**32 - 9, 8), (3, 0)])
def test_words_are_those_of_jax(start, size):
  key = jax.random.key_data(jax.random.key(11))
  counts = jnp.uint32(start) + jax.lax.iota(jnp.uint32, size)
  wanted = random.threefry_2x32((key[0], key[1]), counts)
  words = jax.jit(lambda key: threefry.words((key[0], key[1]), start, size))(
      key)
  np.testing.assert_array_equal(words, wanted)
  assert words.dtype == jnp.uint32


def test_under_vmap_each_key_has_its_own_words():
  keys = jax.random.key_data(jax.random.split(jax.random.key(1), 3))
  words = jax.vmap(lambda key: threefry.words((key[0], key[1]), 2, 9))(keys)
  for key, row in zip(keys, words, strict=True):
    np.testing.assert_array_equal(row, threefry.words((key[0], key[1]), 2, 9))
