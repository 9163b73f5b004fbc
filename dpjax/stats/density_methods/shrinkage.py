"""Shrinkage that grows with frequency, from the noisy coefficients alone.

lambda is the non-increasing sequence in [0, 1] that best fits 1 - c v_k /
|y_k|^2 with weights |y_k|^2, where v_k is the variance of y_k. It minimises the
estimated risk with the noise counted c times: c = 1 is unbiased but fits noise,
c = 2 does not (item DEN-B5). Post-processing. No JAX: releases in plain Python
use this; `pooling` is the same for compiled programs.
"""

import numpy as np
from scipy import optimize

PENALTY = 2.0


def factors(coefficients: np.ndarray, variances: np.ndarray,
            penalty: float = PENALTY) -> np.ndarray:
  """Returns lambda [K] for coefficients [K], real or complex.

  Args:
    coefficients: y.
    variances: E |y_k - E y_k|^2, [K], positive.
    penalty: c.
  """
  # A coefficient of 0 must still pull its factor down, so its weight stays
  # positive.
  weights = np.maximum(np.abs(coefficients)**2, 1e-12 * variances)
  fit = optimize.isotonic_regression(
      1 - penalty * variances / weights, weights=weights, increasing=False).x
  return np.clip(fit, 0.0, 1.0)
