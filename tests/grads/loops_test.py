"""Tests book-keeping of parameters in loops and remat (DP-16).

Norms and sums are compared with gradients of each record in float64.
"""

import logging

import flax.linen as nn
import jax
from jax import lax
import jax.numpy as jnp
import numpy as np
import pytest

from dpjax.grads import bookkeeping
from dpjax.grads import isolation
from dpjax.typing import Batch
from tests.grads.compared import kinds
from tests.grads.compared import linen
from tests.grads.compared import loss
from tests.grads.compared import records
from tests.grads.compared import SIZE
from tests.grads.compared import squares


@pytest.fixture(autouse=True)
def _promotion():
  """Networks of users add biases [n] to [b, n]."""
  with jax.numpy_rank_promotion('allow'), jax.numpy_dtype_promotion('standard'):
    yield


def _weights(**shapes):
  rng = np.random.default_rng(3)
  return {name: jnp.asarray(rng.normal(size=shape) / shape[-1]**.5, jnp.float32)
          for name, shape in shapes.items()}


def _tokens(*shape, size):
  return jnp.asarray(np.random.default_rng(0).integers(
    0, size, (SIZE, *shape)), jnp.int32)


def _norm(x):
  x = x - jnp.mean(x, -1, keepdims=True)
  return x / jnp.sqrt(jnp.mean(x**2, -1, keepdims=True) + 1e-3)


def _block(x, w):
  """Returns the output of one transformer block on x [b, t, d]."""
  query, key, value = jnp.split(_norm(x) * w['scale'] @ w['qkv'], 3, -1)
  mask = jnp.tril(jnp.ones((x.shape[1],) * 2, jnp.bool_))
  scores = jnp.where(mask, jnp.einsum('btd,bsd->bts', query, key), -1e9)
  x = x + jnp.einsum('bts,bsd->btd', jax.nn.softmax(scores), value) @ w['out']
  return x + jnp.tanh(_norm(x) @ w['up'] + w['bias']) @ w['down'].T


_BLOCK = dict(scale=(3, 4), qkv=(3, 4, 12), out=(3, 4, 4), up=(3, 4, 6),
              bias=(3, 6), down=(3, 4, 6))
_BLOCK_KINDS = dict(bias='formed', down='Layer', head='Layer', out='Layer',
                    qkv='Layer', scale='formed', up='Layer')


def _transformer(wrap=lambda block: block, **options):

  def apply(params, x):
    stacked = {name: params[name] for name in _BLOCK}
    x = lax.scan(lambda x, w: (wrap(_block)(x, w), None), x, stacked,
                 **options)[0]
    return x.mean(1) @ params['head']

  return apply


class _Scanned(nn.Module):
  """Layers by `nn.scan`, with remat."""

  @nn.compact
  def __call__(self, x):

    class Block(nn.Module):

      @nn.compact
      def __call__(self, x, _):
        return x + nn.Dense(4)(nn.tanh(nn.Dense(5)(nn.LayerNorm()(x)))), None

    stack = nn.scan(nn.remat(Block, prevent_cse=False),
                    variable_axes={'params': 0}, split_rngs={'params': True},
                    length=3)
    return nn.Dense(3)(stack()(x, None)[0].mean(1))


class _Recurrent(nn.Module):
  cell: type

  @nn.compact
  def __call__(self, x):
    return nn.Dense(3)(nn.RNN(self.cell(4, param_dtype=x.dtype))(x)[:, -1])


def _recurrent(params, x):
  """A gated network over time, with a learned first state."""

  def step(h, xt):
    gate = jax.nn.sigmoid(xt @ params['xg'] + h @ params['hg'] + params['b'])
    h = gate * h + (1 - gate) * jnp.tanh(xt @ params['xh'])
    return h, h

  first = jnp.broadcast_to(params['h0'], (x.shape[0], 4))
  h, hs = lax.scan(step, first, x.transpose((1, 0, 2)))
  return (h + jnp.sin(hs).sum(0)) @ params['head']


_RECURRENT = dict(xg=(3, 4), hg=(4, 4), b=(4,), xh=(3, 4), h0=(4,),
                  head=(4, 3))


