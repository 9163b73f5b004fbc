"""Transformers of `--suite=models` in plain JAX.

Layers are written one after the other or scanned, parameters are read once,
twice (tied embeddings) or after a change (merged adapters).
"""

from collections.abc import Callable
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax.typing import Array, Params, PRNGKey, PyTree
from experiments.benchmarks import networks_base as base
from experiments.benchmarks.networks_base import Parts

_PATCH, _IMAGE, _CLASSES = 4, (32, 32, 3), 10


class Shape(NamedTuple):
  """Sizes of a transformer.

  Attributes:
    vocabulary: number of tokens.
    length: number of positions of a record.
    width: number of features of a position.
    depth: number of blocks.
    heads: number of heads of an attention.
    rank: rank of the adapters.
    experts: number of experts of a mixture.
  """
  vocabulary: int = 256
  length: int = 64
  width: int = 128
  depth: int = 2
  heads: int = 4
  rank: int = 8
  experts: int = 4


TINY = Shape(11, 5, 8, 2, 2, 2, 3)
Block = Callable[[Params, Array], Array]


def init_block(key: PRNGKey, shape: Shape) -> Params:
  """Returns the parameters of a block."""
  keys, width = jax.random.split(key, 4), shape.width
  return {'norm_1': base.init_norm(width),
          'qkv': base.init_dense(keys[0], width, 3 * width),
          'out': base.init_dense(keys[1], width, width),
          'norm_2': base.init_norm(width),
          'up': base.init_dense(keys[2], width, 4 * width),
          'down': base.init_dense(keys[3], 4 * width, width)}


def causal(queries: Array, keys: Array, values: Array) -> Array:
  """Returns causal attention of [t, heads, features] by two products."""
  scores = jnp.einsum('shd,thd->hst', queries, keys) / math.sqrt(
      queries.shape[-1])
  allowed = jnp.tril(jnp.ones(scores.shape[1:], jnp.bool_))
  weights = jax.nn.softmax(jnp.where(allowed, scores, -1e9))
  return jnp.einsum('hst,thd->shd', weights, values)


_library_attention = functools.partial(jax.nn.dot_product_attention,
                                       is_causal=True)


def _full(queries: Array, keys: Array, values: Array) -> Array:
  """Returns attention to all positions, for images."""
  return jax.nn.dot_product_attention(queries, keys, values)


def _adapted(params: Params, x: Array) -> Array:
  """Returns a dense layer, with the adapters x A B added if there are any."""
  y = base.dense(params, x)
  return y + (x @ params['a']) @ params['b'] if 'a' in params else y


def _merged(params: Params, x: Array) -> Array:
  """Returns a dense layer whose matrix is W + A B."""
  kernel = params['kernel'] + params['a'] @ params['b']
  return x @ kernel + params['bias']


def _attended(params: Params, x: Array, heads: int, attend: Callable,
              dense: Callable) -> Array:
  """Returns x with the attention of a block added."""
  split = dense(params['qkv'], base.layer_norm(params['norm_1'], x)).reshape(
      (x.shape[0], 3, heads, -1))
  mixed = attend(split[:, 0], split[:, 1], split[:, 2])
  return x + dense(params['out'], mixed.reshape(x.shape))


def block(params: Params, x: Array, *, heads: int, attend: Callable = causal,
          dense: Callable = _adapted) -> Array:
  """Returns the block of x [t, width]: attention, then two dense layers."""
  x = _attended(params, x, heads, attend, dense)
  hidden = dense(params['up'], base.layer_norm(params['norm_2'], x))
  return x + dense(params['down'], jax.nn.gelu(hidden))


def _experts(params: Params, x: Array, *, heads: int) -> Array:
  """Returns a block with a mixture of experts, each applied to all tokens."""
  x = _attended(params, x, heads, causal, base.dense)
  normal = base.layer_norm(params['norm_2'], x)
  gates = jax.nn.softmax(base.dense(params['gate'], normal))
  hidden = jax.nn.gelu(jnp.einsum('tw,ewf->etf', normal, params['up']))
  outputs = jnp.einsum('etf,efw->etw', hidden, params['down'])
  return x + jnp.einsum('te,etw->tw', gates, outputs)


