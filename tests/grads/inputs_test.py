"""Tests scalar parameters, records in every form, and empty batches."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import inputs
from dpjax.grads import per_example
from dpjax.grads import quantiles
from dpjax.lipschitz import losses
from dpjax.models import convnet
from dpjax.models import mlp
from dpjax.train import methods
from dpjax.typing import Batch

X = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)), jnp.float32)
Y = jnp.array([0.0, 1.0, 2.0, 1.0])
MASK = jnp.array([True, True, False, True])
KERNELS = list(per_example.KERNELS)


def _loss(logits, labels):
  return (logits[:, 0] - labels)**2


def _apply(params, x):
  return (params['scale'] * x) @ params['w']


def _bounder(kernel='bookkeeping', apply=_apply):
  return per_example.clipped(apply, _loss, clip_norm=0.5, kernel=kernel)


PARAMS = {'scale': jnp.float32(2), 'w': jnp.ones([3, 1])}


@pytest.mark.every(2)
@pytest.mark.parametrize('kernel', KERNELS)
def test_python_floats_are_parameters(kernel):
  bounder = _bounder(kernel)
  expected = bounder.sums(PARAMS, Batch(X, Y), MASK)
  sums = bounder.sums({**PARAMS, 'scale': 2.0}, Batch(X, Y), MASK)
  jax.tree.map(np.testing.assert_array_equal, sums, expected)
  assert np.any(sums.total['scale'])


@pytest.mark.every(1)
@pytest.mark.parametrize('kernel', KERNELS)
@pytest.mark.parametrize('value', [3, np.int32(3), True, 1j])
def test_other_parameters_are_refused_as_by_grad(kernel, value):
  params = {**PARAMS, 'scale': value}
  with pytest.raises(TypeError):
    jax.grad(lambda p: p['scale'] * 1.0)(params)
  with pytest.raises(TypeError, match=r"got \w+ at \['scale'\]"):
    _bounder(kernel).sums(params, Batch(X, Y), MASK)
  with pytest.raises(TypeError, match='must be real floating numbers'):
    per_example.summed(_apply, _loss).sums(params, Batch(X, Y), MASK)
  with pytest.raises(TypeError, match='must be real floating numbers'):
    per_example.per_example_norms(_apply, _loss, params, Batch(X, Y),
                                  kernel=kernel)


@pytest.mark.every(4)
@pytest.mark.parametrize('kernel', KERNELS)
def test_pairs_and_trees_of_features(kernel):
  expected = _bounder(kernel).sums(PARAMS, Batch(X, Y), MASK)
  for batch in ((X, Y), [X, Y]):
    sums = _bounder(kernel).sums(PARAMS, batch, MASK)
    jax.tree.map(np.testing.assert_array_equal, sums, expected)
  tree = {'left': X[:, :2], 'right': (X[:, 2:],)}
  joined = lambda p, x: _apply(p, jnp.concatenate([x['left'], *x['right']], 1))
  for bounder in (_bounder(kernel, joined), per_example.summed(joined, _loss)):
    plain = (_bounder(kernel) if bounder.l2_sensitivity(()) < 1 else
             per_example.summed(_apply, _loss))
    sums = bounder.sums(PARAMS, (tree, Y), MASK)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5),
                 sums, plain.sums(PARAMS, Batch(X, Y), MASK))
    # One non-finite leaf drops the whole record.
    spoilt = {**tree, 'left': tree['left'].at[0, 1].set(jnp.nan)}
    sums = bounder.sums(PARAMS, (spoilt, Y), MASK)
    without = bounder.sums(PARAMS, (tree, Y), MASK.at[0].set(False))
    jax.tree.map(np.testing.assert_array_equal, sums.total, without.total)
    assert int(sums.num_nonfinite) == 1


@pytest.mark.every(1)
@pytest.mark.parametrize('batch, message', [
  ({'x': X, 'y': Y}, 'got a dict of 2'), ((X,), 'got a tuple of 1'),
  (X, 'got a .*Array'), ((X, Y[:3]), r'shapes \[4, 3\], \[3\]'),
  ((X, 1.0), r'labels must be an array \[b, \.\.\.\], got a float'),
  ((X, [0.0, 1.0, 2.0, 1.0]), 'labels must be .* got a list'),
  ((X, None), 'labels must be .* got a NoneType'),
  (([[1.0, 2.0]] * 4, Y), 'features must be .* list of numbers'),
  ((list(X), Y), r'shapes \[3\], \[4\]$'),
  ((np.array([['a']] * 4), Y), 'must be numbers, got .* <U1'),
  ((np.array([[None]] * 4), Y), 'must be numbers, got .* object')])
def test_other_records_are_refused(batch, message):
  with pytest.raises(ValueError, match=message) as caught:
    _bounder().sums(PARAMS, batch, MASK)
  assert '\n' not in str(caught.value)
  with pytest.raises(ValueError, match=message):
    inputs.as_batch(batch)


@pytest.mark.every(3)
@pytest.mark.parametrize('name', ['features', 'transform'])
def test_complex_numbers_have_the_gradients_of_vmap(name):
  """Complex gradients match `vmap`; the kernel once took only real parts."""
  x = X if name == 'transform' else jax.lax.complex(X, X[::-1])
  apply = lambda p, x: jnp.abs(jnp.fft.fft(x) @ p['w'].astype(jnp.complex64))
  batch = Batch(x, Y)
  norms = [per_example.per_example_norms(apply, _loss, PARAMS, batch,
                                         kernel=kernel) for kernel in KERNELS]
  np.testing.assert_allclose(*norms, rtol=1e-5)
  sums = [_bounder(kernel, apply).sums(PARAMS, batch, MASK).total
          for kernel in KERNELS]
  jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5),
               *sums)
  assert np.any(sums[0]['w'])


def _empty(shape):
  return Batch(jnp.zeros((0, *shape)), jnp.zeros([0], jnp.int32))


def _of_nothing(bounder, params, shape, radii=()):
  sums = jax.jit(bounder.sums)(params, _empty(shape), jnp.zeros([0], jnp.bool_),
                               *radii)
  assert not any(np.any(leaf) for leaf in jax.tree.leaves(sums))
  assert jax.tree.map(jnp.shape, sums.total) == jax.tree.map(jnp.shape, params)


@pytest.mark.every(6)
@pytest.mark.parametrize('name', [
  'dp_sgd', 'dp_sgd_per_layer', 'sgd', 'layer_clipped', 'lip_dp_sgd',
  'lip_adaptive'])
def test_no_records_at_all_add_up_to_zero(name):
  model = mlp.mlp(num_features=3, num_classes=2, width=4, input_radius=1.0,
                  hidden_radius=1.0, adaptive=name == 'lip_adaptive')
  options = {'sgd': {}, 'lip_dp_sgd': {'weight_norm': 1.0}, 'lip_adaptive': {
    'weight_norm': 1.0, 'noise_stddev': 5.0}}.get(name, {'clip_norm': 1.0})
  bounder = getattr(methods, name)(model, losses.cross_entropy(),
                                   **options).bounder
  radii = () if bounder.adaptive is None else (bounder.adaptive.init,)
  _of_nothing(bounder, model.init(jax.random.key(0)), (3,), radii)


@pytest.mark.every(2)
def test_no_images_either():
  model = convnet.convnet(input_shape=(6, 6, 1), num_classes=2, channels=(2,),
                          width=3)
  params = model.init(jax.random.key(0))
  for kernel in KERNELS:
    bounder = per_example.adaptively_clipped(
      model.apply, losses.cross_entropy().values, kernel=kernel,
      adaptive=quantiles.geometric(1.0, target_quantile=0.5, learning_rate=0.2,
                                   noise_stddev=4.0))
    _of_nothing(bounder, params, (6, 6, 1), (jnp.float32(1),))
  norms = jax.jit(lambda params, batch: per_example.per_example_norms(
    model.apply, losses.cross_entropy().values, params, batch))(
      params, _empty((6, 6, 1)))
  assert norms.shape == (0,)


def test_every_part_of_the_features_has_to_be_finite():
  """A record is dropped if any leaf is bad, and cleaned in all its leaves."""
  x = {'a': jnp.ones([4, 2]), 'b': jnp.ones([4]), 'c': jnp.arange(4)}
  for name, place in (('a', (1, 0)), ('b', (1,))):
    for bad in (jnp.nan, jnp.inf, -jnp.inf):
      given = {**x, name: x[name].at[place].set(bad)}
      np.testing.assert_array_equal(inputs.finite_records(given),
                                    [True, False, True, True])
      cleaned, finite = inputs.clean_features(
          given, jnp.asarray([True, True, False, True]))
      np.testing.assert_array_equal(finite, [True, False, True, True])
      for leaf, before in zip(jax.tree.leaves(cleaned), jax.tree.leaves(x),
                              strict=True):
        np.testing.assert_array_equal(leaf[::3], before[::3])
        assert not np.any(leaf[1:3])
