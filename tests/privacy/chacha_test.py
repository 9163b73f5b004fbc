"""Tests ChaCha20 against its RFC, another implementation, and domain misuse."""

from cryptography.hazmat.primitives.ciphers import algorithms
from cryptography.hazmat.primitives.ciphers import Cipher
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.privacy import additive
from dpjax.privacy import chacha
from dpjax.privacy import keys
from dpjax.privacy import lattice

_WORDS = np.random.default_rng(0).integers(0, 2**32, 8, np.uint32)
_KEY = keys.from_words(_WORDS[None])[0]

# RFC 8439: section 2.3.2, then vectors 1 to 5 of appendix A.1.
_KNOWN = (
    (bytes(range(32)), 1, '000000090000004a00000000',
     '10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e'),
    (bytes(32), 0, '00' * 12,
     '76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7'),
    (bytes(32), 1, '00' * 12,
     '9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed'),
    (bytes(31) + b'\1', 1, '00' * 12,
     '3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a'),
    (b'\0\xff' + bytes(30), 2, '00' * 12,
     '72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca'),
    (bytes(32), 0, '00' * 11 + '02',
     'c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7'))


def _oracle(words, counter, nonce):
  """Returns the words [16] of a block, by another implementation."""
  start = np.asarray([counter, *nonce], '<u4').tobytes()
  cipher = Cipher(algorithms.ChaCha20(np.asarray(words, '<u4').tobytes(),
                                      start), mode=None)
  return np.frombuffer(cipher.encryptor().update(bytes(64)), '<u4')


@pytest.mark.every(1)
@pytest.mark.parametrize('key,counter,nonce,wanted', _KNOWN)
def test_vectors_of_the_rfc(key, counter, nonce, wanted):
  words = chacha.blocks(
      jnp.asarray(np.frombuffer(key, '<u4')), jnp.asarray([counter], jnp.uint32),
      np.frombuffer(bytes.fromhex(nonce), '<u4'))
  assert np.asarray(words[:8, 0], '<u4').tobytes().hex() == wanted
  np.testing.assert_array_equal(words[:, 0], _oracle(
      np.frombuffer(key, '<u4'), counter,
      np.frombuffer(bytes.fromhex(nonce), '<u4')))


@pytest.mark.every(2)
def test_every_use_of_a_key_is_the_cipher_where_it_says():
  """Every use of a key gives the cipher blocks that the
  module's table states."""
  block = lambda counter, *nonce: _oracle(_WORDS, counter, nonce)
  stacked = lambda counters, domain: np.stack([
      block(counter, domain, 0, 0) for counter in counters]).T
  bits = np.ravel(stacked(range(3), 1))
  np.testing.assert_array_equal(jax.random.bits(_KEY, (5, 8), jnp.uint32),
                                bits[:40].reshape(5, 8))
  np.testing.assert_array_equal(
      jax.random.bits(_KEY, (7,), jnp.uint8),
      np.frombuffer(block(0, 1, 0, 0).tobytes(),
                    np.uint8)[:7])
  children = jax.random.key_data(jax.random.split(_KEY, 5))
  np.testing.assert_array_equal(
      children, stacked(range(3), 2).T.reshape(6, 8)[:5])
  for data in (0, 1, 7, 2**31, 2**32 - 1):
    np.testing.assert_array_equal(
        jax.random.key_data(jax.random.fold_in(_KEY, np.uint32(data))),
        block(0, 3, data, 0)[:8])
  np.testing.assert_array_equal(additive.random_words(_KEY, (3, 11), 100),
                                np.ravel(stacked(range(100, 103), 4)
                                         )[:33].reshape(3, 11))
  pairs = stacked(range(9, 12), 5)
  left, right = additive.random_pairs(_KEY, (20,), 9)
  np.testing.assert_array_equal(left, np.ravel(pairs[:8])[:20])
  np.testing.assert_array_equal(right, np.ravel(pairs[8:])[:20])


