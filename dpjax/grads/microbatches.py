"""Sums over the records of a batch, a few records at a time."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax import tree
from dpjax.grads import convolutions
from dpjax.grads.bounder import BoundedSums
from dpjax.typing import Array, Batch, Params

# Of a network with convolutions: few enough for activations to stay in a cache
# of a CPU, and enough for its products.
_CACHED_RECORDS = 32

Sums = Callable[[Params, Batch, Array], BoundedSums]


def added_up(sums: Sums, apply: Callable[[Params, Array], Array],
             params: Params, batch: Batch, mask: Array,
             microbatch_size: int | None = None) -> BoundedSums:
  """`sums` of the batch, in microbatches where it is asked for or faster.

  Equal up to the order of a float32 sum.

  Args:
    sums: of contributions of one record each.
    apply: the network; what has convolutions is faster in parts on CPU.
    params: of `sums`.
    batch: b records.
    mask: [b] bool.
    microbatch_size: records at a time; None chooses: 32 where the network has
      convolutions on CPU, else all.
  """
  size = microbatch_size
  if size is None:
    size = _fastest(apply, params, batch)
  if errors.check_at_least('microbatch_size', size, 1) >= mask.shape[0]:
    return sums(params, batch, mask)
  padding = -mask.shape[0] % size

  def split(leaf):
    padded = jnp.pad(leaf, [(0, padding)] + [(0, 0)] * (leaf.ndim - 1))
    return padded.reshape((-1, size) + leaf.shape[1:])

  parts = jax.tree.map(split, (batch, mask))
  shapes = jax.eval_shape(sums, params, *jax.tree.map(lambda leaf: leaf[0],
                                                      parts))
  zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
  fast = convolutions.fast_in_loops(sums)
  return jax.lax.scan(
      lambda total, part: (tree.add(total, fast(params, *part)), None),
      zeros, parts)[0]


def _fastest(apply: Callable[[Params, Array], Array], params: Params,
             batch: Batch) -> int:
  size = max(1, batch.y.shape[0])
  if (jax.default_backend() == 'cpu' and size > _CACHED_RECORDS
      and convolutions.has_convolutions(apply, params, batch.x)):
    return _CACHED_RECORDS
  return size
