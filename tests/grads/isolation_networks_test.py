"""Tests that the isolation check accepts networks and refuses mixed ones.

A network is mixed if its output for one record depends on other records.
"""

import flax.linen as nn
import jax
from jax import lax
import jax.numpy as jnp
import optax
import pytest

from dpjax.grads import isolation
from dpjax.lipschitz import losses
from dpjax.typing import Batch

LOSS = losses.cross_entropy().values
KEY = jax.random.key(3)
Y = jnp.zeros([6], jnp.int32)
ROWS, STEPS = jnp.ones([6, 5]), jnp.ones([6, 9, 5])
IMAGES, TOKENS = jnp.ones([6, 8, 8, 4]), jnp.zeros([6, 9], jnp.int32)
W = jnp.ones([5, 3])


@pytest.fixture(name='usual', autouse=True)
def _usual():
  """Allows the default type and rank promotion that Flax and optax rely on."""
  with jax.numpy_dtype_promotion('standard'), jax.numpy_rank_promotion('allow'):
    yield


class Network(nn.Module):
  """The layers that `build` makes, a mean over inner axes and a dense layer."""
  build: callable

  @nn.compact
  def __call__(self, x):
    x = self.build(x)
    return nn.Dense(3)(x.mean(range(1, x.ndim - 1)))


class Layer(nn.Module):
  """A dense layer in the form that `nn.scan` repeats."""

  @nn.compact
  def __call__(self, x, _):
    return nn.relu(nn.Dense(x.shape[-1])(x)), None


LAYERS = {
  'recurrent': (lambda x: nn.RNN(nn.LSTMCell(8))(x), STEPS),
  'long': (lambda x: nn.RNN(nn.SimpleCell(8))(x), jnp.ones([6, 300, 5])),
  'lengths': (lambda x: nn.RNN(nn.SimpleCell(8), return_carry=True)(
    x, seq_lengths=3 + (x[:, 0, 0] > 0).astype(jnp.int32))[0], STEPS),
  'time first': (lambda x: jnp.swapaxes(nn.RNN(
    nn.GRUCell(8), time_major=True, reverse=True, keep_order=True)(
      jnp.swapaxes(x, 0, 1)), 0, 1), STEPS),
  'attention': (lambda x: nn.MultiHeadDotProductAttention(
    num_heads=2, qkv_features=8)(x, mask=nn.make_causal_mask(x[..., 0])),
                STEPS),
  'embedding': (lambda x: nn.Embed(11, 8)(x), TOKENS),
  'group norm': (lambda x: nn.GroupNorm(2)(nn.Conv(8, (3, 3))(x)), IMAGES),
  'instance norm': (lambda x: nn.InstanceNorm()(x), IMAGES),
  'frozen': (lambda x: nn.BatchNorm(use_running_average=True)(x), IMAGES),
  'depthwise': (lambda x: nn.Conv(8, (3, 3), (2, 2), feature_group_count=4)(x),
                IMAGES),
  'local': (lambda x: nn.ConvLocal(4, (3, 3))(x), IMAGES),
  'transposed': (lambda x: nn.ConvTranspose(8, (3, 3), (2, 2))(x), IMAGES),
  'pooled': (lambda x: nn.max_pool(nn.avg_pool(x, (3, 3), padding='SAME'),
                                   (2, 2), (2, 2)), IMAGES),
  'shared dropout': (lambda x: nn.Dropout(
    0.5, deterministic=False, broadcast_dims=(0,))(x), IMAGES),
  'weight norm': (lambda x: nn.WeightNorm(nn.Dense(4))(x), ROWS),
  'deep': (lambda x: nn.scan(
    nn.remat(Layer), variable_axes={'params': 0}, split_rngs={'params': True},
    length=20)()(x, None)[0], ROWS),
}


@pytest.mark.every(3)
@pytest.mark.parametrize('name', LAYERS)
def test_layers_are_taken_and_statistics_before_them_are_not(name):
  build, x = LAYERS[name]

  def check(build):
    network = Network(build)
    variables = dict(jax.eval_shape(
      network.init, {'params': KEY, 'dropout': KEY}, x))
    params = variables.pop('params')
    others = jax.tree.map(lambda leaf: jnp.ones(leaf.shape), variables)
    isolation.checker(lambda params, x: network.apply(
      {'params': params, **others}, x, rngs={'dropout': KEY}), LOSS)(
        params, Batch(x, Y))

  check(build)
  with pytest.raises(ValueError, match='mixes records.*, first in Network'):
    check(lambda x: build(x) + nn.tanh(build(x)).mean((0, -1)).max())


def _experts(w, x):
  """Sends each step of a record to the best two of four experts.

  An expert has three places for each record; no place is shared by records.
  """
  weights, chosen = lax.top_k(jax.nn.softmax(x[..., :4]), 2)
  gates = (jax.nn.one_hot(chosen, 4) * weights[..., None]).sum(2)
  places = jnp.cumsum(gates > 0, 1) - 1
  dispatch = jax.nn.one_hot(places, 3) * gates[..., None]
  return jnp.einsum('btep,btd->bepd', dispatch, x).sum((1, 2)) @ w


