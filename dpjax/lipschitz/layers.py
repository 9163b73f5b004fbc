"""Layers with known constants: what certified networks are built from."""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp

from dpjax.typing import Array


class Activation(NamedTuple):
  """An elementwise function and its Lipschitz constant."""
  apply: Callable[[Array], Array]
  lipschitz: float


ACTIVATIONS = {
    'relu': Activation(nn.relu, 1.0),
    'tanh': Activation(nn.tanh, 1.0),
    'sigmoid': Activation(nn.sigmoid, 0.25),
}


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


def project_ball(x: Array, *, radius: float) -> Array:
  """Projects every record on the l2 ball: x min(1, radius / ||x||).

  A projection on a convex set, so 1-Lipschitz; its input's norm is the norm of
  the whole record. Source: `lipschitz.bounds`, activations bounded in the
  network.

  Args:
    x: [b, ...]; each of the b records is projected on its own.
    radius: public.
  """
  axes = tuple(range(1, x.ndim))
  squares = jnp.sum(jnp.square(x), axes, keepdims=True)
  outside = squares > radius**2
  # The inner `where` keeps the gradient of the root finite at the origin.
  norms = jnp.sqrt(jnp.where(outside, squares, 1.0))
  return x * jnp.where(outside, radius / norms, 1.0)
