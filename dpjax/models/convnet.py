"""The convolutional network of the MNIST experiments: NET-10."""

import flax.linen as nn

from dpjax import errors
from dpjax.lipschitz import layers
from dpjax.lipschitz import pointwise
from dpjax.lipschitz import pooling
from dpjax.lipschitz.network import Chain, Network
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
  """Convolutions, a 2 x 2 pool or none, one hidden dense layer.

  On 28 x 28 x 1 with the defaults: 1,625,866 parameters, the count of Table
  5.3 of thesis 003. The count does not tell the kind of pool nor where the
  normalisations are; here nothing is normalised unless `bounding` says so.

  Certified bounds of a convolution's gradient grow with the number of windows
  that a pixel is in, and with its sites where it has a bias (NET-02): strides
  and no biases keep them short.

  Args:
    input_shape: (h, w, c).
    num_classes: logits.
    channels: of the convolutions; their number is the depth.
    width: of the hidden dense layer.
    kernel_size: side of the convolutions' kernels.
    stride: of the convolutions.
    activation: one of `pointwise.ACTIVATIONS`.
    pool: one of `POOLS`, after the last convolution.
    use_bias: of all layers.
    bias_norm: l2 bound of each bias that Lipschitz methods keep, or None.
    input_radius: records are projected on this l2 ball.
    bounding: what keeps hidden layers bounded.
  """
  errors.check_choice('activation', activation, pointwise.ACTIVATIONS)
  errors.check_choice('pool', pool, POOLS)
  errors.check_at_least('number of convolutions', len(channels), 1)
  errors.check_at_least('width', width, 1)
  errors.check_at_least('num_classes', num_classes, 2)
  act = lambda name: pointwise.activation(activation, name=name)
  biases = dict(use_bias=use_bias, bias_norm=bias_norm)
  nodes = []
  for index, count in enumerate(channels):
    name = f'conv_{index:02d}'
    if index:
      nodes += bounding.before(name)
    nodes += [layers.Conv(name=name, channels=count, kernel_init=_HE,
                          kernel_size=(kernel_size,) * 2, strides=(stride,) * 2,
                          **biases),
              act(f'activation_{name}')]
  nodes += [] if pool == 'none' else [_POOLS[pool]((2, 2))]
  nodes += [*bounding.before('dense_00'), pointwise.flatten(),
            layers.Dense(name='dense_00', width=width, kernel_init=_HE,
                         **biases),
            act('activation_dense_00')]
  if bounding.kind != 'none':
    nodes.append(pointwise.Ball(name='ball_dense_01', radius=bounding.radius,
                                adaptive=bounding.adaptive))
  nodes.append(layers.Dense(name='dense_01', width=num_classes, **biases))
  return models.from_network(Network(
      root=Chain(name='convnet', nodes=tuple(nodes)),
      input_shape=input_shape, input_radius=input_radius))