FUNCTIONS = {
  'merged': lambda w, x: (x.reshape(-1, 5) @ w).reshape(-1, 9, 3).mean(1),
  'merged, time first': lambda w, x: (
    x.swapaxes(0, 1).reshape(-1, 5) @ w).reshape(9, -1, 3).mean(0),
  'experts': _experts,
  'shifted features': lambda w, x: jnp.roll(x, 9, 2)[:, 0] @ w,
  'sorted steps': lambda w, x: jnp.take_along_axis(
    x, jnp.argsort(x, 1), 1)[:, 0] @ w,
  'median': lambda w, x: (x - jnp.median(x, 1, keepdims=True))[:, 0] @ w,
  'segments': lambda w, x: jax.ops.segment_sum(
    x.reshape(-1, 5), jnp.repeat(jnp.arange(x.shape[0]), 9), x.shape[0]) @ w,
  'mapped': lambda w, x: lax.map(lambda r: r[0] @ w, x),
  'mapped in parts': lambda w, x: lax.map(lambda r: r[0] @ w, x, batch_size=2),
  'one by one': lambda w, x: lax.fori_loop(
    0, x.shape[0], lambda i, out: out.at[i].set(x[i, 0] @ w),
    jnp.zeros([x.shape[0], 3])),
  'own loops': lambda w, x: jax.vmap(lambda r: lax.while_loop(
    lambda c: c[0] < r[0, 0], lambda c: (c[0] + 1, c[1] * 2 + r[0]),
    (0.0, r[0]))[1])(x) @ w,
  'own branches': lambda w, x: jax.vmap(lambda r: lax.cond(
    r[0, 0] > 0, lambda r: r, lambda r: -r, r[0]))(x) @ w,
  'own noise': lambda w, x: jax.vmap(lambda r: r[0] + jax.random.normal(
    jax.random.fold_in(KEY, r[0, 0].astype(jnp.int32)), (5,)))(x) @ w,
  'own gradients': lambda w, x: jax.grad(
    lambda x: jnp.sum(jnp.tanh(x[:, 0] @ w)))(x)[:, 0] @ w,
  'solved': lambda w, x: jnp.linalg.solve(
    jnp.einsum('bti,btj->bij', x, x) + jnp.eye(5), x[:, 0, :, None]
  ).squeeze(2) @ w,
  'resized': lambda w, x: jax.image.resize(
    x, (x.shape[0], 4, 5), 'bilinear')[:, 0] @ w,
  'products with itself': lambda w, x: jnp.diagonal(
    x[:, 0] @ x[:, 0].T)[:, None] * w[0],
}
LOSSES = {
  'optax': optax.softmax_cross_entropy_with_integer_labels,
  'one hot': lambda z, y: -(jax.nn.one_hot(y, 3) * jax.nn.log_softmax(z)).sum(
    1),
  'indices': lambda z, y: -jax.nn.log_softmax(z)[jnp.arange(y.size), y],
  'mapped': jax.vmap(lambda z, y: -jax.nn.log_softmax(z)[y]),
}


@pytest.mark.every(1)
@pytest.mark.parametrize('name', FUNCTIONS)
def test_functions_of_each_record_are_taken(name):
  isolation.checker(FUNCTIONS[name], LOSS)(W, Batch(STEPS, Y))


@pytest.mark.every(1)
@pytest.mark.parametrize('name', LOSSES)
def test_losses_of_each_record_are_taken(name):
  apply = lambda w, x: x @ w
  isolation.checker(apply, LOSSES[name])(W, Batch(ROWS, Y))
  with pytest.raises(ValueError, match='mixes records'):
    isolation.checker(apply, lambda z, y: LOSSES[name](z, y[::-1]))(
      W, Batch(ROWS, Y))


@pytest.mark.parametrize('apply', [
  lambda w, x: x @ w + w[:x.shape[0]],
  lambda w, x: x[jnp.arange(x.shape[0]), jnp.arange(x.shape[0]) % 5][:, None]
  * w[0],
  lambda w, x: jax.random.gamma(KEY, 1 + jnp.abs(x)) @ w,
  lambda w, x: jnp.where(jax.random.bernoulli(KEY, 0.5, x.shape), x, 0.0) @ w])
def test_places_in_front_of_many_layers_are_refused(apply):
  def deep(w, x):
    x = apply(w, x)
    for _ in range(12):
      x = jax.nn.sigmoid(x / 8)
    return x

  with pytest.raises(ValueError, match='depends on its place in the batch'):
    isolation.checker(deep, LOSS)(jnp.ones([5, 5]), Batch(ROWS, Y))
