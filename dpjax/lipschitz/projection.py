"""Weight constraints that end a step, with the norms they certify."""

from collections.abc import Callable

import jax
from jax.extend import core
import jax.numpy as jnp

from dpjax import errors
from dpjax.grads.bounder import GradientBounder, WeightConstraint
from dpjax.lipschitz.network import Network
from dpjax.lipschitz.node import Limits
from dpjax.typing import Params, PyTree

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


def rarely(constraint: WeightConstraint, network: Network,
           bounder: GradientBounder, *, every: int) -> WeightConstraint:
  """Norms that no sensitivity reads, at every so many steps only.

  Behind a ball it does not matter how large the weights in front of it are: of
  a perceptron with balls, the sensitivity reads all norms but the first, which
  is of the largest matrix. Those that are read are certified after every step.

  Guarantee: of `constraint`; noise scales are the same functions of the same
  certificates. Between, free norms are infinite in the certificate, and their
  kernels may drift beyond the limit.

  Args:
    constraint: any of this module.
    network: what it is for.
    bounder: whose sensitivity decides.
    every: steps, public; 1 leaves `constraint` as it is.
  """
  errors.check_at_least('recertify_every', every, 1)
  radii = () if bounder.adaptive is None else (bounder.adaptive.init,)
  free = unread(lambda certificate: bounder.l2_sensitivity(certificate, *radii),
                network.fill(jnp.float32(1)))
  if every == 1 or not any(jax.tree.leaves(free)):
    return constraint

  def between(params: Params):
    held, certificate = constraint.constrain(params)
    # What is not used of `held` is not computed.
    return (jax.tree.map(_drifting, free, held, params),
            jax.tree.map(lambda is_free, norm: jnp.full_like(norm, jnp.inf)
                         if is_free else norm, free, certificate))

  return WeightConstraint(constraint.constrain, between, every)


def _drifting(is_free: bool, held: Params, params: Params) -> Params:
  """One layer: a bound of its bias may be read though its kernel is free."""
  return {**held, 'kernel': params['kernel']} if is_free else held


def unread(function: Callable[[PyTree], PyTree], args: PyTree) -> PyTree:
  """Which leaves of `args` the result cannot depend on, a tree of bools."""
  closed = jax.make_jaxpr(function)(args)
  sources = {var: frozenset([i]) for i, var in enumerate(closed.jaxpr.invars)}
  of = lambda variables: frozenset().union(*(
      sources.get(var, ()) for var in variables
      if not isinstance(var, core.Literal)))
  for equation in closed.jaxpr.eqns:
    sources.update(dict.fromkeys(equation.outvars, of(equation.invars)))
  read = of(closed.jaxpr.outvars)
  leaves, structure = jax.tree.flatten(args)
  return structure.unflatten([i not in read for i in range(len(leaves))])


def _limits(weight_norm: float, num_iterations: int, any_scale: bool,
            factor) -> Limits:
  errors.check_scale('weight_norm', weight_norm)
  return Limits(
      rescale=lambda bound: factor(jnp.maximum(bound, jnp.float32(1e-30))),
      # Never zero: the split of the noise divides by the bounds it gives.
      certify=lambda bound, scale: jnp.maximum(
          bound * scale * _ROUNDING_MARGIN, _LEAST_CERTIFICATE * weight_norm),
      num_iterations=num_iterations, any_scale=any_scale)
