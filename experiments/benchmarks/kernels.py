"""What dpjax clips with: the one place that says so."""

from dpjax import tree
from dpjax.grads import per_example
from dpjax.typing import Array, Batch, Params

import jax
import jax.numpy as jnp

clipped = per_example.clipped
"""(apply, loss, *, clip_norm, microbatch_size=None) -> GradientBounder."""


def norms(apply, loss, params: Params, batch: Batch) -> Array:
  """[b] norms of the gradients of all records."""
  _, gradients = per_example.per_example_gradients(apply, loss, params, batch)
  return jnp.sqrt(jax.vmap(tree.squared_norm)(gradients))