def _init_experts(key: PRNGKey, shape: Shape) -> Params:
  """Returns the parameters of a block with a mixture of experts."""
  keys, width = jax.random.split(key, 4), shape.width
  kernels = lambda key, inputs, outputs: jax.random.normal(
      key, (shape.experts, inputs, outputs)) / math.sqrt(inputs)
  plain = init_block(keys[0], shape)
  return plain | {'gate': base.init_dense(keys[1], width, shape.experts),
                  'up': kernels(keys[2], width, 2 * width),
                  'down': kernels(keys[3], 2 * width, width)}


def init(shape: Shape, *, tied: bool = False, stacked: bool = False,
         of_block: Callable[[PRNGKey, Shape], Params] = init_block) -> Params:
  """Returns the parameters of a language model.

  Args:
    shape: its sizes.
    tied: whether the embedding is also the matrix of the logits.
    stacked: whether the blocks are one tree of arrays [depth, ...].
    of_block: function that returns the parameters of a block.
  """
  keys = jax.random.split(jax.random.key(0), shape.depth + 3)
  blocks = [of_block(key, shape) for key in keys[3:]]
  draw = lambda key, *sizes: 0.3 * jax.random.normal(key, sizes)
  params = {'embedding': draw(keys[0], shape.vocabulary, shape.width),
            'positions': draw(keys[1], shape.length, shape.width),
            'blocks': (jax.tree.map(lambda *leaves: jnp.stack(leaves), *blocks)
                       if stacked else blocks),
            'norm': base.init_norm(shape.width)}
  if not tied:
    params['head'] = base.init_dense(keys[2], shape.width, shape.vocabulary)
  return params


def _one_by_one(blocks: list[Params], x: Array, apply: Block) -> Array:
  """Applies blocks in a Python loop."""
  for params in blocks:
    x = apply(params, x)
  return x


def _scanned(blocks: Params, x: Array, apply: Block) -> Array:
  """Applies stacked blocks by `jax.lax.scan`."""
  return jax.lax.scan(lambda x, params: (apply(params, x), None), x, blocks)[0]


def model_loss(params: Params, tokens: Array, apply: Block,
               through: Callable = _one_by_one) -> Array:
  """Returns the loss of a language model on one sequence of tokens.

  Args:
    params: from `init`; without a 'head' the embedding gives the logits.
    tokens: [t + 1].
    apply: function of the parameters of a block and of x [t, width].
    through: function that applies all blocks.
  """
  x = params['embedding'][tokens[:-1]] + params['positions']
  x = base.layer_norm(params['norm'], through(params['blocks'], x, apply))
  logits = (base.dense(params['head'], x) if 'head' in params
            else x @ params['embedding'].T)
  return base.next_token_loss(logits, tokens)


def _language(shape: Shape, *, tied: bool = False, scan: bool = False,
              remat: bool = False, attend: Callable = causal,
              mixture: bool = False) -> Callable[[bool], Parts]:
  """Returns the builder of a language model that is trained in full."""

  def build(tiny: bool) -> Parts:
    sizes = TINY if tiny else shape
    apply = (functools.partial(_experts, heads=sizes.heads) if mixture else
             functools.partial(block, heads=sizes.heads, attend=attend))
    if remat:
      apply = jax.checkpoint(apply)
    through = _scanned if scan else _one_by_one
    return Parts(
        init(sizes, tied=tied, stacked=scan,
             of_block=_init_experts if mixture else init_block), (),
        lambda params, frozen, tokens: model_loss(params, tokens, apply,
                                                  through),
        base.tokens(sizes.vocabulary, sizes.length))

  return build


