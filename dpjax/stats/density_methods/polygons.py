"""Frequency polygons: lines between heights at the middles of equal bins.

They are constant left of the first middle and right of the last, so the
integral is the mean of the heights (Scott 1985; item DEN-B8).
"""

import functools

import numpy as np
from scipy import interpolate

from dpjax.stats.density_methods.densities import Density

# Quadrature: the least number of panels in [0, 1], and nodes in each.
_PANELS, _NODES = 512, 4


def middles(num_bins: int) -> np.ndarray:
  """Returns the middles of equal bins, [m]."""
  return (np.arange(num_bins) + 0.5) / num_bins


@functools.lru_cache(maxsize=16)
def cumulative(num_bins: int) -> interpolate.BSpline:
  """Returns x in [0, 1] -> integrals up to x [..., m] of unit polygons."""
  corners = np.concatenate([[0.0], middles(num_bins), [1.0]])
  values = np.pad(np.eye(num_bins), ((1, 1), (0, 0)), mode='edge')
  return interpolate.make_interp_spline(corners, values, k=1).antiderivative()


def refined(num_bins: int, fine: int) -> np.ndarray:
  """Returns [m, G]; heights times it are means of polygons over G equal bins.
  """
  return fine * np.diff(cumulative(num_bins)(np.linspace(0, 1, fine + 1)),
                        axis=0).T


def product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
  """Returns integrals [...] of products of polygons of heights [..., m]."""
  # Half a bin at each end is constant; between middles the product of two
  # straight lines integrates by Simpson's rule.
  ends = left[..., 0] * right[..., 0] + left[..., -1] * right[..., -1]
  both = (2 * left[..., :-1] * right[..., :-1]
          + 2 * left[..., 1:] * right[..., 1:]
          + left[..., :-1] * right[..., 1:] + left[..., 1:] * right[..., :-1])
  return (ends / 2 + np.sum(both, -1) / 6) / left.shape[-1]


@functools.lru_cache(maxsize=128)
def masses(density: Density, num_bins: int) -> np.ndarray:
  """Returns integrals [m] of f times the polygons of unit heights."""
  if num_bins == 1:
    return np.ones(1)
  # Integration by parts, because a distribution function has no jumps; bin
  # edges lie between panels.
  panels = 2 * -(-_PANELS // (2 * num_bins))
  nodes, weights = np.polynomial.legendre.leggauss(_NODES)
  count = (num_bins - 1) * panels
  x = (np.arange(count)[:, None] + (nodes + 1) / 2) / (num_bins * panels) + (
      0.5 / num_bins)
  integrals = np.mean((density.cdf(x) @ weights / 2).reshape(-1, panels), -1)
  return np.diff(np.concatenate([[0.0], integrals, [1.0]]))


def squared_errors(heights: np.ndarray, density: Density) -> np.ndarray:
  """Returns integrals of (polygon - f)^2 for heights [..., m], shape [...]."""
  values = np.asarray(heights)
  return np.maximum(product(values, values) + density.square
                    - 2 * values @ masses(density, values.shape[-1]), 0.0)
