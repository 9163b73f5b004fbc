"""Tests book-keeping of any function against per-record gradients (DP-16)."""

import logging

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import bookkeeping
from dpjax.grads import contractions
from dpjax.grads import per_example
from dpjax.typing import Batch
from tests.grads.compared import check_equal
from tests.grads.compared import kinds
from tests.grads.compared import linen
from tests.grads.compared import loss
from tests.grads.compared import records
from tests.grads.compared import SIZE
from tests.grads.compared import squares


def tokens(length, size, seed=0):
  return jnp.asarray(np.random.default_rng(seed).integers(
    0, size, (SIZE, length)), jnp.int32)


def conv(x, kernel, **options):
  options = dict(window_strides=(1,), padding=[(0, 0)]) | options
  return jax.lax.conv_general_dilated(x, kernel, **options)


def _weights(*shapes):
  rng = np.random.default_rng(3)
  return {f'w{i}': jnp.asarray(rng.normal(size=shape) / shape[0]**.5,
                               jnp.float32) for i, shape in enumerate(shapes)}


def _scanned(params, x):
  step = lambda x, w: (jnp.tanh(x @ w), None)
  return jax.lax.scan(step, x, params['w0'])[0] @ params['w1']


@jax.custom_vjp
def _halved(x, w):
  return x @ w


_halved.defvjp(lambda x, w: (x @ w, (x, w)), lambda kept, c: (
  c @ kept[1].T, kept[0].T @ c / 2))


# name -> (apply, params, x, kinds of the leaves in order)
FUNCTIONS = {
  'dense over axes': (
    lambda p, x: jnp.einsum('bthd,hdk->bk', x, p['w0']),
    _weights((3, 4, 2)), records(5, 3, 4), ['Layer']),
  'weights first': (
    lambda p, x: jnp.einsum('oi,bi->bo', p['w0'], x), _weights((3, 4)),
    records(4), ['Layer']),
  'weights first, sites': (
    lambda p, x: jnp.einsum('oi,bit->bo', p['w0'], jnp.sin(x)),
    _weights((3, 4)), records(4, 7), ['Layer']),
  'groups': (
    lambda p, x: jnp.einsum('bgi,gio->bo', x, p['w0']), _weights((5, 4, 3)),
    records(5, 4), ['Layer']),
  'groups and sites': (
    lambda p, x: jnp.sin(jnp.einsum('btgi,ogi->bgto', x, p['w0'])).sum((1, 2)),
    _weights((3, 5, 4)), records(6, 5, 4), ['Layer']),
  'one axis': (
    lambda p, x: jnp.sin(conv(x, p['w0'], padding=[(2, 1)])).sum(-1),
    _weights((3, 2, 4)), records(2, 9), ['Layer']),
  'three axes': (
    lambda p, x: jnp.tanh(conv(
      x, p['w0'], window_strides=(1, 2, 1), padding=[(0, 1)] * 3,
      dimension_numbers=('NDHWC', 'DHWIO', 'NDHWC'))).sum((1, 2, 3)),
    _weights((2, 3, 1, 2, 3)), records(4, 5, 3, 2), ['Layer']),
  'transposed': (
    lambda p, x: jnp.tanh(jax.lax.conv_transpose(
      x, p['w0'], (2, 2), 'SAME')).sum((1, 2)),
    _weights((3, 3, 2, 3)), records(4, 4, 2), ['Layer']),
  'cropped': (
    lambda p, x: jnp.tanh(conv(x, p['w0'], padding=[(-1, -2)])).sum(-1),
    _weights((3, 2, 2)), records(2, 9), ['Layer']),
  'depthwise': (
    lambda p, x: jnp.tanh(conv(
      x, p['w0'], feature_group_count=4, padding=[(1, 1)])).sum(-1)[:, :3],
    _weights((8, 1, 3)), records(4, 9), ['Layer']),
  'kernel transposed': (
    lambda p, x: jnp.tanh(x @ p['w0'].T) @ p['w1'].reshape((4, 3)),
    _weights((4, 5), (12,)), records(5), ['Layer', 'Layer']),
  'table': (
    lambda p, x: jnp.tanh(p['w0'][x]).mean(1) @ p['w1'],
    _weights((9, 4), (4, 3)), tokens(7, 9), ['Table', 'Layer']),
  'table, taken': (
    lambda p, x: jnp.tanh(jnp.take(p['w0'], x, 0, mode='clip')).mean(1),
    _weights((9, 3)), tokens(7, 12), ['Table']),
  'table, dropped': (
    lambda p, x: jnp.tanh(jnp.take(p['w0'], x, 0, mode='fill',
                                   fill_value=0.5)).mean(1),
    _weights((9, 3)), tokens(7, 12), ['Table']),
  'small table': (
    lambda p, x: jnp.tanh(p['w0'][x]).mean(1), _weights((2, 3)),
    tokens(30, 2), ['formed']),
  'table of columns': (
    lambda p, x: jnp.tanh(p['w0'][:, x]).mean(-1).T, _weights((3, 9)),
    tokens(1, 9), ['formed']),
  'shared': (
    lambda p, x: jnp.tanh(jnp.tanh(x @ p['w0']) @ p['w0']) @ p['w1'],
    _weights((4, 4), (4, 3)), records(4), ['Layer Layer', 'Layer']),
  'tied': (
    lambda p, x: jnp.tanh(p['w0'][x]).mean(1) @ p['w0'].T,
    _weights((5, 4)), tokens(3, 5), ['Layer Table']),
  'function of parameters': (
    lambda p, x: x @ (p['w0'] / jnp.linalg.norm(p['w0']) * p['w1'][0]),
    _weights((4, 3), (1,)), records(4), ['formed', 'formed']),
  'read by two functions': (
    lambda p, x: x @ p['w0'] + jnp.tanh(x) @ p['w0'].T.reshape((4, 3)),
    _weights((4, 3)), records(4), ['formed']),
  'scan over layers': (
    _scanned, _weights((3, 4, 4), (4, 3)), records(4), ['Layer', 'Layer']),
  'remat and jit': (
    jax.jit(lambda p, x: jax.checkpoint(
      lambda p, x: jnp.tanh(x @ p['w0']))(p, x) @ p['w1']),
    _weights((4, 5), (5, 3)), records(4), ['Layer', 'Layer']),
  'own backward pass': (
    lambda p, x: _halved(jnp.tanh(x), p['w0']), _weights((4, 3)), records(4),
    ['formed']),
  'gradients stopped': (
    lambda p, x: x @ p['w0'] + x @ jax.lax.stop_gradient(p['w1']),
    _weights((4, 3), (4, 3)), records(4), ['Layer', 'none']),
  'broadcast': (
    lambda p, x: x @ jnp.broadcast_to(p['w0'][:, None], (4, 3)),
    _weights((4,)), records(4), ['Layer']),
  'not read': (
    lambda p, x: x @ p['w0'], _weights((4, 3), (2, 2)), records(4),
    ['Layer', 'none']),
  'scale': (
    lambda p, x: (x / jnp.exp(p['w0'])[None]) * p['w1'] - p['w2'][0],
    _weights((4,), (1, 4), (1,)), records(4), ['formed'] * 3),
  'branches': (
    lambda p, x: jax.lax.cond(jnp.sum(x) > 0, lambda x: x @ p['w0'],
                              lambda x: jnp.sin(x) @ p['w1'], x),
    _weights((4, 3), (4, 3)), records(4), ['formed', 'formed']),
  'negative infinity on the way': (
    lambda p, x: jax.nn.softmax(jnp.where(
      jnp.arange(3)[None] < 2, x @ p['w0'], -jnp.inf) + p['w1'][None]),
    _weights((4, 3), (3,)), records(4), ['Layer', 'formed']),
}


