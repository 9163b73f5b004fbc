"""Residual networks with batch normalisation, many replicas in one program.

They serve to study networks that are *not* private: batch normalisation lets a
record change the gradients of other records, so clipping does not bound the
contribution of one record. For private training use `resnet`.
"""

import dataclasses
import math

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.typing import Array, Params, PRNGKey, PyTree

# PyTorch's defaults. Its momentum 0.1 is the weight of the new value, ours that
# of the old one.
_MOMENTUM = 0.9
_EPSILON = 1e-5


@dataclasses.dataclass(frozen=True, kw_only=True)
class BatchResnet:
  """A residual network of three groups of (depth - 2) / 6 blocks. Item MIA-04.

  A block adds its shortcut (the identity or a normalised 1 x 1 convolution) to
  convolution, normalisation, ReLU, convolution, normalisation; then comes a
  ReLU. Convolutions have no biases and pad as PyTorch does. The defaults give
  272,474 parameters and 40.8 million multiplications per image.

  The parameters of *one* replica are a tree of dicts, such as
  `params['block_1_0']['conv_0']['kernel']` [h, w, c_in, c_out]. A *pack* of P
  replicas has leaves [P, ...]. It runs as one network with P times as many
  channels and block-diagonal kernels. Replicas do not interact as long as all
  are finite (zero times infinity is not zero), and the wide convolutions suit
  matrix units. On an accelerator, sixteen ResNet-20 in packs of four train as
  fast as one of them with batches sixteen times as large, and three times as
  fast as under `jax.vmap`.

  Attributes:
    depth: 6 n + 2.
    widths: channels of the three groups.
    num_classes: number of logits.
    input_channels: channels of the images.
    mean: public mean of each channel, or one for all; subtracted first.
    std: public deviation of each channel, or one for all; divides the rest.
    compute_dtype: 'float32' or 'bfloat16', the type of convolutions and
      activations in training. Parameters, normalisations and logits are
      float32, and in evaluation everything is.
  """
  depth: int = 20
  widths: tuple[int, int, int] = (16, 32, 64)
  num_classes: int = 10
  input_channels: int = 3
  mean: tuple[float, ...] = (0.0,)
  std: tuple[float, ...] = (1.0,)
  compute_dtype: str = 'float32'

  def __post_init__(self):
    errors.check_at_least('depth', self.depth, 8)
    if (self.depth - 2) % 6:
      raise ValueError(f'depth must be 6 n + 2, got {self.depth}')
    if len(self.widths) != 3:
      raise ValueError(f'widths must be three numbers, got {len(self.widths)}')
    for width in self.widths:
      errors.check_at_least('width', width, 1)
    errors.check_at_least('input_channels', self.input_channels, 1)
    for value in self.std:
      errors.check_positive('std', value)
    errors.check_at_least('num_classes', self.num_classes, 2)
    errors.check_choice('compute_dtype', self.compute_dtype,
                        ('float32', 'bfloat16'))

  def init(self, key: PRNGKey) -> Params:
    """Returns one replica's parameters, uniform within 1 / sqrt(fan-in).

    Follows Lalanne (2023, section 1.3). Scales are 1 and shifts are 0.
    """
    shapes = {path: (size, size, entering, leaving) for path, (
        size, entering, leaving, _) in self.convolutions().items()}
    shapes['dense',] = (self.widths[-1], self.num_classes)
    # One draw for all leaves: one draw per leaf takes seconds to compile.
    sizes = [math.prod(shape) for shape in shapes.values()]
    drawn = jax.random.uniform(key, (sum(sizes) + self.num_classes,),
                               minval=-1.0, maxval=1.0)
    *parts, bias = jax.lax.split(drawn, (*sizes, self.num_classes))
    params = {}
    for (path, shape), part in zip(shapes.items(), parts, strict=True):
      bound = 1 / math.sqrt(math.prod(shape[:-1]))
      _put(params, path, {'kernel': bound * part.reshape(shape)})
      if path != ('dense',):
        _put(params, _norm_of(path), {'scale': jnp.ones(shape[-1]),
                                      'bias': jnp.zeros(shape[-1])})
    params['dense']['bias'] = bias / math.sqrt(self.widths[-1])
    return params

  def init_statistics(self) -> PyTree:
    """Returns initial running means and variances of one replica."""
    return {'/'.join(_norm_of(path)): {'mean': jnp.zeros(leaving),
                                       'variance': jnp.ones(leaving)}
            for path, (_, _, leaving, _) in self.convolutions().items()}

  def convolutions(self) -> dict[tuple[str, ...], tuple[int, int, int, int]]:
    """Maps path to (kernel size, channels in, channels out, stride), in order.
    """
    by_path = {('conv',): (3, self.input_channels, self.widths[0], 1)}
    entering = self.widths[0]
    for group, width in enumerate(self.widths):
      for block in range((self.depth - 2) // 6):
        name = f'block_{group}_{block}'
        stride = 2 if group and not block else 1
        by_path[name, 'conv_0'] = (3, entering, width, stride)
        by_path[name, 'conv_1'] = (3, width, width, 1)
        if stride > 1 or entering != width:
          by_path[name, 'shortcut'] = (1, entering, width, stride)
        entering = width
    return by_path

  def apply(self, params: Params, statistics: PyTree, x: Array, *,
            train: bool) -> tuple[Array, PyTree]:
    """Returns logits of a pack and its updated running statistics.

    Args:
      params: parameters of a pack, leaves [P, ...].
      statistics: running statistics, leaves [P, ...].
      x: images [P, b, h, w, c], one batch for each replica.
      train: if True, normalise by the batch and update the running
        statistics. If False, normalise by the running statistics and return
        them unchanged. Batch variances divide by b h w, as in Flax; PyTorch
        divides by one less.

    Returns:
      Logits [P, b, c] and statistics with leaves [P, ...].
    """
    dtype = jnp.dtype(self.compute_dtype) if train else jnp.float32
    size, batch = x.shape[:2]
    x = (x - _along_channels(self.mean, x)) / _along_channels(self.std, x)
    # [P, b, h, w, c] -> [b, h, w, P c]: replicas become groups of channels.
    x = jnp.moveaxis(x, 0, 3).reshape(batch, *x.shape[2:4], -1).astype(dtype)
    convolutions, updated = self.convolutions(), {}

    def convolved(path, x):
      name = '/'.join(_norm_of(path))
      x = _convolve(x, _get(params, path)['kernel'].astype(dtype),
                    convolutions[path][-1])
      x, updated[name] = _normalise(x, _get(params, _norm_of(path)),
                                    statistics[name], train)
      return x

    x = jax.nn.relu(convolved(('conv',), x))
    for group in range(3):
      for block in range((self.depth - 2) // 6):
        name = f'block_{group}_{block}'
        y = jax.nn.relu(convolved((name, 'conv_0'), x))
        y = convolved((name, 'conv_1'), y)
        if (name, 'shortcut') in convolutions:
          x = convolved((name, 'shortcut'), x)
        x = jax.nn.relu(x + y)
    x = jnp.mean(x.astype(jnp.float32), (1, 2)).reshape(batch, size, -1)
    logits = jnp.einsum('bpc,pck->pbk', x, params['dense']['kernel'])
    return logits + params['dense']['bias'][:, None], updated


def _norm_of(path: tuple[str, ...]) -> tuple[str, ...]:
  """Returns the path of the normalisation that follows a convolution."""
  name = path[-1].replace('conv', 'norm')
  return (*path[:-1], 'norm_shortcut' if name == 'shortcut' else name)


def _get(params: Params, path: tuple[str, ...]) -> Params:
  """Returns the entry of nested dicts at a path."""
  for name in path:
    params = params[name]
  return params


def _put(params: Params, path: tuple[str, ...], leaf: Params) -> None:
  """Sets the entry of nested dicts at a path, in place."""
  for name in path[:-1]:
    params = params.setdefault(name, {})
  params[path[-1]] = leaf


def _convolve(x: Array, kernel: Array, stride: int) -> Array:
  """Convolves x [b, h, w, P c] by [P, k, k, c, d] to [b, h', w', P d]."""
  size, side, _, entering, leaving = kernel.shape
  # Block-diagonal over replicas: channels of different replicas do not mix.
  merged = jnp.einsum('pijcd,pq->ijpcqd', kernel,
                      jnp.eye(size, dtype=kernel.dtype))
  merged = merged.reshape(side, side, size * entering, size * leaving)
  pad = (side // 2, side // 2)
  return jax.lax.conv_general_dilated(
      x, merged, (stride, stride), (pad, pad),
      dimension_numbers=('NHWC', 'HWIO', 'NHWC'))


def _normalise(x: Array, params: Params, statistics: PyTree,
               train: bool) -> tuple[Array, PyTree]:
  """Normalises [b, h, w, P c] per channel; returns the new statistics too."""
  wide = x.astype(jnp.float32)
  shape = statistics['mean'].shape
  if train:
    mean = jnp.mean(wide, (0, 1, 2))
    variance = jnp.mean(jnp.square(wide), (0, 1, 2)) - jnp.square(mean)
    # E[x^2] - E[x]^2 may round below zero.
    variance = jnp.maximum(variance, 0.0)
    follow = lambda old, new: (_MOMENTUM * old +
                               (1 - _MOMENTUM) * new.reshape(shape))
    statistics = {'mean': follow(statistics['mean'], mean),
                  'variance': follow(statistics['variance'], variance)}
  else:
    mean = statistics['mean'].reshape(-1)
    variance = statistics['variance'].reshape(-1)
  scale = params['scale'].reshape(-1) * jax.lax.rsqrt(variance + _EPSILON)
  shift = params['bias'].reshape(-1) - mean * scale
  normal = wide * _along_channels(scale, x) + _along_channels(shift, x)
  return normal.astype(x.dtype), statistics


def _along_channels(values: Array | tuple[float, ...], x: Array) -> Array:
  """Returns the values as an array that broadcasts along the last axis of x."""
  return jnp.reshape(jnp.asarray(values, jnp.float32),
                     (1,) * (x.ndim - 1) + (-1,))
