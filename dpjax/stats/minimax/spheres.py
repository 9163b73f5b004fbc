"""A point of a sphere, uniformly drawn: how well a private release can tell it.

b records are one point theta of a sphere of radius R in R^d, all others are the
same in all data sets, so that data sets are b records from one whose release M
has a law Q that does not know theta. Two bounds of E |M - theta|^2, R = 1:

* Under (epsilon, delta)-DP all but delta_b of the law of M is E Q at most, E =
  e^(epsilon b). Averaged over rotations Q is invariant, and M at distance s
  from 0 is best in a cap around theta of share q, its own density over E times
  that of Q: the square is 1 + s^2 - 2 s A(q), A the mean cosine in a cap, or
  1 - A(q)^2 for the best s. Over all ways to choose s the least is E f(1 / E),
  f the convex hull of q (1 - A(q)^2), which is straight from 1/2 to 1: what
  this constraint leaves, exactly.
* The divergence I_b of laws b records apart bounds what M tells about theta, so
  by Donsker's and Varadhan's formula for all lambda > 0

    lambda E |M - theta|^2 >= - I_b - ln max_z E e^(-lambda |theta - z|^2).

  I_b is epsilon b tanh(epsilon b / 2), or rho b^2.

Packings, as those of paper 004, Theorem 3 (item LB-10, LB-14), are points of
the same sphere, and lose three quarters of a square by their half-distance and
more by errors that are not sure. Source: ours.
"""

import functools
import math

import numpy as np
from scipy import special

from dpjax import errors
from dpjax.privacy import notions
from dpjax.stats.minimax.bounds import Guarantee

_ANGLES, _SLOPES = 801, 160
# Logarithm of a ratio beyond which shares of caps are too small for floats.
_LARGEST = 300.0


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
          caps(epsilon * b, dimension=dimension),
          information(epsilon * b * np.tanh(epsilon * b / 2),
                      dimension=dimension))
    case notions.ApproxDP(epsilon=epsilon, delta=delta):
      lost = delta * (np.expm1(np.minimum(epsilon * b, 700.0))
                      / math.expm1(min(epsilon, 700.0)) if epsilon else b)
      left = np.maximum(1e-300, 1 - lost)
      return left * caps(epsilon * b - np.log(left), dimension=dimension)
    case notions.ZCDP(rho=rho):
      return information(rho * b**2, dimension=dimension)
    case _:
      return np.zeros(b.shape)


def caps(log_ratio: np.ndarray, *, dimension: int) -> np.ndarray:
  """The least square of M of a law e^x Q at most, Q not knowing theta.

  Args:
    log_ratio: x >= 0.
    dimension: d.
  """
  log_ratio = np.asarray(log_ratio, np.float64)
  growth = np.exp(np.minimum(log_ratio, _LARGEST))
  half = 1 + _cosine(np.float64(0.5), dimension)**2
  small = 1 - _cosine(np.minimum(0.5, 1 / growth), dimension)**2
  return np.maximum(0.0, np.where(
      growth < 2, growth - half * (growth - 1), np.where(
          log_ratio < _LARGEST, small, _tiny(log_ratio, dimension))))


def _tiny(log_ratio: np.ndarray, dimension: int) -> np.ndarray:
  """1 - A(q)^2 at least, for q = e^-x beyond the range of floats.

  With h = (d - 1) / 2 and z the squared sine of the cap's half-angle, 2 q is
  the integral of t^(h - 1) (1 - t)^(-1/2) / B(h, 1/2) up to z, so z^h lies
  between 2 q h B sqrt(1 - z) and 2 q h B; A is 1 over the mean of (1 -
  t)^(-1/2), at most sqrt(1 - z (d - 1) / (d + 1)) by Jensen's inequality.
  """
  if dimension == 1:
    return np.zeros(log_ratio.shape)
  half = (dimension - 1) / 2
  logs = (math.log(2 * half) + special.betaln(half, 0.5)
          - np.maximum(log_ratio, _LARGEST))
  most = np.exp(logs / half)
  least = np.exp((logs + np.log1p(-most) / 2) / half)
  return least * (dimension - 1) / (dimension + 1)


def _cosine(part: np.ndarray, dimension: int) -> np.ndarray:
  """A(q): the mean cosine in a cap of share q in (0, 1/2]."""
  if dimension == 1:
    return np.ones(part.shape)
  half = (dimension - 1) / 2
  logs = half * np.log(special.betaincinv(half, 0.5, 2 * part))
  return np.exp(logs - special.betaln(half, 0.5)) / (2 * half * part)


def information(nats: np.ndarray, *, dimension: int) -> np.ndarray:
  """The largest of (-I - ln Z(lambda)) / lambda over a grid, and 0."""
  slopes, logs = _exponents(dimension)
  nats = np.asarray(nats, np.float64)
  # Tangents of a convex function, from left to right: each bounds, and is the
  # largest between its crossings with the two beside it.
  heights = -logs / slopes
  crossings = np.diff(heights) / np.diff(1 / slopes)
  line = np.searchsorted(np.maximum.accumulate(crossings), nats)
  return np.clip(heights[line] - nats / slopes[line], 0.0, 1.0)


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
