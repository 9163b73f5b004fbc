"""Tests of private steps on batches that are drawn on the host."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax.sampling import poisson
from dpjax.train import sharding
from dpjax.train.private import make_private

_SIZE = 60


def _loss(params, record):
  x, y = record
  return jnp.square(jnp.vdot(x, params) - y)


def _records(numbers):
  """Returns records that follow from their numbers."""
  x = np.stack([np.cos(numbers * power) for power in (1, 2, 3)], 1)
  return x.astype(np.float32), np.sin(numbers).astype(np.float32)


def _private(**changed):
  return make_private(_loss, optax.sgd(0.1), **dict(
      num_examples=_SIZE, batch_size=20, noise_multiplier=1.0, delta=1e-5,
      max_batch_size=8) | changed)


@pytest.fixture
def few_on_device(monkeypatch):
  monkeypatch.setattr(poisson, 'MOST_ON_DEVICE', _SIZE - 1)


def _updated(private, state):
  sample = private.sample(state)
  batch = jax.tree.map(lambda leaf: leaf * sample.mask.reshape(
      -1, *[1] * (leaf.ndim - 1)), _records(sample.indices))
  return private.update(state, batch)


_WAYS = {
    'arrays': lambda private, state: private.step(
        state, jax.tree.map(jnp.asarray, _records(np.arange(_SIZE)))),
    'arrays of NumPy': lambda private, state: private.step(
        state, _records(np.arange(_SIZE))),
    'a function': lambda private, state: private.step(state, _records),
    'sample and update': _updated,
}


def _trained(way, **changed):
  private = _private(**changed)
  state, sizes = private.init(jnp.zeros(3), key=jax.random.key(3)), []
  for _ in range(3):
    state, info = _WAYS[way](private, state)
    sizes.append(int(info.batch_size))
  return np.asarray(state.params), sizes, private.epsilon()


@pytest.mark.every(2)
@pytest.mark.usefixtures('few_on_device')
@pytest.mark.parametrize('changed', [
    {}, *(pytest.param(changed, marks=pytest.mark.slow) for changed in (
        dict(max_batch_size=None), dict(clip_norm='adaptive', donate=True),
        dict(mesh=lambda: sharding.data_mesh(2))))])
def test_all_ways_to_give_records_see_the_same_batches(changed):
  changed = {name: value() if name == 'mesh' else value
             for name, value in changed.items()}
  results = {way: _trained(way, **changed) for way in _WAYS}
  params, sizes, epsilon = results.pop('a function')
  sampler = _private().sampler
  assert sizes == [len(sampler.host_batch(jax.random.split(
      jax.random.key(3), 3)[1], step)) for step in range(3)]
  for other in results.values():
    np.testing.assert_allclose(other[0], params, rtol=2e-6)
    assert other[1:] == (sizes, epsilon)


def test_a_billion_records_are_sampled_by_number():
  private = _private(num_examples=10**9, batch_size=256, max_batch_size=None,
                     delta=1e-9)
  state = private.init(jnp.zeros(3))
  asked = []

  def load(numbers):
    asked.append(numbers)
    return _records(numbers)

  sample = private.sample(state)
  state, info = private.step(state, load)
  numbers, = asked
  np.testing.assert_array_equal(sample.indices[sample.mask], numbers)
  # Within 7 standard deviations but for a chance of 3e-12.
  assert len(numbers) == int(info.batch_size)
  assert abs(len(numbers) - 256) < 7 * 16 and numbers.max() > 10**7
  assert private.epsilon(state) == private.epsilon() > 0


@pytest.mark.usefixtures('few_on_device')
@pytest.mark.parametrize('call', [
    lambda private: lambda state: private.step(
        state, jax.tree.map(jnp.asarray, _records(np.arange(_SIZE)))),
    lambda private: lambda state: private.update(
        state, _records(np.arange(16))),
    lambda private: private.sample,
])
def test_compiled_functions_of_the_user_are_refused(call):
  """There the batch would be another one than outside of them."""
  private = _private()
  state = private.init(jnp.zeros(3))
  with pytest.raises(ValueError, match='60 records are drawn on the host.*call '
                     'them outside'):
    jax.jit(call(private))(state)
  assert private.epsilon() == 0


@pytest.mark.usefixtures('few_on_device')
def test_a_batch_that_is_cut_off_is_refused():
  private = _private(batch_size=50)
  state = private.init(jnp.zeros(3), key=jax.random.key(0))
  with pytest.raises(ValueError, match='must not be cut off'):
    private.update(state, _records(np.arange(8)))
  assert private.epsilon() == 0
