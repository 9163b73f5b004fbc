"""Weights that bound per-record contributions."""

import jax.numpy as jnp

from dpjax.typing import Array

# Norms and products in float32 err by a few parts in 10^6; aiming this much
# below the bound keeps the claimed bound true.
ROUNDING_MARGIN = 1e-5


def flat_weights(norms: Array, *, clip_norm: float) -> Array:
  """min(1, clip_norm / norm) for each record, 0 where the norm is not finite.

  Clipping, not normalisation: a shorter contribution is left alone.

  Args:
    norms: [b] l2 norms of the whole contributions.
    clip_norm: the bound that each weighted contribution keeps.
  """
  target = clip_norm * (1 - ROUNDING_MARGIN)
  # A norm of zero needs no weight; the maximum only avoids dividing by it.
  weights = jnp.minimum(1.0, target / jnp.maximum(norms, target))
  return jnp.where(jnp.isfinite(norms), weights, 0.0)
