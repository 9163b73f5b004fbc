"""Inverts noisy distribution functions to quantiles.

Curves are known at the edges of a public grid and are linear between them;
noise makes them fall in places. Source: Lalanne (2023, section 6.2.3) (item
QF-17); Barlow et al. 1972 for isotonic regression.
"""

import jax
import jax.numpy as jnp

from dpjax.typing import Array


def inverse(curve: Array, edges: Array, probs: Array) -> Array:
  """Returns inf{q: F(q) >= p} [m] of a piecewise linear F, monotone or not.

  Where F stays below p the answer is the last edge.

  Args:
    curve: F at the edges, [N + 1].
    edges: [N + 1], increasing.
    probs: quantile levels p, [m].
  """
  # The first edge where F reaches p; left of it F is below p.
  first = jnp.searchsorted(jax.lax.cummax(curve), probs, side='left')
  right = jnp.clip(first, 1, curve.size - 1)
  low, high = curve[right - 1], curve[right]
  start, end = edges[right - 1], edges[right]
  fraction = (probs - low) / jnp.where(high > low, high - low, 1.0)
  quantiles = jnp.clip(start + fraction * (end - start), start, end)
  return jnp.where(first == 0, edges[0],
                   jnp.where(first == curve.size, edges[-1], quantiles))


def smooth_inverse(curve: Array, edges: Array, probs: Array) -> Array:
  """Inverts a monotone rational quadratic spline through the values.

  Straight lines miss a smooth distribution function by h^2, this spline by h^3
  or less, so that fewer bins, and hence less noise, suffice. Its inverse is in
  closed form. Slopes at edges are harmonic means of those of the bins beside,
  as for monotone cubic splines. Source: Gregory and Delbourgo 1982; Fritsch and
  Butland 1984.

  Args:
    curve: increasing values at the edges, [N + 1], N at least 2.
    edges: [N + 1], evenly spaced.
    probs: quantile levels p, [m].
  """
  rises = jnp.diff(curve)
  before, after = rises[:-1], rises[1:]
  # A bin of rise 0 makes the slopes at both its edges 0.
  inner = 2 * before * after / jnp.where(before + after > 0, before + after,
                                         1.0)
  first, last = (jnp.clip(1.5 * near - 0.5 * far, 0.0, 3 * near)
                 for near, far in ((rises[0], rises[1]),
                                   (rises[-1], rises[-2])))
  slopes = jnp.concatenate([first[None], inner, last[None]])
  right = jnp.clip(jnp.searchsorted(curve, probs, side='left'), 1, rises.size)
  rise, left = rises[right - 1], slopes[right - 1]
  up = jnp.clip(probs - curve[right - 1], 0.0, rise)
  bend = up * (left + slopes[right] - 2 * rise)
  # The root in [0, 1] of a s^2 + b s + c, as -2 c / (b + sqrt(...)): the usual
  # formula would subtract nearly equal numbers.
  a, b, c = rise * (rise - left) + bend, rise * left - bend, -rise * up
  root = b + jnp.sqrt(jnp.maximum(b * b - 4 * a * c, 0.0))
  fraction = jnp.clip(-2 * c / jnp.where(root > 0, root, 1.0), 0.0, 1.0)
  start, end = edges[right - 1], edges[right]
  return jnp.clip(start + fraction * (end - start), start, end)


def isotonic(values: Array) -> Array:
  """Returns the nearest increasing sequence [N] in l2.

  It takes time O(N^2), for N of some thousands. Pooling adjacent violators
  lowers earlier fits to v_j, see `last_fits`, so that the fit at k is the least
  of v_k, ..., v_N.
  """
  return jax.lax.cummin(last_fits(values), reverse=True)


def last_fits(values: Array) -> Array:
  """Returns v [N], where v_j is the isotonic fit at j to the values up to j.

  It is the largest mean of the values from some i to j.
  """
  size = values.size
  sums = jnp.cumsum(values)
  before = jnp.concatenate([jnp.zeros([1], values.dtype), sums[:-1]])
  start, end = jnp.arange(size)[None, :], jnp.arange(size)[:, None]
  means = (sums[:, None] - before[None, :]) / jnp.maximum(
      end - start + 1, 1).astype(values.dtype)
  return jnp.max(jnp.where(start <= end, means, -jnp.inf), 1)


def distribution(ranks: Array, total: Array) -> Array:
  """Returns a distribution function [N + 1] from noisy ranks at edges [N + 1].

  It is the nearest one that increases from 0 to 1: isotonic regression between
  the ends, clipped to [0, 1]. This is post-processing, and never moves away in
  l2 from any distribution function.

  Args:
    ranks: noisy numbers of records up to each edge; the first and last are
      replaced by 0 and `total`.
    total: n, or an estimate of it; positive.
  """
  inner = jnp.clip(isotonic(ranks[1:-1]) / total, 0.0, 1.0)
  return jnp.concatenate([jnp.zeros([1], inner.dtype), inner,
                          jnp.ones([1], inner.dtype)])
