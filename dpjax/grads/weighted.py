"""Sums of weighted per-record gradients, with norms measured by a kernel.

The weights bound the contribution of each record. The gradients are those of a
network (`per_example`) or of any loss of one record (`of_record_loss`).
"""

from collections.abc import Callable
import functools
import math

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax import floats
from dpjax import tree
from dpjax.grads import bookkeeping
from dpjax.grads import clipping
from dpjax.grads import inputs
from dpjax.grads import microbatches
from dpjax.grads import precision
from dpjax.grads import quantiles
from dpjax.grads import shards as shards_lib
from dpjax.grads.bookkeeping import Plan
from dpjax.grads.bounder import BoundedSums
from dpjax.grads.bounder import GradientBounder
from dpjax.grads.quantiles import Adaptive
from dpjax.grads.records import RecordGradients
from dpjax.grads.shards import Shards
from dpjax.typing import Array, Batch, Params, PyTree

RecordLoss = Callable[[Params, PyTree], Array]
"""(params, one record) -> loss of the record, a scalar."""


def of_record_loss(record_loss: RecordLoss, *, clip_norm: PyTree | Adaptive,
                   kernel: str = 'bookkeeping',
                   shards: Shards = shards_lib.WHOLE) -> GradientBounder:
  """Returns the bounder of DP-SGD for any loss of one record.

  Guarantee: that of `per_example.clipped`, and for adaptive clip norms that of
  `per_example.adaptively_clipped`. The function reads one record, so it cannot
  mix records.

  Args:
    record_loss: (params, one record) -> loss of the record, a scalar.
    clip_norm: see `per_example.clipped`, but not infinity; or `Adaptive`
      radii, see `per_example.adaptively_clipped`.
    kernel: see `per_example.clipped`.
    shards: which parameters are parts, for use in `jax.shard_map`.

  Returns:
    A bounder for batches of which `x` holds the records, any tree of arrays
    [b, ...], and `y` [b] is not read. With shards, its total has the own part
    of the sum over all devices for parameters that are parts.
  """
  adaptive = clip_norm if isinstance(clip_norm, Adaptive) else None
  gradients_of = _RECORD_KERNELS[
      errors.check_choice('kernel', kernel, _RECORD_KERNELS)]
  added = sums(
      lambda params, batch, kept, plan: gradients_of(
          record_loss, params, batch.x, kept, plan, shards=shards),
      preparation(kernel, record_loss, lambda batch: batch.x, shards), clip,
      indicators=adaptive is not None)
  if adaptive is not None:
    return GradientBounder(added, lambda certificate, radii: radii, adaptive)
  check_clip_norms(clip_norm)
  return GradientBounder(
      lambda params, batch, mask: added(params, batch, mask, clip_norm),
      lambda certificate: jax.tree.map(jnp.float32, clip_norm))


def is_infinite(clip_norm: PyTree) -> bool:
  """Returns whether the clip norm is the number infinity: no clipping."""
  return jax.tree_util.all_leaves([clip_norm]) and clip_norm == math.inf


def check_clip_norms(clip_norm: PyTree) -> None:
  """Checks that there is a clip norm, and that each lies in [1e-12, 1e12].

  Infinity cannot be the clip norm of some layers only, because the noise of all
  layers would be infinite.
  """
  bounds = jax.tree.leaves(clip_norm)
  if len(bounds) > 1 and math.inf in bounds:
    raise ValueError('clip_norm must be a positive number for each layer; '
                     'infinity, for no clipping, must be the only clip norm; '
                     f'got {clip_norm}')
  if not jax.tree.leaves(clip_norm):
    raise ValueError('clip_norm must be a positive number, or a tree of them '
                     f'such as {{layer: number}}, got {clip_norm}')
  jax.tree.map(lambda c: errors.check_scale('clip_norm', c), clip_norm)


def clip(norms: Array, bound: Array | float) -> Array:
  """Returns the weights of clipping, as a rule of `sums`."""
  return clipping.flat_weights(norms, clip_norm=bound)


