"""Double precision for functions of a room, whatever the caller's mode.

Log-weights reach -10^5, records collide in float32, and noise that separates
ties vanishes there: the laws of this room hold in float64 alone.
"""

from collections.abc import Callable
import functools

import jax
import jax.numpy as jnp

from dpjax.typing import Array, PyTree


def in_float64(function: Callable[..., PyTree]) -> Callable[..., PyTree]:
  """The function, run with 64-bit types.

  Called as it is, it needs nothing. Inside `jit` or `vmap` the outermost call
  decides on precision: `with jax.enable_x64(True):` around that.

  Raises:
    ValueError: when traced without 64-bit types.
  """
  @functools.wraps(function)
  def run(*args, **kwargs):
    if jax.config.read('jax_enable_x64'):
      return function(*args, **kwargs)
    leaves = jax.tree.leaves((args, kwargs))
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
      raise ValueError('this is computed in float64: put `with '
                       'jax.enable_x64(True):` around the outermost jit or '
                       'vmap')
    with jax.enable_x64(True):
      return function(*args, **kwargs)
  return run


def double(values: Array) -> Array:
  """As float64; under `in_float64` only."""
  return jnp.asarray(values, jnp.float64)
