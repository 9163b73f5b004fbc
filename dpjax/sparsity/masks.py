"""Which parameters of a network may be other than zero."""

import jax
import jax.numpy as jnp

from dpjax.typing import Params, PyTree


def ones_like(params: Params) -> PyTree:
  """The mask that keeps every parameter."""
  return jax.tree.map(lambda leaf: jnp.ones(leaf.shape, bool), params)
