"""Shrinkage that falls with frequency, from the noisy coefficients alone.

lambda_k = what a non-increasing sequence in [0, 1] fits best of 1 - c v_k /
|y_k|^2 by weights |y_k|^2, where v_k is the variance of y_k: the estimated risk
with its noise counted c times. c = 1 is unbiased and fits noise, c = 2 does
not (item DEN-B5). Post-processing. No JAX: releases in plain Python use this;
`pooling` has the same for compiled programs.
"""

import numpy as np
from scipy import optimize

PENALTY = 2.0


def factors(coefficients: np.ndarray, variances: np.ndarray,
            penalty: float = PENALTY) -> np.ndarray:
  """lambda [K] of coefficients [K], real or complex.

  Args:
    coefficients: y.
    variances: E |y_k - E y_k|^2, [K], positive.
    penalty: c.
  """
  # A weight of 0 has no value of its own, and yet a cost.
  weights = np.maximum(np.abs(coefficients)**2, 1e-12 * variances)
  found = optimize.isotonic_regression(
      1 - penalty * variances / weights, weights=weights, increasing=False).x
  return np.clip(found, 0.0, 1.0)
