"""The multi-layer perceptron of the tabular experiments."""

from collections.abc import Sequence

import flax.linen as nn
import jax.numpy as jnp

from dpjax import errors
from dpjax.grads import ball
from dpjax.lipschitz import layers as lipschitz_layers
from dpjax.models.model import Model
from dpjax.typing import Array


class _Dense(nn.Module):
  """`nn.Dense` with the backward pass of `lipschitz.layers.dense`."""
  width: int

  @nn.compact
  def __call__(self, x: Array) -> Array:
    kernel = self.param('kernel', nn.initializers.lecun_normal(),
                        (x.shape[-1], self.width))
    bias = self.param('bias', nn.initializers.zeros, (self.width,))
    return lipschitz_layers.dense(x, kernel, bias)


class _Mlp(nn.Module):
  """Dense layers with biases; inputs of each in a ball if radii are given."""
  widths: Sequence[int]
  activation: str
  radii: Sequence[float] | None

  @nn.compact
  def __call__(self, x: Array) -> Array:
    if self.radii is not None:
      x = ball.in_ball(x, self.radii[0])
    for index, width in enumerate(self.widths):
      if index > 0:
        x = self._activate(x, index)
      x = _Dense(width, name=_layer_name(index))(x)
    return x

  def _activate(self, x: Array, index: int) -> Array:
    if self.radii is None:
      return lipschitz_layers.ACTIVATIONS[self.activation].apply(x)
    return lipschitz_layers.bounded_activation(self.activation, x,
                                               self.radii[index])


def _layer_name(index: int) -> str:
  return f'dense_{index:02d}'


def mlp(*, num_features: int, num_classes: int, depth: int = 1,
        width: int = 32, activation: str = 'tanh',
        input_radius: float | None = None,
        hidden_radius: float | None = None) -> Model:
  """A perceptron with `depth` hidden layers of `width` units, all biased.

  With both radii the input of every dense layer lies in a ball, which makes
  the network certified (`layers` is set): thesis 003, section 5.2, in the
  sound form with activations bounded inside the network. Without radii it is
  the plain perceptron of Definition 2.6.2.

  Args:
    num_features: p.
    num_classes: c; the output is c logits.
    depth: hidden layers, >= 0 (0 is multinomial logistic regression).
    width: units of every hidden layer.
    activation: a key of `lipschitz.layers.ACTIVATIONS`.
    input_radius: records are projected on this l2 ball.
    hidden_radius: hidden activations are of the form that stays in this ball.

  Returns:
    A model with sum over layers of (n_in + 1) n_out parameters.
  """
  errors.check_at_least('num_features', num_features, 1)
  errors.check_at_least('num_classes', num_classes, 2)
  errors.check_at_least('depth', depth, 0)
  errors.check_at_least('width', width, 1)
  errors.check_choice('activation', activation, lipschitz_layers.ACTIVATIONS)
  if (input_radius is None) != (hidden_radius is None):
    raise ValueError('give both input_radius and hidden_radius, or neither')
  radii = None
  if input_radius is not None:
    errors.check_positive('input_radius', input_radius)
    errors.check_positive('hidden_radius', hidden_radius)
    radii = (input_radius,) + (hidden_radius,) * depth
  network = _Mlp((width,) * depth + (num_classes,), activation, radii)
  blank = jnp.zeros([1, num_features], jnp.float32)
  return Model(
      init=lambda key: network.init(key, blank)['params'],
      apply=lambda params, x: network.apply({'params': params}, x),
      layers=_certified_layers(activation, radii),
      **({} if radii is None else {
          'prepare': lambda x: ball.project_records(x, input_radius)}))


def _certified_layers(activation: str, radii: Sequence[float] | None):
  if radii is None:
    return None
  constant = lipschitz_layers.ACTIVATIONS[activation].lipschitz
  last = len(radii) - 1
  return tuple(
      lipschitz_layers.ParameterLayer(
          name=_layer_name(index), input_radius=radius,
          lipschitz_after=constant if index < last else 1.0)
      for index, radius in enumerate(radii))
