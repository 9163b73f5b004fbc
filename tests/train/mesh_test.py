"""These tests check that two devices compute what one device computes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import bounder as bounders
from dpjax.grads import per_example
from dpjax.sampling import PoissonSampler
from dpjax.train import sharding
from dpjax.typing import Batch


def _sums(params, batch, mask, *radii):
  """Returns row sums times the parameter, with each row clipped to norm 1.

  Radii are added once per record.
  """
  norms = jnp.maximum(1.0, jnp.linalg.norm(batch.x, axis=1))
  rows = jnp.where(mask[:, None], batch.x / norms[:, None], 0.0)
  total = {'w': params['w'] * rows.sum(0) + sum(
      radii, jnp.float32(0)) * jnp.sum(mask, dtype=jnp.float32)}
  return bounders.BoundedSums(total, jnp.sum(jnp.where(mask, norms, 0.0)),
                              jnp.sum(~mask, dtype=jnp.int32), ())


BOUNDER = bounders.GradientBounder(_sums, lambda certificate: jnp.float32(1))
PARAMS = {'w': jnp.float32(2)}
BATCH = Batch(jnp.asarray(np.random.default_rng(0).normal(size=(6, 3)),
                          jnp.float32), jnp.arange(6))
MASK = jnp.asarray([True, False, True, True, True, False])


@pytest.mark.every(3)
@pytest.mark.parametrize('radii', [(), (jnp.float32(.5),)])
def test_sums_of_devices_are_those_of_one(radii):
  mesh = sharding.data_mesh(2)
  divided = sharding.split_sums(mesh, BOUNDER)
  wanted = _sums(PARAMS, BATCH, MASK, *radii)
  whole = sharding.jit(mesh, divided.sums)
  given = sharding.replicate(mesh, (PARAMS, BATCH, MASK, *radii))
  result = whole(*given)
  for leaf in jax.tree.leaves(result):
    assert leaf.sharding.is_fully_replicated and len(leaf.devices()) == 2
  local = sharding.local(mesh, result)
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), local,
               wanted)
  assert all(len(leaf.devices()) == 1 for leaf in jax.tree.leaves(local))
  assert sharding.split_sums(None, BOUNDER) is BOUNDER


def test_values_are_put_on_every_device():
  mesh, keys = sharding.data_mesh(2), jax.random.split(jax.random.key(0), 3)
  put = sharding.replicate(mesh, {'key': keys, 'value': jnp.arange(4)})
  assert len(put['value'].devices()) == len(put['key'].devices()) == 2
  np.testing.assert_array_equal(put['value'], np.arange(4))
  np.testing.assert_array_equal(jax.random.key_data(put['key']),
                                jax.random.key_data(keys))
  assert jax.random.key_impl(put['key']) == jax.random.key_impl(keys)
  one = {'value': jnp.arange(4)}
  for function in (sharding.replicate, sharding.local):
    assert function(None, one) is one
  assert sharding.jit(None, lambda x: x + 1)(jnp.int32(1)) == 2


def test_batches_are_padded_to_rows_that_divide():
  mesh = sharding.data_mesh(2)
  sampler = PoissonSampler(num_examples=20, batch_size=5)
  divided = sharding.split_sampler(mesh, sampler)
  assert divided.row_multiple == 2 and divided.part_size % 2 == 0
  assert sharding.split_sampler(None, sampler) is sampler
  sharding.check(mesh, None)
  sharding.check(mesh, 4)
  sharding.check(None, 5)
  with pytest.raises(ValueError, match='got 5; 6 is one'):
    sharding.check(mesh, 5)
  with pytest.raises(ValueError, match="an axis 'data', .*got 'rows'"):
    sharding.check(jax.sharding.Mesh(np.array(jax.devices()[:2]), ('rows',)),
                   4)


def test_meshes_are_of_the_first_devices():
  devices = jax.devices()
  assert sharding.data_mesh().size == len(devices)
  assert sharding.data_mesh(1).devices.tolist() == devices[:1]
  assert sharding.data_mesh(devices=devices[1:2]).devices.tolist() == (
      devices[1:2])
  with pytest.raises(ValueError, match='num_devices must be at most'):
    sharding.data_mesh(len(devices) + 1)
  with pytest.raises(ValueError, match='num_devices must be an integer >= 1'):
    sharding.data_mesh(0)


def test_gradients_of_devices_are_bounded_one_by_one():
  """Each record's gradient is clipped by itself before devices sum theirs.

  With replicated parameters, JAX would sum over devices first.
  """
  mesh = sharding.data_mesh(2)
  bounder = per_example.clipped(
      lambda params, x: x @ params['w'][:, None],
      lambda logits, labels: labels.astype(jnp.float32) * logits[:, 0],
      clip_norm=1.9)
  params, batch = {'w': jnp.ones(3)}, Batch(BATCH.x, jnp.arange(6) - 3)
  bounded = sharding.jit(mesh, sharding.split_sums(mesh, bounder).sums)(
      *sharding.replicate(mesh, (params, batch, MASK)))
  gradients = np.asarray(batch.x) * np.asarray(batch.y)[:, None]
  norms = np.linalg.norm(gradients, axis=1)
  assert norms[norms > 0].min() < 1.9 < norms.max()
  wanted = (gradients / np.maximum(1, norms / 1.9)[:, None])[np.asarray(MASK)].sum(0)
  np.testing.assert_allclose(bounded.total['w'], wanted, rtol=1e-4)
