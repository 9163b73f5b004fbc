"""Shrinkage that falls with frequency, from the noisy coefficients alone.

lambda_k = what a non-increasing sequence in [0, 1] fits best of 1 - c v_k /
|y_k|^2 by weights |y_k|^2, where v_k is the variance of y_k: the estimated risk
with its noise counted c times. c = 1 is unbiased and fits noise, c = 2 does
not (spec DEN-B5). Post-processing; of arrays of NumPy or of JAX.
"""

from typing import Any

# Of NumPy or of JAX, which is not imported here.
Array = Any
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
  xp = variances.__array_namespace__()
  weights = xp.square(xp.abs(coefficients))
  # Sums, not means: nothing is divided by a single weight, which may be 0.
  tops = xp.cumsum(weights - penalty * variances)
  sums = xp.cumsum(weights)
  zero = xp.zeros([1], dtype=sums.dtype)
  before_tops = xp.concat([zero, tops[:-1]])
  before_sums = xp.concat([zero, sums[:-1]])
  # A root: quotients by it are finite.
  least = xp.sqrt(xp.finfo(sums.dtype).tiny)
  means = (tops[:, None] - before_tops[None, :]) / xp.maximum(
      sums[:, None] - before_sums[None, :], least)
  until = xp.tri(weights.size, dtype=bool)
  last = xp.min(xp.where(until, means, xp.inf), axis=1)
  found = xp.max(xp.where(until, last[:, None], -xp.inf), axis=0)
  return xp.clip(found, 0.0, 1.0)


def shrunk(coefficients: Array, variances: Array,
           penalty: Array | float = PENALTY) -> Array:
  """Coefficients [K] times `factors`."""
  found = factors(coefficients, variances, penalty)
  return coefficients * found.astype(coefficients.dtype)
