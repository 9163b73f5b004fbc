"""Weights that bound per-record contributions (DP-16)."""

from collections.abc import Sequence
import math

import jax.numpy as jnp

from dpjax import errors
from dpjax.typing import Array

# Norms and products in float32 err by a few parts in 10^6; aiming this much
# below the bound keeps the claimed bound true.
ROUNDING_MARGIN = 1e-5

# Squares of components below 1e-19 vanish in float32. A norm is too small by
# at most sqrt(d) times that, which this exceeds for any d in use.
_SMALLEST_STABILIZER = 1e-12


def flat_weights(norms: Array, *, clip_norm: float) -> Array:
  """min(1, clip_norm / norm) for each record, 0 where the norm is not finite.

  Clipping, not normalisation: a shorter contribution is left alone (DP-16,
  erratum E21).

  Args:
    norms: [b] l2 norms of the contributions to one block.
    clip_norm: the bound that each weighted contribution keeps.
  """
  target = clip_norm * (1 - ROUNDING_MARGIN)
  # A norm of zero needs no weight; the maximum only avoids dividing by it.
  weights = jnp.minimum(1.0, target / jnp.maximum(norms, target))
  return jnp.where(jnp.isfinite(norms), weights, 0.0)


def normalizing_weights(norms: Array, *, clip_norm: float,
                        stabilizer: float) -> Array:
  """clip_norm / (norm + stabilizer), 0 where the norm is not finite.

  Every contribution ends shorter than `clip_norm`, a zero one stays zero.
  Automatic clipping of Bu et al. 2023 (NeurIPS), whose AUTO-S has clip_norm 1
  and stabilizer 0.01. Stabilizer 0 is thesis 003, Algorithm 7, line 11 as
  printed, C g / ||g||: all that is shorter than C is lengthened to it, which
  has other fixed points than clipping (DP-16, BIAS-01, erratum E21).

  Args:
    norms: [b] l2 norms of the contributions to one block.
    clip_norm: the bound that each weighted contribution keeps, a public scale.
    stabilizer: public, >= 0. Raised to 1e-12 where smaller: below, squares
      underflow and a computed norm is no upper bound of the true one.
  """
  target = clip_norm * (1 - ROUNDING_MARGIN)
  weights = target / (norms + max(stabilizer, _SMALLEST_STABILIZER))
  return jnp.where(jnp.isfinite(norms), weights, 0.0)


def per_layer(names: Sequence[str], *, clip_norm: float) -> dict[str, float]:
  """Equal clip norms C_k of layers whose joint bound is `clip_norm`.

  One record's whole contribution has norm at most sqrt(sum_k C_k^2) (DP-16).

  Args:
    names: top-level keys of the parameters.
    clip_norm: bound over all layers.
  """
  errors.check_scale('clip_norm', clip_norm)
  return {name: clip_norm / math.sqrt(len(names)) for name in names}
