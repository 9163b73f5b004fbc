"""Descent on a norm ball: rescaling is a projection in one norm only.

Catalogue item BIAS-03, erratum E18. Barczewski (2025, Theorem 5.2.3) says that
noiseless limits of Lip-DP-SGD are local optima of the objective on {||W|| <=
C}. Rescaling W to norm C is the projection on the Frobenius ball, for which
gradient descent has that property. On the ball of the spectral norm, which the
experiments of that work use, rescaling is no projection: it comes to rest where
the gradient is parallel to W, whereas at the optimum the gradient lies in the
span of the leading singular pairs. With Adam, which those experiments use as
well, the Frobenius ball fails too, because Adam keeps only the signs of
gradients that have settled.

The objective is 0.5 ||W - diag(2, 1)||_F^2 with C = 1.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

from dpjax.lipschitz import layers
from dpjax.lipschitz import projection
from dpjax.lipschitz.network import Chain
from dpjax.lipschitz.network import Network
from dpjax.typing import Array
from experiments.methods.training import spectral_projections

RADIUS = 1.0
_NUM_STEPS = 5000  # Adam forgets where it came from in 1000s of steps
_LEARNING_RATE = 0.1


class Ball(NamedTuple):
  """A norm ball, the step that keeps W in it, and the best W of the ball.

  Attributes:
    hold: function that maps W [2, 2] into the ball after a step.
    optimum: the best W of the ball, as its diagonal.
    optimizer: the optimiser of the steps.
  """
  hold: Callable[[Array], Array]
  optimum: tuple[float, float]
  optimizer: optax.GradientTransformation


def clip_weights(weights: Array) -> Array:
  """Returns the weights rescaled by a certified spectral norm, as in training.
  """
  rows, columns = weights.shape
  network = Network(input_shape=(rows,), root=Chain(
      name='net', nodes=(layers.Dense(name='only', width=columns,
                                      use_bias=False),)))
  constrain = projection.clip_weights(network, weight_norm=RADIUS).constrain
  return constrain({'only': {'kernel': weights}})[0]['only']['kernel']


def project_spectral(weights: Array) -> Array:
  """Returns U min(S, C) V^T, the Euclidean projection on a spectral ball."""
  return spectral_projections.project_spectral_ball(weights, RADIUS)


def project_frobenius(weights: Array) -> Array:
  """Returns W min(1, C / ||W||_F), the projection on a Frobenius ball."""
  return weights / jnp.maximum(jnp.linalg.norm(weights) / RADIUS, 1.0)


_SPECTRAL = (1.0, 1.0)
_FROBENIUS = (2 / 5**0.5, 1 / 5**0.5)

BALLS = {
    'clip_weights': Ball(clip_weights, _SPECTRAL, optax.sgd(_LEARNING_RATE)),
    'spectral_projection': Ball(project_spectral, _SPECTRAL,
                                optax.sgd(_LEARNING_RATE)),
    'frobenius_rescaling': Ball(project_frobenius, _FROBENIUS,
                                optax.sgd(_LEARNING_RATE)),
    'frobenius_adam': Ball(project_frobenius, _FROBENIUS,
                           optax.adam(_LEARNING_RATE)),
}


def objective(weights: Array) -> Array:
  """Returns the objective 0.5 ||W - diag(2, 1)||_F^2."""
  return 0.5 * jnp.sum(jnp.square(weights - jnp.diag(jnp.array([2.0, 1.0]))))


def rest(ball: Ball, start: Array) -> Array:
  """Returns W [2, 2] after descent that keeps it in the ball at each step."""

  def step(carry, _):
    weights, state = carry
    updates, state = ball.optimizer.update(jax.grad(objective)(weights), state,
                                           weights)
    return (ball.hold(optax.apply_updates(weights, updates)), state), None

  first = ball.hold(start)
  return jax.jit(lambda carry: jax.lax.scan(step, carry, length=_NUM_STEPS))(
      (first, ball.optimizer.init(first)))[0][0]
