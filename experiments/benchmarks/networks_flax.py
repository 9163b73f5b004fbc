"""Networks of `--suite=models` in Flax: `nn.scan` of Linen, dropout of NNX."""

from flax import nnx
import flax.linen as nn
import jax
import jax.numpy as jnp

from dpjax.typing import Array, Params, PRNGKey, PyTree
from experiments.benchmarks import networks_base as base
from experiments.benchmarks import networks_transformers as transformers
from experiments.benchmarks.networks_base import Parts

_RATE = 0.1


class _Block(nn.Module):
  """A block of a transformer, as a body of `nn.scan`."""
  heads: int

  @nn.compact
  def __call__(self, x: Array, nothing: None) -> tuple[Array, None]:
    width, length = x.shape[-1], x.shape[-2]
    mask = nn.make_causal_mask(jnp.ones([length]))
    normal = nn.LayerNorm()(x)
    x = x + nn.MultiHeadDotProductAttention(num_heads=self.heads)(
        normal, mask=mask)
    hidden = nn.gelu(nn.Dense(4 * width)(nn.LayerNorm()(x)))
    return x + nn.Dense(width)(hidden), nothing


class _Language(nn.Module):
  """A language model whose blocks are one module, scanned."""
  shape: transformers.Shape

  @nn.compact
  def __call__(self, tokens: Array) -> Array:
    x = nn.Embed(self.shape.vocabulary, self.shape.width)(tokens)
    x = x + self.param('positions', nn.initializers.normal(0.3), x.shape[-2:])
    blocks = nn.scan(_Block, variable_axes={'params': 0},
                     split_rngs={'params': True}, length=self.shape.depth)
    x, _ = blocks(self.shape.heads)(x, None)
    return nn.Dense(self.shape.vocabulary)(nn.LayerNorm()(x))


def _scanned(tiny: bool) -> Parts:
  """Returns a transformer of Linen whose blocks `nn.scan` applies."""
  shape = transformers.Shape(11, 5, 8, 2, 2) if tiny else transformers.Shape(
      depth=4)
  module = _Language(shape)
  params = module.init(jax.random.key(0), jnp.zeros([shape.length], jnp.int32))

  def loss(params: Params, frozen: PyTree, tokens: Array) -> Array:
    del frozen
    return base.next_token_loss(module.apply(params, tokens[:-1]), tokens)

  return Parts(params, (), loss, base.tokens(shape.vocabulary, shape.length))


class _Dropped(nnx.Module):
  """An MLP with dropout after each hidden layer."""

  def __init__(self, widths: tuple[int, ...], *, rngs: nnx.Rngs) -> None:
    self.layers = nnx.List([nnx.Linear(inputs, outputs, rngs=rngs)
                            for inputs, outputs in zip(widths, widths[1:])])
    self.dropout = nnx.Dropout(_RATE)

  def __call__(self, x: Array, *, rngs: nnx.Rngs) -> Array:
    for layer in self.layers[:-1]:
      x = self.dropout(nnx.relu(layer(x)), rngs=rngs)
    return self.layers[-1](x)


def _dropout(tiny: bool) -> Parts:
  """Returns an MLP of NNX; a record brings the seed of its masks."""
  widths = (6, 5, 3) if tiny else (784, 512, 256, 10)
  graph, params, rest = nnx.split(_Dropped(widths, rngs=nnx.Rngs(0)),
                                  nnx.Param, ...)

  def loss(params: Params, frozen: PyTree, record: PyTree) -> Array:
    model = nnx.merge(graph, params, frozen, copy=True)
    key = jax.random.wrap_key_data(record['seed'])
    logits = model(record['x'], rngs=nnx.Rngs(dropout=key))
    return base.cross_entropy(logits, record['y'])

  def records(number: int, key: PRNGKey) -> PyTree:
    keys = jax.random.split(key)
    seeds = jax.random.key_data(jax.random.split(keys[1], number))
    return base.labelled((widths[0],), widths[-1])(number, keys[0]) | {
        'seed': seeds}

  return Parts(params, rest, loss, records)


BUILDERS = {'gpt_nn_scan': _scanned, 'nnx_dropout': _dropout}
"""Maps a name to the function that builds the network."""
