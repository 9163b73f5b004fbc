"""Tests `make_private` on models of Flax Linen, NNX, Equinox and plain trees."""

import dataclasses
from typing import Any

from flax import linen
from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from dpjax.train import modules
from dpjax.train.private import make_private

_SIZE, _LEAST = 8, 1e-6


def _cross_entropy(logits, labels):
  return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None],
                              -1)[..., 0]


def _tokens():
  rng = np.random.default_rng(0)
  return {'ids': jnp.asarray(rng.integers(9, size=(_SIZE, 5)), jnp.int32),
          'mask': jnp.asarray(rng.random((_SIZE, 5)) < 0.8),
          'label': jnp.asarray(rng.integers(3, size=_SIZE), jnp.int32)}


def _features():
  rng = np.random.default_rng(1)
  return (jnp.asarray(rng.normal(size=(_SIZE, 6, 4)), jnp.float32),
          jnp.asarray(rng.integers(3, size=_SIZE), jnp.int32))


def _sum_of(private, model, records):
  """Returns the sum of clipped gradients of all records."""
  state = private.init(model, key=jax.random.key(0))
  after, info = private.step(state, records)
  assert int(info.batch_size) == _SIZE and not int(info.num_nonfinite)
  return jax.tree.map(lambda old, new: _SIZE * np.asarray(old - new),
                      state.params, after.params)


def _private(loss, **changed):
  return make_private(loss, optax.sgd(1.0), **dict(
      num_examples=_SIZE, batch_size=_SIZE, noise_multiplier=_LEAST,
      clip_norm=0.12, **changed))


def _check_as_vmap(record_loss, params, records, total):
  """Checks a sum of clipped gradients against `vmap` of gradients."""
  grads = jax.vmap(jax.grad(record_loss), (None, 0))(params, records)
  norms = jnp.sqrt(sum(jnp.sum(leaf.reshape(_SIZE, -1)**2, 1)
                       for leaf in jax.tree.leaves(grads)))
  weights = jnp.minimum(1, 0.12 / norms)
  assert jnp.all(norms > 0) and jnp.any(norms > 0.12)
  jax.tree.map(lambda leaf, ours: np.testing.assert_allclose(
      ours, jnp.tensordot(weights, leaf, 1), atol=2e-5), grads, total)


class _Linen(linen.Module):
  """A network of token ids with a mask and dropout."""

  @linen.compact
  def __call__(self, ids, mask, train=True):
    x = linen.Embed(9, 4)(ids) * mask[..., None].astype(jnp.float32)
    x = linen.Dropout(0.3, deterministic=not train)(x.mean(-2))
    return linen.Dense(3)(linen.LayerNorm()(x))


@pytest.mark.every(4)
@pytest.mark.parametrize('per', ['record', 'batch'])
def test_linen_with_dropout_and_dictionaries(per):
  module, records = _Linen(), _tokens()
  params = module.init(jax.random.key(0), records['ids'], records['mask'],
                       train=False)['params']

  def loss(params, record, rng):
    logits = module.apply({'params': params}, record['ids'], record['mask'],
                          rngs={'dropout': rng})
    return _cross_entropy(logits, record['label'])

  private = _private(loss, **({'per': per} if per == 'record' else {}))
  total = _sum_of(private, params, records)
  assert jax.tree.structure(total) == jax.tree.structure(params)
  # Without dropout, the reference needs no keys.
  plain = lambda params, record: _cross_entropy(module.apply(
      {'params': params}, record['ids'], record['mask'], train=False),
                                                record['label'])
  total = _sum_of(_private(plain, per=per), params, records)
  _check_as_vmap(plain, params, records, total)


class _Nnx(nnx.Module):
  """A recurrent network with dropout and batch normalisation."""

  def __init__(self, cell, rngs):
    self.recurrent = nnx.RNN(cell(4, 5, rngs=rngs))
    self.norm = nnx.BatchNorm(5, rngs=rngs)
    self.dropout = nnx.Dropout(0.5, rngs=rngs)
    self.head = nnx.List([nnx.Linear(5, 3, rngs=rngs)])

  def __call__(self, x):
    x = self.recurrent(x)[..., -1, :]
    return self.head[0](self.dropout(self.norm(x)))


def _nnx_loss(model, batch):
  x, y = batch
  return _cross_entropy(model(x), y)


