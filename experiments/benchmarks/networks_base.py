"""What the networks of `--suite=models` are made of: parts and small layers.

The networks are written as users write them, for one record and without any
layer of dpjax, so that an engine has to take them as they are.
"""

from collections.abc import Callable
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from dpjax.typing import Array, Params, PRNGKey, PyTree

_EPSILON = 1e-5
cross_entropy = optax.softmax_cross_entropy_with_integer_labels


class Parts(NamedTuple):
  """A network with its loss and its records.

  Attributes:
    params: initial values of the parameters that are trained.
    frozen: values that are not trained, such as the base of adapters.
    loss: (params, frozen, one record) -> loss of this record.
    records: (number, key) -> a tree of arrays [number, ...] of records.
  """
  params: Params
  frozen: PyTree
  loss: Callable[[Params, PyTree, PyTree], Array]
  records: Callable[[int, PRNGKey], PyTree]


Builder = Callable[[bool], Parts]
"""Builds a network; of True, a tiny one of the same structure for tests."""


def init_dense(key: PRNGKey, inputs: int, outputs: int) -> Params:
  """Returns {'kernel': [inputs, outputs], 'bias': [outputs]}."""
  return {'kernel': jax.random.normal(key, (inputs, outputs))
                    / math.sqrt(inputs),
          'bias': jnp.zeros([outputs])}


def dense(params: Params, x: Array) -> Array:
  """Returns x W + b over the last axis."""
  return x @ params['kernel'] + params['bias']


def init_conv(key: PRNGKey, size: int, inputs: int, outputs: int) -> Params:
  """Returns {'kernel': [size, size, inputs, outputs], 'bias': [outputs]}."""
  shape = (size, size, inputs, outputs)
  return {'kernel': jax.random.normal(key, shape)
                    / math.sqrt(size**2 * inputs),
          'bias': jnp.zeros([outputs])}


def conv(params: Params, x: Array, stride: int = 1,
         padding: str = 'SAME') -> Array:
  """Returns a convolution of one image x [h, w, channels]."""
  return jax.lax.conv_general_dilated(
      x[None], params['kernel'], (stride, stride), padding,
      dimension_numbers=('NHWC', 'HWIO', 'NHWC'))[0] + params['bias']


def init_norm(width: int) -> Params:
  """Returns the scale and the shift of a normalisation."""
  return {'scale': jnp.ones([width]), 'bias': jnp.zeros([width])}


def layer_norm(params: Params, x: Array) -> Array:
  """Returns the layer normalisation of x over its last axis."""
  centred = x - jnp.mean(x, -1, keepdims=True)
  variance = jnp.mean(jnp.square(centred), -1, keepdims=True)
  return (centred * jax.lax.rsqrt(variance + _EPSILON) * params['scale']
          + params['bias'])


def group_norm(params: Params, x: Array, groups: int) -> Array:
  """Returns the group normalisation of one image x [h, w, channels]."""
  grouped = x.reshape((*x.shape[:2], groups, -1))
  centred = grouped - jnp.mean(grouped, (0, 1, 3), keepdims=True)
  variance = jnp.mean(jnp.square(centred), (0, 1, 3), keepdims=True)
  normal = (centred * jax.lax.rsqrt(variance + _EPSILON)).reshape(x.shape)
  return normal * params['scale'] + params['bias']


def next_token_loss(logits: Array, tokens: Array) -> Array:
  """Returns the mean loss of predicting tokens[1:] from logits [t, v]."""
  return jnp.mean(cross_entropy(logits, tokens[1:]))


def tokens(vocabulary: int, length: int
           ) -> Callable[[int, PRNGKey], Array]:
  """Returns the function that draws sequences of length + 1 tokens."""
  return lambda number, key: jax.random.randint(
      key, (number, length + 1), 0, vocabulary)


def labelled(shape: tuple[int, ...], num_classes: int
             ) -> Callable[[int, PRNGKey], PyTree]:
  """Returns the function that draws normal features with random labels."""

  def records(number: int, key: PRNGKey) -> PyTree:
    keys = jax.random.split(key)
    return {'x': jax.random.normal(keys[0], (number, *shape)),
            'y': jax.random.randint(keys[1], (number,), 0, num_classes)}

  return records
