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
_HE = nn.initializers.he_normal()


def convnet(*, input_shape: tuple[int, int, int], num_classes: int,
            channels: tuple[int, ...] = (32, 64), width: int = 128,
            activation: str = 'relu', pool: str = 'max',
            bias_norm: float | None = None,
            input_radius: float | None = None,
            bounding: Bounding = Bounding()) -> Model:
  """3 x 3 convolutions, one 2 x 2 pool, one hidden dense layer.

  On 28 x 28 x 1 with the defaults: 1,625,866 parameters, the count of Table
  5.3 of thesis 003. The count does not tell the kind of pool nor where the
  normalisations are; here nothing is normalised unless `bounding` says so.

  Args:
    input_shape: (h, w, c), sides even.
    num_classes: logits.
    channels: of the convolutions; their number is the depth.
    width: of the hidden dense layer.
    activation: one of `pointwise.ACTIVATIONS`.
    pool: 'max' or 'average', after the last convolution.
    bias_norm: l2 bound of each bias that Lipschitz methods keep, or None.
    input_radius: records are projected on this l2 ball.
    bounding: what keeps hidden layers bounded.
  """
  errors.check_choice('activation', activation, pointwise.ACTIVATIONS)
  errors.check_choice('pool', pool, _POOLS)
  errors.check_at_least('number of convolutions', len(channels), 1)
  errors.check_at_least('width', width, 1)
  errors.check_at_least('num_classes', num_classes, 2)
  act = lambda name: pointwise.activation(activation, name=name)
  nodes = []
  for index, count in enumerate(channels):
    name = f'conv_{index:02d}'
    if index:
      nodes += bounding.before(name)
    nodes += [layers.Conv(name=name, channels=count, kernel_init=_HE,
                          bias_norm=bias_norm),
              act(f'activation_{name}')]
  nodes += [_POOLS[pool]((2, 2)), *bounding.before('dense_00'),
            pointwise.flatten(),
            layers.Dense(name='dense_00', width=width, kernel_init=_HE,
                         bias_norm=bias_norm),
            act('activation_dense_00')]
  if bounding.kind != 'none':
    nodes.append(pointwise.Ball(name='ball_dense_01', radius=bounding.radius,
                                adaptive=bounding.adaptive))
  nodes.append(layers.Dense(name='dense_01', width=num_classes,
                            bias_norm=bias_norm))
  return models.from_network(Network(
      root=Chain(name='convnet', nodes=tuple(nodes)),
      input_shape=input_shape, input_radius=input_radius))
