"""From weight norms to the l2 sensitivity of every layer's gradient."""

from collections.abc import Mapping, Sequence

import jax.numpy as jnp

from dpjax.lipschitz.layers import ParameterLayer
from dpjax.typing import Array


def gradient_bounds(layers: Sequence[ParameterLayer],
                    norms: Mapping[str, Array], *,
                    loss_lipschitz: float) -> dict[str, Array]:
  """Bounds on one record's gradient, layer by layer.

  For a chain of dense layers y = x W + b whose inputs have norm at most B_k,

    ||dL/d(W_k, b_k)|| <= D_k sqrt(B_k^2 + 1),
    D_k = loss_lipschitz * product over i > k of ||W_i||,

  with the Lipschitz constants of the parameterless layers on the way. The
  gradient of a dense layer is the outer product of (x, 1) and the cotangent of
  its output, hence the square root: biases count. Source: thesis 003,
  equations (5.2.3) and (5.2.12), with the product over the layers *strictly
  after* k (line 5 of Algorithm 8 includes k, which under-noises when
  ||W_k|| < 1).

  Args:
    layers: from input to output.
    norms: for each layer's name, a certified upper bound of ||W||_2.
    loss_lipschitz: bound on the gradient norm of the loss in its input.

  Returns:
    For each layer's name the bound over its weights and bias together.
  """
  bounds = {}
  cotangent = jnp.float32(loss_lipschitz)
  for layer in reversed(layers):
    cotangent = cotangent * layer.lipschitz_after
    bounds[layer.name] = cotangent * (layer.input_radius**2 + 1)**0.5
    cotangent = cotangent * norms[layer.name]
  return bounds
