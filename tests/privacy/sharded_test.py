"""Tests that noise of divided arrays is that of one device, drawn once.

Statistical tests have false-alarm rates of at most 1e-6. By the inequality of
Dvoretzky, Kiefer and Wolfowitz the Kolmogorov-Smirnov distance of n draws
exceeds 2.7 / sqrt(n) with probability below 1e-6.
"""

import functools

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
import numpy as np
import pytest
from scipy import special

from dpjax import tree
from dpjax.privacy import additive
from dpjax.privacy import chacha
from dpjax.privacy import integers
from dpjax.privacy import lattice
from dpjax.privacy import sharded
from dpjax.privacy import threefry
from tests import collectives
from tests.privacy.additive_test import kolmogorov_distance

KEYS = [jax.random.key(3), jax.random.key(3, impl=chacha.GENERATOR)]
SHAPES = {'a': (7, 3), 'b': (24, 50), 'c': (5, 6, 8), 'd': (), 'e': (200, 9)}
_TABLE = integers.discrete_gaussian(180.0)
SPECS = {'a': P(), 'b': P('data', None), 'c': P(None, 'data'), 'd': P(),
         'e': P(('data', 'model'))}


@functools.cache
def _mesh():
  return jax.sharding.Mesh(np.array(jax.devices()[:2]).reshape(2, 1),
                           ('data', 'model'))


def _values(shapes):
  return {name: jax.ShapeDtypeStruct(shape, jnp.float32)
          for name, shape in shapes.items()}


def _drawn(key, shapes, specs):
  shardings = {name: NamedSharding(_mesh(), spec)
               for name, spec in specs.items()}
  return jax.jit(lambda key: sharded.unit_noise(key, _values(shapes),
                                                shardings))


@pytest.mark.parametrize('size', [1, 2, 17, 64, 1001])
def test_words_at_places_are_those_of_the_sequence(size):
  places = np.random.default_rng(0).permutation(size).astype(np.uint32)
  words = chacha.words(jax.random.key_data(KEYS[1]), 5, size)
  np.testing.assert_array_equal(words[places], chacha.words_at(
      jax.random.key_data(KEYS[1]), jnp.asarray(places), start=5, size=size))
  key = tuple(jax.random.key_data(KEYS[0]))
  np.testing.assert_array_equal(
      threefry.words(key, 5, size)[places],
      threefry.words_at(key, jnp.asarray(places), 5, size))


@pytest.mark.every(6)
@pytest.mark.parametrize('chunk', [2**14, 7])
@pytest.mark.parametrize('key', KEYS)
def test_noise_is_that_of_one_device(key, chunk, monkeypatch):
  """Up to the rounding of a program: all bits of most numbers are equal."""
  monkeypatch.setattr(sharded, '_LEAST_CHUNK', chunk)
  noise = _drawn(key, SHAPES, SPECS)(key)
  expected = additive.unit_noise(key, _values(SHAPES))
  for name, leaf in noise.items():
    np.testing.assert_allclose(leaf, expected[name], rtol=2e-6)
    assert leaf.sharding.is_equivalent_to(
        NamedSharding(_mesh(), SPECS[name]), leaf.ndim)


@pytest.mark.parametrize('size', [1, 2, 17, 64, 1001])
@pytest.mark.parametrize('key', KEYS)
def test_pairs_at_places_are_those_of_the_sequence(key, size):
  places = np.random.default_rng(0).permutation(size).astype(np.uint32)
  pairs = additive.random_pairs(key, (size,))
  for one, other in zip(pairs, sharded.pairs_at(key, jnp.asarray(places), size),
                        strict=True):
    np.testing.assert_array_equal(one[places], other)


def _rows(key):
  where = {name: NamedSharding(_mesh(), spec) for name, spec in SPECS.items()}
  drawn = jax.jit(lambda key: integers.draw_rows_in_parts(
      _TABLE, key, 3, _values(SHAPES), where))(key)
  for row in drawn:
    for name, leaf in row.items():
      assert leaf.sharding.is_equivalent_to(where[name], leaf.ndim)
  return np.stack([np.concatenate([np.ravel(row[name]) for name in SHAPES])
                   for row in drawn])


