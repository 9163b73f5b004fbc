"""The convolutional network of the MNIST experiments. Item NET-10."""

import functools

import flax.linen as nn

from dpjax import errors
from dpjax.lipschitz import layers
from dpjax.lipschitz import pointwise
from dpjax.lipschitz import pooling
from dpjax.lipschitz.network import Chain
from dpjax.lipschitz.network import Network
from dpjax.lipschitz.node import Node
from dpjax.models import model as models
from dpjax.models.bounding import Bounding
from dpjax.models.model import Model

_POOLS = {'max': pooling.max_pool, 'average': pooling.average_pool}
POOLS = (*_POOLS, 'none')
_HE = nn.initializers.he_normal()


def convnet(*, input_shape: tuple[int, int, int], num_classes: int,
            channels: tuple[int, ...] = (32, 64), width: int = 128,
            kernel_size: int = 3, stride: int = 1, activation: str = 'relu',
            pool: str = 'max', use_bias: bool = True,
            bias_norm: float | None = None,
            input_radius: float | None = None,
            bounding: Bounding = Bounding()) -> Model:
  """Returns a network of convolutions, a 2 x 2 pool and one hidden dense layer.

  With the defaults and 28 x 28 x 1 images it has 1,625,866 parameters, as in
  Barczewski (2025, Table 5.3), which does not give the kind of pool or the
  places of normalisations; the latter follow `bounding`.

  The certified bound of a convolution's gradient grows with the number of
  windows that contain a pixel and, with a bias, with the number of output
  pixels (NET-02). Strides and no biases keep it small.

  Args:
    input_shape: (h, w, c).
    num_classes: number of logits; 1 for a score.
    channels: output channels of each convolution.
    width: units of the hidden dense layer.
    kernel_size: side of the convolutions' kernels.
    stride: stride of the convolutions.
    activation: one of `pointwise.ACTIVATIONS`.
    pool: one of `POOLS`, after the last convolution.
    use_bias: whether layers have biases.
    bias_norm: l2 bound of each bias that Lipschitz methods keep, or None.
    input_radius: public radius of the l2 ball that records are projected on,
      or None.
    bounding: how inputs of hidden layers are bounded.
  """
  errors.check_choice('activation', activation, pointwise.ACTIVATIONS)
  errors.check_choice('pool', pool, POOLS)
  errors.check_at_least('number of convolutions', len(channels), 1)
  errors.check_at_least('width', width, 1)
  errors.check_at_least('num_classes', num_classes, 1)
  act = lambda name: pointwise.activation(activation, name=name)
  conv = functools.partial(
      layers.Conv, use_bias=use_bias, bias_norm=bias_norm, kernel_init=_HE,
      kernel_size=(kernel_size, kernel_size), strides=(stride, stride))
  dense = functools.partial(layers.Dense, use_bias=use_bias,
                            bias_norm=bias_norm)
  nodes: list[Node] = []
  for index, count in enumerate(channels):
    # Two digits keep layers in order where names are sorted.
    name = f'conv_{index:02d}'
    # The input of the first layer is bounded by `input_radius` instead.
    if index:
      nodes += bounding.before(name)
    nodes += [conv(name=name, channels=count), act(f'activation_{name}')]
  nodes += [] if pool == 'none' else [_POOLS[pool]((2, 2))]
  nodes += [*bounding.before('dense_00'), pointwise.flatten(),
            dense(name='dense_00', width=width, kernel_init=_HE),
            act('activation_dense_00')]
  # A vector has no channels to normalise, so its bound is always a ball.
  if bounding.kind != 'none':
    nodes.append(pointwise.Ball(name='ball_dense_01', radius=bounding.radius,
                                adaptive=bounding.adaptive))
  # No ReLU follows the last layer, so He's initialiser does not suit it.
  nodes.append(dense(name='dense_01', width=num_classes))
  return models.from_network(Network(
      root=Chain(name='convnet', nodes=tuple(nodes)),
      input_shape=input_shape, input_radius=input_radius))
