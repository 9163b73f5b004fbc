"""The smooth curve whose means over equal bins are given heights.

The derivative of the cubic spline through the cumulated heights: quadratic
between edges, continuous, and nothing is assumed at the ends ("not a knot").
Linear in the heights, so its errors are a quadratic form of theirs.
"""

import functools
from typing import NamedTuple

import numpy as np
from scipy import interpolate

from dpjax import errors
from dpjax.stats.density.laws import Density

_FINE = 2**13


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


class Truth(NamedTuple):
  """A density next to the curve of its own means.

  Attributes:
    heights: exact means of bins, [m].
    slope: [m] integrals of curves of unit heights times what that curve is off.
    bias: integral of the square of what it is off.
  """
  heights: np.ndarray
  slope: np.ndarray
  bias: float


@functools.lru_cache(maxsize=128)
def truth(density: Density, num_bins: int) -> Truth:
  """Of so many bins; off by what bends within a part of 2^-13 of them."""
  fine = num_bins * -(-_FINE // num_bins)
  heights = num_bins * density.masses(num_bins)
  parts, masses = refined(num_bins, fine), density.masses(fine)
  off = heights @ parts - fine * masses
  within = max(density.square - fine * float(np.sum(masses**2)), 0.0)
  return Truth(heights, parts @ off / fine, float(np.mean(off**2)) + within)


def squared_errors(heights: np.ndarray, density: Density) -> np.ndarray:
  """Integrals of (curve - f)^2 of heights [..., m], shape [...]."""
  found = np.asarray(heights)
  known = truth(density, found.shape[-1])
  off = found - known.heights
  return (np.sum((off @ gram(found.shape[-1])) * off, -1)
          + 2 * off @ known.slope + known.bias)
