"""Weights that are a public function of the parameters: REG-02, SPEC-08.

The gradient is computed, bounded and noised in the *effective* weights. The
noisy gradient is then pulled back to the parameters, which is post-processing
because the map reads the (public) parameters only. Pulling back before adding
noise would multiply every sensitivity by the Lipschitz constant of the map,
1 / std for weight standardisation (erratum E16).
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
  """Returns (W - mean) / (std sqrt(fan_in)) for each output channel. REG-02.

  Weight standardisation of Qiao et al. (2019). The Jacobian of (W - mean) /
  std has norm 1 / std.

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
  """Orthogonalises the kernel as a matrix. Item SPEC-08, erratum E10."""
  matrix = kernel.reshape((-1, kernel.shape[-1]))
  return orthogonal.bjorck(matrix, num_iterations=_BJORCK_STEPS).reshape(
      kernel.shape)


MAPS = {'standardised': standardise, 'orthogonal': orthogonalise}


def map_kernels(function: Callable[[Array], Array], params: Params) -> Params:
  """Applies `function` to the kernel of every layer; scales and biases stay."""
  if 'kernel' in params:
    # A vector is the scale of an affine layer, not a kernel.
    if params['kernel'].ndim < 2:
      return params
    return {**params, 'kernel': function(params['kernel'])}
  return {name: map_kernels(function, inner)
          for name, inner in params.items()}


def pullback(function: Callable[[Params], Params]
             ) -> optax.GradientTransformation:
  """Returns an optax transform that pulls noisy gradients back to `params`.

  It maps gradients in function(params) to gradients in params. Put it right
  after the transform that adds noise.
  """

  def update(updates: Params, state: optax.OptState,
             params: Params | None = None) -> tuple[Params, optax.OptState]:
    # The Jacobian is at public parameters, so this is post-processing.
    return jax.vjp(function, params)[1](updates)[0], state

  return optax.GradientTransformation(lambda params: optax.EmptyState(),
                                      update)