@pytest.mark.every(2)
def test_no_two_uses_of_a_key_share_an_input(monkeypatch):
  """No two uses of a key share a (counter, nonce), by enumeration."""
  taken = []

  def spy(key, counters, nonce):
    taken.extend((counter, *map(int, nonce)) for counter in counters.tolist())
    return jnp.zeros((16, counters.shape[0]), jnp.uint32)

  monkeypatch.setattr(chacha, 'blocks', spy)
  chacha._random_bits(_WORDS, 32, (100,))
  chacha._split(_WORDS, (33,))
  for data in (0, 1, 2, 33, 2**32 - 1):
    chacha._fold_in(_WORDS, np.uint32(data))
  start = 0
  for size in (1, 2, 15, 16, 17, 33, 1, 64):
    chacha.words(_WORDS, start, size)
    chacha.pairs(_WORDS, start, size)
    start += size
  assert len(taken) > 40 and len(set(taken)) == len(taken)


@pytest.mark.every(4)
def test_each_of_the_256_bits_of_a_key_matters():
  """Flipping any bit of a key changes half of the output bits."""
  flipped = np.repeat(_WORDS[None], 257, 0)
  for bit in range(256):
    flipped[bit, bit // 32] ^= np.uint32(1 << bit % 32)
  flipped_keys = keys.from_words(flipped)
  for use in (lambda key: additive.random_words(key, (32,)),
              lambda key: jnp.stack(additive.random_pairs(key, (16,))).ravel(),
              lambda key: jax.random.bits(key, (32,), jnp.uint32),
              lambda key: jax.random.key_data(jax.random.split(key, 4)).ravel(),
              lambda key: jnp.concatenate([
                  jax.random.key_data(jax.random.fold_in(key, place))
                  for place in range(4)])):
    words = np.asarray(jax.vmap(use)(flipped_keys))
    changed = np.bitwise_count(words[:256] ^ words[256]).sum(1, dtype=int)
    # Each has 1024 fair coins; 7.5 deviations occur with chance 2e-11 in 256.
    assert np.abs(changed - 512).max() < 7.5 * 16


@pytest.mark.every(4)
def test_words_are_uniform_and_none_comes_twice():
  """Words are uniform and distinct; 10^4 of 2^32 collide with chance 0.012."""
  parts, start = [], 0
  for size in (3333, 1, 2, 5001, 1664):
    parts.append(np.asarray(additive.random_words(_KEY, (size,), start)))
    start += size
  for draws in (additive.random_pairs(_KEY, (2000,)),
                [jax.random.bits(_KEY, (2000,), jnp.uint32)]):
    parts += [np.asarray(part) for part in draws]
  words = np.concatenate(parts)
  assert len(np.unique(words)) == len(words)
  bits = np.unpackbits(words.view(np.uint8)).reshape(-1, 32).mean(0)
  assert np.abs(bits - 0.5).max() < 6 * 0.5 / len(words)**0.5
  with pytest.raises(ValueError, match='one key has 2.32 draws'):
    additive.random_words(_KEY, (1,), 2**32 - 1)
  with pytest.raises(ValueError, match='2.32 blocks'):
    chacha.words(jnp.asarray(_WORDS), 2**32 - 1, 17)


@pytest.mark.every(2)
def test_children_are_all_others():
  split = jax.random.key_data(jax.random.split(_KEY, 500)).reshape(-1)
  folded = jax.random.key_data(jax.vmap(jax.random.fold_in, (None, 0))(
      _KEY, jnp.arange(500, dtype=jnp.uint32))).reshape(-1)
  grand = jax.random.key_data(jax.vmap(lambda key: jax.random.split(key, 3))(
      jax.random.split(_KEY, 5))).reshape(-1)
  words = np.concatenate([_WORDS, split, folded, grand])
  assert len(np.unique(words)) == len(words)
  # The first children do not depend on how many there are.
  np.testing.assert_array_equal(jax.random.key_data(jax.random.split(_KEY, 2)),
                                split.reshape(-1, 8)[:2])


@pytest.mark.every(2)
def test_keys_of_integers_show_that_they_are():
  data = lambda seed: jax.random.key_data(
      jax.random.key(seed, impl=chacha.GENERATOR)).tolist()
  assert data(7) == [7] + [0] * 7
  assert data(2**32 - 1) == [2**32 - 1] + [0] * 7
  with jax.enable_x64(True):
    assert data(2**40 + 3) == [3, 256] + [0] * 6


@pytest.mark.every(4)
def test_transformations_of_jax_change_nothing():
  ring = jax.random.split(_KEY, 3)
  use = lambda key: additive.random_words(jax.random.fold_in(key, 5), (33,))
  alone = np.stack([use(key) for key in ring])
  np.testing.assert_array_equal(jax.vmap(use)(ring), alone)
  np.testing.assert_array_equal(jax.jit(jax.vmap(use))(ring), alone)
  np.testing.assert_array_equal(jax.lax.map(use, ring), alone)
  carried = jax.lax.scan(lambda key, place: (key, use(ring[place])), ring[0],
                         jnp.arange(3))[1]
  np.testing.assert_array_equal(carried, alone)
  data = jax.random.key_data(ring)
  given = jax.jit(lambda keys: jax.random.split(keys[0], 3), donate_argnums=0)(
      jax.random.clone(ring))
  np.testing.assert_array_equal(
      jax.random.key_data(given), jax.random.key_data(
          jax.random.split(ring[0], 3)))
  again = jax.random.wrap_key_data(np.asarray(data),
                                   impl=jax.random.key_impl(ring))
  np.testing.assert_array_equal(jax.vmap(use)(again), alone)


@pytest.mark.every(4)
def test_all_draws_of_jax_work():
  """The generator serves every type and shape that `jax.random` asks for."""
  for dtype, shape in ((jnp.uint8, (257,)), (jnp.uint16, (3, 5)),
                       (jnp.uint32, (0,)), (jnp.uint32, ())):
    bits = jax.random.bits(_KEY, shape, dtype)
    assert bits.shape == shape and bits.dtype == dtype
  with jax.enable_x64(True):
    bits = jax.random.bits(_KEY, (1000,), jnp.uint64)
    assert len(np.unique(bits)) == 1000
  values = jax.random.uniform(_KEY, (20_000,))
  assert abs(float(values.mean()) - 0.5) < 6 / 12**0.5 / 20_000**0.5
  assert sorted(jax.random.permutation(_KEY, 50).tolist()) == list(range(50))


@pytest.mark.every(2)
def test_noise_on_the_lattice_has_its_law():
  step = jnp.float32(2.0**-19)
  outer = lattice.outer_multiplier(jnp.float32(1.0), step)
  noisy = np.asarray(lattice.add_noise(_KEY, jnp.zeros(40_000), step, outer))
  wanted = float(lattice.real_stddev(outer, step))
  assert abs(noisy.mean()) < 6 * wanted / 200
  assert abs(noisy.std() / wanted - 1) < 6 / 80_000**0.5


def test_system_keys_are_others_every_time():
  key_data = np.concatenate([jax.random.key_data(keys.system_keys(count))
                             for count in (1, 3, 1)])
  words = np.ravel(key_data)
  # 40 of 2^32 collide with probability 2e-7.
  assert key_data.shape == (5, 8) and len(np.unique(words)) == 40
  assert keys.is_secret(keys.system_keys(1))
  assert not keys.is_secret(jax.random.key(0))
  for num in (0, 1.5, -1):
    with pytest.raises(ValueError, match='num'):
      keys.system_keys(num)


@pytest.mark.every(2)
def test_domains_of_the_docstring_are_those_of_the_code():
  rows = [line.split('(')[1].split(',')[0]
          for line in chacha.__doc__.splitlines() if ', 0)' in line]
  assert [int(row) for row in rows] == list(range(1, 6)) == [
      chacha._BITS, chacha._SPLIT, chacha._FOLD_IN, chacha._WORDS,
      chacha._PAIRS]
