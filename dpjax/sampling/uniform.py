"""Uniform integers and uniform subsets, without bias, from random words."""

import jax
import jax.numpy as jnp

from dpjax.privacy import additive
from dpjax.typing import Array, PRNGKey


def uniform_integers(key: PRNGKey, size: int, bound: int) -> Array:
  """Draws uniform integers from 0 to bound - 1, exactly; int32 [size].

  A word modulo the bound favours small results, unless the largest words are
  drawn again.

  Args:
    key: used for nothing else.
    size: number of integers.
    bound: from 1 to 2^31 - 1, static.
  """
  rejected = 2**32 % bound

  def words(attempt: Array | int) -> Array:
    return additive.random_words(jax.random.fold_in(key, attempt), (size,))

  drawn = words(0)
  if rejected:
    first_rejected = jnp.uint32(2**32 - rejected)

    def again(carry: tuple[Array, Array]) -> tuple[Array, Array]:
      attempt, drawn = carry
      return attempt + 1, jnp.where(drawn < first_rejected, drawn,
                                    words(attempt))

    drawn = jax.lax.while_loop(
        lambda carry: jnp.any(carry[1] >= first_rejected), again,
        (jnp.int32(1), drawn))[1]
  return (drawn % jnp.uint32(bound)).astype(jnp.int32)


def uniform_subset(key: PRNGKey, size: int, count: int) -> Array:
  """Draws a uniform subset of `count` of `size` places; bool [size].

  Places get two words each, and the places of the smallest pairs are chosen. If
  no two pairs are equal, all orders are equally likely; otherwise all pairs are
  drawn again, with probability below size^2 / 2^65. So the subset is exactly
  uniform.

  Args:
    key: used for nothing else.
    size: number of places.
    count: size of the subset, from 1 to `size`, static.
  """

  def ranked(attempt: Array | int) -> tuple[Array, Array]:
    high, low = additive.random_words(jax.random.fold_in(key, attempt),
                                      (2, size))
    high, low, places = jax.lax.sort(
        (high, low, jnp.arange(size, dtype=jnp.int32)), num_keys=2)
    equal = jnp.any((high[1:] == high[:-1]) & (low[1:] == low[:-1]))
    return equal, places

  def again(carry: tuple[Array, tuple[Array, Array]]
            ) -> tuple[Array, tuple[Array, Array]]:
    return carry[0] + 1, ranked(carry[0])

  places = jax.lax.while_loop(lambda carry: carry[1][0], again,
                              (jnp.int32(1), ranked(0)))[1][1]
  return jnp.zeros([size], jnp.bool_).at[places[:count]].set(
      True, unique_indices=True)
