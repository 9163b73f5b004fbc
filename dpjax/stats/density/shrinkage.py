"""Shrinkage that falls with frequency, from the noisy coefficients alone.

lambda_k = what a non-increasing sequence in [0, 1] fits best of 1 - c v_k /
|y_k|^2 by weights |y_k|^2, where v_k is the variance of y_k: the estimated risk
with its noise counted c times. c = 1 is unbiased and fits noise, c = 2 does
not (spec DEN-B5). Post-processing.
"""

import jax
import jax.numpy as jnp

from dpjax.typing import Array

PENALTY = 2.0


def factors(coefficients: Array, variances: Array,
            penalty: Array | float = PENALTY) -> Array:
  """lambda [K] of coefficients [K], real or complex; jittable, O(K^2).

  Of the values up to j the last is fitted by the least mean of those from i to
  j; what pooling does to it afterwards is to raise it to the largest of those
  that follow.

  Args:
    coefficients: y.
    variances: E |y_k - E y_k|^2, [K].
    penalty: c.
  """
  weights = jnp.square(jnp.abs(coefficients))
  # Sums, not means: nothing is divided by a single weight, which may be 0.
  tops = jnp.cumsum(weights - penalty * variances)
  sums = jnp.cumsum(weights)
  zero = jnp.zeros([1], sums.dtype)
  before_tops = jnp.concatenate([zero, tops[:-1]])
  before_sums = jnp.concatenate([zero, sums[:-1]])
  places = jnp.arange(weights.size)
  tiny = jnp.finfo(sums.dtype).tiny
  means = (tops[:, None] - before_tops[None, :]) / jnp.maximum(
      sums[:, None] - before_sums[None, :], tiny)
  last = jnp.min(jnp.where(places[None, :] <= places[:, None], means, jnp.inf),
                 1)
  return jnp.clip(jax.lax.cummax(last, reverse=True), 0.0, 1.0)
