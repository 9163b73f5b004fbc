"""Tests that no release uses a key, or a place of a key, for two draws.

Releases are traced with keys that only record their uses. Two overlapping uses
of a key are a fault whatever is drawn: noise that should be independent is not,
and one draw reveals the other.
"""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.privacy import additive
from dpjax.privacy import discrete
from dpjax.privacy import draws
from dpjax.privacy import integers
from dpjax.privacy import inverse
from dpjax.privacy import k_norm
from dpjax.privacy import langevin
from dpjax.privacy import laplace
from dpjax.privacy import lattice
from dpjax.privacy import local
from dpjax.privacy import selection
from dpjax.privacy import sharded
from dpjax.privacy import smooth
from dpjax.privacy.adjacency import Adjacency
from experiments.methods.mechanisms import forced_response
from experiments.methods.statistics import local_queries as queries

REPLACE = Adjacency.REPLACE_ONE
VALUES = {'a': jnp.zeros(3), 'b': jnp.zeros((2, 3)), 'c': jnp.zeros(())}
COUNTS = jax.tree.map(lambda leaf: leaf.astype(jnp.int32), VALUES)
SETTINGS = dict(record_norm=1, adjacency=REPLACE)
RANGE = dict(lower=0.0, upper=1.0, num_examples=3)


class Key:
  """A key that records its uses; its children do the same."""

  def __init__(self, keys):
    self.uses = []
    keys.append(self)
    self._keys = keys

  def use(self, kind, first=0, count=1):
    self.uses.append((kind, first, first + count))

  def split(self, num=2):
    self.use('split')
    return [Key(self._keys) for _ in range(num)]

  def check(self):
    """Checks that uses are of one kind, at places that do not overlap."""
    for one, other in itertools.pairwise(sorted(self.uses)):
      assert one[0] == other[0] and one[2] <= other[1], self.uses


def _words(key, shape, start=0):
  key.use('words', start, int(np.prod(shape)))
  return jnp.zeros(shape, jnp.uint32)


def _words_of_several(key, sizes, start=0):
  return _words(key, (1, sum(sizes)), start)


def _pairs(key, shape, start=0):
  key.use('pairs', start, int(np.prod(shape)))
  return (jnp.zeros(shape, jnp.uint32),) * 2


def _divided(key, shape, start, sharding):
  return _words(key, shape, start)


def _leaf_in_parts(table, key, rows, shape, start, where):
  num_rows, total = rows
  return tuple(_pairs(key, shape, row * total + start)[0].astype(jnp.int32)
               for row in range(num_rows))


def _integers(key, shape, low, high):
  key.use('integers')
  return jnp.zeros(shape, jnp.int32) + low + 0 * high


def _permutation(key, size):
  key.use('permutation')
  return jnp.arange(size)


@pytest.fixture(name='key')
def _key(monkeypatch):
  """Yields a key whose uses are checked at the end of the test."""
  keys = []
  for module, name, function in (
      (additive, 'random_words', _words), (additive, 'random_pairs', _pairs),
      (additive, 'words_of_several', _words_of_several),
      (sharded, '_divided', _divided),
      (integers, '_leaf_in_parts', _leaf_in_parts),
      (jax.random, 'split', lambda key, num=2: key.split(num)),
      (jax.random, 'randint', _integers),
      (jax.random, 'permutation', _permutation)):
    monkeypatch.setattr(module, name, function)
  key = Key(keys)
  yield key
  assert key.uses
  for each in keys:
    each.check()


def _traced(function):
  jax.eval_shape(function)


def _langevin(key):
  descent = langevin.LangevinDescent(
    gradient=lambda params, data: params, start=jnp.zeros(2), num_examples=2,
    strong_convexity=1.0, smoothness=1.0, gradient_bound=1.0,
    learning_rate=0.5, stddev=1.0, num_steps=2)
  return descent.update(descent.update(descent.init(key), None), None).params


def _oracle(key, randomizer='bernoulli'):
  oracle = queries.LocalOracle(num_queries=2, tolerance=1.0, failure_prob=0.5,
                               epsilon=4.0, randomizer=randomizer)
  state, answers = oracle.init(key, jnp.zeros(oracle.num_examples)), []
  for _ in range(2):
    state, answer = oracle.ask(state, lambda x: x)
    answers.append(answer)
  return answers


