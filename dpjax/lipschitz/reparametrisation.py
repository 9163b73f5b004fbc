"""Weights that are a public function of the parameters: REG-02, SPEC-08.

The gradient is taken, bounded and noised in the *effective* weights, and the
noisy one is pulled back to the parameters: post-processing, because the map
reads parameters only. Pulling back first would multiply every sensitivity by
the map's own constant, 1 / std for weight standardisation (E16).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from dpjax.lipschitz import orthogonal
from dpjax.typing import Array, Params

_LEAST_VARIANCE = 1e-10
_BJORCK_STEPS = 12


def standardise(kernel: Array) -> Array:
  """(W - mean) / std for each output channel, over sqrt(fan_in). REG-02.

  Qiao et al. 2019. The Jacobian of (W - mean) / std has norm 1 / std.

  Args:
    kernel: [..., c_out]; a constant channel becomes zero.
  """
  axes = tuple(range(kernel.ndim - 1))
  centred = kernel - jnp.mean(kernel, axes, keepdims=True)
  variance = jnp.mean(jnp.square(centred), axes, keepdims=True)
  fan_in = kernel.size // kernel.shape[-1]
  return centred * jax.lax.rsqrt(
      jnp.maximum(variance, _LEAST_VARIANCE) * fan_in)


def orthogonalise(kernel: Array) -> Array:
  """Bjorck's orthogonal factor of the kernel as a matrix. SPEC-08, E10."""
  matrix = kernel.reshape((-1, kernel.shape[-1]))
  return orthogonal.bjorck(matrix, num_iterations=_BJORCK_STEPS).reshape(
      kernel.shape)


MAPS = {'standardised': standardise, 'orthogonal': orthogonalise}


def map_kernels(function: Callable[[Array], Array], params: Params) -> Params:
  """`function` of every kernel of a layer; scales and biases stay."""
  if 'kernel' in params:
    if params['kernel'].ndim < 2:
      return params
    return {**params, 'kernel': function(params['kernel'])}
  return {name: map_kernels(function, inner)
          for name, inner in params.items()}


def pullback(function: Callable[[Params], Params]
             ) -> optax.GradientTransformation:
  """Noisy gradients in function(params) -> gradients in params.

  An optax transform to stand right after the privatizer.
  """

  def update(updates, state, params=None):
    return jax.vjp(function, params)[1](updates)[0], state

  return optax.GradientTransformation(lambda params: optax.EmptyState(),
                                      update)