def _adapters(dense: Callable) -> Callable[[bool], Parts]:
  """Returns the builder of adapters of a frozen language model."""

  def build(tiny: bool) -> Parts:
    shape = TINY if tiny else Shape()
    frozen = init(shape)
    layers = ('qkv', 'out', 'up', 'down')
    keys = jax.random.split(jax.random.key(1), (shape.depth, len(layers)))
    adapters = [{name: _init_adapter(key, block[name]['kernel'], shape.rank)
                 for name, key in zip(layers, row, strict=True)}
                for block, row in zip(frozen['blocks'], keys, strict=True)]
    apply = functools.partial(block, heads=shape.heads, dense=dense)

    def loss(params: Params, frozen: PyTree, tokens: Array) -> Array:
      blocks = [{name: value | own.get(name, {})
                 for name, value in fixed.items()}
                for fixed, own in zip(frozen['blocks'], params, strict=True)]
      return model_loss(frozen | {'blocks': blocks}, tokens, apply)

    return Parts(adapters, frozen, loss,
                 base.tokens(shape.vocabulary, shape.length))

  return build


def _init_adapter(key: PRNGKey, kernel: Array, rank: int) -> Params:
  """Returns A [inputs, rank] and B [rank, outputs], both away from zero."""
  keys, (inputs, outputs) = jax.random.split(key), kernel.shape
  return {'a': jax.random.normal(keys[0], (inputs, rank)) / math.sqrt(inputs),
          'b': 0.1 * jax.random.normal(keys[1], (rank, outputs))}


def _vision(tiny: bool) -> Parts:
  """Returns a vision transformer whose class token is the first position."""
  shape = TINY if tiny else Shape()
  image = (8, 8, 3) if tiny else _IMAGE
  patches = (image[0] // _PATCH) * (image[1] // _PATCH)
  keys = jax.random.split(jax.random.key(0), shape.depth + 4)
  params = {
      'patches': base.init_conv(keys[0], _PATCH, image[-1], shape.width),
      'class': 0.3 * jax.random.normal(keys[1], (1, shape.width)),
      'positions': 0.3 * jax.random.normal(keys[2],
                                           (patches + 1, shape.width)),
      'blocks': [init_block(key, shape) for key in keys[4:]],
      'norm': base.init_norm(shape.width),
      'head': base.init_dense(keys[3], shape.width, _CLASSES)}
  apply = functools.partial(block, heads=shape.heads, attend=_full)

  def loss(params: Params, frozen: PyTree, record: PyTree) -> Array:
    del frozen
    x = base.conv(params['patches'], record['x'], _PATCH, 'VALID')
    x = jnp.concatenate([params['class'], x.reshape((patches, -1))])
    x = _one_by_one(params['blocks'], x + params['positions'], apply)
    logits = base.dense(params['head'], base.layer_norm(params['norm'], x)[0])
    return base.cross_entropy(logits, record['y'])

  return Parts(params, (), loss, base.labelled(image, _CLASSES))


_DEEP = Shape(length=32, width=64, depth=12)
_GPT_2 = Shape(50257, 1024, 768, 12, 12)
BUILDERS = {
    'gpt': _language(Shape()),
    'gpt_remat': _language(Shape(), remat=True),
    'gpt_attention': _language(Shape(), attend=_library_attention),
    'gpt_lora': _adapters(_adapted),
    'gpt_tied_256': _language(Shape(), tied=True),
    'gpt_tied_4096': _language(Shape(4096), tied=True),
    'gpt_scan': _language(Shape(depth=4), scan=True),
    'gpt_scan_remat': _language(Shape(depth=4), scan=True, remat=True),
    'gpt_scan_remat_12': _language(_DEEP, scan=True, remat=True),
    'gpt_lora_merged': _adapters(_merged),
    'mixture': _language(Shape(), mixture=True),
    'vit': _vision,
    'gpt2_124m': _language(_GPT_2, tied=True, remat=True),
    'gpt2_124m_scan': _language(_GPT_2, tied=True, scan=True, remat=True),
}
"""Maps a name to the function that builds the network."""