def _in_default_run(name):
  # Parameters that are read more than once add up; the other cases are many.
  return name in ('shared', 'tied', 'dense over axes', 'one axis', 'broadcast')


@pytest.mark.every(1)
@pytest.mark.parametrize('name', [
  name if _in_default_run(name) else pytest.param(name, marks=pytest.mark.slow)
  for name in FUNCTIONS])
def test_functions(name):
  apply, params, x, wanted = FUNCTIONS[name]
  assert list(kinds(apply, params, x).values()) == wanted
  check_equal(apply, params, x)


@pytest.mark.every(3)
@pytest.mark.parametrize('name', [
  'dense over axes', 'groups and sites', 'one axis', 'three axes', 'transposed',
  'depthwise', 'weights first, sites'])
@pytest.mark.parametrize('gram', [True, False])
def test_both_norms(monkeypatch, name, gram):
  monkeypatch.setattr(contractions, 'gram_is_cheaper', lambda layer: gram)
  check_equal(*FUNCTIONS[name][:3])


def test_batch_normalisation_does_not_mix_records():
  """Batch statistics are computed per record, so records do not mix."""
  def apply(params, x):
    centred = x - jnp.mean(x, 0, keepdims=True)
    return (centred + jnp.sin(x)) @ params['w0']

  params, x = _weights((4, 3)), records(4)
  check_equal(apply, params, x)
  before = squares(apply, params, x, 'bookkeeping')[0]['w0']
  after = squares(apply, params, x.at[0].set(7.), 'bookkeeping')[0]['w0']
  np.testing.assert_array_equal(before[1:], after[1:])
  assert before[0] != after[0]


@pytest.mark.slow
def test_half_precision():
  """Products are in bfloat16, but norms and sums are in float32."""
  class Half(nn.Module):

    @nn.compact
    def __call__(self, x):
      x = nn.tanh(nn.Conv(3, (2, 2), dtype=jnp.bfloat16)(x))
      x = x.reshape((x.shape[0], -1))
      return nn.Dense(3, dtype=jnp.bfloat16)(x).astype(jnp.float32)

  x = records(3, 3, 2)
  apply, params = linen(Half(), x)
  assert sorted(kinds(apply, params, x).values()) == [
    'Layer'] * 2 + ['formed'] * 2
  check_equal(apply, params, x, rtol=2e-2)
  # The measured gradient is the summed one, to float32 and not to bfloat16.
  for index in (0, 5):
    one = jnp.arange(SIZE) == index
    batch = Batch(x, jnp.zeros([SIZE], jnp.int32))
    gradients = bookkeeping.record_gradients(apply, loss, params, batch, one)
    jax.tree.map(lambda square, total, i=index: np.testing.assert_allclose(
      np.sum(np.square(np.float64(total))), square[i], rtol=1e-5),
                 gradients.squares, gradients.weighted(jax.tree.map(
                   lambda leaf, one=one: jnp.where(one, 1., 0.), params)))


