"""Lower bounds for estimating a uniformly drawn point of a sphere.

b records equal one point theta of a sphere of radius R in R^d; all other
records are the same in all data sets. So data sets are b records from one whose
release M has a distribution Q that does not depend on theta. Two bounds of
E |M - theta|^2, for R = 1:

* Under (epsilon, delta)-DP all but delta_b of the distribution of M is at most
  E Q, E = e^(epsilon b). Averaged over rotations Q is invariant. For M at
  distance s from 0 it is best to be in a cap around theta of probability q,
  with density E times that of Q. The squared error is 1 + s^2 - 2 s A(q), A the
  mean cosine in a cap, or 1 - A(q)^2 for the best s. Over all ways to choose s
  the least is E f(1 / E), f the convex hull of q (1 - A(q)^2), which is
  straight from 1/2 to 1. This is exactly what the constraint implies.
* The divergence I_b of distributions b records apart bounds the information of
  M about theta. So by Donsker's and Varadhan's formula for all lambda > 0

    lambda E |M - theta|^2 >= - I_b - ln max_z E e^(-lambda |theta - z|^2).

I_b is epsilon b tanh(epsilon b / 2), or rho b^2.

Packings, such as those of Barber and Duchi (2014, Theorem 3) (item LB-10,
LB-14), are points of the same sphere. They lose three quarters of a squared
error by their half-distance, and more by errors that are not certain. The
constants here are our own.
"""

import functools
import math

import numpy as np
from scipy import special

from dpjax import errors
from dpjax.privacy import notions
from dpjax.theory.minimax.bounds import Guarantee

# Quadrature angles, and values of lambda.
_ANGLES, _SLOPES = 801, 160
# Above this log-ratio, probabilities of caps are too small for floats.
_LARGEST = 300.0


def relative_risk(distance: np.ndarray | int, guarantee: Guarantee, *,
                  dimension: int) -> np.ndarray:
  """Bounds E |M - theta|^2 / R^2 from below, for b records.

  0 for total variation and Kullback-Leibler privacy, which bound data sets far
  apart only by total variation: two points give a better bound.

  Args:
    distance: b >= 0, [m] or a number.
    guarantee: guarantee of the release.
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
      failure = delta * (np.expm1(np.minimum(epsilon * b, 700.0))
                         / math.expm1(min(epsilon, 700.0)) if epsilon else b)
      # The floor avoids ln 0 where delta allows any distribution.
      success = np.maximum(1e-300, 1 - failure)
      return success * caps(epsilon * b - np.log(success), dimension=dimension)
    case notions.ZCDP(rho=rho):
      return information(rho * b**2, dimension=dimension)
    case _:
      return np.zeros(b.shape)


def caps(log_ratio: np.ndarray, *, dimension: int) -> np.ndarray:
  """Returns the least squared error of M with distribution at most e^x Q.

  Q does not depend on theta.

  Args:
    log_ratio: x >= 0.
    dimension: d.
  """
  log_ratio = np.asarray(log_ratio, np.float64)
  growth = np.exp(np.minimum(log_ratio, _LARGEST))
  half = 1 + _cosine(np.asarray(0.5), dimension)**2
  small = 1 - _cosine(np.minimum(0.5, 1 / growth), dimension)**2
  return np.maximum(0.0, np.where(
      growth < 2, growth - half * (growth - 1), np.where(
          log_ratio < _LARGEST, small, _tiny(log_ratio, dimension))))


def _tiny(log_ratio: np.ndarray, dimension: int) -> np.ndarray:
  """Bounds 1 - A(q)^2 from below, for q = e^-x below the range of floats.

  With h = (d - 1) / 2 and z the squared sine of the cap's half-angle, 2 q is
  the integral of t^(h - 1) (1 - t)^(-1/2) / B(h, 1/2) up to z. So z^h lies
  between 2 q h B sqrt(1 - z) and 2 q h B. A is 1 over the mean of (1 -
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
  """Returns A(q), the mean cosine in a cap of probability q in (0, 1/2]."""
  if dimension == 1:
    return np.ones(part.shape)
  half = (dimension - 1) / 2
  logs = half * np.log(special.betaincinv(half, 0.5, 2 * part))
  return np.exp(logs - special.betaln(half, 0.5)) / (2 * half * part)


def information(nats: np.ndarray, *, dimension: int) -> np.ndarray:
  """Returns the largest of (-I - ln Z(lambda)) / lambda over a grid, and 0."""
  slopes, logs = _exponents(dimension)
  nats = np.asarray(nats, np.float64)
  # Each lambda gives a line below a convex function of I. A line is the largest
  # between its crossings with the lines next to it.
  heights = -logs / slopes
  crossings = np.diff(heights) / np.diff(1 / slopes)
  line = np.searchsorted(np.maximum.accumulate(crossings), nats)
  return np.clip(heights[line] - nats / slopes[line], 0.0, 1.0)


@functools.lru_cache(maxsize=64)
def _exponents(dimension: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns lambda [L], and ln Z = ln max_z E e^(-lambda |theta - z|^2) [L].

  For z of norm s it is -lambda (1 + s^2) + ln E e^(2 lambda s u), with u one
  coordinate of theta. It is largest at the only s with s = E u e^(..) / E
  e^(..), which is 0 up to lambda = d / 2.
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
