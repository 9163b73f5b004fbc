"""The factors of `shrinkage`, jittable and in O(K)."""

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from dpjax.stats.density_methods import shrinkage
from dpjax.typing import Array

# Either the number of blocks on a stack with the sums of all blocks, or that
# number with the sums of the block that is being pooled.
_Blocks = tuple[Array, Array, Array]


def factors(coefficients: Array, variances: Array,
            penalty: ArrayLike = shrinkage.PENALTY) -> Array:
  """Returns lambda [K] for coefficients [K]; see `shrinkage.factors`.

  Pool adjacent violators. Values are added one by one to the last of a stack of
  blocks, which is pooled with earlier blocks while its mean is above theirs.
  The last mean after step j is the first fit of the j-th value; later pooling
  raises it to the largest mean that follows. The inner loops read the stack
  without writing it, which keeps them cheap under `vmap`.

  Args:
    coefficients: y.
    variances: E |y_k - E y_k|^2, [K].
    penalty: c.
  """
  weights = jnp.square(jnp.abs(coefficients))
  tops = weights - penalty * variances
  tiny = jnp.finfo(weights.dtype).tiny

  def add(stack: _Blocks, given: tuple[Array, Array]
          ) -> tuple[_Blocks, Array]:
    def above(state: _Blocks) -> Array:
      depth, top, weight = state
      # Means are compared by products, because a weight may be 0.
      return (depth > 0) & (top * below[1][depth - 1]
                            >= below[0][depth - 1] * weight)

    def pool(state: _Blocks) -> _Blocks:
      depth, top, weight = state
      return (depth - 1, top + below[0][depth - 1],
              weight + below[1][depth - 1])

    depth, *below = stack
    depth, top, weight = jax.lax.while_loop(above, pool, (depth, *given))
    return (depth + 1, below[0].at[depth].set(top),
            below[1].at[depth].set(weight)), top / jnp.maximum(weight, tiny)

  start = (jnp.int32(0), jnp.zeros_like(tops), jnp.zeros_like(weights))
  _, last = jax.lax.scan(add, start, (tops, weights))
  return jnp.clip(jax.lax.cummax(last, reverse=True), 0.0, 1.0)


def shrunk(coefficients: Array, variances: Array,
           penalty: ArrayLike = shrinkage.PENALTY) -> Array:
  """Returns coefficients [K] times `factors`."""
  multipliers = factors(coefficients, variances, penalty)
  return coefficients * multipliers.astype(coefficients.dtype)
