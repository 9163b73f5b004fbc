"""Sums over the records of a batch, a few records at a time."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax import tree
from dpjax.grads import convolutions
from dpjax.grads.bounder import BoundedSums
from dpjax.typing import Array, Batch, Params, PyTree

# Of what leaves the convolutions of a network: few enough to stay in a cache of
# a CPU. Fewer records are too few for its products, and more never faster.
_CACHED_VALUES = 2**19
_LEAST, _MOST = 32, 64

Apply = Callable[[Params, Array], Array]
Sums = Callable[[Params, Batch, Array], BoundedSums]


def added_up(sums: Sums, apply: Apply, params: Params, batch: Batch,
             mask: Array, microbatch_size: int | None = None) -> BoundedSums:
  """`sums` of the batch, in microbatches where it is asked for or faster.

  Equal up to the order of a float32 sum.

  Args:
    sums: of contributions of one record each.
    apply: the network; what has convolutions is faster in parts on CPU.
    params: of `sums`.
    batch: b records.
    mask: [b] bool. Of no records at all the sums are zero.
    microbatch_size: records at a time; None chooses: 32 to 64 where the network
      has convolutions on CPU, else all.
  """
  batch, mask = filled((batch, mask))
  size = microbatch_size
  if size is None:
    size = _fastest(apply, params, batch)
  if errors.check_at_least('microbatch_size', size, 1) >= mask.shape[0]:
    return sums(params, batch, mask)
  parts = _split((batch, mask), size)
  shapes = jax.eval_shape(sums, params, *jax.tree.map(lambda leaf: leaf[0],
                                                      parts))
  zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
  fast = convolutions.fast_in_loops(sums)
  return jax.lax.scan(
      lambda total, part: (tree.add(total, fast(params, *part)), None),
      zeros, parts)[0]


def mapped(function: Callable[[Params, Batch], PyTree], apply: Apply,
           params: Params, batch: Batch) -> PyTree:
  """`function` of the batch, leaves [b, ...], in parts where it is faster.

  Args:
    function: of records one by one.
    apply: the network, see `added_up`.
    params: of `function`.
    batch: b records.
  """
  count = batch.y.shape[0]
  batch = filled(batch)
  size = _fastest(apply, params, batch)
  if size >= batch.y.shape[0]:
    return jax.tree.map(lambda leaf: leaf[:count], function(params, batch))
  fast = convolutions.fast_in_loops(function)
  found = jax.lax.map(lambda part: fast(params, part), _split(batch, size))
  return jax.tree.map(
      lambda leaf: leaf.reshape((-1, *leaf.shape[2:]))[:count], found)


def filled(arrays: PyTree) -> PyTree:
  """Returns the rows, or if there are none one row of zeros, not in the mask.

  Args:
    arrays: a tree of arrays [b, ...], a mask [b] bool among them if the zeros
      must not count.
  """
  return jax.tree.map(lambda leaf: leaf if leaf.shape[0] else jnp.zeros(
      (1, *leaf.shape[1:]), leaf.dtype), arrays)


def _split(arrays: PyTree, size: int) -> PyTree:
  """[b, ...] as [parts, size, ...], filled up with zeros."""

  def split(leaf):
    padding = [(0, -leaf.shape[0] % size)] + [(0, 0)] * (leaf.ndim - 1)
    return jnp.pad(leaf, padding).reshape((-1, size, *leaf.shape[1:]))

  return jax.tree.map(split, arrays)


def _fastest(apply: Apply, params: Params, batch: Batch) -> int:
  """Parts of one size, or nearly."""
  count = batch.y.shape[0]
  if jax.default_backend() != 'cpu' or count <= _LEAST:
    return count
  each = convolutions.num_outputs(apply, params, batch.x) // count
  if not each:
    return count
  parts = -(-count // min(_MOST, max(_LEAST, _CACHED_VALUES // each)))
  return -(-count // parts)
