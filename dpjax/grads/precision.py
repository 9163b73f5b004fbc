"""Mixed precision: networks in bfloat16, parameters and sums in float32."""


import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.typing import ApplyFn, Array, Params, PyTree

COMPUTE_DTYPES = ('float32', 'bfloat16')
"""Types that networks can be computed in. In float16 gradients underflow."""


def computed_in(apply: ApplyFn, compute_dtype: str) -> ApplyFn:
  """Returns `apply` with its forward and backward pass in another type.

  Floating-point parameters and features are rounded to that type; logits are
  float32. Gradients are those at the rounded parameters, as float32. Bounders
  measure and sum gradients in float32, so the clip norm bounds the contribution
  of a record whatever the type. A record that overflows contributes zero.

  Args:
    apply: (params, x [b, ...]) -> logits [b, c].
    compute_dtype: one of `COMPUTE_DTYPES`; 'float32' returns `apply` itself.
  """
  errors.check_choice('compute_dtype', compute_dtype, COMPUTE_DTYPES)
  if compute_dtype == 'float32':
    return apply

  def rounded(leaf: Array) -> Array:
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
      return leaf
    return leaf.astype(compute_dtype)

  def computed(params: Params, x: PyTree) -> Array:
    # The barrier of `settled` also holds for the gradients, on their way back.
    params = settled(jax.tree.map(rounded, params))
    return apply(params, jax.tree.map(rounded, x)).astype(jnp.float32)

  return computed


def is_short(x: Array | jax.core.ShapedArray) -> bool:
  """Returns whether x has a floating-point type of fewer than 32 bits."""
  return (jnp.issubdtype(x.dtype, jnp.floating)
          and jnp.finfo(x.dtype).bits < 32)


def widened(x: Array) -> Array:
  """Returns x, as float32 if its type has fewer bits."""
  return x.astype(jnp.float32) if is_short(x) else x


def settled(values: PyTree) -> PyTree:
  """Returns the values, with short types rounded once for all their uses.

  Without the barrier XLA may skip the rounding in one use and not in another.
  The gradient whose norm is measured would then differ from the gradient that
  is summed, and the clip norm would not bound it.
  """
  return jax.tree.map(
      lambda x: jax.lax.optimization_barrier(x) if is_short(x) else x, values)
