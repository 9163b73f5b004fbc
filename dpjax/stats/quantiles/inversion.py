"""From noisy distribution functions back to quantiles.

Curves are known at the edges of a public grid and linear between them; noise
makes them fall in places. Source: thesis 000, section 6.2.3 (spec QF-17);
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


def isotonic(values: Array) -> Array:
  """The nearest increasing sequence [N] in l2; O(N^2), without a loop.

  Of the values up to j the last is fitted by v_j, the largest mean of those
  from i to j. Pooling adjacent violators lowers to v_j what was fitted above
  it, so that the fit is the least of v_k, ..., v_N at k.
  """
  size = values.size
  sums = jnp.cumsum(values)
  before = jnp.concatenate([jnp.zeros([1], values.dtype), sums[:-1]])
  start, end = jnp.arange(size)[None, :], jnp.arange(size)[:, None]
  means = (sums[:, None] - before[None, :]) / jnp.maximum(
      end - start + 1, 1).astype(values.dtype)
  last = jnp.max(jnp.where(start <= end, means, -jnp.inf), 1)
  return jax.lax.cummin(last, reverse=True)


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