@pytest.mark.every(8)
@pytest.mark.parametrize('cell', [nnx.LSTMCell, nnx.GRUCell])
def test_nnx_with_dropout_recurrence_and_frozen_statistics(cell):
  model, records = _Nnx(cell, nnx.Rngs(0, dropout=1)), _features()
  before = nnx.to_pure_dict(nnx.state(model))
  model.eval()
  private = _private(_nnx_loss)
  total = _sum_of(private, model, records)
  graph, trained, rest = nnx.split(model, nnx.Param, ...)

  def record_loss(params, record):
    state = jax.tree.map(lambda leaf: leaf, trained)
    nnx.replace_by_pure_dict(state, params)
    merged = nnx.merge(graph, state, jax.tree.map(lambda leaf: leaf, rest))
    return _nnx_loss(merged, jax.tree.map(lambda leaf: leaf[None], record))[0]

  _check_as_vmap(record_loss, nnx.to_pure_dict(trained), records, total)
  # With dropout, the masks differ: sums do too.
  model.train(), model.norm.eval()
  dropped = _sum_of(private, model, records)
  assert not np.allclose(dropped['head'][0]['kernel'],
                         total['head'][0]['kernel'], atol=1e-3)
  jax.tree.map(np.testing.assert_array_equal, jax.tree.map(np.asarray, {
      k: before[k] for k in ('head', 'norm')}), jax.tree.map(np.asarray, {
          k: nnx.to_pure_dict(nnx.state(model))[k] for k in ('head', 'norm')}))


@pytest.mark.every(2)
def test_the_trained_model_comes_back():
  model, records = _Nnx(nnx.GRUCell, nnx.Rngs(0)), _features()
  model.eval()
  private = _private(_nnx_loss)
  state, _ = private.step(private.init(model), records)
  trained = private.model(state)
  kernel = trained.head[0].kernel[...]
  np.testing.assert_array_equal(kernel, state.params['head'][0]['kernel'])
  assert not np.array_equal(kernel, model.head[0].kernel[...])
  assert trained(records[0]).shape == (_SIZE, 3)


@pytest.mark.parametrize('per', ['record', 'batch', None])
def test_nnx_statistics_of_a_batch_are_refused_by_name(per):
  model = _Nnx(nnx.GRUCell, nnx.Rngs(0))
  private = _private(_nnx_loss, per=per)
  state = private.init(model)
  with pytest.raises(ValueError, match='norm.mean, norm.var.*model.eval'):
    private.step(state, _features())
  assert private.epsilon(delta=1e-5) == 0


@pytest.mark.every(2)
def test_only_the_chosen_variables_are_trained():
  model = nnx.LoRA(4, 2, 3, base_module=nnx.Linear(4, 3, rngs=nnx.Rngs(0)),
                   rngs=nnx.Rngs(1))
  private = _private(lambda model, batch: _cross_entropy(
      model(batch[0][:, 0]), batch[1]), trainable=nnx.LoRAParam)
  state = private.init(model)
  assert sorted(state.params) == ['lora_a', 'lora_b']
  after, _ = private.step(state, _features())
  assert np.any(after.params['lora_b'] != state.params['lora_b'])
  np.testing.assert_array_equal(private.model(after).base_module.kernel[...],
                                model.base_module.kernel[...])


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class _Module:
  """A module that is a pytree, with a function and a number among its leaves."""
  weight: Any
  count: Any
  activation: Any
  rate: float

  def __call__(self, x):
    return self.activation(x.mean(0) @ self.weight) * self.rate


@pytest.mark.every(2)
def test_a_module_that_is_a_pytree():
  weight = jnp.asarray(np.random.default_rng(3).normal(size=(4, 3)),
                       jnp.float32)
  model = _Module(weight, jnp.int32(3), jnp.tanh, 0.5)
  loss = lambda model, record: _cross_entropy(model(record[0]), record[1])
  private = _private(loss, per='record')
  total = _sum_of(private, model, _features())
  assert total.count is None and total.activation is None
  _check_as_vmap(lambda weight, record: loss(
      dataclasses.replace(model, weight=weight), record), weight, _features(),
                 total.weight)
  trained = private.model(private.init(model))
  assert trained.activation is jnp.tanh and trained.rate == 0.5


def test_a_prefix_of_booleans_says_what_is_trained():
  params = {'base': {'kernel': jnp.ones([4, 3])}, 'head': jnp.ones(3)}
  parts = modules.split(params, {'base': False, 'head': True})
  assert parts.params == {'base': {'kernel': None}, 'head': params['head']}
  assert parts.frozen['head'] is None
  assert parts.rebuild(parts.params, parts.frozen, None) == params


@pytest.mark.slow
def test_equinox():
  eqx = pytest.importorskip('equinox')
  model = eqx.nn.MLP(4, 3, 5, 2, key=jax.random.key(0))

  def loss(model, record):
    return _cross_entropy(model(record[0].mean(0)), record[1])

  private = _private(loss, per='record')
  total = _sum_of(private, model, _features())
  params, static = eqx.partition(model, eqx.is_inexact_array)
  _check_as_vmap(lambda params, record: loss(eqx.combine(params, static),
                                             record), params, _features(),
                 total)


@pytest.mark.parametrize('model, problem', [
    ({'params': {'w': jnp.ones(3)}, 'batch_stats': {'mean': jnp.ones(3)}},
     'batch_stats.*variables..params'),
    ({'depth': 3, 'count': jnp.int32(2)}, 'no trainable arrays'),
    ({'w': jnp.ones(3, jnp.complex64)}, 'real floating numbers'),
])
def test_refused_models(model, problem):
  private = _private(lambda params, record: jnp.sum(params['w']))
  with pytest.raises((ValueError, TypeError), match=problem):
    private.init(model)