def sums(
    gradients_of: Callable[[Params, Batch, Array, Plan | None],
                           RecordGradients],
    prepare: Callable[[Params, Batch], tuple[Plan | None, int]],
    rule: Callable[[Array, Array], Array],
    microbatch_size: int | None = None, indicators: bool = False
    ) -> Callable[[Params, Batch, Array, PyTree], BoundedSums]:
  """Returns (params, batch, mask, bounds) -> sums of weighted gradients.

  The leaves of `bounds` are the blocks. A record with a non-finite value in any
  block contributes zero to all blocks.

  Args:
    gradients_of: (params, batch, kept [b] bool, plan) -> gradients of the
      records.
    prepare: from `preparation`.
    rule: (norms [b] of a block, its bound) -> weights [b].
    microbatch_size: see `per_example.clipped`.
    indicators: whether to sum the centred indicators of the norms too.
  """

  def micro_sums(plan: Plan | None, bounds: PyTree, params: Params,
                 batch: Batch, mask: Array) -> BoundedSums:
    gradients = gradients_of(params, batch,
                             inputs.finite_records(batch.x) & mask, plan)
    norms = block_norms(gradients, bounds)
    # A record counts for all blocks or for none.
    usable = gradients.usable
    for norm in jax.tree.leaves(norms):
      usable = usable & jnp.isfinite(norm)
    weights = jax.tree.map(
        lambda norm, bound: jnp.where(usable, rule(norm, bound), 0.0), norms,
        bounds)
    # All leaves of a block share its weights.
    total = gradients.weighted(tree.map_blocks(
        lambda weight, leaf: weight, weights, gradients.squares))
    return BoundedSums(
        total, jnp.sum(jnp.where(usable, gradients.losses, 0.0)),
        jnp.sum(mask & ~usable), quantiles.centred_indicators(
            norms, bounds, usable) if indicators else ())

  def added(params: Params, batch: Batch, mask: Array,
            bounds: PyTree) -> BoundedSums:
    batch, mask = microbatches.filled((batch, mask))
    plan, size = prepare(params, batch)
    return microbatches.added_up(
        functools.partial(micro_sums, plan, bounds), params, batch, mask,
        size if microbatch_size is None else microbatch_size)

  return added


def preparation(kernel: str, record_loss: RecordLoss,
                records_of: Callable[[Batch], PyTree],
                shards: Shards = shards_lib.WHOLE
                ) -> Callable[[Params, Batch], tuple[Plan | None, int]]:
  """Returns (params, batch) -> (plan of book-keeping, records at a time).

  Args:
    kernel: 'bookkeeping', or another one, which has no plan.
    record_loss: (params, one record) -> loss of the record, a scalar.
    records_of: batch -> its records.
    shards: which parameters are parts.
  """

  def prepare(params: Params, batch: Batch) -> tuple[Plan | None, int]:
    params, records = shards.wholes(params), records_of(batch)
    if kernel != 'bookkeeping':
      return None, microbatches.fastest(
          jax.vmap(record_loss, (None, 0)), params, records)
    plan = bookkeeping.planned(record_loss, params, records)
    return plan, plan.num_records(params, len(batch.y))

  return prepare


def block_norms(gradients: RecordGradients, blocks: PyTree) -> PyTree:
  """Returns the gradient norms [b] of each block, as a tree like `blocks`."""
  return jax.tree.unflatten(jax.tree.structure(blocks), [
      jnp.sqrt(sum(jax.tree.leaves(block)))
      for block in tree.blocks(blocks, gradients.squares)])


def _record_loss_by_vmap(record_loss: RecordLoss, params: Params,
                         records: PyTree, kept: Array,
                         plan: Plan | None = None, *,
                         shards: Shards = shards_lib.WHOLE) -> RecordGradients:
  """Forms the gradient of every record, see `bookkeeping.of_record_loss`."""
  del plan
  gradients = formed(*jax.vmap(jax.value_and_grad(record_loss), (None, 0))(
      shards.wholes(params), records), kept)
  return gradients._replace(
      weighted=lambda weights: shards.owns(gradients.weighted(weights)))


def formed(losses: Array, grads: PyTree, kept: Array) -> RecordGradients:
  """Returns norms and sums of gradients [b, ...] of the kept records."""
  grads = jax.tree.map(precision.widened, precision.settled(grads))
  # Squares below the smallest normal number may be flushed to zero: adding that
  # number for each component keeps the norm an upper bound.
  squares = jax.tree.map(
      lambda leaf: jax.vmap(tree.squared_norm)(leaf)
      + floats.SMALLEST_NORMAL * math.prod(leaf.shape[1:]), grads)
  return RecordGradients(
      losses, kept & jnp.isfinite(losses), squares,
      lambda weights: jax.tree.map(_weighted_sum, weights, grads))


def _weighted_sum(weights: Array, leaf: Array) -> Array:
  """Returns sum_i weights_i leaf_i, computed as a contraction.

  `(weights * leaf).sum(0)` is fifty times slower on CPU with jaxlib 0.10. The
  `where` is needed because zero times infinity is not zero.
  """
  shape = (-1,) + (1,) * (leaf.ndim - 1)
  counts = (weights != 0).reshape(shape)
  return jnp.tensordot(weights, jnp.where(counts, leaf, 0.0), 1,
                       precision=jax.lax.Precision.HIGHEST)


_RECORD_KERNELS = {'bookkeeping': bookkeeping.of_record_loss,
                   'vmap': _record_loss_by_vmap}
