"""Tests of `loop.fit` whose parameters are divided over devices."""

import functools
import json
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax.grads import shards
from dpjax.lipschitz import losses
from dpjax.models import mlp
from dpjax.privacy import sharded
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import PoissonSampler
from dpjax.train import loop
from dpjax.train import methods
from dpjax.train import placement
from dpjax.train import plan as plans
from dpjax.train import sharding
from dpjax.typing import Batch

_ROOT = pathlib.Path(__file__).resolve().parents[2]
_CASES = ('dp_sgd', 'streamed', 'sgd', 'adaptive', 'lattice', 'correlated',
          'lip_dp_sgd', 'convnet')


def _ran(path, *names):
  environ = {name: value for name, value in os.environ.items()
             if name != 'XLA_FLAGS'}
  done = subprocess.run(
      [sys.executable, '-m', 'tests.train.divided_fit_main', path, *names],
      check=False, text=True, capture_output=True, env=environ, cwd=_ROOT)
  assert done.returncode == 0, done.stderr[-3000:]
  with np.load(path) as arrays:
    return dict(arrays), json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize('case', _CASES)
def test_eight_devices_train_what_one_trains(case, tmp_path):
  """Noise included, so it is drawn once, from the same key.

  Parameters differ by float32 rounding. Noisy sums lie on a grid of 1/256 of
  their noise at most, and a few of them may be rounded to another point.
  """
  arrays, _ = _ran(tmp_path / 'arrays.npz', *(
      f'{case}/{layout}' for layout in ('one', 'fsdp', 'both')))
  one = arrays[f'{case}/one']
  assert np.abs(one).max() > 0.1
  for layout in ('fsdp', 'both'):
    difference = np.abs(one - arrays[f'{case}/{layout}'])
    assert np.mean(difference > 1e-6) < 0.05 and difference.max() < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize('case', ['dp_sgd', 'lattice'])
def test_a_device_needs_a_sixth_of_the_memory(case, tmp_path):
  _, needs = _ran(tmp_path / 'none.npz', f'{case}/one/memory',
                  f'{case}/both/memory')
  assert needs[f'{case}/both/memory'] <= needs[f'{case}/one/memory'] / 6


# Tests of two devices in this process.

_MODEL = mlp.mlp(num_features=4, num_classes=4, depth=1, width=8)
_METHOD = methods.dp_sgd(_MODEL, losses.cross_entropy(), clip_norm=0.7)


def _mesh(**sizes):
  return sharding.device_mesh(sizes or {'data': 2})


def _fit(mesh=None, place=None, method=_METHOD, **changed):
  rng = np.random.default_rng(0)
  records = Batch(jnp.asarray(rng.normal(size=(20, 4)), jnp.float32),
                  jnp.asarray(rng.integers(0, 4, 20), jnp.int32))
  plan = plans.TrainingPlan(
      sampler=PoissonSampler(num_examples=20, batch_size=6), num_steps=2,
      noise_multiplier=1.3, adjacency=Adjacency.ADD_OR_REMOVE_ONE)
  return loop.fit(
      # Reproducible: for research, not for a release.
      jax.random.split(jax.random.key(5), 1), plans=[plan], model=_MODEL,
      method=method, optimizer=optax.sgd(0.4), records=records,
      rows=jnp.arange(20, dtype=jnp.int32)[None], mesh=mesh, place=place,
      **changed)


def _place(mesh):
  return functools.partial(placement.divided, mesh, least_size=16)


def _kernel(result):
  return np.asarray(result.state.params['dense_00']['kernel'])


def test_two_devices_train_what_one_trains():
  one, two = _fit(), _fit(_mesh(), _place(_mesh()))
  spec = two.state.params['dense_00']['kernel'].sharding.spec
  assert 'data' in spec
  np.testing.assert_allclose(_kernel(two), _kernel(one), atol=1e-3)
  np.testing.assert_array_equal(one.info.batch_size, two.info.batch_size)
  np.testing.assert_array_equal(one.joint_noise_multipliers,
                                two.joint_noise_multipliers)


@pytest.mark.every(4)
@pytest.mark.parametrize('fault', ['noise', 'sums'])
def test_fault_of_divided_fits(fault, monkeypatch):
  """Devices draw the same noise, or keep the sums of their own records."""
  expected = _kernel(_fit())
  if fault == 'noise':
    monkeypatch.setattr(sharded, '_position', lambda mesh, axes: jnp.uint32(0))
  else:
    def own(self, number, total):
      if number not in self.dims:
        return total
      dim = total.ndim + self.dims[number]
      size = total.shape[dim] // 2
      return jax.lax.dynamic_slice_in_dim(
          total, size * jax.lax.axis_index(self.axis), size, dim)
    monkeypatch.setattr(shards.Shards, 'own', own)
  kernel = _kernel(_fit(_mesh(), _place(_mesh())))
  assert np.abs(kernel - expected).max() > 0.005


def test_sums_that_are_replaced_are_not_computed_from_parts():
  """A wrapper of sums is called, not what it wraps."""
  doubled = _METHOD._replace(bounder=_METHOD.bounder._replace(
      sums=lambda *args: _METHOD.bounder.sums(*args)._replace(
          loss=jnp.float32(123))))
  result = _fit(_mesh(), _place(_mesh()), doubled)
  np.testing.assert_allclose(result.info.mean_loss, 2 * 123 / 6)
  np.testing.assert_allclose(_kernel(result), _kernel(_fit()), atol=1e-3)


def test_the_rule_of_division():
  mesh = _mesh(data=1, model=2)
  given = {'dense': np.ones([300, 200]), 'odd': np.ones([200, 201]),
           'conv': np.ones([3, 3, 50, 64]), 'small': np.ones([4, 4])}
  shapes = jax.eval_shape(lambda: jax.tree.map(jnp.asarray, given))
  expected = {'dense': ('data', 'model'), 'odd': (None, 'data'),
              'conv': (None, None, 'data', 'model'), 'small': (None, None)}
  for params in (given, shapes):
    placed = placement.divided(mesh, params)
    assert {name: tuple(leaf.sharding.spec)
            for name, leaf in placed.items()} == expected
  two = placement.divided(_mesh(), given)
  assert {name: tuple(leaf.sharding.spec) for name, leaf in two.items()} == {
      'dense': ('data', None), 'odd': ('data', None),
      'conv': (None, None, None, 'data'), 'small': (None, None)}


@pytest.mark.parametrize('mesh, place, message', [
    (None, lambda shapes: shapes, 'place needs a mesh'),
    ({'data': 1, 'model': 2}, None, "must have one axis, 'data'"),
    ({'data': 2}, lambda shapes: {}, 'place must return the shapes'),
    ({'data': 2}, lambda shapes: placement.divided(_mesh(data=1, model=2),
                                                   shapes), 'on the mesh of')])
def test_refused_placements(mesh, place, message):
  with pytest.raises(ValueError, match=message):
    _fit(None if mesh is None else _mesh(**mesh), place)


@pytest.mark.parametrize('sizes, message', [
    ({'model': 2}, "a mesh needs an axis 'data', .* got 'model'"),
    ({'data': 0}, 'the size of data must be an integer >= 1, got 0'),
    ({'data': 2, 'model': 2}, 'must be at most 2, the number of devices')])
def test_refused_meshes(sizes, message):
  with pytest.raises(ValueError, match=message):
    sharding.device_mesh(sizes)
