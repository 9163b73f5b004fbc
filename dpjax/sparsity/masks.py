"""Which parameters of a network may be other than zero.

A mask is a pytree of booleans, of the structure and shapes of the parameters:
True where a parameter is free. It is an argument of compiled programs and no
constant of theirs, so that one program serves all masks.
"""

import jax
import jax.numpy as jnp
import optax

from dpjax import tree
from dpjax.typing import Array, Params, PyTree


def ones_like(params: Params) -> PyTree:
  """The mask that keeps every parameter."""
  return jax.tree.map(lambda leaf: jnp.ones(leaf.shape, bool), params)


def check(params: Params, mask: PyTree) -> None:
  """Refuses a mask that is no mask of these parameters.

  Raises:
    ValueError: structures or shapes differ, or a leaf is not boolean.
  """
  if jax.tree.structure(params) != jax.tree.structure(mask):
    raise ValueError('a mask must have the structure of the parameters')
  for leaf, kept in zip(jax.tree.leaves(params), jax.tree.leaves(mask),
                        strict=True):
    if kept.dtype != bool or kept.shape != leaf.shape:
      raise ValueError(f'a mask of parameters of shape {leaf.shape} must be '
                       f'bool of this shape, got {kept.dtype} {kept.shape}')


def apply(params: Params, mask: PyTree) -> Params:
  """Exact zeros (never -0 or NaN) where the mask is False.

  Raises:
    ValueError: it is no mask of these parameters.
  """
  check(params, mask)
  return jax.tree.map(
      lambda leaf, kept: jnp.where(kept, leaf, jnp.zeros_like(leaf)),
      params, mask)


def count(mask: PyTree) -> Array:
  """Number of parameters that are kept, int32; of packs use `jax.vmap`."""
  return sum((jnp.sum(leaf, dtype=jnp.int32) for leaf in jax.tree.leaves(mask)),
             start=jnp.int32(0))


def fraction(mask: PyTree) -> Array:
  """Kept parameters over all of them, a float32 scalar.

  Biases and normalisations count on both sides; thesis 000, Table 1.1 leaves
  them out (MIA-06, M-E04).
  """
  return count(mask).astype(jnp.float32) / tree.count(mask)


def nested(inner: PyTree, outer: PyTree) -> Array:
  """Whether all that `inner` keeps is kept by `outer`, a boolean scalar."""
  within = jax.tree.map(lambda a, b: jnp.all(b | ~a), inner, outer)
  return jnp.all(jnp.stack(jax.tree.leaves(within)))


def frozen() -> optax.GradientTransformationExtraArgs:
  """Updates without what is masked; the last transform of a chain.

  Its `update(updates, state, params, mask=mask)` sets updates of masked
  parameters to 0, whatever momentum, weight decay or noise came before. So
  parameters that were masked once at the start (`apply`) stay exactly 0. What
  comes before still sees gradients of masked parameters: a transform that
  looks across parameters, such as clipping by a global norm, wants another
  `frozen` in front of it.

  Returns:
    A transform without state, for `optax.chain`, which hands the mask on.
  """
  def update(updates: PyTree, state: optax.EmptyState, params: Params = None,
             *, mask: PyTree, **extra) -> tuple[PyTree, optax.EmptyState]:
    del params, extra
    return apply(updates, mask), state

  return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)
