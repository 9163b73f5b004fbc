"""Clipping weights, which bound the contributions of records (DP-16)."""

from collections.abc import Sequence
import math

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.typing import Array, Params, PyTree

# Norms and products in float32 err by a few parts in 10^6; aiming this much
# below the bound keeps the claimed bound true.
ROUNDING_MARGIN = 1e-5

# Squares of components below 1e-19 vanish in float32, so a computed norm of d
# components is too small by at most sqrt(d) 1e-19. This is larger for d < 1e14.
_SMALLEST_STABILIZER = 1e-12


def flat_weights(norms: Array, *, clip_norm: Array | float) -> Array:
  """Returns clipping weights [b], min(1, clip_norm / norm) for each record.

  The weight is 0 where the norm is not finite. A contribution shorter than
  `clip_norm` is unchanged: this is clipping, not normalisation (DP-16, erratum
  E21).

  Args:
    norms: [b] l2 norms of the contributions to one block.
    clip_norm: l2 bound on each weighted contribution; public.
  """
  target = clip_norm * (1 - ROUNDING_MARGIN)
  # The maximum avoids dividing by a norm of zero; the weight is then 1.
  weights = jnp.minimum(1.0, target / jnp.maximum(norms, target))
  return jnp.where(jnp.isfinite(norms), weights, 0.0)


def normalizing_weights(norms: Array, *, clip_norm: Array | float,
                        stabilizer: float) -> Array:
  """Returns the weights [b] of automatic clipping, clip_norm / (norm + s).

  s is the stabilizer. The weight is 0 where the norm is not finite. Every
  weighted contribution is shorter than `clip_norm`; a zero one stays zero.

  Source: Bu et al. (2023), whose AUTO-S has clip_norm 1 and stabilizer 0.01.
  Stabilizer 0 is C g / ||g||, Barczewski (2025, Algorithm 7) as printed: it
  lengthens shorter gradients to C, and so has other fixed points than clipping
  (DP-16, BIAS-01, erratum E21).

  Args:
    norms: [b] l2 norms of the contributions to one block.
    clip_norm: l2 bound on each weighted contribution; public.
    stabilizer: s >= 0, public. A value below 1e-12 is raised to 1e-12, because
      smaller components underflow when squared, and the computed norm would
      then not bound the true one.
  """
  target = clip_norm * (1 - ROUNDING_MARGIN)
  weights = target / (norms + max(stabilizer, _SMALLEST_STABILIZER))
  return jnp.where(jnp.isfinite(norms), weights, 0.0)


def per_layer(names: Sequence[str], *, clip_norm: float) -> dict[str, float]:
  """Returns equal clip norms C_k of K layers, clip_norm / sqrt(K) each.

  A record's whole contribution then has an l2 norm of at most
  sqrt(sum_k C_k^2) = clip_norm (DP-16).

  Args:
    names: top-level keys of the parameters, one for each layer.
    clip_norm: l2 bound over all layers together.
  """
  errors.check_scale('clip_norm', clip_norm)
  return {name: clip_norm / math.sqrt(len(names)) for name in names}


def of_layers(params: Params, *, clip_norm: float) -> PyTree:
  """Returns equal clip norms of the layers of any parameters, as `per_layer`.

  A layer is a subtree that holds arrays only and is no part of a larger one, or
  an array beside such subtrees.

  Args:
    params: parameters, arrays or their shapes.
    clip_norm: l2 bound over all layers together.

  Returns:
    A tree prefix of `params` with the clip norm of each layer.

  Examples:
    >>> from dpjax.grads import clipping
    >>> layer = {'kernel': jnp.ones([2, 3]), 'bias': jnp.ones(3)}
    >>> clipping.of_layers({'first': layer, 'last': [layer] * 3}, clip_norm=2.0)
    {'first': 1.0, 'last': [1.0, 1.0, 1.0]}
  """
  errors.check_scale('clip_norm', clip_norm)
  prefix = _layers(params)
  bound = clip_norm / math.sqrt(len(jax.tree.leaves(prefix)))
  return jax.tree.map(lambda _: bound, prefix)


def _layers(params: PyTree) -> PyTree:
  """Returns a tree prefix with a leaf, 0, for each layer."""
  # One level of the tree: whatever is below its root counts as a leaf.
  children, structure = jax.tree.flatten(
      params, is_leaf=lambda node: node is not params)
  if jax.tree_util.all_leaves([child for child in children
                               if jax.tree.leaves(child)]):
    return 0
  return jax.tree.unflatten(structure, [
      # A subtree without arrays stays, so that no layer is empty.
      _layers(child) if jax.tree.leaves(child) else child
      for child in children])
