"""Sorts many rows of integers at once.

The sort of XLA for CPUs compares two numbers at a time through a function
pointer. A network of minima and maxima (Batcher 1968) does the same operations
for all rows, so it sorts rows side by side in vector units, in less than half
the time.
"""

import jax
import jax.numpy as jnp

from dpjax.typing import Array

_LARGEST = 2**31 - 1


@jax.custom_batching.custom_vmap
def sort(values: Array) -> Array:
  """Sorts values [n] int32 upwards; under vmap on a CPU, by a network."""
  return jnp.sort(values)


@sort.def_vmap
def _sort_rows(axis_size: int, in_batched: list[bool],
               values: Array) -> tuple[Array, bool]:
  """Sorts mapped rows: by the network on CPU, by XLA elsewhere."""
  del axis_size, in_batched  # The only argument is always batched here.
  if jax.default_backend() != 'cpu':
    return jnp.sort(values, -1), True
  return _network(values.T).T, True


def _network(columns: Array) -> Array:
  """Sorts columns [n, r] along n, by merging sorted runs of growing length."""
  size, width = columns.shape
  padded = 1 << max(size - 1, 0).bit_length()
  # Batcher's network needs a power of two; the padding sorts to the end.
  columns = jnp.pad(columns, ((0, padded - size), (0, 0)),
                    constant_values=_LARGEST)
  length = 2
  while length <= padded:
    low, high = _halves(columns, length)
    # Reversing the second half makes the two runs one bitonic sequence, so that
    # all later comparators sort upwards.
    high = jnp.flip(high, 1)
    columns = _joined(jnp.minimum(low, high), jnp.flip(jnp.maximum(low, high),
                                                       1), padded)
    step = length // 2
    while step >= 2:
      low, high = _halves(columns, step)
      columns = _joined(jnp.minimum(low, high), jnp.maximum(low, high), padded)
      step //= 2
    length *= 2
  return columns[:size].reshape((size, width))


def _halves(columns: Array, length: int) -> tuple[Array, Array]:
  """Splits runs of this length: [n / length, length / 2, r] twice."""
  runs = columns.reshape((-1, 2, length // 2, columns.shape[1]))
  return runs[:, 0], runs[:, 1]


def _joined(low: Array, high: Array, size: int) -> Array:
  """Joins halves of runs back to columns [size, r]."""
  return jnp.stack([low, high], 1).reshape((size, -1))
