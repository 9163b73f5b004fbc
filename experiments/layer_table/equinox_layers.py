"""The layers of the table in Equinox, whose images have channels first."""

from collections.abc import Callable

import equinox as eqx
from equinox import nn
import jax
import jax.numpy as jnp

from dpjax.typing import Array, Params, PRNGKey, PyTree
from experiments.layer_table import cases
from experiments.layer_table.cases import Case

_W, _V = cases.WIDTH, cases.VOCABULARY


class _Images(eqx.Module):
  """A layer that takes channels first, for records with channels last."""
  layer: eqx.Module

  def __call__(self, x: Array) -> Array:
    return self.layer(jnp.moveaxis(x, -1, 0))


class _Each(eqx.Module):
  """A layer that takes one position, for sequences."""
  layer: eqx.Module

  def __call__(self, x: Array) -> Array:
    return jax.vmap(self.layer)(x)


class _Bag(eqx.Module):
  """The mean of the vectors of tokens."""
  embed: nn.Embedding

  def __call__(self, tokens: Array) -> Array:
    return jnp.mean(jax.vmap(self.embed)(tokens), 0)


class _Simple(eqx.Module):
  """A simple recurrent cell, which Equinox leaves to its users."""
  inputs: nn.Linear
  state: nn.Linear
  hidden_size: int = eqx.field(static=True)

  def __call__(self, x: Array, state: Array) -> Array:
    return jnp.tanh(self.inputs(x) + self.state(state))


class _Recurrent(eqx.Module):
  """A cell over a sequence."""
  cell: eqx.Module

  def __call__(self, x: Array) -> Array:
    zeros = jnp.zeros([self.cell.hidden_size])
    state = (zeros, zeros) if isinstance(self.cell, nn.LSTMCell) else zeros

    def step(state: PyTree, x: Array) -> tuple[PyTree, Array]:
      state = self.cell(x, state)
      return state, jax.tree.leaves(state)[0]

    return jax.lax.scan(step, state, x)[1]


class _Attention(eqx.Module):
  """Attention of a sequence to itself."""
  attention: nn.MultiheadAttention

  def __call__(self, x: Array) -> Array:
    return self.attention(x, x, x)


class _Tied(eqx.Module):
  """An embedding whose table also gives the logits."""
  shared: nn.Shared

  def __call__(self, tokens: Array) -> Array:
    embed, linear = self.shared()
    return jax.vmap(linear)(jnp.tanh(jax.vmap(embed)(tokens)))


class _Einsum(eqx.Module):
  """A product with a tensor."""
  kernel: Array
  bias: Array

  def __call__(self, x: Array) -> Array:
    return jnp.einsum('tw,whf->thf', x, self.kernel) + self.bias


class _SequenceBias(eqx.Module):
  """A sequence [t, w] with a learned vector behind its last position."""
  bias: Array

  def __call__(self, x: Array) -> Array:
    return jnp.concatenate([x, self.bias[None]])


class _Adapted(eqx.Module):
  """A frozen dense layer with adapters of rank 2 beside it."""
  a: nn.Linear
  b: nn.Linear

  def __call__(self, x: Array) -> Array:
    frozen = jax.random.normal(jax.random.key(7), (_W, 5))
    return x @ frozen + jax.vmap(self.b)(jax.vmap(self.a)(x))


def _simple(key: PRNGKey) -> eqx.Module:
  """Returns a simple recurrent cell over a sequence."""
  return _Recurrent(_Simple(nn.Linear(_W, 5, key=key),
                            nn.Linear(5, 5, use_bias=False, key=key), 5))


def _tied(key: PRNGKey) -> eqx.Module:
  """Returns an embedding that a dense layer shares."""
  pair = (nn.Embedding(_V, _W, key=key),
          nn.Linear(_W, _V, use_bias=False, key=key))
  return _Tied(nn.Shared(pair, where=lambda each: each[1].weight,
                         get=lambda each: each[0].weight))


def _adapted(key: PRNGKey) -> eqx.Module:
  """Returns adapters of a frozen dense layer."""
  return _Adapted(nn.Linear(_W, 2, use_bias=False, key=key),
                  nn.Linear(2, 5, use_bias=False, key=key))


_MODULES: dict[str, Callable[[PRNGKey], eqx.Module]] = {
    'Linear': lambda key: _Each(nn.Linear(_W, 5, key=key)),
    'Conv1d': lambda key: _Images(nn.Conv1d(3, 5, 3, padding=1, key=key)),
    'Conv2d': lambda key: _Images(nn.Conv2d(3, 5, 3, stride=2, key=key)),
    'Conv3d': lambda key: _Images(nn.Conv3d(2, 3, 2, key=key)),
    'ConvTranspose': lambda key: _Images(nn.ConvTranspose2d(
        _W, 3, 3, stride=2, key=key)),
    'Embedding': lambda key: _Each(nn.Embedding(_V, _W, key=key)),
    'EmbeddingBag': lambda key: _Bag(nn.Embedding(_V, _W, key=key)),
    'LayerNorm': lambda key: _Each(nn.LayerNorm(_W)),
    'GroupNorm': lambda key: _Images(nn.GroupNorm(2, 4)),
    'InstanceNorm': lambda key: _Images(nn.GroupNorm(4, 4)),
    'RMSNorm': lambda key: _Each(nn.RMSNorm(_W)),
    'RNN': _simple,
    'GRU': lambda key: _Recurrent(nn.GRUCell(_W, 5, key=key)),
    'LSTM': lambda key: _Recurrent(nn.LSTMCell(_W, 5, key=key)),
    'MultiheadAttention': lambda key: _Attention(nn.MultiheadAttention(
        2, _W, use_query_bias=True, use_output_bias=True, key=key)),
    'tied weights': _tied,
    'Einsum': lambda key: _Einsum(jax.random.normal(key, (_W, 2, 3)),
                                  jnp.zeros([2, 3])),
    'SequenceBias': lambda key: _SequenceBias(jax.random.normal(key, (_W,))),
    'LoRA': _adapted,
}


def case(layer: str) -> Case:
  """Returns a layer by its name in `cases.LAYERS`."""
  params, static = eqx.partition(_MODULES[layer](jax.random.key(0)),
                                 eqx.is_inexact_array)

  def loss(params: Params, record: PyTree) -> Array:
    return cases.loss_of(eqx.combine(params, static)(record))

  return Case(cases.perturbed(params), loss, cases.records(layer))