def _noise_of_parts(key, on_lattice=False):
  """Draws the noise of leaves of which every second one is divided."""
  mesh = jax.sharding.Mesh(np.array(jax.devices()[:2]), ('data',))
  values = {name: jnp.zeros([4, size]) for size, name in enumerate('abcde', 1)}
  specs = [jax.sharding.PartitionSpec(*axes)
           for axes in ((), ('data',), (), ('data',), ())]
  where = {name: jax.sharding.NamedSharding(mesh, spec)
           for name, spec in zip(values, specs, strict=True)}
  if on_lattice:
    return lattice.add_noise(key, values, 2.0**-19, jnp.int32(3000), where)
  return sharded.unit_noise(key, values, where)


def _on_lattice(key):
  return lattice.add_noise(key, VALUES, 2.0**-19, jnp.int32(3000))


RELEASES = {
  'gaussian': lambda key: additive.add_gaussian_noise(key, VALUES, 1.0),
  'noise of parts': _noise_of_parts,
  'lattice of parts': functools.partial(_noise_of_parts, on_lattice=True),
  'laplace': lambda key: laplace.add_laplace_noise(key, VALUES, 1.0),
  'lattice': _on_lattice, 'langevin': _langevin, 'oracle': _oracle,
  'laplace oracle': functools.partial(_oracle, randomizer='laplace'),
  **{f'{order}-norm': functools.partial(
    k_norm.add_noise, values=VALUES, scale=1.0, order=order)
     for order in k_norm.ORDERS},
  **{f'integers {epsilon}': functools.partial(
    discrete.GeometricMechanism(epsilon=epsilon, **SETTINGS).release,
    data=COUNTS) for epsilon in (1.0, 0.02)},
  **{f'integers of deviation {noise}': functools.partial(
    discrete.DiscreteGaussianMechanism(
      noise_multiplier=noise, **SETTINGS).release, data=COUNTS)
     for noise in (2.0, 900.0)},
  **{kind.__name__: functools.partial(
    kind(sensitivity=1.0, epsilon=1.0, adjacency=REPLACE).release,
    data=VALUES['a'])
     for kind in (selection.ExponentialMechanism, selection.PermuteAndFlip)},
  'inverse': functools.partial(inverse.InverseSensitivityQuantile(
    epsilon=1.0, **RANGE).release, data=VALUES['a']),
  'smooth': functools.partial(smooth.SmoothSensitivityQuantile(
    epsilon=1.0, smoothing=0.5, **RANGE).release, data=VALUES['a']),
  'response': functools.partial(local.RandomizedResponse(
    num_categories=3, epsilon=1.0).release, data=COUNTS['a']),
  'unary': functools.partial(local.UnaryEncoding(
    num_categories=3, epsilon=1.0).release, data=COUNTS['a']),
  'forced': functools.partial(forced_response.ForcedYes(yes_prob=0.5).release,
                              data=COUNTS['a']),
  'geometric floats': lambda key: draws.discrete_laplace(key, (3,), 2.0)}


@pytest.mark.sound
@pytest.mark.parametrize('name', RELEASES)
def test_no_draw_is_used_twice(key, name):
  _traced(lambda: RELEASES[name](key))


def test_uses_that_overlap_are_seen():
  for uses in ([('words', 0, 3), ('words', 2, 3)], [('split',), ('words',)],
               [('split',), ('split',)], [('words', 0, 9), ('words', 1, 1)]):
    key = Key([])
    for use in uses:
      key.use(*use)
    with pytest.raises(AssertionError):
      key.check()


@pytest.mark.every(1)
@pytest.mark.parametrize('impl', ['threefry2x32', 'rbg'])
def test_places_of_all_generators_are_of_their_own(impl):
  """Places of one key give distinct words; 80 of 2^32
  collide with chance 1e-6."""
  key = jax.random.key(3, impl=impl)
  for draw in (additive.random_words, additive.random_pairs):
    parts = [np.ravel(draw(key, (20,), start)) for start in (0, 20, 20)]
    words = np.concatenate(parts[:2])
    assert len(np.unique(words)) == len(words)
    np.testing.assert_array_equal(parts[1], parts[2])


def test_bits_of_one_person_are_independent():
  """A person's bits are uncorrelated; 5 deviations have chance 4e-6 in all."""
  for symmetric in (True, False):
    mechanism = local.UnaryEncoding(num_categories=4, epsilon=1e-3,
                                    symmetric=symmetric)
    bits = np.asarray(mechanism.release(jax.random.key(6),
                                        jnp.zeros(20_000, jnp.int32)))
    correlations = np.corrcoef(bits.T)[np.triu_indices(4, 1)]
    assert np.abs(correlations).max() < 5 / 20_000**0.5
