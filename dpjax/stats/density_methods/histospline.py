"""The smooth curve with given means over equal bins.

It is the derivative of the cubic spline through the cumulated heights:
quadratic between edges, continuous, with no assumption at the ends ("not a
knot"). It is linear in the heights, so its errors are a quadratic form of
theirs. No JAX: releases in plain Python use this too.
"""

import functools

import numpy as np
from scipy import interpolate

from dpjax import errors


@functools.lru_cache(maxsize=16)
def cumulative(num_bins: int) -> interpolate.CubicSpline:
  """Returns x in [0, 1] -> integrals up to x [..., m] of unit-height curves."""
  errors.check_at_least('num_bins', num_bins, 3)
  edges = np.linspace(0, 1, num_bins + 1)
  steps = np.tri(num_bins + 1, num_bins, -1) / num_bins
  return interpolate.CubicSpline(edges, steps)


def refined(num_bins: int, fine: int) -> np.ndarray:
  """Returns [m, G]; heights times it are means of the curve over G equal bins.
  """
  return fine * np.diff(cumulative(num_bins)(np.linspace(0, 1, fine + 1)),
                        axis=0).T


@functools.lru_cache(maxsize=16)
def gram(num_bins: int) -> np.ndarray:
  """Returns exact integrals [m, m] of products of the curves of unit heights.
  """
  # Three Gauss nodes are exact for products of quadratics.
  nodes, weights = np.polynomial.legendre.leggauss(3)
  inside = (np.arange(num_bins)[:, None] + 0.5 * (nodes + 1)) / num_bins
  values = cumulative(num_bins)(inside.ravel(), 1)
  return (values.T * np.tile(weights, num_bins)) @ values / (2 * num_bins)
