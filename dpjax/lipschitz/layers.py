"""Layers with known constants: what certified networks are built from."""

from collections.abc import Callable
import functools
from typing import NamedTuple

import flax.linen as nn
import jax
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


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def project_ball(x: Array, radius: float) -> Array:
  """Projects every record on the l2 ball: x min(1, radius / ||x||).

  The metric projection on a convex set, so 1-Lipschitz. The derivative is
  written out (it is that of the formula, at the origin too), which costs a
  third of what tracing through the norm does.

  Args:
    x: [b, p]; each of the b records is projected on its own.
    radius: public.
  """
  return _project(x, radius)[0]


def _project(x: Array, radius: float):
  scale, inverse = _ball_scale(x, radius)
  return x * scale, (x, scale, inverse)


def _ball_scale(x: Array, radius: float) -> tuple[Array, Array]:
  """min(1, radius / ||x||) and, outside the ball, 1 / ||x||; each [b, 1]."""
  squares = _row_sums(x, x)
  outside = squares > radius**2
  inverse = jnp.where(outside, jax.lax.rsqrt(squares), 0.0)
  return jnp.where(outside, radius * inverse, 1.0), inverse


def _project_backward(radius: float, residuals, cotangent: Array):
  del radius
  x, scale, inverse = residuals
  # Outside the ball the radial part of the cotangent is lost.
  radial = _row_sums(x, cotangent) * jnp.square(inverse)
  return (scale * (cotangent - x * radial),)


def _row_sums(left: Array, right: Array) -> Array:
  """Inner products of rows, [b, 1]; a contraction is fastest on CPU."""
  return jnp.einsum('bi,bi->b', left, right,
                    precision=jax.lax.Precision.HIGHEST)[:, None]


project_ball.defvjp(_project, _project_backward)
