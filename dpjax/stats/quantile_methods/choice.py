"""Draws indices by log-weights in float64, exact in the far tail.

Adding Gumbel noise and taking the largest keeps the relative precision of small
probabilities; cumulative sums and one uniform number would lose it. Two stages,
rows and then places in a row, need 2 sqrt(n) draws instead of n.
"""

import jax
import jax.numpy as jnp

from dpjax.privacy import draws
from dpjax.typing import Array, PRNGKey

# Up to this many weights, one stage is as fast as two.
_DIRECT = 64


def choose(key: PRNGKey, log_weights: Array) -> Array:
  """Draws an index in [0, n) with probability proportional to e^log_weight.

  Args:
    key: random key of the draw.
    log_weights: [n] float64, at least one finite; -inf is never chosen, and a
      weight 45 below the largest is chosen with probability below 3e-20.

  Returns:
    The index, int32 scalar.
  """
  size = log_weights.shape[0]
  if size <= _DIRECT:
    return _largest(key, log_weights)
  # About sqrt(n), so that both stages draw about as many numbers.
  width = 2**((size - 1).bit_length() // 2)
  # Padding has weight 0 and is never chosen.
  rows = jnp.pad(log_weights, (0, -size % width),
                 constant_values=-jnp.inf).reshape(-1, width)
  which, where = jax.random.split(key)
  row = _largest(which, log_sums(rows))
  return row * width + _largest(where, rows[row])


def log_sums(rows: Array) -> Array:
  """Returns log(sum(exp(rows))) over the last axis; -inf if all are -inf."""
  top = jnp.max(rows, -1, keepdims=True)
  # In a row of -inf only, subtracting -inf would give NaN.
  top = jnp.where(jnp.isfinite(top), top, 0.0)
  return jnp.log(jnp.sum(jnp.exp(rows - top), -1)) + top[..., 0]


def _largest(key: PRNGKey, log_weights: Array) -> Array:
  """Draws an index by the Gumbel-max trick."""
  noise = draws.standard_gumbel(key, log_weights.shape, jnp.float64)
  return draws.place_of_largest(log_weights + noise)
