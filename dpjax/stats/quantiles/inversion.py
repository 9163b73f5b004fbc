"""From noisy distribution functions back to quantiles.

Curves are known at the edges of a public grid and linear between them; noise
makes them fall in places. Source: thesis 000, section 6.2.3 (item QF-17);
Barlow et al. 1972 for isotonic regression.
"""

import jax
import jax.numpy as jnp

from dpjax.typing import Array


def inverse(curve: Array, edges: Array, probs: Array) -> Array:
  """inf{q: F(q) >= p} [m] of a piecewise linear F, monotone or not.

  Where F never reaches p it is the last edge.

  Args:
    curve: F at the edges, [N + 1].
    edges: [N + 1], increasing.
    probs: p, [m].
  """
  # The first edge where F reaches p; left of it F is below p.
  first = jnp.searchsorted(jax.lax.cummax(curve), probs, side='left')
  right = jnp.clip(first, 1, curve.size - 1)
  low, high = curve[right - 1], curve[right]
  start, end = edges[right - 1], edges[right]
  share = (probs - low) / jnp.where(high > low, high - low, 1.0)
  found = jnp.clip(start + share * (end - start), start, end)
  return jnp.where(first == 0, edges[0],
                   jnp.where(first == curve.size, edges[-1], found))


def smooth_inverse(curve: Array, edges: Array, probs: Array) -> Array:
  """The same of a monotone rational quadratic spline through the values.

  Straight lines miss a distribution function by h^2, this one by h^3 or less
  where its density is smooth, so that fewer bins, and less noise, do. Its
  inverse is in closed form. Slopes at edges are harmonic means of those of the
  bins beside, as for monotone cubic splines. Source: Gregory and Delbourgo
  1982; Fritsch and Butland 1984.

  Args:
    curve: increasing values at the edges, [N + 1], N at least 2.
    edges: [N + 1], evenly spaced.
    probs: p, [m].
  """
  rises = jnp.diff(curve)
  before, after = rises[:-1], rises[1:]
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
  # The root in [0, 1] of a s^2 + b s + c, without cancellation.
  a, b, c = rise * (rise - left) + bend, rise * left - bend, -rise * up
  root = b + jnp.sqrt(jnp.maximum(b * b - 4 * a * c, 0.0))
  share = jnp.clip(-2 * c / jnp.where(root > 0, root, 1.0), 0.0, 1.0)
  start, end = edges[right - 1], edges[right]
  return jnp.clip(start + share * (end - start), start, end)


def isotonic(values: Array) -> Array:
  """The nearest increasing sequence [N] in l2; O(N^2), for N of some thousands.

  Pooling adjacent violators lowers to v_j, see `last_fits`, what was fitted
  above it, so that the fit is the least of v_k, ..., v_N at k.
  """
  return jax.lax.cummin(last_fits(values), reverse=True)


def last_fits(values: Array) -> Array:
  """v [N]: of the values up to j the last is fitted by v_j, isotonically.

  That is the largest mean of those from some i to j.
  """
  size = values.size
  sums = jnp.cumsum(values)
  before = jnp.concatenate([jnp.zeros([1], values.dtype), sums[:-1]])
  start, end = jnp.arange(size)[None, :], jnp.arange(size)[:, None]
  means = (sums[:, None] - before[None, :]) / jnp.maximum(
      end - start + 1, 1).astype(values.dtype)
  return jnp.max(jnp.where(start <= end, means, -jnp.inf), 1)


def distribution(ranks: Array, total: Array) -> Array:
  """A distribution function [N + 1] from noisy ranks at edges [N + 1].

  The nearest that increases from 0 to 1: what lies between the ends is isotonic
  regression, cut off at the ends. Post-processing, and never farther in l2 from
  any distribution function.

  Args:
    ranks: numbers of records up to each edge; the first and last count as 0
      and `total`.
    total: n, or an estimate, positive.
  """
  inner = jnp.clip(isotonic(ranks[1:-1]) / total, 0.0, 1.0)
  return jnp.concatenate([jnp.zeros([1], inner.dtype), inner,
                          jnp.ones([1], inner.dtype)])
