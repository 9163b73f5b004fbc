"""Weight constraints that end a step, with the norms they certify."""

from collections.abc import Sequence

import jax.numpy as jnp

from dpjax import errors
from dpjax.grads.bounder import WeightConstraint
from dpjax.lipschitz import norms
from dpjax.lipschitz.layers import ParameterLayer
from dpjax.typing import Array, Params

# Rescaling rounds every weight once; this covers it.
_ROUNDING_MARGIN = 1 + 1e-6
_LEAST_CERTIFICATE = 1e-6
# Least certificates of norms from 1 on cover what a bound without rescaling
# does not see.
_LARGEST_ORDINARY = 1e4


def clip_weights(layers: Sequence[ParameterLayer], *, weight_norm: float,
                 num_iterations: int = 4) -> WeightConstraint:
  """ClipWeights: every weight matrix scaled back to norm <= `weight_norm`.

  theta <- theta min(1, weight_norm / U) with U a certified upper bound of the
  spectral norm. Source: thesis 003, Algorithm 8, line ClipWeights, with U in
  the place of a power iteration, which is a lower bound.

  Args:
    layers: which parameters to constrain; their certificates are returned.
    weight_norm: C, public.
    num_iterations: of `norms.spectral_upper_bound`; a loose bound makes the
      weights smaller than they need be, not the certificate larger.
  """
  any_scale = not 1 <= weight_norm <= _LARGEST_ORDINARY
  return _rescaled(layers, weight_norm, num_iterations, any_scale,
                   lambda bound: jnp.minimum(1.0, weight_norm / bound))


def fix_weights(layers: Sequence[ParameterLayer], *, weight_norm: float,
                num_iterations: int = 4) -> WeightConstraint:
  """Fix-Lip: every weight matrix scaled so that its bound *is* `weight_norm`.

  theta <- theta weight_norm / U; a zero matrix stays zero. Source: thesis 003,
  question Q2 of section 5.3.
  """
  # Tiny weights are blown up, so their bound must not be missed.
  return _rescaled(layers, weight_norm, num_iterations, True,
                   lambda bound: weight_norm / bound)


def _rescaled(layers: Sequence[ParameterLayer], weight_norm: float,
              num_iterations: int, any_scale: bool,
              factor) -> WeightConstraint:
  errors.check_positive('weight_norm', weight_norm)

  def constrain(params: Params) -> tuple[Params, dict[str, Array]]:
    constrained, certificate = dict(params), {}
    for layer in layers:
      kernel = params[layer.name]['kernel']
      bound = norms.spectral_upper_bound(
          kernel, num_iterations=num_iterations, any_scale=any_scale)
      scale = factor(jnp.maximum(bound, jnp.float32(1e-30)))
      constrained[layer.name] = {**params[layer.name],
                                 'kernel': kernel * scale}
      # Never zero: the split of the noise divides by the bounds it gives.
      certificate[layer.name] = jnp.maximum(
          bound * scale * _ROUNDING_MARGIN, _LEAST_CERTIFICATE * weight_norm)
    return constrained, certificate

  return WeightConstraint(constrain)
