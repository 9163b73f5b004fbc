"""The gradient bounders of Lip-DP-SGD: one for every rule of the layers."""

import math

import jax
import jax.numpy as jnp

from dpjax.grads import inputs
from dpjax.grads import isolation
from dpjax.grads import per_example
from dpjax.grads.bounder import GradientBounder
from dpjax.lipschitz.losses import LipschitzLoss
from dpjax.lipschitz.network import Network
from dpjax.lipschitz.node import Context
from dpjax.lipschitz.rules import WeightRule


def certified(network: Network, loss: LipschitzLoss, *, weight_norm: float,
              rule: WeightRule | None = None) -> GradientBounder:
  """Batch-sum gradients of a network whose constants are known.

  Guarantee: for parameters whose norms the certificate bounds, one record
  contributes at most `network.gradient_bounds` to each layer, whatever its
  features and label. Without a rule the sums are the plain gradients: what
  enters every parameter layer must then be bounded, by balls (LDP-05), by
  normalisation (LDP-08) or by propagation through bounded layers (LDP-07).
  Nothing per record is formed: one ordinary backward pass.

  The printed method (thesis 003, Algorithm 8) divides by the largest input
  norm of the batch instead, which has no sensitivity bound that is independent
  of the batch size (E1).

  Args:
    network: states its constants.
    loss: with a known Lipschitz constant.
    weight_norm: what the weight constraint keeps; to refuse bounds that
      overflow before anything runs.
    rule: weights of the records in every layer's gradient (LDP-04, LDP-09).

  Raises:
    UnknownConstant: a layer has no finite bound; the message names it.
    ValueError: a bound overflows float32.
  """
  needs_constant = rule is None or rule.needs_certificate
  if needs_constant and math.isinf(loss.lipschitz):
    raise ValueError('this loss has no Lipschitz constant in the logits: '
                     'shorten its cotangents (losses.clip_cotangents) or clip '
                     'gradients')
  network.check_bounds(weight_norm=weight_norm, rule=rule,
                       loss_lipschitz=loss.lipschitz)
  context = Context(rule=rule)

  def apply(params, x):
    return network.apply(params, x, context)

  check = isolation.checker(apply, loss.values)

  def sums(params, batch, mask):
    params, batch = inputs.as_parameters(params), inputs.as_batch(batch)
    check(params, batch)
    # Bounds are for float32 products; accelerators round inputs to less.
    with jax.default_matmul_precision('highest'):
      return per_example.plain_sums(apply, loss.values, params, batch, mask)

  def l2_sensitivity(certificate):
    if not needs_constant:
      certificate = network.fill(1.0)
    bounds = network.gradient_bounds(certificate, rule=rule,
                                     loss_lipschitz=loss.lipschitz)
    return jax.tree.map(lambda bound: jnp.asarray(bound, jnp.float32), bounds)

  return GradientBounder(sums, l2_sensitivity)
