"""The smooth curve whose means over equal bins are given heights.

The derivative of the cubic spline through the cumulated heights: quadratic
between edges, continuous, and nothing is assumed at the ends ("not a knot").
Linear in the heights, so its errors are a quadratic form of theirs. No JAX:
releases in plain Python use this too.
"""

import functools

import numpy as np
from scipy import interpolate

from dpjax import errors


@functools.lru_cache(maxsize=16)
def cumulative(num_bins: int) -> interpolate.CubicSpline:
  """x in [0, 1] -> integrals up to x [..., m] of the curves of unit heights."""
  errors.check_at_least('num_bins', num_bins, 3)
  edges = np.linspace(0, 1, num_bins + 1)
  steps = np.tri(num_bins + 1, num_bins, -1) / num_bins
  return interpolate.CubicSpline(edges, steps)


def refined(num_bins: int, fine: int) -> np.ndarray:
  """[m, G]: heights times this are means of the curve over G equal bins."""
  return fine * np.diff(cumulative(num_bins)(np.linspace(0, 1, fine + 1)),
                        axis=0).T


@functools.lru_cache(maxsize=16)
def gram(num_bins: int) -> np.ndarray:
  """[m, m] integrals of products of curves of unit heights; exact."""
  # Three nodes integrate products of quadratics.
  nodes, weights = np.polynomial.legendre.leggauss(3)
  inside = (np.arange(num_bins)[:, None] + 0.5 * (nodes + 1)) / num_bins
  values = cumulative(num_bins)(inside.ravel(), 1)
  return (values.T * np.tile(weights, num_bins)) @ values / (2 * num_bins)
