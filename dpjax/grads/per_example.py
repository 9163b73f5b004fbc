"""Per-record gradients by `vmap`: the reference, for any model and loss."""

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
from dpjax.grads import isolation
from dpjax.grads import microbatches
from dpjax.grads import precision
from dpjax.grads import quantiles
from dpjax.grads.bounder import BoundedSums, GradientBounder
from dpjax.grads.quantiles import Adaptive
from dpjax.grads.records import RecordGradients
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
            clip_norm: PyTree,
            microbatch_size: int | None = None,
            kernel: str = 'bookkeeping') -> GradientBounder:
  """DP-SGD's bounder: each record's gradient clipped, whole or by layers.

  Guarantee: one record contributes at most C_k in l2 to block k, so at most
  sqrt(sum_k C_k^2) in all; one `clip_norm` makes all parameters one block.
  Gradients are as precise as the products of the network, which accelerators
  round unless `jax.default_matmul_precision` forbids it; they are measured and
  summed in float32.
  Source: DP-16, thesis 003, Algorithm 7 (whose listing prints normalisation;
  this is clipping, as its text and Abadi et al. 2016 have it).

  Args:
    apply: (params, x [b, ...]) -> logits [b, c].
    loss: (logits, labels) -> [b].
    clip_norm: l2 bounds C_k in [1e-12, 1e12], a tree prefix of the
      parameters: a number clips the whole gradient, {layer: number} each
      layer on its own. For sums without a bound see `summed`.
    microbatch_size: compute this many records at a time, by a scan, to save
      memory; the result is the same up to rounding. None: all, or what is
      fastest, see `microbatches.added_up`.
    kernel: one of `KERNELS`: 'bookkeeping', or 'vmap', the reference.

  Examples:
    >>> from dpjax.grads import per_example
    >>> from dpjax.typing import Batch
    >>> bounder = per_example.clipped(
    ...     lambda w, x: x @ w, lambda z, y: (z[:, 0] - y)**2 / 2,
    ...     clip_norm=1.0)
    >>> batch = Batch(x=jnp.array([[3.0, 4.0], [0.1, 0.0]]), y=jnp.ones(2))
    >>> mask = jnp.array([True, True])
    >>> found = bounder.sums(jnp.zeros([2, 1]), batch, mask)
    >>> [round(float(value), 3) for value in found.total.ravel()]
    [-0.7, -0.8]
  """
  _check_clip_norms(clip_norm)
  sums = _rule_sums(apply, loss, _clip, kernel, microbatch_size)
  return GradientBounder(
      lambda params, batch, mask: sums(params, batch, mask, clip_norm),
      lambda certificate: jax.tree.map(jnp.float32, clip_norm))


def normalized(apply: Callable[[Params, Array], Array], loss: LossFn, *,
               clip_norm: PyTree, stabilizer: float,
               microbatch_size: int | None = None,
               kernel: str = 'bookkeeping') -> GradientBounder:
  """Automatic clipping: C_k g / (||g|| + stabilizer) for each block (DP-16).

  Guarantee: as of `clipped`: at most C_k in block k. With `stabilizer` 0 it is
  Algorithm 7 as its listing prints it; see `clipping.normalizing_weights`.

  Args:
    apply: (params, x [b, ...]) -> logits [b, c].
    loss: (logits, labels) -> [b].
    clip_norm: public scales C_k, see `clipped`.
    stabilizer: public, >= 0, in the unit of gradient norms.
    microbatch_size: see `clipped`.
    kernel: see `clipped`.
  """
  _check_clip_norms(clip_norm)
  errors.check_non_negative('stabilizer', stabilizer)
  rule = lambda norms, bound: clipping.normalizing_weights(
      norms, clip_norm=bound, stabilizer=stabilizer)
  sums = _rule_sums(apply, loss, rule, kernel, microbatch_size)
  return GradientBounder(
      lambda params, batch, mask: sums(params, batch, mask, clip_norm),
      lambda certificate: jax.tree.map(jnp.float32, clip_norm))


