"""Gradient bounders from per-record gradients: DP-SGD and its variants.

The gradients come from one of two kernels: `bookkeeping`, which is fast, and
`vmap`, the reference for any model and loss.
"""

from collections.abc import Callable
import functools

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.grads import bookkeeping
from dpjax.grads import clipping
from dpjax.grads import inputs
from dpjax.grads import isolation
from dpjax.grads import microbatches
from dpjax.grads import shards as shards_lib
from dpjax.grads import weighted
from dpjax.grads.bookkeeping import Plan
from dpjax.grads.bounder import BoundedSums
from dpjax.grads.bounder import GradientBounder
from dpjax.grads.quantiles import Adaptive
from dpjax.grads.records import RecordGradients
from dpjax.grads.shards import Divisible
from dpjax.grads.shards import Shards
from dpjax.typing import ApplyFn, Array, Batch, LossFn, Params, PyTree


def per_example_gradients(apply: ApplyFn, loss: LossFn, params: Params,
                          batch: Batch) -> tuple[Array, PyTree]:
  """Returns the losses [b] and the gradients [b, ...] of all records.

  Args:
    apply: (params, x [b, ...]) -> logits [b, c].
    loss: (logits, labels) -> [b].
    params: parameters to differentiate by.
    batch: b records.
  """

  def record_loss(params: Params, x: PyTree, y: Array) -> Array:
    one = jax.tree.map(lambda leaf: leaf[None], x)
    return loss(apply(params, one), y[None])[0]

  value_and_grad = jax.value_and_grad(record_loss)
  return jax.vmap(value_and_grad, (None, 0, 0))(params, batch.x, batch.y)


def clipped(apply: ApplyFn, loss: LossFn, *, clip_norm: PyTree,
            microbatch_size: int | None = None, kernel: str = 'bookkeeping'
            ) -> GradientBounder:
  """Returns the bounder of DP-SGD, which clips the gradient of each record.

  Guarantee: one record contributes at most C_k in l2 to block k, and so at most
  sqrt(sum_k C_k^2) in total. A single number `clip_norm` makes all parameters
  one block.

  Gradients are as precise as the matrix products of the network, which
  accelerators round unless `jax.default_matmul_precision` is 'highest'. Norms
  and sums are computed in float32, so the bound holds in any case.

  Source: DP-16; Abadi et al. (2016); Barczewski (2025, Algorithm 7), whose
  listing prints normalisation; this is clipping, as in the text there.

  Args:
    apply: (params, x [b, ...]) -> logits [b, c].
    loss: (logits, labels) -> [b].
    clip_norm: l2 bounds C_k in [1e-12, 1e12], public; a tree prefix of the
      parameters. A number clips the whole gradient, {layer: number} clips each
      layer by itself. Infinity clips nothing: it gives `summed`, of infinite
      sensitivity, which no noise makes private.
    microbatch_size: number of records at a time, to save memory; the result is
      the same up to rounding. None chooses it, see `microbatches.added_up`.
    kernel: one of `KERNELS`: 'bookkeeping' or 'vmap'.

  Examples:
    >>> from dpjax.grads import per_example
    >>> from dpjax.typing import Batch
    >>> bounder = per_example.clipped(
    ...     lambda w, x: x @ w, lambda z, y: (z[:, 0] - y)**2 / 2,
    ...     clip_norm=1.0)
    >>> batch = Batch(x=jnp.array([[3.0, 4.0], [0.1, 0.0]]), y=jnp.ones(2))
    >>> mask = jnp.array([True, True])
    >>> sums = bounder.sums(jnp.zeros([2, 1]), batch, mask)
    >>> [round(float(value), 3) for value in sums.total.ravel()]
    [-0.7, -0.8]
  """
  if weighted.is_infinite(clip_norm):
    return summed(apply, loss, microbatch_size)
  weighted.check_clip_norms(clip_norm)
  sums = _rule_sums(apply, loss, weighted.clip, kernel, microbatch_size)
  return GradientBounder(
      _at(sums, clip_norm),
      lambda certificate: jax.tree.map(jnp.float32, clip_norm))