def test_the_loss_must_depend_on_the_records():
  with pytest.raises(ValueError, match='does not depend on the records'):
    bookkeeping.record_gradients(
      lambda p, x: p['w0'][None], lambda logits, y: jnp.sum(logits, 1),
      _weights((3,)), Batch(records(2), jnp.zeros([SIZE], jnp.int32)),
      jnp.ones([SIZE], jnp.bool_))


@pytest.mark.every(2)
def test_what_is_slow_is_said_once(caplog):
  apply, params, x, _ = FUNCTIONS['branches']
  bookkeeping._say.cache_clear()
  with caplog.at_level(logging.WARNING):
    squares(apply, params, x, 'bookkeeping')
    squares(apply, params, x[:3], 'bookkeeping')
  said = [record.getMessage() for record in caplog.records
          if record.name == bookkeeping.__name__]
  assert len(said) == 1 and "['w0'] (cond reads it" in said[0]
  assert "['w1'] (cond reads it" in said[0]
  # Biases and scales are as small as the terms that they sum.
  caplog.clear()
  with caplog.at_level(logging.WARNING):
    squares(*FUNCTIONS['scale'][:3], 'bookkeeping')
  assert not caplog.records


@pytest.mark.slow
@pytest.mark.parametrize('kernel', per_example.KERNELS)
def test_norms_are_public(kernel):
  """Norms come as one number or one per block, infinite for bad records."""
  apply, params, x, _ = FUNCTIONS['kernel transposed']
  batch = Batch(x.at[2].set(jnp.nan), jnp.zeros([SIZE], jnp.int32))
  norms = per_example.per_example_norms(apply, loss, params, batch,
                                        kernel=kernel)
  by_layer = per_example.per_example_norms(
    apply, loss, params, batch, blocks={'w0': 0, 'w1': 0}, kernel=kernel)
  grads = per_example.per_example_gradients(apply, loss, params, batch)[1]
  flat = {name: np.linalg.norm(np.reshape(grad, (SIZE, -1)), axis=1)
          for name, grad in grads.items()}
  fine = np.arange(SIZE) != 2
  for name, wanted in flat.items():
    np.testing.assert_allclose(by_layer[name][fine], wanted[fine], rtol=1e-5)
  np.testing.assert_allclose(norms[fine], np.hypot(*flat.values())[fine],
                             rtol=1e-5)
  assert np.isinf(norms[2]) and np.isinf(by_layer['w1'][2])
  with pytest.raises(ValueError, match='kernel must be one of'):
    per_example.per_example_norms(apply, loss, params, batch, kernel='fast')


@pytest.mark.parametrize('name', ['outer', 'gram', 'table', 'kept'])
@pytest.mark.sound
def test_what_cannot_be_measured_beside_small_numbers_is_not_used(name):
  """A record is usable if inputs and cotangents are below 1e10 in norm.

  Gradients that are formed do not have this limit, whatever their factors are.
  """
  apply, shape, rows = {
    'outer': (lambda p, x: x @ p['w'], (3, 2), (3,)),
    'gram': (lambda p, x: (x @ p['w']).reshape((-1, 400)), (200, 200),
             (2, 200)),
    'kept': (lambda p, x: jnp.sum(x @ p['w'], 1), (3, 2), (4, 3)),
    'table': (lambda p, x: p['w'][jnp.int32(x > 0)], (3, 2), ())}[name]
  loss_of = lambda logits, labels: logits[:, 0] * labels
  features, cotangents = np.array([
    (1, 1), (9.8e9, 1), (1.02e10, 1), (1, 9.8e9), (1, 1.02e10),
    (1, np.inf), (1, np.nan), (1e-30, 1.02e10), (1.02e10, 1e-30)]).T
  x = features.reshape((-1,) + (1,) * len(rows)) * (
    np.eye(1, int(np.prod(rows))).reshape(rows) if rows else 1)
  gradients = bookkeeping.record_gradients(
    apply, loss_of, {'w': jnp.zeros(shape)},
    Batch(jnp.asarray(x, jnp.float32), jnp.asarray(cotangents, jnp.float32)),
    jnp.ones(len(x), jnp.bool_))
  # Tables are looked up by indices, which may have any size.
  most = 1e30 if name == 'kept' else 1e10
  measured = (np.abs(cotangents) < most) & (
    (features < most) | (name == 'table'))
  np.testing.assert_array_equal(gradients.usable, measured)
  assert not np.any(np.asarray(gradients.squares['w'])[~measured])
