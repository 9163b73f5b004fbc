"""Masks of network parameters: True where a parameter may be non-zero.

A mask is a pytree of booleans with the structure and shapes of the parameters.
It is an argument of compiled programs, not a constant in them, so that one
program serves all masks.
"""

import jax
import jax.numpy as jnp
import optax

from dpjax import tree
from dpjax.typing import Array, Params, PyTree


def ones_like(params: Params) -> PyTree:
  """Returns the mask that keeps every parameter."""
  return jax.tree.map(lambda leaf: jnp.ones(leaf.shape, bool), params)


def check(params: Params, mask: PyTree) -> None:
  """Checks that a mask fits these parameters, and raises otherwise.

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
  """Returns the parameters with exact zeros where the mask is False.

  The zeros are never -0 or NaN.

  Raises:
    ValueError: the mask does not fit these parameters.
  """
  check(params, mask)
  return jax.tree.map(
      lambda leaf, kept: jnp.where(kept, leaf, jnp.zeros_like(leaf)),
      params, mask)


def count(mask: PyTree) -> Array:
  """Returns the number of kept parameters, int32; for packs use `jax.vmap`."""
  return sum((jnp.sum(leaf, dtype=jnp.int32) for leaf in jax.tree.leaves(mask)),
             start=jnp.int32(0))


def fraction(mask: PyTree) -> Array:
  """Returns the fraction of parameters that are kept, a float32 scalar.

  Biases and normalisations count on both sides; Lalanne (2023, Table 1.1)
  leaves them out (item MIA-06, erratum M-E04).
  """
  return count(mask).astype(jnp.float32) / tree.count(mask)


def nested(inner: PyTree, outer: PyTree) -> Array:
  """Returns whether `outer` keeps every parameter that `inner` keeps."""
  within = jax.tree.map(lambda a, b: jnp.all(b | ~a), inner, outer)
  return jnp.all(jnp.stack(jax.tree.leaves(within)))


def frozen() -> optax.GradientTransformationExtraArgs:
  """Returns an optax transform that sets updates of masked parameters to 0.

  Put it last in a chain: `update(updates, state, params, mask=mask)` removes
  the effects of momentum, weight decay and noise on masked parameters. So
  parameters that were masked once at the start (`apply`) stay exactly 0.
  Earlier transforms still see gradients of masked parameters. A transform that
  combines parameters, such as clipping by a global norm, needs another
  `frozen` before it.

  Returns:
    A transform without state; `optax.chain` passes the mask to it.
  """
  def update(updates: PyTree, state: optax.EmptyState, params: Params = None,
             *, mask: PyTree, **extra) -> tuple[PyTree, optax.EmptyState]:
    del params, extra
    return apply(updates, mask), state

  return optax.GradientTransformationExtraArgs(optax.init_empty_state, update)
