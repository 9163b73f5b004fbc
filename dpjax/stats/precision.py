"""Runs functions in double precision, whatever mode the caller uses.

The mechanisms of this package need float64: log-weights reach -10^5, distinct
records collide in float32, and the noise that separates ties would be lost in
rounding.
"""

from collections.abc import Callable
import functools
from typing import ParamSpec, TypeVar

import jax
import jax.numpy as jnp

from dpjax.typing import Array, ArrayLike

_Arguments = ParamSpec('_Arguments')
_Result = TypeVar('_Result')


def in_float64(function: Callable[_Arguments, _Result]
               ) -> Callable[_Arguments, _Result]:
  """Returns the function, wrapped so that it runs with 64-bit types.

  A direct call needs nothing else. Inside `jit` or `vmap` the outermost call
  decides the precision: put `with jax.enable_x64(True):` around that.

  Raises:
    ValueError: when traced without 64-bit types.
  """
  @functools.wraps(function)
  def run(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
    if jax.config.read('jax_enable_x64'):
      return function(*args, **kwargs)
    # Tracers of another precision cannot be converted any more.
    leaves = jax.tree.leaves((args, kwargs))
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
      raise ValueError('this is computed in float64: put `with '
                       'jax.enable_x64(True):` around the outermost jit or '
                       'vmap')
    with jax.enable_x64(True):
      return function(*args, **kwargs)
  return run


def double(values: ArrayLike) -> Array:
  """Returns the values as float64; only valid under `in_float64`."""
  return jnp.asarray(values, jnp.float64)
