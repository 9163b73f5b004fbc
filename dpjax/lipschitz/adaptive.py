"""Lip-DP-SGD whose ball radii follow private quantiles of activation norms."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from dpjax.grads import inputs
from dpjax.grads import isolation
from dpjax.grads import per_example
from dpjax.grads import quantiles
from dpjax.grads.bounder import BoundedSums
from dpjax.grads.bounder import GradientBounder
from dpjax.lipschitz.losses import LipschitzLoss
from dpjax.lipschitz.network import Network
from dpjax.lipschitz.node import Context
from dpjax.typing import Array, Batch, Params, PyTree


def adaptively_certified(
    network: Network, loss: LipschitzLoss, *, weight_norm: float,
    make_adaptive: Callable[[PyTree], quantiles.Adaptive]) -> GradientBounder:
  """Returns a certified gradient bounder that also adapts its ball radii.

  For every adaptive ball, each step counts the records whose activation norm
  was within the radius *before* the projection. Noise is added to these
  counts, and the noisy counts set the radius of the next step. The joint
  noise multiplier pays for them. Items LDP-05, LDP-06, erratum E1.

  Guarantee: with the public radii of a step, one record contributes to each
  gradient sum as in `bounder.certified`, and at most 1/2 to each sum of
  centred indicators.

  Args:
    network: network with at least one ball that is `adaptive`.
    loss: loss with a known Lipschitz constant.
    weight_norm: public norm bound that the weight constraint keeps.
    make_adaptive: maps the initial radii by name to their `Adaptive`, such as
      `quantiles.geometric` with its other arguments bound.

  Returns:
    A bounder with the sums, their l2 sensitivities and the rule for radii.

  Raises:
    ValueError: no ball is adaptive, or as `bounder.certified` raises.
  """
  balls = network.adaptive_balls()
  if not balls:
    raise ValueError('no ball of this network is adaptive: set adaptive=True '
                     'on a Ball, or use bounder.certified')
  network.check_bounds(weight_norm=weight_norm,
                       loss_lipschitz=loss.lipschitz)
  adaptive = make_adaptive({name: ball.radius for name, ball in balls.items()})

  check = isolation.checker(
      lambda params, x: network.apply(params, x, Context(radii=adaptive.init)),
      loss.values)

  def sums(params: Params, batch: Batch, mask: Array,
           radii: PyTree) -> BoundedSums:
    params, batch = inputs.as_parameters(params), inputs.as_batch(batch)
    check(params, batch)

    def apply(params: Params, x: PyTree) -> tuple[Array, PyTree]:
      norms: dict[str, Array] = {}  # Filled while `apply` is traced.
      context = Context(radii=radii, observe=norms.__setitem__)
      return network.apply(params, x, context), norms

    # The bounds hold for float32 products; accelerators round to fewer bits.
    with jax.default_matmul_precision('highest'):
      batch_sums, kept, norms = per_example.observed_sums(
          apply, loss.values, params, batch, mask)
    return batch_sums._replace(
        indicators=quantiles.centred_indicators(norms, radii, kept))

  def l2_sensitivity(certificate: PyTree, radii: PyTree) -> PyTree:
    bounds = network.gradient_bounds(certificate, radii=radii,
                                     loss_lipschitz=loss.lipschitz)
    return jax.tree.map(lambda bound: jnp.asarray(bound, jnp.float32), bounds)

  return GradientBounder(sums, l2_sensitivity, adaptive)
