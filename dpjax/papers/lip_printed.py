"""Algorithm 8 of Barczewski (2025) as printed. NOT differentially private.

It is kept only to show that it can be attacked. Its constructor needs
`allow_unsound=True`, and the epsilon of a model trained with it is not valid:
dividing by the largest input norm of the batch makes one record's influence
grow with the batch (erratum E1). Item LDP-01.
"""

import jax.numpy as jnp

from dpjax.grads import per_example
from dpjax.grads.bounder import BoundedSums
from dpjax.grads.bounder import GradientBounder
from dpjax.grads.bounder import Method
from dpjax.lipschitz.losses import LipschitzLoss
from dpjax.lipschitz.network import Chain
from dpjax.lipschitz.network import Network
from dpjax.lipschitz.node import Context
from dpjax.lipschitz.rules import RecordNorms
from dpjax.lipschitz.rules import WeightRule
from dpjax.models.model import Model
from dpjax.models.model import network_of
from dpjax.train import methods
from dpjax.typing import Array, Batch, Params, PyTree


def batch_maximum() -> WeightRule:
  """Returns the rule that divides by the batch's largest input norm. Unsound.

  The weight of a record depends on the other records, which breaks the
  contract of a `WeightRule`. Records with a zero cotangent (masked records)
  are left out of the maximum.
  """

  def weights(norms: RecordNorms) -> Array:
    active = norms.cotangents > 0
    largest = jnp.max(jnp.where(active, norms.inputs, 0.0))
    return jnp.where(active, 1 / jnp.maximum(largest, 1e-30), 0.0)

  return WeightRule('batch_maximum', weights,
                    lambda cotangent, factor: cotangent,
                    needs_certificate=True)


def as_printed(network: Network, loss: LipschitzLoss, *,
               allow_unsound: bool) -> GradientBounder:
  """Returns the sums and *claimed* sensitivities of Algorithm 8. Not private.

  Line 5 claims Delta_k = tau * product over i >= k of c_i. This includes the
  layer's own norm (erratum E3) and ignores biases (E6). The value returned is
  Delta_k / sqrt(number of layers): an equal split of the noise then gives each
  layer noise sigma Delta_k, while the accountant counts one mechanism with
  multiplier sigma, as printed (E2). Unlike the printed algorithm, the mean
  divides by the expected batch size, not the realised one (E4). None of this
  gives a privacy guarantee.

  Args:
    network: a chain of dense layers whose names sort in layer order.
    loss: loss with a known Lipschitz constant.
    allow_unsound: must be True, to confirm that the result is not private.

  Raises:
    ValueError: `allow_unsound` is not True, or the network is not a chain.
  """
  if not allow_unsound:
    raise ValueError('Algorithm 8 as printed is not differentially private; '
                     'set allow_unsound=True to accept this')
  if not isinstance(network.root, Chain):
    raise ValueError('Algorithm 8 covers chains of layers only; the root of '
                     'the network must be a Chain')
  context = Context(rule=batch_maximum())

  def sums(params: Params, batch: Batch, mask: Array) -> BoundedSums:
    # The maximum is over the whole batch, so one microbatch must hold it.
    return per_example.plain_sums(
        lambda params, x: network.apply(params, x, context), loss.values,
        params, batch, mask, microbatch_size=mask.shape[0])

  def l2_sensitivity(certificate: PyTree) -> PyTree:
    product, claimed = jnp.float32(loss.lipschitz), {}
    for name in reversed(sorted(certificate)):
      product = product * certificate[name]
      claimed[name] = product
    root = len(claimed)**0.5
    return {name: bound / root for name, bound in claimed.items()}

  return GradientBounder(sums, l2_sensitivity)


def lip_printed(model: Model, loss: LipschitzLoss, *, weight_norm: float,
                allow_unsound: bool) -> Method:
  """Returns Algorithm 8 of Barczewski (2025) as printed; NOT private (LDP-01).

  It exists so that attacks can show the leak.

  Args:
    model: a model that states its layers.
    loss: with a known Lipschitz constant.
    weight_norm: C, the bound on each layer's norm; positive, public.
    allow_unsound: must be True: confirms that you accept that it is not
      private.
  """
  bounder = as_printed(network_of(model), loss, allow_unsound=allow_unsound)
  return methods.lipschitz_method('lip_printed', model, bounder, weight_norm)
