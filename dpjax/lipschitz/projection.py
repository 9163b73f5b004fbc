"""Weight constraints that end a step, with the norms they certify."""

import jax.numpy as jnp

from dpjax import errors
from dpjax.grads.bounder import WeightConstraint
from dpjax.lipschitz.network import Network
from dpjax.lipschitz.node import Limits

# Rescaling rounds every weight once; this covers it, and with it the rounding
# of a layer's forward and backward pass.
_ROUNDING_MARGIN = 1 + 1e-6
_LEAST_CERTIFICATE = 1e-6
# Least certificates of norms from 1 on cover what a bound without rescaling
# does not see.
_LARGEST_ORDINARY = 1e4


def clip_weights(network: Network, *, weight_norm: float,
                 num_iterations: int = 4) -> WeightConstraint:
  """ClipWeights: every weight scaled back to operator norm <= `weight_norm`.

  theta <- theta min(1, weight_norm / U) with U a certified upper bound of the
  norm of the layer's map. Source: thesis 003, Algorithm 8, line ClipWeights,
  with U in the place of a power iteration, which is a lower bound (E9); layers
  without parameters keep their own constants (E11). SPEC-09.

  Args:
    network: which parameters to constrain; their certificates are returned.
    weight_norm: C, public.
    num_iterations: of `norms.spectral_upper_bound`; a loose bound makes the
      weights smaller than they need be, not the certificate larger.
  """
  limits = clip_limits(weight_norm, num_iterations=num_iterations)
  return WeightConstraint(lambda params: network.constrain(params, limits))


def clip_limits(weight_norm: float, *, num_iterations: int = 4) -> Limits:
  """The limits of `clip_weights`."""
  any_scale = not 1 <= weight_norm <= _LARGEST_ORDINARY
  return _limits(weight_norm, num_iterations, any_scale,
                 lambda bound: jnp.minimum(1.0, weight_norm / bound))


def fix_weights(network: Network, *, weight_norm: float,
                num_iterations: int = 4) -> WeightConstraint:
  """Fix-Lip: every weight scaled so that its bound *is* `weight_norm`. LDP-02.

  theta <- theta weight_norm / U; a zero weight stays zero. Source: thesis 003,
  question Q2 of section 5.3.
  """
  # Tiny weights are blown up, so their bound must not be missed.
  limits = _limits(weight_norm, num_iterations, True,
                   lambda bound: weight_norm / bound)
  return WeightConstraint(lambda params: network.constrain(params, limits))


def _limits(weight_norm: float, num_iterations: int, any_scale: bool,
            factor) -> Limits:
  errors.check_positive('weight_norm', weight_norm)
  return Limits(
      rescale=lambda bound: factor(jnp.maximum(bound, jnp.float32(1e-30))),
      # Never zero: the split of the noise divides by the bounds it gives.
      certify=lambda bound, scale: jnp.maximum(
          bound * scale * _ROUNDING_MARGIN, _LEAST_CERTIFICATE * weight_norm),
      num_iterations=num_iterations, any_scale=any_scale)
