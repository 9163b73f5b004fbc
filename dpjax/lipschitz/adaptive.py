"""Lip-DP-SGD with radii that are private quantiles of activation norms."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from dpjax.grads import inputs
from dpjax.grads import isolation
from dpjax.grads import per_example
from dpjax.grads import quantiles
from dpjax.grads.bounder import GradientBounder
from dpjax.lipschitz.losses import LipschitzLoss
from dpjax.lipschitz.network import Network
from dpjax.lipschitz.node import Context
from dpjax.typing import PyTree


def adaptively_certified(
    network: Network, loss: LipschitzLoss, *, weight_norm: float,
    make_adaptive: Callable[[PyTree], quantiles.Adaptive]) -> GradientBounder:
  """`bounder.certified` whose adaptive balls follow the norms they meet.

  Each step counts, for every adaptive ball, the records whose activation was
  within its radius *before* the projection; the noisy counts, paid for in the
  joint multiplier, move the radius for the next step. Source: LDP-06 on
  LDP-05. The batch's largest norm, which thesis 003 divides by, and its mean
  have no such price and no bound (E1).

  Guarantee: given the public radii of the step, that of `certified`, and at
  most 1/2 to each sum of centred indicators.

  Args:
    network: with at least one ball that is `adaptive`.
    loss: with a known Lipschitz constant.
    weight_norm: what the weight constraint keeps.
    make_adaptive: initial radii by name -> their `Adaptive`, such as
      `quantiles.geometric` with its other arguments bound.

  Raises:
    ValueError: no ball adapts, or as `certified` does.
  """
  balls = network.adaptive_balls()
  if not balls:
    raise ValueError('no ball of this network is adaptive')
  network.check_bounds(weight_norm=weight_norm,
                       loss_lipschitz=loss.lipschitz)
  adaptive = make_adaptive({name: ball.radius for name, ball in balls.items()})

  check = isolation.checker(
      lambda params, x: network.apply(params, x, Context(radii=adaptive.init)),
      loss.values)

  def sums(params, batch, mask, radii):
    params, batch = inputs.as_parameters(params), inputs.as_batch(batch)
    check(params, batch)

    def apply(params, x):
      norms = {}
      context = Context(radii=radii, observe=norms.__setitem__)
      return network.apply(params, x, context), norms

    with jax.default_matmul_precision('highest'):
      found, kept, norms = per_example.observed_sums(
          apply, loss.values, params, batch, mask)
    return found._replace(
        indicators=quantiles.centred_indicators(norms, radii, kept))

  def l2_sensitivity(certificate, radii):
    bounds = network.gradient_bounds(certificate, radii=radii,
                                     loss_lipschitz=loss.lipschitz)
    return jax.tree.map(lambda bound: jnp.asarray(bound, jnp.float32), bounds)

  return GradientBounder(sums, l2_sensitivity, adaptive)
