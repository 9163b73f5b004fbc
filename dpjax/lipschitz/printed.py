"""Algorithm 8 of thesis 003 as printed. NOT differentially private. LDP-01.

Kept in quarantine, to be attacked: its constructor refuses to run unless it is
told that it is unsound, and what is trained with it carries an epsilon that is
not valid. E1 says why: dividing by the largest input norm of the batch makes
one record's influence grow with the batch.
"""

import jax.numpy as jnp

from dpjax.grads import per_example
from dpjax.grads.bounder import GradientBounder
from dpjax.lipschitz.losses import LipschitzLoss
from dpjax.lipschitz.network import Chain, Network
from dpjax.lipschitz.node import Context
from dpjax.lipschitz.rules import WeightRule


def batch_maximum() -> WeightRule:
  """Every record's gradient of a layer over the batch's largest input norm.

  Not a rule in the sense of the word: the weight of a record depends on the
  others. Records without a cotangent (masked ones) do not count.
  """

  def weights(norms):
    there = norms.cotangents > 0
    largest = jnp.max(jnp.where(there, norms.inputs, 0.0))
    return jnp.where(there, 1 / jnp.maximum(largest, 1e-30), 0.0)

  return WeightRule('batch_maximum', weights,
                    lambda cotangent, factor: cotangent,
                    needs_certificate=True)


def as_printed(network: Network, loss: LipschitzLoss, *,
               allow_unsound: bool) -> GradientBounder:
  """The sums and the *claimed* sensitivities of Algorithm 8, line 5.

  Delta_k = tau * product over i >= k of c_i: the layer's own norm is in (E3),
  biases are out (E6). Stated over the root of the number of layers, so that an
  equal split of the noise gives each layer sigma Delta_k while the accountant
  is told of one mechanism of multiplier sigma, as printed (E2). The divisor of
  the mean is the expected batch size, not the realised one (E4). No guarantee
  follows from any of it.

  Args:
    network: a chain of dense layers with names in order.
    loss: with a known Lipschitz constant.
    allow_unsound: must be True.

  Raises:
    ValueError: if it is not.
  """
  if not allow_unsound:
    raise ValueError('Algorithm 8 as printed is not differentially private; '
                     'allow_unsound must say that you know')
  if not isinstance(network.root, Chain):
    raise ValueError('Algorithm 8 is printed for chains of layers')
  context = Context(rule=batch_maximum())

  def sums(params, batch, mask):
    return per_example.plain_sums(
        lambda params, x: network.apply(params, x, context), loss.values,
        params, batch, mask, microbatch_size=mask.shape[0])

  def l2_sensitivity(certificate):
    product, claimed = jnp.float32(loss.lipschitz), {}
    for name in reversed(sorted(certificate)):
      product = product * certificate[name]
      claimed[name] = product
    root = len(claimed)**0.5
    return {name: bound / root for name, bound in claimed.items()}

  return GradientBounder(sums, l2_sensitivity)
