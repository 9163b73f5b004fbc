"""Networks of `--suite=models` for images and vectors, in plain JAX."""

import functools

import jax
import jax.numpy as jnp

from dpjax.typing import Array, Params, PRNGKey, PyTree
from experiments.benchmarks import architectures
from experiments.benchmarks import jax_nets
from experiments.benchmarks import networks_base as base
from experiments.benchmarks.networks_base import Parts

_CLASSES, _GROUPS, _EPSILON = 10, 4, 1e-5


def _tutorial(name: str, tiny_name: str, tiny: bool) -> Parts:
  """Returns a network of `architectures`."""
  architecture = architectures.MODELS[tiny_name if tiny else name]

  def loss(params: Params, frozen: PyTree, record: PyTree) -> Array:
    del frozen
    logits = jax_nets.apply(architecture, params, record['x'][None])[0]
    return base.cross_entropy(logits, record['y'])

  return Parts(jax_nets.init(architecture, jax.random.key(0)), (), loss,
               base.labelled(architecture.input_shape,
                             architecture.num_classes))


def _standardised(params: Params) -> Params:
  """Returns a convolution whose filters have mean 0 and variance 1 / k.

  Source: Qiao et al. (2019).
  """
  kernel = params['kernel']
  centred = kernel - jnp.mean(kernel, (0, 1, 2), keepdims=True)
  total = jnp.sum(jnp.square(centred), (0, 1, 2), keepdims=True)
  return params | {'kernel': centred * jax.lax.rsqrt(total + _EPSILON)}


def _weight_standardised(tiny: bool) -> Parts:
  """Returns three convolutions with standardised filters and group norms."""
  side, widths = (8, (4, 4, 8)) if tiny else (32, (16, 32, 64))
  keys = jax.random.split(jax.random.key(0), len(widths) + 1)
  sizes = zip((3, *widths), widths)
  params = {f'conv_{i}': base.init_conv(key, 3, inputs, outputs)
            for i, (key, (inputs, outputs)) in enumerate(
                zip(keys, sizes))}
  params |= {f'norm_{i}': base.init_norm(width)
             for i, width in enumerate(widths)}
  params['head'] = base.init_dense(keys[-1], widths[-1], _CLASSES)

  def loss(params: Params, frozen: PyTree, record: PyTree) -> Array:
    del frozen
    x = record['x']
    for i in range(len(widths)):
      x = base.conv(_standardised(params[f'conv_{i}']), x, 2 if i else 1)
      x = jax.nn.relu(base.group_norm(params[f'norm_{i}'], x, _GROUPS))
    logits = base.dense(params['head'], jnp.mean(x, (0, 1)))
    return base.cross_entropy(logits, record['y'])

  return Parts(params, (), loss, base.labelled((side, side, 3), _CLASSES))


def _with_ones(params: Params, x: Array) -> Array:
  """Returns x W + b as the product of (x, 1) with W on top of b."""
  kernel = jnp.concatenate([params['kernel'], params['bias'][None]])
  return jnp.concatenate([x, jnp.ones([1])]) @ kernel


def _concatenated_bias(tiny: bool) -> Parts:
  """Returns an MLP whose biases are further rows of its matrices."""
  widths = (6, 5, 3) if tiny else (784, 512, 256, 10)
  keys = jax.random.split(jax.random.key(0), len(widths) - 1)
  params = [base.init_dense(key, inputs, outputs)
            for key, inputs, outputs in zip(keys, widths, widths[1:])]

  def loss(params: Params, frozen: PyTree, record: PyTree) -> Array:
    del frozen
    x = record['x']
    for layer in params[:-1]:
      x = jax.nn.relu(_with_ones(layer, x))
    return base.cross_entropy(_with_ones(params[-1], x), record['y'])

  return Parts(params, (), loss, base.labelled((widths[0],), widths[-1]))


def _init_pair(key: PRNGKey, inputs: int, outputs: int) -> Params:
  """Returns two convolutions, each with a normalisation."""
  keys = jax.random.split(key)
  return {'conv_0': base.init_conv(keys[0], 3, inputs, outputs),
          'norm_0': base.init_norm(outputs),
          'conv_1': base.init_conv(keys[1], 3, outputs, outputs),
          'norm_1': base.init_norm(outputs)}


def _pair(params: Params, x: Array) -> Array:
  """Applies two convolutions with normalisation and activation."""
  for i in range(2):
    x = base.group_norm(params[f'norm_{i}'], base.conv(params[f'conv_{i}'], x),
                        _GROUPS)
    x = jax.nn.silu(x)
  return x


def _doubled(x: Array) -> Array:
  """Returns an image of twice the height and width, by repetition."""
  return jnp.repeat(jnp.repeat(x, 2, 0), 2, 1)


def _unet(tiny: bool) -> Parts:
  """Returns a U-Net that predicts the noise of a noisy image."""
  side, (first, second, third) = (8, (4, 4, 8)) if tiny else (32, (16, 32, 64))
  keys = jax.random.split(jax.random.key(0), 8)
  params = {'in': _init_pair(keys[0], 1, first),
            'down_0': base.init_conv(keys[1], 3, first, second),
            'middle': _init_pair(keys[2], second, second),
            'down_1': base.init_conv(keys[3], 3, second, third),
            'bottom': _init_pair(keys[4], third, third),
            'up_1': _init_pair(keys[5], third + second, second),
            'up_0': _init_pair(keys[6], second + first, first),
            'out': base.init_conv(keys[7], 1, first, 1)}

  def loss(params: Params, frozen: PyTree, record: PyTree) -> Array:
    del frozen
    top = _pair(params['in'], record['noisy'])
    middle = _pair(params['middle'], base.conv(params['down_0'], top, 2))
    bottom = _pair(params['bottom'], base.conv(params['down_1'], middle, 2))
    x = _pair(params['up_1'], jnp.concatenate([_doubled(bottom), middle], -1))
    x = _pair(params['up_0'], jnp.concatenate([_doubled(x), top], -1))
    return jnp.mean(jnp.square(base.conv(params['out'], x) - record['noise']))

  def records(number: int, key: PRNGKey) -> PyTree:
    image, noise = jax.random.normal(key, (2, number, side, side, 1))
    return {'noisy': image + noise, 'noise': noise}

  return Parts(params, (), loss, records)


BUILDERS = {
    'mlp': functools.partial(_tutorial, 'mlp', 'tiny_mlp'),
    'cnn': functools.partial(_tutorial, 'cnn', 'tiny_cnn'),
    'bias_rows': _concatenated_bias,
    'weight_standard': _weight_standardised,
    'unet': _unet,
}
"""Maps a name to the function that builds the network."""
