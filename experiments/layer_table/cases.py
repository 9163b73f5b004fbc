"""What a layer of any library is for an engine: parameters, loss and records.

Each layer is alone in its network, so that its gradient comes from it only.
Records differ in size, and the loss is neither linear nor symmetric in the
outputs, so that no gradient vanishes or is shared by the records.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.typing import Array, Params, PyTree

NUM_RECORDS = 4
LENGTH, WIDTH, VOCABULARY = 6, 4, 7
LAYERS = {
    'Linear': 'dense layer at each position of a sequence',
    'Conv1d': 'convolution of a sequence',
    'Conv2d': 'convolution of an image, stride 2',
    'Conv3d': 'convolution of a volume',
    'ConvTranspose': 'transposed convolution of an image',
    'Embedding': 'vectors of tokens',
    'EmbeddingBag': 'mean of the vectors of the tokens of a record',
    'LayerNorm': 'layer normalisation with scale and shift',
    'GroupNorm': 'group normalisation with scale and shift',
    'InstanceNorm': 'instance normalisation with scale and shift',
    'RMSNorm': 'normalisation by the root mean square, with scale',
    'RNN': 'simple recurrent cell over a sequence',
    'GRU': 'gated recurrent unit over a sequence',
    'LSTM': 'long short-term memory over a sequence',
    'MultiheadAttention': 'self-attention of two heads',
    'tied weights': 'an embedding that also gives the logits',
    'Einsum': 'product with a tensor, with bias',
    'SequenceBias': 'a learned vector appended to a sequence',
    'LoRA': 'adapters x A B beside a frozen dense layer',
}
"""Maps the name of a layer, as PyTorch or Opacus spell it, to a description."""

_SHAPES = {'Conv1d': (8, 3), 'Conv2d': (6, 6, 3), 'Conv3d': (4, 4, 4, 2),
           'ConvTranspose': (3, 3, 4), 'GroupNorm': (3, 3, 4),
           'InstanceNorm': (3, 3, 4)}
_OF_TOKENS = ('Embedding', 'EmbeddingBag', 'tied weights')


class Case(NamedTuple):
  """A layer with a loss of its outputs.

  Attributes:
    params: float arrays.
    loss: (params, one record) -> scalar.
    records: array [b, ...] of the records.
  """
  params: Params
  loss: Callable[[Params, PyTree], Array]
  records: Array


def records(layer: str, number: int = NUM_RECORDS) -> Array:
  """Returns records of a layer [number, ...]: tokens, or channels last."""
  rng = np.random.default_rng(0)
  if layer in _OF_TOKENS:
    return jnp.asarray(rng.integers(0, VOCABULARY, (number, LENGTH)), jnp.int32)
  shape = _SHAPES.get(layer, (LENGTH, WIDTH))
  x = rng.normal(size=(number, *shape))
  sizes = np.logspace(-0.5, 0.5, number).reshape((-1,) + (1,) * len(shape))
  return jnp.asarray(sizes * x, jnp.float32)


def loss_of(outputs: Array) -> Array:
  """Returns a loss of the outputs of a layer for one record."""
  flat = outputs.ravel().astype(jnp.float32)
  return jnp.sum(jnp.cos(jnp.arange(flat.size, dtype=jnp.float32)) * flat
                 + 0.5 * jnp.square(flat))


def perturbed(params: Params) -> Params:
  """Returns parameters without zero biases and unit scales.

  Those would hide an error in a gradient by which they are multiplied.
  """
  rng = np.random.default_rng(1)
  return jax.tree.map(lambda leaf: leaf + jnp.asarray(
      0.1 * rng.normal(size=leaf.shape), leaf.dtype), params)
