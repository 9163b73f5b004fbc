"""A private mean of numbers in [0, 1], the twin of several faulty ones."""

import jax
import jax.numpy as jnp

from dpjax.typing import Array, PRNGKey


def private(key: PRNGKey, data: Array, epsilon: float) -> Array:
  """Returns an epsilon-DP mean of numbers in [0, 1], whose number is private.

  A record changes the sum and the number by 1 at most, so each of the two noisy
  ones costs epsilon / 2; their quotient costs nothing more.
  """
  sum_key, count_key = jax.random.split(key)
  noise = 2 / epsilon * jax.random.laplace(sum_key)
  total = jnp.sum(data).astype(noise.dtype) + noise
  count = data.shape[0] + 2 / epsilon * jax.random.laplace(count_key)
  return total / jnp.maximum(count, 1.0)
