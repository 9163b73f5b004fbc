"""Weight constraints applied after each step, with certified norms."""

from collections.abc import Callable

import jax
from jax.extend import core
import jax.numpy as jnp

from dpjax import errors
from dpjax.grads.bounder import GradientBounder
from dpjax.grads.bounder import WeightConstraint
from dpjax.lipschitz.network import Network
from dpjax.lipschitz.node import Limits
from dpjax.typing import Array, Params, PyTree

# Covers the rounding of each rescaled weight, and of a layer's forward and
# backward pass.
_ROUNDING_MARGIN = 1 + 1e-6
# Smallest certificate, as a fraction of `weight_norm`.
_LEAST_CERTIFICATE = 1e-6
# For weight_norm in [1, 1e4] the smallest certificate, at least 1e-6, exceeds
# all norms that the faster bound with any_scale=False may miss.
_LARGEST_ORDINARY = 1e4


def clip_weights(network: Network, *, weight_norm: float,
                 num_iterations: int = 4) -> WeightConstraint:
  """Returns the constraint that clips each layer's norm at `weight_norm`.

  theta <- theta min(1, weight_norm / U), with U a certified upper bound of the
  norm of the layer's map. Barczewski (2025, Algorithm 8, ClipWeights) has a
  power iteration for U, which is a lower bound (erratum E9), and the constant
  1 for layers without parameters (E11); here they keep their own constants.
  Item SPEC-09.

  Args:
    network: network whose parameters are constrained.
    weight_norm: C, positive and public.
    num_iterations: iterations of the certified bound. A loose bound makes the
      weights smaller than necessary, not the certificate larger.

  Returns:
    The constraint; it returns weights and certified norms by layer.
  """
  limits = clip_limits(weight_norm, num_iterations=num_iterations)
  return WeightConstraint(lambda params: network.constrain(params, limits))


def clip_limits(weight_norm: float, *, num_iterations: int = 4) -> Limits:
  """Returns the norm limits of `clip_weights`."""
  any_scale = not 1 <= weight_norm <= _LARGEST_ORDINARY
  return _limits(weight_norm, num_iterations, any_scale,
                 lambda bound: jnp.minimum(1.0, weight_norm / bound))


def fix_weights(network: Network, *, weight_norm: float,
                num_iterations: int = 4) -> WeightConstraint:
  """Returns the constraint that sets each layer's norm bound to `weight_norm`.

  theta <- theta weight_norm / U; a zero weight stays zero. This is Fix-Lip of
  Barczewski (2025, section 5.3). Item LDP-02. Args as for `clip_weights`.
  """
  # Tiny weights are scaled up, so the bound must hold at every scale.
  limits = _limits(weight_norm, num_iterations, True,
                   lambda bound: weight_norm / bound)
  return WeightConstraint(lambda params: network.constrain(params, limits))


def rarely(constraint: WeightConstraint, network: Network,
           bounder: GradientBounder, *, every: int) -> WeightConstraint:
  """Returns a constraint that certifies unused norms only now and then.

  In a perceptron with balls, the sensitivity uses all layer norms but that of
  the first layer, often the largest matrix. Norms that the sensitivity uses
  are certified after every step, the others after every `every` steps.

  Guarantee: the same as for `constraint`, since the noise scales are the same
  functions of the same certificates. Between certifications, unused norms are
  infinite in the certificate, and their kernels may exceed the limit.

  Args:
    constraint: a constraint of this module.
    network: the network that it constrains.
    bounder: bounder whose sensitivity decides which norms are used.
    every: number of steps, public; 1 returns `constraint` unchanged.
  """
  errors.check_at_least('recertify_every', every, 1)
  radii = () if bounder.adaptive is None else (bounder.adaptive.init,)
  free = unread(lambda certificate: bounder.l2_sensitivity(certificate, *radii),
                network.fill(jnp.float32(1)))
  if every == 1 or not any(jax.tree.leaves(free)):
    return constraint

  def between(params: Params) -> tuple[Params, PyTree]:
    constrained, certificate = constraint.constrain(params)
    # XLA drops the unused parts of `constrained` from the compiled program.
    return (jax.tree.map(_drifting, free, constrained, params),
            jax.tree.map(lambda is_free, norm: jnp.full_like(norm, jnp.inf)
                         if is_free else norm, free, certificate))

  return WeightConstraint(constraint.constrain, between, every)


def _drifting(is_free: bool, constrained: Params, params: Params) -> Params:
  """Returns one layer's parameters: a free kernel stays, its bias is projected.
  """
  return {**constrained, 'kernel': params['kernel']} if is_free else constrained


def unread(function: Callable[[PyTree], PyTree], args: PyTree) -> PyTree:
  """Returns a tree of bools: True for leaves that `function` never reads."""
  closed = jax.make_jaxpr(function)(args)
  # The set of input leaves that each variable of the program may depend on.
  sources = {var: frozenset([i]) for i, var in enumerate(closed.jaxpr.invars)}
  sources_of = lambda variables: frozenset().union(*(
      sources.get(var, ()) for var in variables
      if not isinstance(var, core.Literal)))
  for equation in closed.jaxpr.eqns:
    sources.update(dict.fromkeys(equation.outvars, sources_of(equation.invars)))
  read = sources_of(closed.jaxpr.outvars)
  leaves, structure = jax.tree.flatten(args)
  return jax.tree.unflatten(structure,
                            [i not in read for i in range(len(leaves))])


def _limits(weight_norm: float, num_iterations: int, any_scale: bool,
            factor: Callable[[Array], Array]) -> Limits:
  """Returns the limits of a constraint that multiplies weights by a factor."""
  errors.check_scale('weight_norm', weight_norm)
  return Limits(
      rescale=lambda bound: factor(jnp.maximum(bound, jnp.float32(1e-30))),
      # Never zero: the split of the noise divides by the gradient bounds.
      certify=lambda bound, scale: jnp.maximum(
          bound * scale * _ROUNDING_MARGIN, _LEAST_CERTIFICATE * weight_norm),
      num_iterations=num_iterations, any_scale=any_scale)