def _nested(params, x):
  """Layers over time over layers: stacked twice, once, and not at all."""

  def time(h, xt):
    layer = lambda h, w: (jnp.tanh(h @ w + xt @ params['x']), None)
    return lax.scan(layer, h, params['time'])[0], None

  def outer(h, slices):
    own, layers = slices
    inner = lambda h, w: (jnp.tanh(h @ w[0] + w[1]) @ own, None)
    return lax.scan(jax.checkpoint(inner), h, layers)[0], None

  h = lax.scan(time, jnp.zeros((x.shape[0], 4)), x.transpose((1, 0, 2)),
               reverse=True)[0]
  return lax.scan(outer, h, (params['own'], (params['w'], params['b'])))[
    0] @ params['head']


def _indexed(params, x):
  """A loop with a counter that looks up a layer, and one with a state."""
  x = lax.fori_loop(0, 3, lambda i, x: jnp.tanh(x @ params['w'][i]), x)

  def step(state, _):
    x, w = state
    return (jnp.tanh(x @ w), w * params['decay']), w.sum()

  (x, _), sums = lax.scan(step, (x, params['state']), None, length=3)
  return x @ params['head'] * jnp.sum(sums)


def _carried(params, x):
  """Parameters are states: one that never changes, one that is taken over."""

  def step(state, _):
    x, w, _ = state
    return (jnp.tanh(x @ w + state[2]), w, params['b']), params['b']

  (x, _, last), bias = lax.scan(step, (x, params['w'], x * 0.5), None, length=3)
  return (x * last + bias[1]) @ params['head']


def _looked_up(params, x):
  """Lookups: one table in all steps, and one for each layer."""

  def time(h, rows):
    return jnp.tanh(h + params['table'][rows]), None

  def layer(h, table):
    return jnp.tanh(h + table[x].mean(1)), None

  h = lax.scan(time, jnp.zeros((x.shape[0], 4)), x.T)[0]
  return lax.scan(layer, h, params['tables'])[0] @ params['head']


def _convolved(params, x):
  """Convolutions: one kernel for each layer, and one in all steps."""
  conv = lambda x, kernel: lax.conv_general_dilated(
    x, kernel, (1,), 'SAME', dimension_numbers=('NWC', 'WIO', 'NWC'))
  x = lax.scan(lambda x, kernel: (jnp.tanh(conv(x, kernel)), None), x,
               params['kernels'])[0]
  x = lax.scan(lambda x, _: (jnp.tanh(conv(x, params['same'])), None), x, None,
               length=2)[0]
  return x.mean(1) @ params['head']


def _mixed(params, x):
  """Slices and constants in one body, casts and transposes of both."""

  def step(h, w):
    h = jnp.tanh(h @ (params['shared'].T) + w.T @ params['v'])
    return h, h.sum(1)

  h, sums = lax.scan(step, x, params['w'].transpose((1, 0, 2)))
  return (h * sums.sum(0)[:, None]) @ params['head']


def _without_state(params, x):
  rows = lax.map(lambda row: jnp.tanh(row @ params['w'] + params['b']), x)
  return rows.mean(1) @ params['head']


def _branching(params, x):

  def step(h, w):
    return lax.cond(jnp.sum(h) > 0, lambda h: jnp.tanh(h @ w),
                    lambda h: jnp.sin(h), h), None

  return lax.scan(step, x, params['w'])[0] @ params['head']


def _of_length(length):
  return lambda params, x: lax.scan(
    lambda x, w: (jnp.tanh(x @ w + params['b']), x @ params['u']), x,
    params['w'][:length])[0] @ params['head']


