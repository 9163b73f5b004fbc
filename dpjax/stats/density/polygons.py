"""Frequency polygons: lines between heights at the middles of equal bins.

Constant left of the first middle and right of the last, so that the integral is
the mean of the heights (Scott 1985; item DEN-B8).
"""

import functools

import numpy as np
from scipy import interpolate

from dpjax.stats.density.laws import Density

# Quadrature: panels in [0, 1], at least, and nodes in each.
_PANELS, _NODES = 512, 4


def middles(num_bins: int) -> np.ndarray:
  """Of equal bins, [m]."""
  return (np.arange(num_bins) + 0.5) / num_bins


@functools.lru_cache(maxsize=16)
def cumulative(num_bins: int) -> interpolate.BSpline:
  """x in [0, 1] -> integrals up to x [..., m] of polygons of unit heights."""
  corners = np.concatenate([[0.0], middles(num_bins), [1.0]])
  values = np.pad(np.eye(num_bins), ((1, 1), (0, 0)), mode='edge')
  return interpolate.make_interp_spline(corners, values, k=1).antiderivative()


def refined(num_bins: int, fine: int) -> np.ndarray:
  """[m, G]: heights times this are means of polygons over G equal bins."""
  return fine * np.diff(cumulative(num_bins)(np.linspace(0, 1, fine + 1)),
                        axis=0).T


def product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
  """Integrals [...] of products of polygons of heights [..., m]."""
  ends = left[..., 0] * right[..., 0] + left[..., -1] * right[..., -1]
  both = (2 * left[..., :-1] * right[..., :-1]
          + 2 * left[..., 1:] * right[..., 1:]
          + left[..., :-1] * right[..., 1:] + left[..., 1:] * right[..., :-1])
  return (ends / 2 + np.sum(both, -1) / 6) / left.shape[-1]


@functools.lru_cache(maxsize=128)
def masses(density: Density, num_bins: int) -> np.ndarray:
  """Integrals [m] of f times polygons of unit heights."""
  if num_bins == 1:
    return np.ones(1)
  # By parts, for a distribution function has no jumps; edges of bins are
  # between panels.
  panels = 2 * -(-_PANELS // (2 * num_bins))
  nodes, weights = np.polynomial.legendre.leggauss(_NODES)
  count = (num_bins - 1) * panels
  x = (np.arange(count)[:, None] + (nodes + 1) / 2) / (num_bins * panels) + (
      0.5 / num_bins)
  pieces = np.mean((density.cdf(x) @ weights / 2).reshape(-1, panels), -1)
  return np.diff(np.concatenate([[0.0], pieces, [1.0]]))


def squared_errors(heights: np.ndarray, density: Density) -> np.ndarray:
  """Integrals of (polygon - f)^2 of heights [..., m], shape [...]."""
  found = np.asarray(heights)
  return np.maximum(product(found, found) + density.square
                    - 2 * found @ masses(density, found.shape[-1]), 0.0)