def adaptively_clipped(apply: Callable[[Params, Array], Array], loss: LossFn,
                       *, adaptive: Adaptive,
                       microbatch_size: int | None = None,
                       kernel: str = 'bookkeeping') -> GradientBounder:
  """DP-16 with clip norms that follow private quantiles of gradient norms.

  Guarantee: given the public radii of the step, one record contributes at most
  radius k to block k and at most 1/2 to each sum of centred indicators, which
  the privatizer releases together. Source: Andrew et al. 2021; LDP-06.

  Args:
    apply: (params, x [b, ...]) -> logits [b, c].
    loss: (logits, labels) -> [b].
    adaptive: its radii are the clip norms, a tree prefix of the parameters:
      one for the whole gradient, or {layer: radius}.
    microbatch_size: see `clipped`.
    kernel: see `clipped`.
  """
  sums = _rule_sums(apply, loss, _clip, kernel, microbatch_size,
                    indicators=True)
  return GradientBounder(sums, lambda certificate, radii: radii, adaptive)


def _check_clip_norms(clip_norm: PyTree) -> None:
  if not jax.tree.leaves(clip_norm):
    raise ValueError(f'clip_norm must hold a number, got {clip_norm}')
  jax.tree.map(lambda c: errors.check_scale('clip_norm', c), clip_norm)


def _clip(norms: Array, bound: Array | float) -> Array:
  return clipping.flat_weights(norms, clip_norm=bound)


def _rule_sums(apply, loss: LossFn, rule: Callable[[Array, Array], Array],
               kernel: str, microbatch_size: int | None,
               indicators: bool = False):
  """(params, batch, mask, bounds) -> sums of gradients weighted by `rule`.

  Blocks are the leaves of `bounds`. A record that is not finite anywhere
  counts for nothing everywhere.
  """
  gradients_of = KERNELS[errors.check_choice('kernel', kernel, KERNELS)]

  def micro_sums(bounds, params, batch: Batch, mask: Array) -> BoundedSums:
    found = gradients_of(apply, loss, params, batch,
                         inputs.finite_records(batch.x) & mask)
    norms = _block_norms(found, bounds)
    usable = found.usable
    for norm in jax.tree.leaves(norms):
      usable = usable & jnp.isfinite(norm)
    weights = jax.tree.map(
        lambda norm, bound: jnp.where(usable, rule(norm, bound), 0.0), norms,
        bounds)
    total = found.weighted(tree.map_blocks(lambda weight, leaf: weight,
                                           weights, found.squares))
    return BoundedSums(
        total, jnp.sum(jnp.where(usable, found.losses, 0.0)),
        jnp.sum(mask & ~usable), quantiles.centred_indicators(
            norms, bounds, usable) if indicators else ())

  check = isolation.checker(apply, loss)

  def sums(params, batch: Batch, mask: Array, bounds: PyTree) -> BoundedSums:
    params, batch = inputs.as_parameters(params), inputs.as_batch(batch)
    check(params, batch)
    return microbatches.added_up(
        functools.partial(micro_sums, bounds), apply, params, batch, mask,
        microbatch_size)

  return sums


def _block_norms(found: RecordGradients, blocks: PyTree) -> PyTree:
  """[b] norms of the blocks whose tree prefix is `blocks`."""
  structure = jax.tree.structure(blocks)
  return jax.tree.unflatten(structure, [
      jnp.sqrt(sum(jax.tree.leaves(block)))
      for block in structure.flatten_up_to(found.squares)])


def _by_vmap(apply, loss: LossFn, params: Params, batch: Batch,
             kept: Array) -> RecordGradients:
  """Every gradient formed: the reference."""
  losses, grads = per_example_gradients(apply, loss, params, batch)
  grads = jax.tree.map(precision.widened, precision.settled(grads))
  squares = jax.tree.map(
      lambda leaf: jax.vmap(tree.squared_norm)(leaf)
      + floats.SMALLEST_NORMAL * math.prod(leaf.shape[1:]), grads)
  return RecordGradients(
      losses, kept & jnp.isfinite(losses), squares,
      lambda weights: jax.tree.map(_weighted_sum, weights, grads))


KERNELS = {'bookkeeping': bookkeeping.record_gradients, 'vmap': _by_vmap}
"""How gradients of records are found: fast, and the reference."""


