"""Tests of `make_private` on several devices that share each batch."""

from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax import tree
from dpjax.privacy import additive
from dpjax.train import placement
from dpjax.train import sharding
from dpjax.train.private import make_private

_SIZE = 40


def _loss(params, record, rng):
  kept = jax.random.bernoulli(rng, 0.8, record['x'].shape)
  hidden = jnp.tanh(jnp.where(kept, record['x'], 0.0) @ params['first'])
  return jnp.square(jnp.vdot(hidden, params['last']) - record['y'])


def _params():
  rng = np.random.default_rng(1)
  return {'first': jnp.asarray(rng.normal(size=(5, 8)), jnp.float32),
          'last': jnp.asarray(rng.normal(size=8), jnp.float32)}


def _records():
  rng = np.random.default_rng(0)
  return {'x': 3 * rng.normal(size=(_SIZE, 5)).astype(np.float32),
          'y': rng.normal(size=_SIZE).astype(np.float32)}


def _private(devices, **changed):
  return make_private(_loss, optax.sgd(0.5, momentum=0.9), **dict(
      num_examples=_SIZE, batch_size=15, noise_multiplier=0.8,
      max_batch_size=6, mesh=devices and sharding.data_mesh(devices)) | changed)


def _trained(devices, records, steps=3, step=None, **changed):
  private = _private(devices, **changed)
  state = private.init(_params(), key=jax.random.key(4))
  sizes = []
  for _ in range(steps):
    state, info = (step or private.step)(*([private] if step else []), state,
                                         records)
    sizes.append(int(info.batch_size))
  assert private.epsilon(delta=1e-5) == private.epsilon(state, delta=1e-5) > 0
  return jax.tree.map(np.asarray, (state.params, state.radii)), sizes, state


def _update(private, state, records):
  indices = private.sample(state).indices
  return private.update(state, jax.tree.map(lambda leaf: leaf[indices],
                                            records))


def _compiled(private, state, records):
  return jax.jit(private.step)(state, records)


def _same(left, right):
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, 1e-4, 1e-5), left,
               right)


@pytest.mark.every(11)
@pytest.mark.parametrize('records, step, changed', [
    (jax.tree.map(jnp.asarray, _records()), None, {}),
    (_records(), None, {}), (_records(), _update, {}),
    (_records(), None, dict(clip_norm='adaptive_layers', max_batch_size=None,
                            batch_size=30, donate=True)),
])
def test_two_devices_train_what_one_trains(records, step, changed):
  """Noise included, so it is drawn once, and from the same key."""
  expected, sizes, _ = _trained(None, records, step=step, **changed)
  found, same_sizes, state = _trained(2, records, step=step, **changed)
  assert sizes == same_sizes
  _same(found, expected)
  for leaf in jax.tree.leaves((state.params, state.optimizer)):
    assert leaf.sharding.is_fully_replicated and len(leaf.devices()) == 2


@pytest.mark.every(2)
def test_a_compiled_step_of_two_devices():
  private = [_private(devices) for devices in (None, 2)]
  results = [_compiled(each, each.init(_params(), key=jax.random.key(4)),
                       jax.tree.map(jnp.asarray, _records()))[0].params
             for each in private]
  _same(*jax.tree.map(np.asarray, results))


def test_each_device_gets_its_rows_and_sums_are_reduced_once():
  private = _private(2)
  state = private.init(_params(), key=jax.random.key(4))
  numbers = np.arange(6)
  data = jax.tree.map(lambda leaf: leaf[:6], _records()), numbers, numbers >= 0
  functions = private._functions()[1]
  shapes = jax.eval_shape(functions.no_sums, state)
  program = functions.add.lower(state, shapes, *data).compile()
  text = program.as_text()
  # Each of four sums is reduced at most once; a device reads three of six rows.
  assert 1 <= text.count(' all-reduce(') + text.count(' all-reduce-start(') <= 4
  assert 'all-gather' not in text and 'f32[3,5]' in text
  assert 'f32[6,5]' not in text


@pytest.mark.every(11)
@pytest.mark.parametrize('fault', ['repeated', 'missing'])
def test_noise_in_every_device_is_noticed(fault):
  """Each device adds noise to its sums, from a key of its own."""
  honest = sharding.split_sums

  def noisy(mesh, bounder, *placed):
    def sums(params, batch, mask):
      bounded = bounder.sums(params, batch, mask)
      key = jax.random.key(jax.lax.axis_index(placement.AXIS).astype(jnp.uint32))
      return bounded._replace(total=tree.add(bounded.total, tree.scale(
          0.8, additive.unit_noise(key, params))))
    return honest(mesh, bounder._replace(sums=sums) if mesh else bounder,
                  *placed)

  missing = lambda key, values, stddevs: values
  expected, _, _ = _trained(None, _records(), steps=1)
  with mock.patch.object(sharding, 'split_sums', noisy), mock.patch.object(
      additive, 'add_gaussian_noise', missing if fault == 'missing' else
      additive.add_gaussian_noise):
    found, _, _ = _trained(2, _records(), steps=1)
  with pytest.raises(AssertionError):
    _same(found, expected)


def test_refused_meshes():
  with pytest.raises(ValueError, match='got 5; 6 is one'):
    _private(2, max_batch_size=5)
  with pytest.raises(ValueError, match="an axis 'data'"):
    _private(None, mesh=jax.sharding.Mesh(np.array(jax.devices()[:2]), ('x',)))