@pytest.mark.every(8)
@pytest.mark.parametrize('key', KEYS)
def test_integers_are_those_of_one_device(key, monkeypatch):
  """All are equal; with a fault of the place of a part they are not."""
  expected = integers.draw_rows(_TABLE, key, (3, tree.count(_values(SHAPES))))
  np.testing.assert_array_equal(_rows(key), expected)
  monkeypatch.setattr(sharded, '_position', lambda mesh, axes: jnp.uint32(0))
  assert np.mean(_rows(key) != expected) > 0.3


@pytest.mark.every(6)
def test_noise_on_a_lattice_is_that_of_one_device():
  """In all bits, because it is computed in integers."""
  key, step = KEYS[1], jnp.float32(2.0**-19)
  values = {name: jnp.asarray(np.random.default_rng(0).normal(size=shape),
                              jnp.float32) for name, shape in SHAPES.items()}
  where = {name: NamedSharding(_mesh(), spec) for name, spec in SPECS.items()}
  one, two = (jax.jit(functools.partial(lattice.add_noise, shardings=each))(
      key, values, step, jnp.int32(3000)) for each in (None, where))
  for name, leaf in one.items():
    np.testing.assert_array_equal(leaf, two[name])


def _check(noise):
  """Checks that [2, n] numbers of two devices are independent and normal."""
  for part in noise:
    assert kolmogorov_distance(part, special.ndtr) < 2.7 / part.size**.5
  # Lags too: a device could repeat the numbers of the other one shifted.
  first, second = np.float64(noise)
  size = first.size - 16
  for lag in range(17):
    for one, other in ((first, second), (second, first)):
      # Products have variance 1; 17 * 2 tests at 5.9 deviations: below 2e-7.
      assert abs(one[:size] @ other[lag:lag + size]) < 5.9 * size**.5


@pytest.mark.every(2)
def test_devices_draw_independent_normal_numbers():
  key = KEYS[1]
  for spec, axis in ((P('data', None), 0), (P(None, 'data'), 1)):
    noise = np.asarray(_drawn(key, {'w': (1000, 2000)}, {'w': spec})(key)['w'])
    _check(np.stack([np.ravel(part) for part in np.split(noise, 2, axis)]))


def test_fault_devices_draw_the_same(monkeypatch):
  monkeypatch.setattr(sharded, '_position', lambda mesh, axes: jnp.uint32(0))
  key = KEYS[1]
  noise = np.asarray(_drawn(key, {'w': (1000, 1000)}, {'w': P('data')})(
      key)['w'])
  np.testing.assert_array_equal(noise[:500], noise[500:])
  with pytest.raises(AssertionError):
    _check(noise.reshape(2, -1))


@pytest.mark.every(2)
def test_fault_a_leaf_begins_inside_of_the_one_before():
  """Two leaves that share places have the same numbers, and are found."""
  key = KEYS[1]
  one = _drawn(key, {'w': (1000, 500)}, {'w': P('data')})(key)['w']
  with pytest.raises(AssertionError):
    _check(np.stack([np.ravel(one), np.ravel(one)]))
  both = _drawn(key, {'v': (1000, 500), 'w': (1000, 500)},
                {'v': P('data'), 'w': P('data')})(key)
  _check(np.stack([np.ravel(both['v']), np.ravel(both['w'])]))


def test_no_device_sends_or_holds_the_noise_of_another():
  key, shape = KEYS[1], (2000, 1000)
  program = _drawn(key, {'w': shape}, {'w': P('data', None)}).lower(
      key).compile()
  assert not collectives.collectives(program.as_text())
  stats = program.memory_analysis()
  own = 4 * 2000 * 1000 // 2
  assert stats.output_size_in_bytes < 1.01 * own
  assert stats.temp_size_in_bytes < 2 * own


def test_refused():
  key = jax.random.key(0, impl='rbg')
  with pytest.raises(ValueError, match='needs a key of .*, got one of rbg'):
    _drawn(key, {'w': (4, 4)}, {'w': P('data')})(key)
  with pytest.raises(ValueError, match='one key has 2.32 draws'):
    jax.eval_shape(_drawn(KEYS[0], {'w': (2**16, 2**16)}, {'w': P('data')}),
                   KEYS[0])