_STACK = dict(w=(3, 4, 4), b=(4,), u=(4, 2), head=(4, 3))
_SAVEABLE = jax.checkpoint_policies.dots_saveable
# name -> (apply, params, x, kinds of the leaves that are not 'Layer')
NETWORKS = {
  'transformer': (_transformer(), _weights(**_BLOCK, head=(4, 3)),
                  records(5, 4), dict(bias='formed', scale='formed')),
  'transformer, remat': (
    _transformer(jax.checkpoint, reverse=True, unroll=2), _weights(
      **_BLOCK, head=(4, 3)), records(5, 4),
    dict(bias='formed', scale='formed')),
  'transformer, products saved': (
    _transformer(lambda block: jax.checkpoint(block, policy=_SAVEABLE)),
    _weights(**_BLOCK, head=(4, 3)), records(5, 4),
    dict(bias='formed', scale='formed')),
  'recurrent': (_recurrent, _weights(**_RECURRENT), records(6, 3),
                dict(b='formed', h0='formed')),
  'nested': (_nested, _weights(time=(2, 4, 4), x=(3, 4), own=(2, 4, 4),
                               w=(2, 3, 4, 4), b=(2, 3, 4), head=(4, 3)),
             records(5, 3), dict(b='formed')),
  'indexed': (_indexed, _weights(w=(3, 4, 4), state=(4, 4), decay=(1, 4),
                                 head=(4, 3)), records(4),
              dict(w='formed', state='formed', decay='formed')),
  'carried': (_carried, _weights(w=(4, 4), b=(1, 4), head=(4, 3)), records(4),
              dict(b='formed')),
  'looked up': (_looked_up, _weights(table=(9, 4), tables=(3, 9, 4),
                                     head=(4, 3)), _tokens(6, size=9),
                dict(table='Table', tables='Table')),
  'convolved': (_convolved, _weights(kernels=(2, 3, 2, 2), same=(3, 2, 2),
                                     head=(2, 3)), records(7, 2), {}),
  'mixed': (_mixed, _weights(w=(4, 3, 1), v=(4, 4), shared=(4, 4), head=(4, 3)),
            records(4), dict(v='formed', w='formed')),
  'without a state': (_without_state, _weights(w=(4, 4), b=(4,), head=(4, 3)),
                      records(5, 4), dict(b='formed')),
  'branching': (_branching, _weights(w=(3, 4, 4), head=(4, 3)), records(4),
                dict(w='formed')),
}
NETWORKS |= {f'length {length}': (
  _of_length(length), _weights(**_STACK), records(4),
  dict(b='formed', w='formed' if length < 3 else 'Layer'))
  for length in (0, 1, 3)}
_OFTEN = ('transformer, remat', 'recurrent', 'nested')


def _check(apply, params, x):
  """Checks norms and weighted sums against float64 gradients by records."""
  ours = squares(apply, params, x, 'bookkeeping')
  kept = np.arange(SIZE) != 1
  assert np.all(np.asarray(ours[2]) == kept)
  weights = np.where(kept, np.random.default_rng(0).uniform(0, 2, SIZE), 0)
  with jax.enable_x64(True):
    wide = lambda leaf: jnp.asarray(
      leaf, jnp.float64 if leaf.dtype == jnp.float32 else leaf.dtype)
    labels = jnp.arange(SIZE, dtype=jnp.int32) % 3
    record_loss = lambda params, x, y: loss(apply(params, x[None]), y[None])[0]
    grads = jax.vmap(jax.grad(record_loss), (None, 0, 0))(
      jax.tree.map(wide, params), wide(x), labels)
    grads = jax.tree.map(np.asarray, grads)
  # The helper draws new weights for each leaf.
  rng = np.random.default_rng(0)
  weights = jax.tree.map(lambda _: np.float32(np.where(
    kept, rng.uniform(0, 2, SIZE), 0)), grads)

  def same(square, total, grad, weight):
    flat = grad.reshape((SIZE, -1))
    norms = np.linalg.norm(flat, axis=1) * kept
    np.testing.assert_allclose(np.sqrt(square), norms, rtol=1e-5,
                               atol=1e-6 * norms.max() + 1e-18)
    wanted = np.tensordot(np.float64(weight), grad, 1)
    assert total.shape == wanted.shape and total.dtype == jnp.float32
    assert np.linalg.norm(total - wanted) <= 1e-5 * np.linalg.norm(wanted)

  jax.tree.map(same, ours[0], ours[1], grads, weights)


@pytest.mark.every(1)
@pytest.mark.parametrize('name', [
  name if name in _OFTEN else pytest.param(name, marks=pytest.mark.slow)
  for name in NETWORKS])
