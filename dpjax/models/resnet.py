"""Residual networks for small images, after He et al. (2016)."""

import flax.linen as nn

from dpjax import errors
from dpjax.lipschitz import layers
from dpjax.lipschitz import pointwise
from dpjax.lipschitz import pooling
from dpjax.lipschitz.network import Chain
from dpjax.lipschitz.network import Network
from dpjax.lipschitz.node import Node
from dpjax.lipschitz.residual import Residual
from dpjax.models import model as models
from dpjax.models.bounding import Bounding
from dpjax.models.model import Model

_HE = nn.initializers.he_normal()


def resnet(*, input_shape: tuple[int, int, int] = (32, 32, 3),
           num_classes: int = 10, depth: int = 20, averaged: bool = False,
           input_radius: float | None = None,
           bounding: Bounding = Bounding(num_groups=8, affine=True)) -> Model:
  """Returns a network of 3 groups of (depth - 2) / 6 blocks, widths 16, 32, 64.

  A block adds its shortcut (the identity or a normalised 1 x 1 convolution) to
  convolution, normalisation, ReLU, convolution, normalisation; then comes a
  ReLU. Convolutions have no biases. Group normalisation, with a scale and a
  shift per channel, replaces batch normalisation, which couples records. Depth
  20 has 272,474 parameters.

  Args:
    input_shape: (h, w, c).
    num_classes: number of logits; 1 for a score.
    depth: 6 n + 2.
    averaged: whether every residual sum is halved.
    input_radius: public radius of the l2 ball that records are projected on,
      or None.
    bounding: kind 'none' or 'normalised'; 'ball' raises ValueError.
  """
  # The depth counts the first and last layer and two per block.
  errors.check_at_least('depth', depth, 8)
  if (depth - 2) % 6:
    raise ValueError(f'depth must be 6 n + 2, got {depth}')
  errors.check_at_least('num_classes', num_classes, 1)
  if bounding.kind == 'ball':
    raise ValueError("bounding of a resnet must be 'none' or 'normalised'")
  nodes: list[Node] = [_conv('conv', 16, 3, 1), *bounding.norm('norm'),
                       pointwise.activation('relu')]
  in_channels = 16
  for group, width in enumerate((16, 32, 64)):
    for block in range((depth - 2) // 6):
      # The first block of each later group halves the image.
      stride = 2 if group and not block else 1
      name = f'block_{group}_{block}'
      nodes += [_block(name, in_channels, width, stride, averaged, bounding),
                pointwise.activation('relu', name=f'activation_{name}')]
      in_channels = width
  nodes += [pooling.global_average_pool(),
            layers.Dense(name='dense', width=num_classes)]
  return models.from_network(Network(
      root=Chain(name='resnet', nodes=tuple(nodes)),
      input_shape=input_shape, input_radius=input_radius))


def _block(name: str, in_channels: int, out_channels: int, stride: int,
           averaged: bool, bounding: Bounding) -> Residual:
  """Returns a block from `in_channels` to `out_channels` channels."""
  branch = (_conv('conv_0', out_channels, 3, stride), *bounding.norm('norm_0'),
            pointwise.activation('relu'), _conv('conv_1', out_channels, 3, 1),
            *bounding.norm('norm_1'))
  shortcut: tuple[Node, ...] = ()
  # Images are halved only where channels double, so one test covers both.
  if in_channels != out_channels:
    shortcut = (_conv('conv', out_channels, 1, stride), *bounding.norm('norm'))
  return Residual(name=name, share=0.5 if averaged else None,
                  branch=Chain(name='branch', nodes=branch),
                  shortcut=Chain(name='shortcut', nodes=shortcut))


def _conv(name: str, channels: int, size: int, stride: int) -> layers.Conv:
  """Returns a square convolution without bias."""
  return layers.Conv(name=name, channels=channels, kernel_size=(size, size),
                     strides=(stride, stride), use_bias=False,
                     kernel_init=_HE)
