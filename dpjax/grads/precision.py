"""Networks in fewer bits, parameters and all that is summed in float32."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.typing import Array, Params, PyTree

COMPUTE_DTYPES = ('float32', 'bfloat16')
"""What networks can be computed in; gradients underflow in float16."""


def computed_in(apply: Callable[[Params, PyTree], Array],
                compute_dtype: str) -> Callable[[Params, PyTree], Array]:
  """`apply` with its forward and backward pass in another type.

  Floating parameters and features are rounded to it, logits are float32 again,
  and so are gradients, which are those in the rounded parameters. Bounders
  measure and sum these in float32: a record contributes at most the clip norm
  in any type, and nothing if it overflows.

  Args:
    apply: (params, x [b, ...]) -> logits [b, c]; of any type.
    compute_dtype: one of `COMPUTE_DTYPES`; for 'float32' it is `apply` itself.
  """
  errors.check_choice('compute_dtype', compute_dtype, COMPUTE_DTYPES)
  if compute_dtype == 'float32':
    return apply

  def rounded(leaf: Array) -> Array:
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
      return leaf
    return leaf.astype(compute_dtype)

  def computed(params: Params, x: PyTree) -> Array:
    # Gradients come back through the same barrier.
    params = settled(jax.tree.map(rounded, params))
    return apply(params, jax.tree.map(rounded, x)).astype(jnp.float32)

  return computed


def is_short(x: Array) -> bool:
  """Whether this is of a floating type of fewer bits than float32."""
  return (jnp.issubdtype(x.dtype, jnp.floating)
          and jnp.finfo(x.dtype).bits < 32)


def widened(x: Array) -> Array:
  """In float32, if it is of fewer bits."""
  return x.astype(jnp.float32) if is_short(x) else x


def settled(values: PyTree) -> PyTree:
  """The same; numbers of few bits are the same for all who read them.

  A compiler may leave the rounding out for one reader and not for another, and
  then what is measured is not what is summed.
  """
  return jax.tree.map(
      lambda x: jax.lax.optimization_barrier(x) if is_short(x) else x, values)
