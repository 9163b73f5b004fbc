"""Microbatches: sums over a batch, computed for a few records at a time."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax import tree
from dpjax.grads import convolutions
from dpjax.grads.bounder import BoundedSums
from dpjax.typing import ApplyFn, Array, Batch, Params, PyTree

# Number of outputs of all convolutions that stay in the cache of a CPU.
_CACHED_VALUES = 2**19
# Fewer records make matrix products slow; more were never faster.
_LEAST, _MOST = 32, 64

Sums = Callable[[Params, Batch, Array], BoundedSums]


def added_up(sums: Sums, params: Params, batch: Batch, mask: Array,
             microbatch_size: int) -> BoundedSums:
  """Returns `sums` of the batch, added up over microbatches.

  The result equals `sums(params, batch, mask)` up to the order of float32
  additions.

  Args:
    sums: sums of one contribution per record.
    params: argument of `sums`.
    batch: b records; b = 0 gives zeros.
    mask: [b] bool, True for records that count.
    microbatch_size: number of records at a time.
  """
  batch, mask = filled((batch, mask))
  if errors.check_at_least('microbatch_size', microbatch_size,
                           1) >= mask.shape[0]:
    return sums(params, batch, mask)
  parts = _split((batch, mask), microbatch_size)
  fast, shapes = convolutions.traced(sums, params, *jax.tree.map(
      lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), parts))
  zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
  return jax.lax.scan(
      lambda total, part: (tree.add(total, fast(params, *part)), None),
      zeros, parts)[0]


def mapped(function: Callable[[Params, Batch], PyTree], apply: ApplyFn,
           params: Params, batch: Batch) -> PyTree:
  """Returns `function` of the batch, leaves [b, ...], in parts if faster.

  Args:
    function: (params, batch) -> leaves [b, ...], for each record separately.
    apply: the network, see `fastest`.
    params: argument of `function`.
    batch: b records.
  """
  count = batch.y.shape[0]
  batch = filled(batch)
  size = fastest(apply, params, batch.x)
  if size >= batch.y.shape[0]:
    return jax.tree.map(lambda leaf: leaf[:count], function(params, batch))
  fast = convolutions.fast_in_loops(function)
  outputs = jax.lax.map(lambda part: fast(params, part), _split(batch, size))
  return jax.tree.map(
      lambda leaf: leaf.reshape((-1, *leaf.shape[2:]))[:count], outputs)


def filled(arrays: PyTree) -> PyTree:
  """Returns the arrays, with one row of zeros if they have no rows.

  Args:
    arrays: a tree of arrays [b, ...]. A mask [b] bool in the tree becomes
      False for the added row, which then does not count.
  """
  return jax.tree.map(lambda leaf: leaf if leaf.shape[0] else jnp.zeros(
      (1, *leaf.shape[1:]), leaf.dtype), arrays)


def _split(arrays: PyTree, size: int) -> PyTree:
  """Reshapes arrays [b, ...] to [parts, size, ...], padded with zeros."""

  def split(leaf: Array) -> Array:
    padding = [(0, -leaf.shape[0] % size)] + [(0, 0)] * (leaf.ndim - 1)
    return jnp.pad(leaf, padding).reshape((-1, size, *leaf.shape[1:]))

  return jax.tree.map(split, arrays)


def fastest(function: Callable[[Params, PyTree], PyTree], params: Params,
            records: PyTree) -> int:
  """Returns the fastest number of records at a time.

  That is 32 to 64 for a network with convolutions on CPU, all others take the
  whole batch.

  Args:
    function: (params, records) -> values [b, ...] of the records.
    params: first argument.
    records: arrays [b, ...].
  """
  count: int = jax.tree.leaves(records)[0].shape[0]
  return of_convolved(
      convolutions.num_outputs(function, params, records) // count, count)


def of_convolved(convolved: int, count: int) -> int:
  """Returns the fastest number of records at a time, of `count`.

  Args:
    convolved: how many numbers the convolutions return for one record.
    count: number of records of the batch.
  """
  if jax.default_backend() != 'cpu' or count <= _LEAST or not convolved:
    return count
  # Round the number of parts up, then their size, for little padding.
  parts = -(-count // min(_MOST, max(_LEAST, _CACHED_VALUES // convolved)))
  return -(-count // parts)
