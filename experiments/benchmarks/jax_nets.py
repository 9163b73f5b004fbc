"""The networks in JAX, as plain functions and in certified form for `lip`."""

import math
from typing import Any

import jax
import jax.numpy as jnp

from dpjax.lipschitz import layers as certified_layers
from dpjax.lipschitz import normalisation
from dpjax.lipschitz import pointwise
from dpjax.lipschitz import pooling
from dpjax.lipschitz.network import Chain
from dpjax.lipschitz.network import Network
from dpjax.lipschitz.residual import Residual
from dpjax.models import model as models
from dpjax.models.model import Model
from dpjax.typing import Array, Batch, Params, PRNGKey
from experiments.benchmarks import architectures as arch

_EPSILON = 1e-5
_FUNCTIONS = {'relu': jax.nn.relu, 'tanh': jnp.tanh, 'gelu': jax.nn.gelu}
_RADIUS = 3.0


def init(architecture: arch.Architecture, key: PRNGKey) -> Params:
  """Returns initial parameters: {layer: {'kernel': ..., 'bias': ...}}.

  Some layers have a 'scale' or an 'embedding' instead of a kernel.
  """
  layers = arch.with_parameters(architecture)
  keys = jax.random.split(key, len(layers))
  return {layer.name: _init_layer(layer, key)
          for layer, key in zip(layers, keys, strict=True)}


def _init_layer(layer: Any, key: PRNGKey) -> Params:
  """Returns the initial parameters of a layer."""
  match layer:
    case arch.Embedding(_, vocabulary, width):
      return {'embedding': jax.random.normal(key, (vocabulary, width))}
    case arch.LayerNorm(_, width):
      return {'scale': jnp.ones([width]), 'bias': jnp.zeros([width])}
    case arch.Dense(_, inputs, outputs):
      shape = (inputs, outputs)
    case arch.Conv(_, size, inputs, outputs):
      shape = (size, size, inputs, outputs)
  scale = math.prod(shape[:-1])**-0.5
  return {'kernel': scale * jax.random.normal(key, shape),
          'bias': jnp.zeros([outputs])}


def apply(architecture: arch.Architecture, params: Params, x: Array) -> Array:
  """Returns the logits [b, c] of x [b, ...]."""
  return _chain(architecture.layers, params, x)


def _chain(layers: tuple, params: Params, x: Array) -> Array:
  """Applies layers one after the other."""
  for layer in layers:
    x = _layer(layer, params, x)
  return x


def _layer(layer: Any, params: Params, x: Array) -> Array:
  """Applies one layer to x [b, ...]."""
  match layer:
    case arch.Dense(name):
      return _shifted(x @ params[name]['kernel'], params[name]['bias'])
    case arch.Conv(name, stride=stride, pad=pad):
      return _shifted(jax.lax.conv_general_dilated(
          x, params[name]['kernel'], (stride, stride), [(pad, pad)] * 2,
          dimension_numbers=('NHWC', 'HWIO', 'NHWC')), params[name]['bias'])
    case arch.Embedding(name):
      return params[name]['embedding'][x]
    case arch.LayerNorm(name):
      scaled = _normalised(x, (-1,)) * _broadcast(params[name]['scale'], x)
      return _shifted(scaled, params[name]['bias'])
    case arch.GroupNorm(groups):
      grouped = x.reshape((*x.shape[:-1], groups, x.shape[-1] // groups))
      return _normalised(grouped, (1, 2, 4)).reshape(x.shape)
    case arch.Activation(function):
      return _FUNCTIONS[function](x)
    case arch.MaxPool(window, stride):
      return pooling.window_maximum(x, (window, window), (stride, stride))
    case arch.Mean():
      return jnp.mean(x, tuple(range(1, x.ndim - 1)))
    case arch.Flatten():
      return x.reshape((x.shape[0], -1))
    case arch.Residual(branch, shortcut):
      return _chain(branch, params, x) + _chain(shortcut, params, x)
  raise TypeError(f'no {type(layer).__name__} in JAX')


def _broadcast(vector: Array, x: Array) -> Array:
  """Returns a vector over channels with the rank of x."""
  return vector.reshape((1,) * (x.ndim - 1) + (-1,))


def _shifted(x: Array, bias: Array) -> Array:
  """Adds a bias for each channel."""
  return x + _broadcast(bias, x)


def _normalised(x: Array, axes: tuple[int, ...]) -> Array:
  """Returns x with mean 0 and variance 1 over some axes."""
  centred = x - jnp.mean(x, axes, keepdims=True)
  variance = jnp.mean(jnp.square(centred), axes, keepdims=True)
  return centred * jax.lax.rsqrt(variance + _EPSILON)


def batch(architecture: arch.Architecture, size: int, key: PRNGKey) -> Batch:
  """Returns random records of the right shape, with labels."""
  keys = jax.random.split(key)
  shape = (size, *architecture.input_shape)
  if architecture.vocabulary:
    x = jax.random.randint(keys[0], shape, 0, architecture.vocabulary)
  else:
    x = jax.random.normal(keys[0], shape)
  return Batch(x, jax.random.randint(keys[1], (size,), 0,
                                     architecture.num_classes))


def certified(architecture: arch.Architecture) -> Model:
  """Returns the network whose gradients are bounded without clipping.

  Activations map into a ball and normalisations are Lipschitz, as in
  `dpjax.models`; the other layers are the same.

  Raises:
    ValueError: if a layer has no certified form.
  """
  return models.from_network(Network(
      root=Chain(name='net', nodes=_nodes(architecture.layers, 'net')),
      input_shape=architecture.input_shape, input_radius=_RADIUS))


def _nodes(layers: tuple, prefix: str) -> tuple:
  """Returns the nodes of layers."""
  return tuple(_node(layer, f'{prefix}_{index}')
               for index, layer in enumerate(layers))


def _node(layer: Any, name: str) -> Any:
  """Returns the node of a layer; `name` is for layers without a name."""
  match layer:
    case arch.Dense(own, _, outputs):
      return certified_layers.Dense(name=own, width=outputs)
    case arch.Conv(own, size, _, outputs, stride, pad):
      return certified_layers.Conv(
          name=own, channels=outputs, kernel_size=(size, size),
          strides=(stride, stride), padding=((pad, pad),) * 2)
    case arch.GroupNorm(groups):
      return normalisation.lipschitz(num_groups=groups, alpha=1.0, name=name)
    case arch.Activation(function) if function in pointwise.ACTIVATIONS:
      return pointwise.bounded_activation(function, _RADIUS, name=name)
    case arch.MaxPool(window, stride):
      return pooling.max_pool((window, window), (stride, stride), name=name)
    case arch.Mean():
      return pooling.global_average_pool(name=name)
    case arch.Flatten():
      return pointwise.flatten(name=name)
    case arch.Residual(branch, shortcut):
      # The ball bounds the input of the convolution in the shortcut.
      ball = (pointwise.Ball(name=f'{name}_ball', radius=_RADIUS),)
      return Residual(
          name=name,
          branch=Chain(name='branch', nodes=_nodes(branch, f'{name}_b')),
          shortcut=Chain(name='shortcut', nodes=shortcut and (
              *ball, *_nodes(shortcut, f'{name}_s'))))
  raise ValueError(f'{type(layer).__name__} has no certified form')