def test_networks(name):
  apply, params, x, others = NETWORKS[name]
  found = kinds(apply, params, x)
  assert found == {f"['{leaf}']": others.get(leaf, 'Layer') for leaf in params}
  _check(apply, params, x)


@pytest.mark.slow
@pytest.mark.parametrize('module, formed', [
  (_Scanned(), 5), (_Recurrent(nn.LSTMCell), 0), (_Recurrent(nn.GRUCell), 0)],
  ids=['scan and remat', 'LSTM', 'GRU'])
def test_flax(module, formed):
  x = records(6, 4)
  apply, params = linen(module, x)
  assert all(kind == 'Layer' for path, kind in kinds(apply, params, x).items()
             if path.endswith("['kernel']"))
  _check(apply, params, x)


@pytest.mark.slow
@pytest.mark.parametrize('gram', [True, False])
@pytest.mark.parametrize('name', ['transformer', 'recurrent', 'nested',
                                  'convolved'])
def test_both_norms(monkeypatch, name, gram):
  monkeypatch.setattr(bookkeeping.contractions, 'gram_is_cheaper',
                      lambda layer: gram)
  _check(*NETWORKS[name][:3])


@pytest.mark.every(2)
def test_steps_are_summed_in_float32():
  """In bfloat16, a sum of 301 ones would be 256."""

  def apply(params, x):
    step = lambda state, row: (state, row + params['b'].astype(jnp.bfloat16))
    rows = lax.scan(step, jnp.zeros([]), x.astype(jnp.bfloat16).transpose(
      (1, 0, 2)))[1]
    return rows.astype(jnp.float32).sum(0)

  gradients = bookkeeping.record_gradients(
    apply, lambda logits, labels: logits[:, 0], {'b': jnp.zeros([1])},
    Batch(jnp.ones([2, 301, 1]), jnp.zeros([2])), jnp.ones([2], jnp.bool_))
  np.testing.assert_array_equal(gradients.squares['b'], [301.**2] * 2)
  np.testing.assert_array_equal(
    gradients.weighted({'b': jnp.ones([2])})['b'], [602.])


def test_remat_stays_remat():
  """Scores of attention are not kept; site inputs and cotangents are."""
  apply, params, x, _ = NETWORKS['transformer, remat']
  batch = Batch(x, jnp.zeros([SIZE], jnp.int32))
  jaxpr = str(jax.make_jaxpr(lambda params: bookkeeping.record_gradients(
    apply, loss, params, batch, jnp.ones([SIZE], jnp.bool_)).squares)(params))
  assert 'remat' in jaxpr or 'checkpoint' in jaxpr
  # [layers, b, 1, t, t].
  assert f'f32[3,{SIZE},1,5,5]' not in jaxpr
  plain = NETWORKS['transformer'][0]
  assert f'f32[3,{SIZE},1,5,5]' in str(jax.make_jaxpr(
    lambda params: bookkeeping.record_gradients(
      plain, loss, params, batch, jnp.ones([SIZE], jnp.bool_)).squares)(params))


@pytest.mark.slow
@pytest.mark.parametrize('name', ['transformer, remat', 'recurrent'])
def test_isolation_is_checked(name):
  apply, params, x, _ = NETWORKS[name]
  batch = Batch(x, jnp.zeros([SIZE], jnp.int32))
  isolation.check_isolated(apply, loss, params, batch)
  with pytest.raises(ValueError, match='mixes records'):
    isolation.check_isolated(
      lambda params, x: apply(params, x - x.mean(0, keepdims=True)), loss,
      params, batch)


def test_branches_in_loops_are_named(caplog):
  apply, params, x, _ = NETWORKS['branching']
  batch = Batch(x, jnp.zeros([SIZE], jnp.int32))
  bookkeeping._say.cache_clear()
  with caplog.at_level(logging.WARNING):
    for _ in range(2):
      jax.eval_shape(lambda params: bookkeeping.record_gradients(
        apply, loss, params, batch, jnp.ones([SIZE], jnp.bool_)).squares,
                     params)
  said = [record.getMessage() for record in caplog.records
          if record.name == bookkeeping.__name__]
  assert len(said) == 1 and "['w'] (cond reads it)" in said[0]
