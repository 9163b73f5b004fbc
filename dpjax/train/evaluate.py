"""How good a trained model is, on records it was not trained on."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from dpjax.typing import Array, Batch, Params


# Records whose activations are held at once.
_PART = 500


def accuracy(apply: Callable[[Params, Array], Array], params: Params,
             records: Batch, rows: Array) -> Array:
  """Share of `rows` whose label has the largest logit.

  Exact, so private if the rows are: fine for a held-out set that is not
  protected, never to be released for the training set.

  Args:
    apply: (params, x) -> logits.
    params: one model's parameters.
    records: all records.
    rows: [m] numbers of the records to look at.
  """
  hit = jax.lax.map(
      lambda row: jnp.argmax(apply(params, jax.tree.map(
          lambda leaf: leaf[row][None], records.x))[0], -1)
      == records.y[row], rows, batch_size=_PART)
  return jnp.mean(hit, dtype=jnp.float32)


def accuracies(apply: Callable[[Params, Array], Array], params: Params,
               records: Batch, rows: Array) -> Array:
  """`accuracy` of many models [L] at once, each on its own rows [L, m]."""
  return jax.jit(jax.vmap(lambda p, r: accuracy(apply, p, records, r)))(
      params, rows)
