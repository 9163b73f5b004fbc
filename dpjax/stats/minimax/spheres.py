"""A point of a sphere, uniformly drawn: how well a private release can tell it.

b records are one point theta of a sphere of radius R in R^d, all others are the
same in all data sets, so that data sets are b records from one whose release M
has a law Q that does not know theta. Two bounds of E |M - theta|^2, R = 1:

* A ball of radius t < 1 cuts a cap of half-angle arcsin t, of share s(t) of the
  sphere, at most. Hence P(|M - theta| <= t) <= e^(epsilon b) s(t) + delta_b for
  (epsilon, delta)-DP, and the square is the integral of 2 t P(|M - theta| > t).
* The divergence I_b of laws b records apart bounds what M tells about theta, so
  by Donsker's and Varadhan's formula for all lambda > 0

    lambda E |M - theta|^2 >= - I_b - ln max_z E e^(-lambda |theta - z|^2).

  I_b is epsilon b tanh(epsilon b / 2), or rho b^2.

Packings, as those of paper 004, Theorem 3 (spec LB-10, LB-14), are points of
the same sphere: of squared errors they lose a quarter by the half-distance, and
what the probability of an error is short of 1. Source: ours.
"""

import functools
import math

import numpy as np
from scipy import special

from dpjax import errors
from dpjax.privacy import notions
from dpjax.stats.minimax.bounds import Guarantee

_ANGLES, _SLOPES = 801, 160


def share(distance: np.ndarray | int, guarantee: Guarantee, *, dimension: int
          ) -> np.ndarray:
  """E |M - theta|^2 / R^2 at least, for b records.

  0 for total variation and Kullback-Leibler privacy, which say nothing of data
  sets far apart but by total variation: two points say more.

  Args:
    distance: b >= 0, [m] or a number.
    guarantee: of the release.
    dimension: d.
  """
  errors.check_at_least('dimension', dimension, 1)
  b = np.asarray(distance, np.float64)
  match guarantee:
    case notions.PureDP(epsilon=epsilon):
      return np.maximum(
          caps(np.minimum(epsilon * b, 700.0), dimension=dimension),
          information(epsilon * b * np.tanh(epsilon * b / 2),
                      dimension=dimension))
    case notions.ApproxDP(epsilon=epsilon, delta=delta):
      log_ratio = np.minimum(epsilon * b, 700.0)
      lost = delta * (np.expm1(log_ratio) / math.expm1(min(epsilon, 700.0))
                      if epsilon else b)
      left = np.maximum(1e-300, 1 - lost)
      return left * caps(log_ratio - np.log(left), dimension=dimension)
    case notions.ZCDP(rho=rho):
      return information(rho * b**2, dimension=dimension)
    case _:
      return np.zeros(b.shape)


def caps(log_ratio: np.ndarray, *, dimension: int) -> np.ndarray:
  """The integral of 2 t (1 - e^x s(t))_+ over t in (0, 1), x >= 0.

  s(t) is half of the distribution function of a Beta((d - 1) / 2, 1 / 2) law at
  t^2; two points for d = 1.
  """
  growth = np.exp(np.minimum(log_ratio, 700.0)) / 2
  if dimension == 1:
    return np.maximum(0.0, 1 - growth)
  half = (dimension - 1) / 2
  top = np.where(growth > 1, special.betaincinv(
      half, 0.5, np.minimum(1.0, 1 / growth)), 1.0)
  inside = growth * (dimension - 1) / dimension * special.betainc(
      half + 1, 0.5, top)
  return np.maximum(0.0, inside + top * (
      1 - growth * special.betainc(half, 0.5, top)))


def information(nats: np.ndarray, *, dimension: int) -> np.ndarray:
  """The largest of (-I - ln Z(lambda)) / lambda over a grid, and 0."""
  slopes, logs = _exponents(dimension)
  nats = np.asarray(nats, np.float64)
  # Tangents of a convex function, from left to right: each bounds, and is the
  # largest between its crossings with the two beside it.
  heights = -logs / slopes
  crossings = np.diff(heights) / np.diff(1 / slopes)
  line = np.searchsorted(np.maximum.accumulate(crossings), nats)
  return np.maximum(0.0, heights[line] - nats / slopes[line])


@functools.lru_cache(maxsize=64)
def _exponents(dimension: int) -> tuple[np.ndarray, np.ndarray]:
  """lambda [L], and ln Z = ln max_z E e^(-lambda |theta - z|^2) [L].

  With z of norm s it is -lambda (1 + s^2) + ln E e^(2 lambda s u), u one
  coordinate of theta: largest at the only s with s = E u e^(..) / E e^(..),
  which is 0 up to lambda = d / 2.
  """
  if dimension == 1:
    u, weights = np.array([1.0, -1.0]), np.zeros(2)
  else:
    angles = (np.arange(_ANGLES) + 0.5) * np.pi / _ANGLES
    u, weights = np.cos(angles), (dimension - 2) * np.log(np.sin(angles))
  weights = weights - special.logsumexp(weights)
  slopes = dimension * np.geomspace(1e-3, 1e4, _SLOPES)
  low, high = np.zeros(_SLOPES), np.ones(_SLOPES)
  for _ in range(50):
    middle = (low + high) / 2
    tilted = 2 * (slopes * middle)[:, None] * u + weights
    tilted = np.exp(tilted - tilted.max(1, keepdims=True))
    below = tilted @ u > middle * tilted.sum(1)
    low, high = np.where(below, middle, low), np.where(below, high, middle)
  size = np.where(slopes > dimension / 2, high, 0.0)
  logs = special.logsumexp(2 * (slopes * size)[:, None] * u + weights, axis=1)
  return slopes, logs - slopes * (1 + size**2)
