"""Per-record gradients by `vmap`: the reference, for any model and loss."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax import tree
from dpjax.grads import ball
from dpjax.grads import clipping
from dpjax.grads.bounder import BoundedSums, GradientBounder
from dpjax.typing import Array, Batch, LossFn, Params, PyTree


def per_example_gradients(apply: Callable[[Params, Array], Array],
                          loss: LossFn, params: Params,
                          batch: Batch) -> tuple[Array, PyTree]:
  """Losses [b] and gradients [b, ...] of every record on its own.

  Args:
    apply: (params, x [b, ...]) -> logits [b, c].
    loss: (logits, labels) -> [b].
    params: what to differentiate by.
    batch: b records.
  """

  def record_loss(params, x, y):
    one = jax.tree.map(lambda leaf: leaf[None], x)
    return loss(apply(params, one), y[None])[0]

  value_and_grad = jax.value_and_grad(record_loss)
  return jax.vmap(value_and_grad, (None, 0, 0))(params, batch.x, batch.y)


def clipped(apply: Callable[[Params, Array], Array], loss: LossFn, *,
            clip_norm: float,
            microbatch_size: int | None = None) -> GradientBounder:
  """DP-SGD's bounder: each record's whole gradient clipped to `clip_norm`.

  Guarantee: one record contributes at most `clip_norm` in l2 over all
  parameters, one block. Source: thesis 003, Algorithm 7 (whose listing prints
  normalisation; this is clipping, as its text and the literature have it).

  Args:
    apply: (params, x [b, ...]) -> logits [b, c].
    loss: (logits, labels) -> [b].
    clip_norm: l2 bound of one record's contribution.
    microbatch_size: compute this many records at a time, by a scan, to save
      memory; the result is the same up to rounding.
  """
  errors.check_positive('clip_norm', clip_norm)

  def micro_sums(params: Params, batch: Batch, mask: Array) -> BoundedSums:
    losses, grads = per_example_gradients(apply, loss, params, batch)
    norms = jnp.sqrt(jax.vmap(tree.squared_norm)(grads))
    finite = jnp.isfinite(norms) & jnp.isfinite(losses)
    if isinstance(batch.x, ball.BallRecords):
      finite = finite & batch.x.finite
    kept = finite & mask
    weights = jnp.where(
        kept, clipping.flat_weights(norms, clip_norm=clip_norm), 0.0)
    total = jax.tree.map(
        lambda leaf: _weighted_sum(weights, kept, leaf), grads)
    return BoundedSums(total, jnp.sum(jnp.where(kept, losses, 0.0)),
                       jnp.sum(mask & ~finite))

  def sums(params: Params, batch: Batch, mask: Array) -> BoundedSums:
    if microbatch_size is None:
      return micro_sums(params, batch, mask)
    return _scan_microbatches(micro_sums, params, batch, mask,
                              microbatch_size)

  return GradientBounder(sums, lambda certificate: jnp.float32(clip_norm))


def _weighted_sum(weights: Array, kept: Array, leaf: Array) -> Array:
  """sum_i weights_i leaf_i, written as a contraction.

  `(weights * leaf).sum(0)` is fifty times slower on CPU with jaxlib 0.10. The
  `where` is needed because zero times infinity is not zero.
  """
  shape = (-1,) + (1,) * (leaf.ndim - 1)
  return jnp.tensordot(weights, jnp.where(kept.reshape(shape), leaf, 0.0), 1)


def _scan_microbatches(micro_sums, params: Params, batch: Batch, mask: Array,
                       size: int) -> BoundedSums:
  """Adds up `micro_sums` over slices of `size` records, padded with masks."""
  errors.check_at_least('microbatch_size', size, 1)
  rows = mask.shape[0]
  padding = -rows % size

  def split(leaf):
    padded = jnp.pad(leaf, [(0, padding)] + [(0, 0)] * (leaf.ndim - 1))
    return padded.reshape((-1, size) + leaf.shape[1:])

  def add(total, part):
    return tree.add(total, micro_sums(params, *part)), None

  parts = jax.tree.map(split, (batch, mask))
  first = micro_sums(params, *jax.tree.map(lambda leaf: leaf[0], parts))
  rest = jax.tree.map(lambda leaf: leaf[1:], parts)
  return jax.lax.scan(add, first, rest)[0]


def summed(apply: Callable[[Params, Array], Array],
           loss: LossFn) -> GradientBounder:
  """The plain sum of gradients, by one ordinary backward pass: no bound.

  The non-private baseline. Its sensitivity is infinite; a privatizer that is
  handed it would add infinite noise.
  """
  return GradientBounder(
      lambda params, batch, mask: plain_sums(apply, loss, params, batch, mask),
      lambda certificate: jnp.float32(jnp.inf))


def plain_sums(apply: Callable[[Params, Array], Array], loss: LossFn,
               params: Params, batch: Batch, mask: Array) -> BoundedSums:
  """Gradient of the summed loss of all finite, unmasked records.

  Non-finite features are replaced before the forward pass, so that neither
  the sum nor its gradient ever meets them.
  """
  x = batch.x
  if isinstance(x, ball.BallRecords):
    finite = x.finite
    kept = finite & mask
  else:
    axes = tuple(range(1, x.ndim))
    finite = jnp.all(jnp.isfinite(x), axes)
    kept = finite & mask
    x = jnp.where(kept.reshape((-1,) + (1,) * len(axes)), x, 0.0)

  def total_loss(params):
    losses = loss(apply(params, x), batch.y)
    return jnp.sum(jnp.where(kept, losses, 0.0))

  value, total = jax.value_and_grad(total_loss)(params)
  return BoundedSums(total, value, jnp.sum(mask & ~finite))
