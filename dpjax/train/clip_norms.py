"""Adaptive clip norms: one for the whole gradient, or one for each layer."""

from typing import NamedTuple

from dpjax import errors
from dpjax import tree
from dpjax.grads import clipping
from dpjax.grads import quantiles
from dpjax.grads.quantiles import Adaptive
from dpjax.typing import Params

BLOCKS = ('whole', 'layers')
"""What a clip norm may bound: the whole gradient, or each layer."""


def adaptive(params: Params, *, clip_norm: float, noise_stddev: float,
             blocks: str, target_quantile: float = 0.5,
             learning_rate: float = 0.2) -> Adaptive:
  """Returns clip norms that follow private quantiles of norms (LDP-06).

  Args:
    params: parameters or their shapes; they say what the layers are, see
      `clipping.of_layers`.
    clip_norm: bound on the whole gradient before the first step.
    noise_stddev: standard deviation of the noise on a count, in records. The
      counts of K layers get sqrt(K) times as much, so that they cost together
      what one costs.
    blocks: one of `BLOCKS`.
    target_quantile: fraction of gradients that should stay unclipped.
    learning_rate: learning rate of the geometric update.
  """
  errors.check_choice('clip_blocks', blocks, BLOCKS)
  init = clip_norm if blocks == 'whole' else clipping.of_layers(
      params, clip_norm=clip_norm)
  return quantiles.geometric(
      init, target_quantile=target_quantile, learning_rate=learning_rate,
      noise_stddev=noise_stddev * tree.count(init)**0.5)


class LayerNorms(NamedTuple):
  """Adaptive clip norms of the layers of a model that is not known yet.

  Attributes:
    clip_norm: bound on the whole gradient before the first step.
    noise_stddev: see `adaptive`.
  """
  clip_norm: float
  noise_stddev: float

  def of(self, params: Params) -> Adaptive:
    """Returns the clip norms of a model with these parameters."""
    return adaptive(params, clip_norm=self.clip_norm,
                    noise_stddev=self.noise_stddev, blocks='layers')
