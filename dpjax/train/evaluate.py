"""Accuracy of trained models on held-out records."""

import jax
import jax.numpy as jnp

from dpjax.typing import ApplyFn, Array, Batch, Params

# Records evaluated at a time, which bounds the memory of activations.
_PART = 500


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
      == records.y[row], rows, batch_size=_PART)
  return jnp.mean(correct, dtype=jnp.float32)


def accuracies(apply: ApplyFn, params: Params, records: Batch, rows: Array
               ) -> Array:
  """Returns the `accuracy` [L] of L models, each on its own rows.

  Args as for `accuracy`, with a leading axis [L] of `params` and `rows`.
  """
  return jax.jit(jax.vmap(lambda p, r: accuracy(apply, p, records, r)))(
      params, rows)
