"""Accuracy of trained models on held-out records."""

from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.train import loading
from dpjax.typing import ApplyFn, Array, Batch, Params

PART = 500
"""Records evaluated at a time, which bounds the memory of activations."""


def accuracy(apply: ApplyFn, params: Params, records: Batch, rows: Array
             ) -> Array:
  """Returns the fraction of the records `rows` that the model classifies right.

  The value is exact (no noise), so it is as private as the records: report it
  for a held-out set that needs no protection, never for the training set.

  Args:
    apply: (params, x [b, ...]) -> logits [b, c].
    params: one model's parameters.
    records: all records.
    rows: [m] numbers of the records to evaluate.

  Returns:
    A float32 scalar in [0, 1].
  """
  correct = jax.lax.map(
      lambda row: jnp.argmax(apply(params, jax.tree.map(
          lambda leaf: leaf[row][None], records.x))[0], -1)
      == records.y[row], rows, batch_size=PART)
  return jnp.mean(correct, dtype=jnp.float32)


def accuracies(apply: ApplyFn, params: Params, records: Batch, rows: Array
               ) -> Array:
  """Returns the `accuracy` [L] of L models, each on its own rows.

  Args as for `accuracy`, with a leading axis [L] of `params` and `rows`.
  """
  # As an argument, so that the program holds no copy of all records.
  return jax.jit(jax.vmap(
      lambda p, r, data: accuracy(apply, p, data, r), (0, 0, None)))(
          params, rows, records)


def accuracy_of_parts(apply: ApplyFn, params: Params,
                      parts: Iterable[Batch]) -> float:
  """Returns the `accuracy` on records that are read part by part.

  Args:
    apply: see `accuracy`.
    params: one model's parameters.
    parts: the records to evaluate, at least one; parts of at most `PART`
      records are compiled once.
  """

  @jax.jit
  def num_correct(params: Params, part: Batch, size: Array) -> Array:
    right = jnp.argmax(apply(params, part.x), -1) == part.y
    return jnp.sum(right & (jnp.arange(len(right)) < size))

  correct = total = 0
  for part in parts:
    size = len(part.y)
    padded = loading.padded(part, max(size, PART))
    correct += int(num_correct(params, padded, np.int32(size)))
    total += size
  # In float32, as in memory.
  return float(np.float32(correct) / np.float32(total))
