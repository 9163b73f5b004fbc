"""Which parameters of a network may be other than zero."""

import jax
import jax.numpy as jnp
import optax

from dpjax.typing import Params, PyTree


def ones_like(params: Params) -> PyTree:
  """The mask that keeps every parameter."""
  return jax.tree.map(lambda leaf: jnp.ones(leaf.shape, bool), params)


def frozen() -> optax.GradientTransformationExtraArgs:
  """Zeroes the updates of what is masked; the last of a chain."""

  def update(updates, state, params=None, *, mask, **extra):
    del params, extra
    return jax.tree.map(lambda leaf, kept: jnp.where(kept, leaf, 0), updates,
                        mask), state

  return optax.GradientTransformationExtraArgs(lambda _: optax.EmptyState(),
                                               update)