def normalized(apply: ApplyFn, loss: LossFn, *, clip_norm: PyTree,
               stabilizer: float, microbatch_size: int | None = None,
               kernel: str = 'bookkeeping') -> GradientBounder:
  """Returns the bounder of automatic clipping (DP-16).

  A record contributes C_k g / (||g|| + stabilizer) to block k, g its gradient.
  Guarantee: as for `clipped`, at most C_k in l2 to block k. Stabilizer 0 is the
  printed listing of Barczewski (2025, Algorithm 7); see
  `clipping.normalizing_weights`.

  Args:
    apply: (params, x [b, ...]) -> logits [b, c].
    loss: (logits, labels) -> [b].
    clip_norm: public bounds C_k, see `clipped`.
    stabilizer: public, >= 0, in the unit of gradient norms.
    microbatch_size: see `clipped`.
    kernel: see `clipped`.
  """
  weighted.check_clip_norms(clip_norm)
  errors.check_non_negative('stabilizer', stabilizer)
  rule = lambda norms, bound: clipping.normalizing_weights(
      norms, clip_norm=bound, stabilizer=stabilizer)
  sums = _rule_sums(apply, loss, rule, kernel, microbatch_size)
  return GradientBounder(
      _at(sums, clip_norm),
      lambda certificate: jax.tree.map(jnp.float32, clip_norm))


def adaptively_clipped(apply: ApplyFn, loss: LossFn, *, adaptive: Adaptive,
                       microbatch_size: int | None = None,
                       kernel: str = 'bookkeeping') -> GradientBounder:
  """Returns the bounder of DP-SGD whose clip norms follow private quantiles.

  Guarantee: given the public radii of the step, one record contributes at most
  radius k in l2 to block k, and at most 1/2 to each sum of centred indicators.
  The privatizer releases both together. Source: DP-16; LDP-06; Andrew et al.
  (2021).

  Args:
    apply: (params, x [b, ...]) -> logits [b, c].
    loss: (logits, labels) -> [b].
    adaptive: its radii are the clip norms, a tree prefix of the parameters: one
      radius for the whole gradient, or {layer: radius}.
    microbatch_size: see `clipped`.
    kernel: see `clipped`.
  """
  sums = _rule_sums(apply, loss, weighted.clip, kernel, microbatch_size,
                    indicators=True)
  return GradientBounder(sums, lambda certificate, radii: radii, adaptive)


def _at(sums: Divisible, bounds: PyTree) -> Divisible:
  """Returns sums with fixed bounds."""
  return Divisible(lambda params, batch, mask, *, shards: sums.function(
      params, batch, mask, bounds, shards=shards))


def _rule_sums(apply: ApplyFn, loss: LossFn,
               rule: Callable[[Array, Array], Array], kernel: str,
               microbatch_size: int | None, indicators: bool = False
               ) -> Divisible:
  """Returns `weighted.sums` of a network and a loss that mix no records.

  Args:
    apply: (params, x [b, ...]) -> logits [b, c].
    loss: (logits, labels) -> [b].
    rule: see `weighted.sums`.
    kernel: one of `KERNELS`.
    microbatch_size: see `clipped`.
    indicators: see `weighted.sums`.
  """
  gradients_of = KERNELS[errors.check_choice('kernel', kernel, KERNELS)]
  record_loss = bookkeeping.of_network(apply, loss)
  check = isolation.checker(apply, loss)  # Once for each shape.

  def checked(params: Params, batch: Batch, mask: Array, bounds: PyTree, *,
              shards: Shards) -> BoundedSums:
    params, batch = inputs.as_parameters(params), inputs.as_batch(batch)
    check(jax.eval_shape(shards.wholes, params), batch)
    sums = weighted.sums(
        functools.partial(gradients_of, apply, loss, shards=shards),
        weighted.preparation(kernel, record_loss, tuple, shards), rule,
        microbatch_size, indicators)
    return sums(params, batch, mask, bounds)

  return Divisible(checked)


def _by_vmap(apply: ApplyFn, loss: LossFn, params: Params, batch: Batch,
             kept: Array, plan: Plan | None = None, *,
             shards: Shards = shards_lib.WHOLE) -> RecordGradients:
  """Forms the gradient of every record; the reference kernel."""
  del plan
  gradients = weighted.formed(*per_example_gradients(
      apply, loss, shards.wholes(params), batch), kept)
  return gradients._replace(
      weighted=lambda weights: shards.owns(gradients.weighted(weights)))


KERNELS = {'bookkeeping': bookkeeping.record_gradients, 'vmap': _by_vmap}
"""Kernels for the gradients of records: the fast one, and the reference."""


