"""The layers of the table in Linen."""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpjax.typing import Array, Params, PyTree
from experiments.layer_table import cases
from experiments.layer_table.cases import Case

_W, _V = cases.WIDTH, cases.VOCABULARY


class _Bag(nn.Module):
  """The mean of the vectors of tokens."""

  @nn.compact
  def __call__(self, tokens: Array) -> Array:
    return jnp.mean(nn.Embed(_V, _W)(tokens), -2)


class _Attention(nn.Module):
  """Attention of a sequence to itself."""

  @nn.compact
  def __call__(self, x: Array) -> Array:
    return nn.MultiHeadDotProductAttention(num_heads=2)(x, x)


class _Tied(nn.Module):
  """An embedding whose table also gives the logits."""

  @nn.compact
  def __call__(self, tokens: Array) -> Array:
    embed = nn.Embed(_V, _W)
    return embed.attend(jnp.tanh(embed(tokens)))


class _SequenceBias(nn.Module):
  """A sequence [b, t, w] with a learned vector behind its last position."""

  @nn.compact
  def __call__(self, x: Array) -> Array:
    bias = self.param('bias', nn.initializers.normal(), x.shape[-1:])
    last = jnp.broadcast_to(bias, (x.shape[0], 1, x.shape[-1]))
    return jnp.concatenate([x, last], 1)


class _Adapted(nn.Module):
  """A frozen dense layer with adapters of rank 2 beside it."""

  @nn.compact
  def __call__(self, x: Array) -> Array:
    frozen = jax.random.normal(jax.random.key(7), (_W, 5))
    low = nn.Dense(2, use_bias=False, name='a')(x)
    return x @ frozen + nn.Dense(5, use_bias=False, name='b')(low)


_MODULES: dict[str, Callable[[], nn.Module]] = {
    'Linear': lambda: nn.Dense(5),
    'Conv1d': lambda: nn.Conv(5, (3,)),
    'Conv2d': lambda: nn.Conv(5, (3, 3), strides=2),
    'Conv3d': lambda: nn.Conv(3, (2, 2, 2)),
    'ConvTranspose': lambda: nn.ConvTranspose(3, (3, 3), strides=(2, 2)),
    'Embedding': lambda: nn.Embed(_V, _W),
    'EmbeddingBag': _Bag,
    'LayerNorm': nn.LayerNorm,
    'GroupNorm': lambda: nn.GroupNorm(2),
    'InstanceNorm': nn.InstanceNorm,
    'RMSNorm': nn.RMSNorm,
    'RNN': lambda: nn.RNN(nn.SimpleCell(5)),
    'GRU': lambda: nn.RNN(nn.GRUCell(5)),
    'LSTM': lambda: nn.RNN(nn.LSTMCell(5)),
    'MultiheadAttention': _Attention,
    'tied weights': _Tied,
    'Einsum': lambda: nn.Einsum((_W, 2, 3), 'btw,whf->bthf'),
    'SequenceBias': _SequenceBias,
    'LoRA': _Adapted,
}


def case(layer: str) -> Case:
  """Returns a layer by its name in `cases.LAYERS`."""
  module, x = _MODULES[layer](), cases.records(layer)
  params = module.init(jax.random.key(0), x[:1])

  def loss(params: Params, record: PyTree) -> Array:
    return cases.loss_of(module.apply(params, record[None])[0])

  return Case(cases.perturbed(params), loss, x)
