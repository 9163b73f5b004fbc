"""How much of a record's gradient a layer takes: weights, and their bound.

A layer that is linear in its parameters gives a record the gradient
J^T delta, J the Jacobian in the parameters and delta the cotangent of the
layer's output. A rule shortens that by a factor for each record, computed
inside an ordinary backward pass; the cotangents that travel on to earlier
layers stay exact. No gradient per record is formed.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from dpjax import errors
from dpjax.grads import clipping
from dpjax.typing import Array


class RecordNorms(NamedTuple):
  """What a layer knows of each record, [b] each.

  Attributes:
    inputs: ||x_i||_2 of what entered, over all its entries.
    factors: an upper bound of the norm of the Jacobian in the parameters at
      x_i, biases included.
    cotangents: ||delta_i||_2 at the layer's output.
    gradients: () -> norms of the gradients J_i^T delta_i, rounded up by what
      may have cancelled; infinite where ||x_i|| or ||delta_i|| is above 1e10,
      which float32 cannot tell.
  """
  inputs: Array
  factors: Array
  cotangents: Array
  gradients: Callable[[], Array]


class WeightRule(NamedTuple):
  """A rule; static, so it may be a non-differentiable argument.

  Attributes:
    name: for messages.
    weights: RecordNorms -> [b], finite where the norms are.
    bound: (cotangent, factor) -> bound of one record's weighted gradient,
      where `cotangent` bounds ||delta|| and `factor` the Jacobian's norm, for
      every record there could be; infinite if unknown.
    needs_certificate: whether `bound` reads either.
  """
  name: str
  weights: Callable[[RecordNorms], Array]
  bound: Callable
  needs_certificate: bool


def normalised(*, floor: float = 1e-6) -> WeightRule:
  """Backward-normalised layers: J^T delta / max(||J||, floor).

  Guarantee: a record's weighted gradient has norm at most the bound of its
  cotangent, whatever entered the layer. The descent is that of a reweighted
  risk, with other weights in each layer: use it where the norms of activations
  are nearly constant. Source: LDP-04, LIP-04, in the place of the division by
  the largest norm of the batch in thesis 003, Algorithm 8, which has no
  sensitivity bound that is independent of the batch size (E1).

  Args:
    floor: public; inputs below it are scaled by its inverse.
  """
  errors.check_scale('floor', floor)
  shrink = 1 - clipping.ROUNDING_MARGIN
  return WeightRule(
      'normalised', lambda norms: shrink / jnp.maximum(norms.factors, floor),
      lambda cotangent, factor: cotangent, needs_certificate=True)


def clipped_factors(*, limit: float) -> WeightRule:
  """The clip form of `normalised`: J^T delta min(1, limit / ||J||).

  Unbiased for records whose Jacobian has norm at most `limit`. LDP-04.
  """
  errors.check_scale('limit', limit)
  shrink = limit * (1 - clipping.ROUNDING_MARGIN)

  def bound(cotangent, factor):
    if isinstance(factor, float):
      return cotangent * min(factor, limit)
    return cotangent * jnp.minimum(factor, limit)

  return WeightRule(
      'clipped_factors',
      lambda norms: shrink / jnp.maximum(norms.factors, shrink),
      bound, needs_certificate=True)


def clipped_layers(*, clip_norm: float) -> WeightRule:
  """Layer-wise clipping in one backward pass: min(1, clip_norm / ||g_i||).

  Guarantee: a record's weighted gradient of every layer has norm at most
  `clip_norm`, for any network. It needs no Lipschitz constant and holds no
  gradient per record: for a dense layer the norm is that of the input times
  that of the cotangent. Records of norms above 1e10, and what float32 cannot
  tell from rounding, count for less or nothing. Source: LDP-09.
  """
  errors.check_scale('clip_norm', clip_norm)
  return WeightRule(
      'clipped_layers',
      lambda norms: clipping.flat_weights(norms.gradients(),
                                          clip_norm=clip_norm),
      lambda cotangent, factor: clip_norm, needs_certificate=False)
