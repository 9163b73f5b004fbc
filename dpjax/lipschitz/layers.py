"""Layers with known constants: what certified networks are built from."""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp

from dpjax.typing import Array


class Activation(NamedTuple):
  """An elementwise function.

  Attributes:
    apply: the function.
    unit: a form of it with values in [-1, 1] and the same Lipschitz constant.
    lipschitz: the constant of both.
  """
  apply: Callable[[Array], Array]
  unit: Callable[[Array], Array]
  lipschitz: float


ACTIVATIONS = {
    'relu': Activation(nn.relu, lambda x: jnp.clip(x, 0.0, 1.0), 1.0),
    'tanh': Activation(nn.tanh, nn.tanh, 1.0),
    'sigmoid': Activation(nn.sigmoid, nn.sigmoid, 0.25),
}


@jax.custom_vjp
def dense(x: Array, kernel: Array, bias: Array) -> Array:
  """x W + b for x [b, p], with the gradient of the bias as a contraction.

  Summing a batch over its first axis is many times slower on CPU than a
  product with ones.
  """
  return x @ kernel + bias[None]


def _dense_forward(x, kernel, bias):
  return dense(x, kernel, bias), (x, kernel)


def _dense_backward(residuals, cotangent):
  x, kernel = residuals
  rows = cotangent.T
  ones = jnp.ones([x.shape[0]], cotangent.dtype)
  return cotangent @ kernel.T, (rows @ x).T, rows @ ones


dense.defvjp(_dense_forward, _dense_backward)


def bounded_activation(name: str, x: Array, radius: float) -> Array:
  """An activation whose values lie in an l2 ball: c unit(x / c).

  With c = radius / sqrt(width) no unit exceeds c, so no record the radius; the
  Lipschitz constant is that of `ACTIVATIONS[name]`. Elementwise, which costs
  nothing beside the activation itself, where a projection on the ball needs
  norms forward and inner products backward.

  Args:
    name: a key of `ACTIVATIONS`.
    x: [b, width].
    radius: public bound on the l2 norm of each row of the result.
  """
  cap = radius / x.shape[-1]**0.5
  return cap * ACTIVATIONS[name].unit(x / cap)


class ParameterLayer(NamedTuple):
  """What a gradient bound needs to know of one dense layer with bias.

  Attributes:
    name: its key in the parameter tree.
    input_radius: public bound on the l2 norm of what enters the layer.
    lipschitz_after: Lipschitz constant of all parameterless layers between
      this one's output and the next parameter layer or the loss.
  """
  name: str
  input_radius: float
  lipschitz_after: float
