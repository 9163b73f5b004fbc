"""The layers of the table in NNX.

A module is split into its parameters and the rest, and merged in the loss.
"""

from collections.abc import Callable

from flax import nnx
import jax.numpy as jnp

from dpjax.typing import Array, Params, PyTree
from experiments.layer_table import cases
from experiments.layer_table.cases import Case

_W, _V = cases.WIDTH, cases.VOCABULARY


class _Bag(nnx.Module):
  """The mean of the vectors of tokens."""

  def __init__(self, rngs: nnx.Rngs) -> None:
    self.embed = nnx.Embed(_V, _W, rngs=rngs)

  def __call__(self, tokens: Array) -> Array:
    return jnp.mean(self.embed(tokens), -2)


class _Tied(nnx.Module):
  """An embedding whose table also gives the logits."""

  def __init__(self, rngs: nnx.Rngs) -> None:
    self.embed = nnx.Embed(_V, _W, rngs=rngs)

  def __call__(self, tokens: Array) -> Array:
    return self.embed.attend(jnp.tanh(self.embed(tokens)))


class _SequenceBias(nnx.Module):
  """A sequence [b, t, w] with a learned vector behind its last position."""

  def __init__(self, rngs: nnx.Rngs) -> None:
    self.bias = nnx.Param(rngs.params.normal((_W,)))

  def __call__(self, x: Array) -> Array:
    last = jnp.broadcast_to(self.bias[...], (x.shape[0], 1, x.shape[-1]))
    return jnp.concatenate([x, last], 1)


_MODULES: dict[str, Callable[[nnx.Rngs], nnx.Module]] = {
    'Linear': lambda rngs: nnx.Linear(_W, 5, rngs=rngs),
    'Conv1d': lambda rngs: nnx.Conv(3, 5, (3,), rngs=rngs),
    'Conv2d': lambda rngs: nnx.Conv(3, 5, (3, 3), strides=2, rngs=rngs),
    'Conv3d': lambda rngs: nnx.Conv(2, 3, (2, 2, 2), rngs=rngs),
    'ConvTranspose': lambda rngs: nnx.ConvTranspose(
        _W, 3, (3, 3), strides=(2, 2), rngs=rngs),
    'Embedding': lambda rngs: nnx.Embed(_V, _W, rngs=rngs),
    'EmbeddingBag': _Bag,
    'LayerNorm': lambda rngs: nnx.LayerNorm(_W, rngs=rngs),
    'GroupNorm': lambda rngs: nnx.GroupNorm(4, num_groups=2, rngs=rngs),
    'InstanceNorm': lambda rngs: nnx.InstanceNorm(4, rngs=rngs),
    'RMSNorm': lambda rngs: nnx.RMSNorm(_W, rngs=rngs),
    'RNN': lambda rngs: nnx.RNN(nnx.SimpleCell(_W, 5, rngs=rngs)),
    'GRU': lambda rngs: nnx.RNN(nnx.GRUCell(_W, 5, rngs=rngs)),
    'LSTM': lambda rngs: nnx.RNN(nnx.LSTMCell(_W, 5, rngs=rngs)),
    'MultiheadAttention': lambda rngs: nnx.MultiHeadAttention(
        2, _W, decode=False, rngs=rngs),
    'tied weights': _Tied,
    'Einsum': lambda rngs: nnx.Einsum('btw,whf->bthf', (_W, 2, 3), (2, 3),
                                      rngs=rngs),
    'SequenceBias': _SequenceBias,
    'LoRA': lambda rngs: nnx.LoRALinear(_W, 5, lora_rank=2, rngs=rngs),
}


def case(layer: str) -> Case:
  """Returns a layer by its name in `cases.LAYERS`."""
  trained = nnx.LoRAParam if layer == 'LoRA' else nnx.Param
  graph, params, rest = nnx.split(_MODULES[layer](nnx.Rngs(0)), trained, ...)

  def loss(params: Params, record: PyTree) -> Array:
    # Without copies, random counters would be those of an outer trace, and
    # `jax.grad` raises a TraceContextError when a module counts one up.
    module = nnx.merge(graph, params, rest, copy=True)
    return cases.loss_of(module(record[None])[0])

  return Case(cases.perturbed(params), loss, cases.records(layer))
