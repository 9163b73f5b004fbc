"""Rules that weight each record's parameter gradient, layer by layer.

In a layer that is linear in its parameters, a record has the gradient
J^T delta, with J the Jacobian in the parameters and delta the cotangent at the
layer's output. A rule multiplies it by one factor per record, inside an
ordinary backward pass. The cotangents for earlier layers stay exact, and no
per-record gradient is formed.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp

from dpjax import errors
from dpjax.grads import clipping
from dpjax.typing import Array

Bound = Array | float


class RecordNorms(NamedTuple):
  """Norms that a layer computes for each record, arrays [b].

  Attributes:
    inputs: ||x_i||_2 of the layer's input, over all its entries.
    factors: upper bounds of the norm of the Jacobian in the parameters at
      x_i, biases included.
    cotangents: ||delta_i||_2 at the layer's output.
    gradients: function without arguments; returns upper bounds of the norms
      of J_i^T delta_i that cover rounding. They are infinite where ||x_i|| or
      ||delta_i|| exceeds 1e10, where float32 is not accurate enough.
  """
  inputs: Array
  factors: Array
  cotangents: Array
  gradients: Callable[[], Array]


class WeightRule(NamedTuple):
  """A weight for each record's gradient in a layer, and the resulting bound.

  It is static, so it can be a non-differentiable argument of a custom VJP. The
  weight of a record must depend on that record alone.

  Attributes:
    name: for messages.
    weights: maps RecordNorms to weights [b], finite where the norms are.
    bound: maps (cotangent, factor) to an l2 bound of one record's weighted
      gradient; `cotangent` bounds ||delta|| and `factor` the Jacobian's norm
      over all possible records. Either is infinite if unknown.
    needs_certificate: whether `bound` uses `cotangent` or `factor`.
  """
  name: str
  weights: Callable[[RecordNorms], Array]
  bound: Callable[[Bound, Bound], Bound]
  needs_certificate: bool


def normalised(*, floor: float = 1e-6) -> WeightRule:
  """Returns the rule that divides by the Jacobian norm of the record.

  The weighted gradient is J^T delta / max(||J||, floor).

  Guarantee: a record's weighted gradient has l2 norm at most the bound of its
  cotangent, whatever the layer's input. Training minimises a reweighted risk
  with other weights in each layer, so use it where activation norms are
  nearly constant. Items LDP-04, LIP-04, erratum E1.

  Args:
    floor: public and positive; smaller Jacobian norms are divided by it.
  """
  errors.check_scale('floor', floor)
  shrink = 1 - clipping.ROUNDING_MARGIN  # Float32 must not exceed the bound.
  return WeightRule(
      'normalised', lambda norms: shrink / jnp.maximum(norms.factors, floor),
      lambda cotangent, factor: cotangent, needs_certificate=True)


def clipped_factors(*, limit: float) -> WeightRule:
  """Returns the rule that clips the Jacobian norm of each record. LDP-04.

  The weighted gradient is J^T delta min(1, limit / ||J||). Gradients of
  records whose Jacobian has norm at most `limit` do not change.
  """
  errors.check_scale('limit', limit)
  shrink = limit * (1 - clipping.ROUNDING_MARGIN)

  def bound(cotangent: Bound, factor: Bound) -> Bound:
    if isinstance(factor, float):  # Stays a float, also if infinite.
      return cotangent * min(factor, limit)
    return cotangent * jnp.minimum(factor, limit)

  return WeightRule(
      'clipped_factors',
      # At most 1, and no division by 0, since `limit` is positive.
      lambda norms: shrink / jnp.maximum(norms.factors, shrink),
      bound, needs_certificate=True)


def clipped_layers(*, clip_norm: float) -> WeightRule:
  """Returns the rule of layer-wise clipping, min(1, clip_norm / ||g_i||).

  Guarantee: a record's weighted gradient in each layer has l2 norm at most
  `clip_norm`, for any network. It needs no Lipschitz constant and stores no
  per-record gradients, since a dense layer's gradient norm is the product of
  the norms of input and cotangent. Records with norms above 1e10 get weight
  0, and gradients near the rounding error get less weight. Item LDP-09.
  """
  errors.check_scale('clip_norm', clip_norm)
  return WeightRule(
      'clipped_layers',
      lambda norms: clipping.flat_weights(norms.gradients(),
                                          clip_norm=clip_norm),
      lambda cotangent, factor: clip_norm, needs_certificate=False)
