"""Wide residual networks with pre-activation blocks. Item NET-11."""

from collections.abc import Sequence

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


def wide_resnet(*, input_shape: tuple[int, int, int] = (32, 32, 3),
                num_classes: int = 10, depth: int = 16,
                widening: int = 4, use_bias: bool = True,
                averaged: bool = False, input_radius: float | None = None,
                bounding: Bounding = Bounding(num_groups=16)) -> Model:
  """Returns the WRN-depth-widening: three groups of (depth - 4) / 6 blocks.

  A block is normalisation, ReLU, 3 x 3 convolution, twice, plus its shortcut:
  the identity or, where shapes differ, a 1 x 1 convolution. With biases and
  normalisations without parameters, WRN-16-4 has 2,747,530 parameters and
  WRN-40-4 has 8,944,266, which Barczewski (2025, section 5.3.2) gives for the
  former (erratum E28).

  Args:
    input_shape: (h, w, c).
    num_classes: number of logits; 1 for a score.
    depth: 6 n + 4.
    widening: factor of the widths 16, 32, 64.
    use_bias: whether convolutions have biases.
    averaged: whether every residual sum is halved; otherwise certified bounds
      double at every block (erratum E12).
    input_radius: public radius of the l2 ball that records are projected on,
      or None.
    bounding: 'none' uses standard group normalisation, 'normalised' its
      Lipschitz form, 'ball' projections on balls in their place.
  """
  errors.check_at_least('depth', depth, 10)
  if (depth - 4) % 6:
    raise ValueError(f'depth must be 6 n + 4, got {depth}')
  errors.check_at_least('widening', widening, 1)
  errors.check_at_least('num_classes', num_classes, 1)
  nodes: list[Node] = [_conv('conv', 16, 3, 1, use_bias)]
  in_channels = 16
  for group, base in enumerate((16, 32, 64)):
    for block in range((depth - 4) // 6):
      # The first block of each later group halves the image.
      stride = 2 if group and not block else 1
      width = base * widening
      nodes.append(_block(f'block_{group}_{block}', in_channels, width, stride,
                          use_bias, averaged, bounding))
      in_channels = width
  # Blocks end without a ReLU, so one is needed after the last block.
  nodes += [*_normalise('final', bounding),
            pointwise.activation('relu', name='activation_final'),
            pooling.global_average_pool(),
            layers.Dense(name='dense', width=num_classes)]
  return models.from_network(Network(
      root=Chain(name='wide_resnet', nodes=tuple(nodes)),
      input_shape=input_shape, input_radius=input_radius))


def _block(name: str, in_channels: int, out_channels: int, stride: int,
           use_bias: bool, averaged: bool, bounding: Bounding) -> Residual:
  """Returns a block from `in_channels` to `out_channels` channels."""
  branch: list[Node] = []
  for index, conv_stride in enumerate((stride, 1)):
    branch += [*_normalise(f'{index}', bounding),
               pointwise.activation('relu', name=f'activation_{index}'),
               _conv(f'conv_{index}', out_channels, 3, conv_stride, use_bias)]
  shortcut: tuple[Node, ...] = ()
  # With widening 1 the first group needs no projection.
  if in_channels != out_channels or stride != 1:
    # In a certified network the shortcut's convolution needs a bound, too.
    bound = () if bounding.kind == 'none' else bounding.before('shortcut')
    shortcut = (*bound, _conv('conv', out_channels, 1, stride, use_bias))
  return Residual(name=name, share=0.5 if averaged else None,
                  branch=Chain(name='branch', nodes=tuple(branch)),
                  shortcut=Chain(name='shortcut', nodes=shortcut))


def _normalise(name: str, bounding: Bounding) -> Sequence[Node]:
  """Returns the nodes in place of a normalisation of the printed network."""
  if bounding.kind == 'ball':
    return bounding.before(name)
  return bounding.norm(f'norm_{name}')


def _conv(name: str, channels: int, size: int, stride: int,
          use_bias: bool) -> layers.Conv:
  """Returns a square convolution, initialised as by He et al. (2015)."""
  return layers.Conv(name=name, channels=channels, kernel_size=(size, size),
                     strides=(stride, stride), use_bias=use_bias,
                     kernel_init=_HE)