def per_example_norms(apply: ApplyFn, loss: LossFn, params: Params,
                      batch: Batch, *, blocks: PyTree = 0,
                      kernel: str = 'bookkeeping') -> PyTree:
  """Returns the gradient norms of all records, for diagnostics. PRIVATE.

  The norms are exact, so they must not be released. They take about as long as
  the gradient of the batch.

  Args:
    apply: (params, x [b, ...]) -> logits [b, c].
    loss: (logits, labels) -> [b].
    params: parameters to differentiate by.
    batch: b records.
    blocks: a tree prefix of the parameters; its values do not matter. The
      default gives one norm over all parameters, {layer: 0} one for each layer.
    kernel: one of `KERNELS`.

  Returns:
    A tree with the structure of `blocks` and leaves [b]: l2 norms, rounded up;
    infinite for a record that is not finite.

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

  def norms(params: Params, batch: Batch) -> PyTree:
    gradients = gradients_of(apply, loss, params, batch,
                             inputs.finite_records(batch.x))
    return jax.tree.map(lambda norm: jnp.where(gradients.usable, norm, jnp.inf),
                        weighted.block_norms(gradients, blocks))

  return microbatches.mapped(norms, apply, params, batch)


def summed(apply: ApplyFn, loss: LossFn,
           microbatch_size: int | None = None) -> GradientBounder:
  """Returns the bounder of plain gradient sums, which have no bound.

  It is the non-private baseline, computed by one ordinary backward pass. Its
  sensitivity is infinite, so a privatizer adds infinite noise: its mean is NaN
  or infinite, its joint noise multiplier NaN, and `loop.fit` refuses the run.

  Args:
    apply: (params, x [b, ...]) -> logits [b, c].
    loss: (logits, labels) -> [b].
    microbatch_size: see `clipped`.
  """
  check = isolation.checker(apply, loss)

  def sums(params: Params, batch: Batch, mask: Array, *,
           shards: Shards) -> BoundedSums:
    params, batch = inputs.as_parameters(params), inputs.as_batch(batch)
    check(jax.eval_shape(shards.wholes, params), batch)
    # The gradient by the part of a parameter is the own part of the sum.
    return plain_sums(lambda params, x: apply(shards.wholes(params), x), loss,
                      params, batch, mask, microbatch_size)

  return GradientBounder(Divisible(sums),
                         lambda certificate: jnp.float32(jnp.inf))


def plain_sums(apply: ApplyFn, loss: LossFn, params: Params, batch: Batch,
               mask: Array, microbatch_size: int | None = None) -> BoundedSums:
  """Returns the gradient of the summed loss of all finite, unmasked records.

  Non-finite features are replaced by zero before the forward pass, so no NaN
  can enter the sum or its gradient. For `microbatch_size` see
  `microbatches.added_up`; a network that mixes records needs all in one part.
  """
  batch, mask = microbatches.filled((batch, mask))
  size = microbatch_size
  if size is None:
    size = microbatches.fastest(apply, params, batch.x)
  return microbatches.added_up(
      lambda params, batch, mask: observed_sums(
          lambda params, x: (apply(params, x), ()), loss, params, batch,
          mask)[0], params, batch, mask, size)


def observed_sums(apply: Callable[[Params, Array], tuple[Array, PyTree]],
                  loss: LossFn, params: Params, batch: Batch, mask: Array
                  ) -> tuple[BoundedSums, Array, PyTree]:
  """Returns `plain_sums`, and what `apply` returns besides the logits.

  Args:
    apply: (params, x [b, ...]) -> (logits [b, c], any other outputs).
    loss: (logits, labels) -> [b].
    params: parameters to differentiate by.
    batch: b records.
    mask: [b] bool, True for records that count.

  Returns:
    (sums, [b] bool: True for records that counted, the other outputs).
  """
  batch, mask = microbatches.filled((batch, mask))
  x, finite = inputs.clean_features(batch.x, mask)
  counted = finite & mask

  def total_loss(params: Params) -> tuple[Array, PyTree]:
    logits, observed = apply(params, x)
    losses = loss(logits, batch.y)
    return jnp.sum(jnp.where(counted, losses, 0.0)), observed

  (value, observed), total = jax.value_and_grad(total_loss, has_aux=True)(
      params)
  return (BoundedSums(total, value, jnp.sum(mask & ~finite)), counted, observed)
