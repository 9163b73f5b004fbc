"""The gradient bounder of Lip-DP-SGD with activations bounded inside."""

from collections.abc import Callable, Sequence

from dpjax.grads import per_example
from dpjax.grads.bounder import GradientBounder
from dpjax.lipschitz import bounds
from dpjax.lipschitz.layers import ParameterLayer
from dpjax.lipschitz.losses import LipschitzLoss
from dpjax.typing import Array, Params


def certified(apply: Callable[[Params, Array], Array],
              layers: Sequence[ParameterLayer] | None,
              loss: LipschitzLoss) -> GradientBounder:
  """Plain batch-sum gradients of a network whose constants are known.

  Guarantee: for parameters whose weight norms the certificate bounds, one
  record contributes at most `bounds.gradient_bounds` to each layer, whatever
  its features and label, because the network itself projects the input of
  every parameter layer on a public ball. Nothing per-record is formed: one
  ordinary backward pass.

  The printed method (thesis 003, Algorithm 8) divides by the largest input
  norm of the batch instead, which has no sensitivity bound that is independent
  of the batch size.

  Args:
    apply: (params, x) -> logits of the network that `layers` describes.
    layers: its parameter layers from input to output, or None if the model
      certifies nothing, which is refused.
    loss: with a known Lipschitz constant.
  """
  if layers is None:
    raise ValueError('Lip-DP-SGD needs a model with bounded activations; this '
                     'one states no layer bounds')

  def l2_sensitivity(certificate):
    return bounds.gradient_bounds(layers, certificate,
                                  loss_lipschitz=loss.lipschitz)

  return GradientBounder(
      lambda params, batch, mask: per_example.plain_sums(
          apply, loss.values, params, batch, mask), l2_sensitivity)
