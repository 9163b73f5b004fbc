"""Tests leaves that several sites read, or that are transformed before.

Norms and sums are compared with `vmap(grad)` in float64.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import bookkeeping
from dpjax.grads import contractions
from dpjax.grads import lookups
from dpjax.grads import precision
from dpjax.grads import pullbacks
from dpjax.grads import shared
from dpjax.typing import Batch
from tests.grads.compared import kinds
from tests.grads.compared import loss
from tests.grads.compared import records
from tests.grads.compared import SIZE
from tests.grads.compared import squares

SITES = 4  # Positions of a record; its lookups hit rows several times.
ROWS = 5


def _tokens():
  rng = np.random.default_rng(5)
  return jnp.asarray(rng.integers(0, ROWS, (SIZE, SITES)), jnp.int32)


def _array(*shape, seed=3):
  """Returns parameters of one type for each test."""
  return np.random.default_rng(seed).normal(size=shape) / shape[0]**.5


def _tied(p, x, scale=1.0):
  embedded = jnp.tanh(p['w'][x] * scale)
  logits = embedded @ p['w'].T
  return jax.nn.log_softmax(logits).sum(1)[:, :3] + logits[:, 0, :3]


def _tied_by_name(p, x):
  table = p['w'] * 0.7
  hidden = jnp.tanh(jnp.take(table, x, 0, mode='clip') @ p['v'])
  return jnp.einsum('vd,btd->btv', p['w'], hidden).mean(1)


def _heads(p, x):
  """One table with two axes of features: [rows, heads, width]."""
  embedded = jnp.tanh(p['w'][x])
  return jnp.einsum('bthd,vhd->btv', embedded, p['w']).sum(1)


def _conv(x, kernel):
  return jax.lax.conv_general_dilated(
    x, kernel, (1,), 'SAME', dimension_numbers=('NTC', 'TIO', 'NTC'))


def _convs(p, x):
  return jnp.tanh(_conv(jnp.tanh(_conv(x, p['w'])), p['w'])).sum(1)


def _qkv(p, x, parts):
  q, k, v = parts(p['w'])
  scores = jax.nn.softmax(jnp.einsum('btd,bsd->bts', x @ q, x @ k))
  return jnp.tanh(scores @ (x @ v)).sum(1)


def _split(p, x):
  return _qkv(p, x, lambda w: jnp.split(w, 3, 1))


def _indexed(p, x):
  return _qkv(p, x, lambda w: [w.reshape((3, 3, 4))[:, i] for i in range(3)])


def _stacked(p, x):
  for i in range(2):
    x = jnp.tanh(x @ p['w'][i] + x @ p['w'][i].T)
  return x.sum(1)


def _lora(p, x, frozen=True):
  base = jax.lax.stop_gradient(p['w']) if frozen else p['w']
  return jnp.tanh(x @ (base + 0.5 * p['a'] @ p['b'])).sum(1)


def _lora_heads(p, x):
  """The product of the low-rank factors is reshaped and read transposed."""
  change = (p['a'] @ p['b']).reshape((3, 2, 2)).transpose((1, 2, 0))
  return jnp.tanh(jnp.einsum('bti,hdi->bthd', x, change)).sum((1, 2))


def _joined(p, x):
  kernel = jnp.concatenate([p['w'], p['bias'][None]])
  ones = jnp.ones((*x.shape[:-1], 1))
  return jnp.tanh(jnp.concatenate([x, ones], -1) @ kernel).sum(1)


def _joined_heads(p, x):
  kernel = jnp.concatenate([p['q'], -p['k'], p['v'] / 2], 1)
  q, k, v = jnp.split(x @ kernel, 3, -1)
  scores = jax.nn.softmax(jnp.einsum('btd,bsd->bts', q, k))
  return jnp.tanh(scores @ v).sum(1)


def _stacked_heads(p, x):
  kernel = jnp.stack([p['q'], p['k']], 1).reshape((3, -1))
  return jnp.tanh(x @ kernel).sum(1)


def _scaled_axes(p, x):
  """Known scales of inputs and of outputs, and a subtracted leaf."""
  kernel = (p['w'] * jnp.arange(1.0, 4)[:, None] - p['v']) * jnp.arange(4.0)[None]
  return jnp.tanh(x @ kernel / jnp.sqrt(3.0)).sum(1)


def _normed(p, x):
  kernel = p['g'][None] * p['w'] / jnp.linalg.norm(
    p['w'], axis=0, keepdims=True)
  return jnp.tanh(x @ kernel).sum(1)


def _standardised(p, x):
  w = p['w'] - p['w'].mean((0, 1), keepdims=True)
  w = w / (w.std((0, 1), keepdims=True) + 0.1)
  return jnp.tanh(_conv(x, w)).sum(1)


def _masked(p, x):
  mask = jnp.asarray(np.tri(3, 4), x.dtype)
  return jnp.tanh(x @ (p['w'] * mask)).sum(1)


def _token(p, x):
  """A class token in front, and positions that are added twice."""
  first = jnp.broadcast_to(p['token'], (len(x), 1, 3))
  x = jnp.concatenate([first, x], 1) + p['positions'][None, :SITES + 1]
  return jnp.tanh(x @ p['w'] + x @ p['w'][::-1] + p['positions'][0, 0]).sum(1)


def _rows(p, x):
  return jnp.tanh((p['w'].sum(0)[None, None] * x).sum(-1, keepdims=True) + x @ jnp.broadcast_to(
    p['v'], (3, 4))).sum(1)


def _sequence():
  return records(SITES, 3)


# name -> (apply, params, x, kinds of the leaves by path)
CASES = {
  'tied': (_tied, dict(w=_array(ROWS, 3)), _tokens(), ['Layer Table']),
  'tied, scaled table': (
    _tied_by_name, dict(w=_array(ROWS, 3), v=_array(3, 3)), _tokens(),
    ['Layer', 'Layer Table']),
  'tied with heads': (_heads, dict(w=_array(ROWS, 2, 3)), _tokens(),
                      ['Layer Table']),
  'two lookups': (
    lambda p, x: jnp.tanh(p['w'][x] - jnp.take(p['w'], x[:, ::-1] + 2, 0,
                                               mode='clip')).sum(1),
    dict(w=_array(16, 3)), _tokens(), ['Table Table']),
  'dense twice': (
    lambda p, x: jnp.tanh(jnp.tanh(x @ p['w']) @ p['w']).sum(1),
    dict(w=_array(3, 3)), _sequence(), ['Layer Layer']),
  'dense and transposed': (
    lambda p, x: jnp.tanh(jnp.tanh(x @ p['w']) @ p['w'].T).sum(1),
    dict(w=_array(3, 4)), _sequence(), ['Layer Layer']),
  'dense and transposed, square': (
    lambda p, x: jnp.tanh(jnp.tanh(x @ p['w']) @ p['w'].T).sum(1),
    dict(w=_array(3, 3)), _sequence(), ['Layer Layer']),
  'dense, one position and several': (
    lambda p, x: jnp.tanh(x.sum(1) @ p['w'] + jnp.tanh(x @ p['w']).sum(1)),
    dict(w=_array(3, 4)), _sequence(), ['Layer Layer']),
  'convolution twice': (_convs, dict(w=_array(3, 2, 2)),
                        records(6, 2), ['Layer Layer']),
  'split': (_split, dict(w=_array(3, 12)), _sequence(), ['Layer Layer Layer']),
  'indexed': (_indexed, dict(w=_array(3, 12)), _sequence(),
              ['Layer Layer Layer']),
  'stacked': (_stacked, dict(w=_array(2, 3, 3)), _sequence(), [
    'Layer Layer Layer Layer']),
  'low rank': (_lora, dict(w=_array(3, 4), a=_array(3, 2), b=_array(2, 4)),
               _sequence(), ['Layer', 'Layer', 'none']),
  'low rank, one position': (
    lambda p, x: _lora(p, x[:, :1], False),
    dict(w=_array(3, 4), a=_array(3, 2), b=_array(2, 4)),
    _sequence(), ['Layer'] * 3),
  'low rank, heads': (_lora_heads, dict(a=_array(3, 1), b=_array(1, 4)),
                      _sequence(), ['Layer', 'Layer']),
  'joined': (_joined, dict(w=_array(3, 4), bias=_array(4)), _sequence(),
             ['Layer', 'Layer']),
  'joined heads': (
    _joined_heads, dict(q=_array(3, 4), k=_array(3, 4, seed=1), v=_array(
      3, 4, seed=2)), _sequence(), ['Layer'] * 3),
  'stacked heads': (
    _stacked_heads, dict(q=_array(3, 2), k=_array(3, 2, seed=1)),
    _sequence(), ['Layer'] * 2),
  'scaled axes': (_scaled_axes, dict(w=_array(3, 4), v=_array(3, 4, seed=1)),
                  _sequence(), ['Layer', 'Layer']),
  'weight norm': (_normed, dict(w=_array(3, 4), g=_array(4)), _sequence(),
                  ['formed', 'formed']),
  'standardised': (_standardised, dict(w=_array(3, 2, 4)), records(6, 2),
                   ['formed']),
  'masked': (_masked, dict(w=_array(3, 4)), _sequence(), ['formed']),
  'token': (_token, dict(w=_array(3, 4), token=_array(1, 1, 3),
                         positions=_array(SITES + 2, 3)), _sequence(),
            ['formed'] * 3),
  'broadcast rows': (_rows, dict(w=_array(5, 3), v=_array(3, 1)), _sequence(),
                     ['Layer', 'formed']),
}


def _given(name, dtype):
  apply, params, x, wanted = CASES[name]
  cast = lambda leaf: jnp.asarray(leaf, dtype if np.issubdtype(
    leaf.dtype, np.floating) else None)
  return apply, jax.tree.map(cast, params), cast(x), wanted


@functools.cache
def _exact(name):
  """Returns what `squares` does, by `vmap(grad)` in float64."""
  with jax.enable_x64(True):
    apply, params, x, _ = _given(name, jnp.float64)

    def loss(params, record, label):
      logits = apply(params, record[None])[0]
      places = jnp.arange(logits.shape[0]) + label
      return jnp.sum(logits * jnp.cos(places.astype(jnp.float64)))

    labels = jnp.arange(SIZE) % 3
    grads = jax.jit(jax.vmap(jax.grad(loss), (None, 0, 0)))(params, x, labels)
    rng = np.random.default_rng(0)
    kept = np.arange(SIZE) != 1
    weights = {path: np.float32(np.where(kept, rng.uniform(0, 2, SIZE), 0))
               for path in params}
    norms = {path: np.where(kept, np.square(np.reshape(each, (SIZE, -1))).sum(1), 0)
             for path, each in grads.items()}
    sums = {path: np.tensordot(np.float64(weights[path]), each, 1)
            for path, each in grads.items()}
  return norms, sums


def _check(name):
  """Checks sums to 1e-5 of their norms, and norms to 1e-5 of the longest.

  Gram matrices round by the terms that they sum, which may cancel.
  """
  apply, params, x, _ = _given(name, jnp.float32)
  ours, exact = squares(apply, params, x, 'bookkeeping'), _exact(name)
  for path in params:
    norms = np.sqrt(np.stack([np.float64(ours[0][path]), exact[0][path]]))
    np.testing.assert_allclose(*norms, rtol=1e-5, atol=1e-5 * norms[1].max(),
                               err_msg=path)
    assert ours[1][path].shape == params[path].shape
    gap = np.linalg.norm(ours[1][path] - exact[1][path])
    assert gap <= 1e-5 * np.linalg.norm(exact[1][path]), (path, gap)


@pytest.mark.parametrize('name', CASES)
@pytest.mark.every(4)
def test_each_leaf_is_read_as_expected(name):
  apply, params, x, wanted = _given(name, jnp.float32)
  assert list(kinds(apply, params, x).values()) == wanted


@pytest.mark.parametrize('gram', [True, False])
@pytest.mark.parametrize('name', CASES)
@pytest.mark.every(8)
def test_norms_and_sums_are_those_of_vmap(monkeypatch, name, gram):
  monkeypatch.setattr(contractions, 'gram_is_cheaper', lambda layer: gram)
  _check(name)


@pytest.mark.parametrize('gram', [True, False])
@pytest.mark.parametrize('name', [
  'tied', 'dense and transposed', 'low rank', 'joined heads'])
@pytest.mark.every(8)
def test_the_measured_gradient_is_the_summed_one_in_bfloat16(name, gram):
  apply, params, x, _ = _given(name, jnp.float32)
  half = precision.computed_in(apply, 'bfloat16')
  batch = Batch(x, jnp.zeros([SIZE], jnp.int32))
  gradients = bookkeeping.record_gradients(
    half, loss, params, batch, jnp.arange(SIZE) == 3,
    gram_is_cheaper=lambda layer: gram)
  one = jnp.where(jnp.arange(SIZE) == 3, 1., 0.)
  jax.tree.map(lambda square, total: np.testing.assert_allclose(
    np.sum(np.square(np.float64(total))), square[3], rtol=2e-5),
               gradients.squares, gradients.weighted(jax.tree.map(
                 lambda _: one, params)))


def _without_duplicates(each):
  return jnp.sum(jnp.square(each.values), (1, 2))


# What is forgotten -> (case, whether Gram matrices are used, the change).
FAULTS = {
  'cross terms of a tied table': ('tied', True, lookups, 'cross', (
    lambda *_: 0.0)),
  'lookups in a formed gradient': ('tied', False, lookups, 'added', (
    lambda table, gradients: gradients)),
  'lookups of one row': ('tied', True, lookups, 'squares',
                         _without_duplicates),
  'cross terms of layers': (
    'dense twice', True, contractions, 'gram_norms',
    lambda layer, xs, ds, gram=contractions.gram_norms: jax.tree.map(
      lambda *each: sum(each), *(gram(layer, (x,) * 2, (d, 0 * d))
                                 for x, d in zip(xs, ds)))),
  'the transpose': ('dense and transposed, square', True, shared, '_sides', (
    lambda read: [[0], [1]])),
  'the scale': ('tied, scaled table', True, shared, '_scaled', (
    lambda read, cotangent: cotangent)),
  'the place in the leaf': ('split', False, pullbacks, '_moved', (
    lambda read, offsets, shape: read._replace(shape=tuple(shape)))),
  'the cotangent\'s side': ('low rank', True, pullbacks, '_product', (
    lambda matrix, count, sizes, product=pullbacks._product: product(
      matrix[::-1], count, sizes))),
}


@pytest.mark.every(3)
@pytest.mark.parametrize('fault', FAULTS)
def test_faults_are_seen(monkeypatch, fault):
  """What the engine must not forget changes norms or sums if it does."""
  name, gram, module, attribute, wrong = FAULTS[fault]
  monkeypatch.setattr(contractions, 'gram_is_cheaper', lambda layer: gram)
  _check(name)
  monkeypatch.setattr(module, attribute, wrong)
  with pytest.raises(AssertionError):
    _check(name)
