"""Gradient bounders of Lip-DP-SGD, with or without a per-layer weight rule."""

import math

import jax
import jax.numpy as jnp

from dpjax.grads import inputs
from dpjax.grads import isolation
from dpjax.grads import per_example
from dpjax.grads.bounder import BoundedSums
from dpjax.grads.bounder import GradientBounder
from dpjax.lipschitz.losses import LipschitzLoss
from dpjax.lipschitz.network import Network
from dpjax.lipschitz.node import Context
from dpjax.lipschitz.rules import WeightRule
from dpjax.typing import Array, Batch, Params, PyTree


def certified(network: Network, loss: LipschitzLoss, *, weight_norm: float,
              rule: WeightRule | None = None) -> GradientBounder:
  """Returns batch-sum gradients with their certified l2 sensitivity per layer.

  Guarantee: if the certificate bounds the norms of the parameters, then
  adding or removing one record changes the gradient sum of each layer by at
  most `network.gradient_bounds` in l2, whatever its features and label.
  Without a rule the sums are the plain gradients. The input of every
  parameter layer must then be bounded: by balls (LDP-05), by normalisation
  (LDP-08) or by propagation through bounded layers (LDP-07). One ordinary
  backward pass suffices; no per-record gradient is formed.

  Algorithm 8 of Barczewski (2025) divides by the batch's largest input norm,
  for which no such bound holds (erratum E1).

  Args:
    network: network of layers with known Lipschitz constants.
    loss: loss with a known Lipschitz constant.
    weight_norm: public norm bound that the weight constraint keeps; used to
      reject bounds that overflow before training starts.
    rule: weight of each record in every layer's gradient (LDP-04, LDP-09), or
      None for plain gradients.

  Returns:
    A bounder: the sums, and the l2 sensitivities as a function of certificate.

  Raises:
    UnknownConstant: a layer has no finite bound; the message names it.
    ValueError: a bound overflows or underflows float32, or the loss has no
      Lipschitz constant and the bound needs one.
  """
  needs_constant = rule is None or rule.needs_certificate
  if needs_constant and math.isinf(loss.lipschitz):
    raise ValueError('this loss has no Lipschitz constant in the logits: '
                     'clip its gradient there (losses.clip_cotangents) or use '
                     'a method that clips gradients')
  network.check_bounds(weight_norm=weight_norm, rule=rule,
                       loss_lipschitz=loss.lipschitz)
  context = Context(rule=rule)

  def apply(params: Params, x: PyTree) -> Array:
    return network.apply(params, x, context)

  check = isolation.checker(apply, loss.values)

  def sums(params: Params, batch: Batch, mask: Array) -> BoundedSums:
    params, batch = inputs.as_parameters(params), inputs.as_batch(batch)
    check(params, batch)
    # The bounds hold for float32 products; accelerators round to fewer bits.
    with jax.default_matmul_precision('highest'):
      return per_example.plain_sums(apply, loss.values, params, batch, mask)

  def l2_sensitivity(certificate: PyTree) -> PyTree:
    if not needs_constant:
      # The rule's bound reads no norms, so any certificate will do.
      certificate = network.fill(1.0)
    bounds = network.gradient_bounds(certificate, rule=rule,
                                     loss_lipschitz=loss.lipschitz)
    return jax.tree.map(lambda bound: jnp.asarray(bound, jnp.float32), bounds)

  return GradientBounder(sums, l2_sensitivity)
