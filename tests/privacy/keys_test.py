"""Tests what release keys are bound to, and where they come from."""

import hashlib
import itertools
import types

import jax
import numpy as np

from dpjax.privacy import keys


def _data(*content):
  """Returns the words of two keys bound to this content."""
  bound = keys.bound_to(jax.random.split(jax.random.key(0), 2), *content)
  assert bound.shape == (2,)
  return jax.random.key_data(bound).tolist()


def test_keys_belong_to_one_content_alone():
  """Each content has its own keys, also where only the parts' ends differ."""
  contents = [(), (b'',), (b'ab', b'c'), (b'a', b'bc'), (b'abc',),
              (b'c', b'ab'), (b'', b'abc'), (b'abd',)]
  key_data = [_data(*content) for content in contents]
  for one, other in itertools.combinations(key_data, 2):
    assert all(a != b for a, b in itertools.product(one, other))
  # The keys of one content differ, and are reproducible.
  assert all(one[0] != one[1] for one in key_data)
  assert _data(*contents[2]) == key_data[2]


def test_only_long_keys_are_secret():
  assert keys.is_secret(keys.from_words(keys.system_words(3)))
  for impl in ('threefry2x32', 'rbg'):
    assert not keys.is_secret(jax.random.key(0, impl=impl))


def test_every_bit_of_a_digest_decides(monkeypatch):
  """All 256 bits of the digest are folded into the key."""
  digest = bytearray(hashlib.sha256(b'content').digest())
  flipped = []
  for bit in range(256):
    flipped.append(bytearray(digest))
    flipped[-1][bit // 8] ^= 1 << bit % 8
  folded = []
  monkeypatch.setattr(jax, 'vmap', lambda function, axes: (
    lambda ring, word: folded[-1].append(int(word)) or ring))
  for each in (digest, *flipped):
    folded.append([])
    monkeypatch.setattr(keys, 'hashlib', types.SimpleNamespace(
      sha256=lambda part=b'', each=each: types.SimpleNamespace(
        update=lambda more: None, digest=lambda: bytes(each))))
    keys.bound_to(np.zeros(2), b'content')
  assert len(set(map(tuple, folded))) == 257