def per_example_norms(apply: Callable[[Params, Array], Array], loss: LossFn,
                      params: Params, batch: Batch, *, blocks: PyTree = 0,
                      kernel: str = 'bookkeeping') -> PyTree:
  """Norms of the gradients of records, for audits and diagnostics. PRIVATE.

  As cheap as a gradient of the batch. Nothing of it may be released.

  Args:
    apply: (params, x [b, ...]) -> logits [b, c].
    loss: (logits, labels) -> [b].
    params: what to differentiate by.
    batch: b records.
    blocks: a tree prefix of the parameters, of any values: {layer: 0} for one
      norm a layer. By default one for all.
    kernel: one of `KERNELS`.

  Returns:
    A tree of the structure of `blocks`, leaves [b]: upper bounds, exact up to
    rounding; infinite for a record that is not finite.

  Examples:
    >>> from dpjax.grads import per_example
    >>> from dpjax.typing import Batch
    >>> batch = Batch(x=jnp.array([[3.0, 4.0], [0.1, 0.0]]), y=jnp.ones(2))
    >>> per_example.per_example_norms(
    ...     lambda w, x: x @ w, lambda z, y: (z[:, 0] - y)**2 / 2,
    ...     jnp.zeros([2, 1]), batch).round(3)
    Array([5. , 0.1], dtype=float32)
  """
  gradients_of = KERNELS[errors.check_choice('kernel', kernel, KERNELS)]
  params, batch = inputs.as_parameters(params), inputs.as_batch(batch)

  def norms(params, batch):
    found = gradients_of(apply, loss, params, batch,
                         inputs.finite_records(batch.x))
    return jax.tree.map(lambda norm: jnp.where(found.usable, norm, jnp.inf),
                        _block_norms(found, blocks))

  return microbatches.mapped(norms, apply, params, batch)


def _weighted_sum(weights: Array, leaf: Array) -> Array:
  """sum_i weights_i leaf_i, written as a contraction.

  `(weights * leaf).sum(0)` is fifty times slower on CPU with jaxlib 0.10. The
  `where` is needed because zero times infinity is not zero.
  """
  shape = (-1,) + (1,) * (leaf.ndim - 1)
  counts = (weights != 0).reshape(shape)
  return jnp.tensordot(weights, jnp.where(counts, leaf, 0.0), 1,
                       precision=jax.lax.Precision.HIGHEST)


def summed(apply: Callable[[Params, Array], Array],
           loss: LossFn) -> GradientBounder:
  """The plain sum of gradients, by one ordinary backward pass: no bound.

  The non-private baseline. Its sensitivity is infinite; a privatizer that is
  handed it would add infinite noise.
  """
  check = isolation.checker(apply, loss)

  def sums(params, batch: Batch, mask: Array) -> BoundedSums:
    params, batch = inputs.as_parameters(params), inputs.as_batch(batch)
    check(params, batch)
    return plain_sums(apply, loss, params, batch, mask)

  return GradientBounder(sums, lambda certificate: jnp.float32(jnp.inf))


def plain_sums(apply: Callable[[Params, Array], Array], loss: LossFn,
               params: Params, batch: Batch, mask: Array,
               microbatch_size: int | None = None) -> BoundedSums:
  """Gradient of the summed loss of all finite, unmasked records.

  Non-finite features are replaced before the forward pass, so that neither
  the sum nor its gradient ever meets them. For `microbatch_size` see
  `microbatches.added_up`; a network that mixes records needs that of all.
  """
  return microbatches.added_up(
      lambda params, batch, mask: observed_sums(
          lambda params, x: (apply(params, x), ()), loss, params, batch,
          mask)[0], apply, params, batch, mask, microbatch_size)


def observed_sums(apply: Callable[[Params, Array], tuple[Array, PyTree]],
                  loss: LossFn, params: Params, batch: Batch, mask: Array
                  ) -> tuple[BoundedSums, Array, PyTree]:
  """`plain_sums` of an `apply` that gives (logits, anything else per record).

  Returns:
    (the sums, [b] bool: which records counted, what else there was).
  """
  batch, mask = microbatches.filled((batch, mask))
  x, finite = inputs.clean_features(batch.x, mask)
  kept = finite & mask

  def total_loss(params):
    logits, observed = apply(params, x)
    losses = loss(logits, batch.y)
    return jnp.sum(jnp.where(kept, losses, 0.0)), observed

  (value, observed), total = jax.value_and_grad(total_loss, has_aux=True)(
      params)
  return (BoundedSums(total, value, jnp.sum(mask & ~finite)), kept, observed)
