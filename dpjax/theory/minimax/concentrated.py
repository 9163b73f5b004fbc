"""Lower bounds for tests under zCDP, from data sets between two hypotheses.

Between two data sets at Hamming distance d put m - 1 others, d / m apart. An
event has probabilities s_0 .. s_m there. Data processing of the divergences of
neighbours on this path gives, for every order q > 1 (the other direction is
weaker above 1/2),

  D_q(Ber(s_k) || Ber(s_(k + 1))) <= q l,   l = rho ceil(d / m)^2.

1. Pairs that obey this form a convex set (e^((q - 1) D_q) is jointly convex).
   So the largest s_(k + 1) is a concave function of s_k, and so are m of its
   steps. Hence the sum of both errors is least where the path is symmetric.
2. With m = 1 the divergence of order 1 is the strongest constraint
   (`two_points`); with more steps higher orders are. As m grows the least error
   e of a test tends to that of

  sqrt(r) = int_0^X sqrt(tanh(x / 2) / x) dx,  e = 1 / (1 + e^X),  r = rho d^2,

by the variance proxy of a Bernoulli variable (Kearns and Saul 1998). It behaves
like e^(-r / 4), as for the Gaussian mechanism, where m = 1 has e^-r. Two steps
give most of this.

3. The path of that limit (`limit_logit`) is a mechanism with two answers. Its
   log-odds move by at most what all orders allow between arbitrarily near
   neighbours, hence, by group privacy, between any.

Adjacency: REPLACE_ONE. We know of no earlier statement; sharpens item LB-13.
"""

import functools
import math

import numpy as np
from scipy import integrate
from scipy import interpolate
from scipy import special

# Numbers of steps of a path, and the grid of square roots of r.
_STEPS = (2, 8)
_LARGEST, _POINTS = 16.0, 641
# Orders minus 1, as multiples of the strongest one in the limit of many steps.
_ORDERS = (0.3, 0.6, 0.8, 1.0, 1.2, 1.6, 2.5)


def path_error(distance: np.ndarray, rho: float) -> np.ndarray:
  """Returns a lower bound of the mean of both errors of a test at distance d.

  Args:
    distance: Hamming distance d >= 0, whole numbers; the bound is 0 at d = 0
      and 1.
    rho: zCDP budget of the test.

  Returns:
    In [0, 1/2], of the same shape.
  """
  d = np.asarray(distance, np.float64)
  errors = np.zeros(d.shape)
  for steps in _STEPS:
    roots, logits = _table(steps)
    # Steps are rounded up: a longer path gives a smaller, valid bound. Past
    # the table the error counts as 0.
    root = np.sqrt(rho) * np.ceil(d / steps) * steps
    bounds = special.expit(-np.interp(root, roots, logits, right=np.inf))
    errors = np.maximum(errors, np.where(d > 1, bounds, 0.0))
  return errors


@functools.cache
def _table(steps: int) -> tuple[np.ndarray, np.ndarray]:
  """Returns square roots of r, and X for them.

  X is convex in the root, so linear interpolation stays above it: valid bounds.
  """
  roots = np.linspace(0, _LARGEST, _POINTS)
  return roots, np.concatenate([[0.0], logit(np.square(roots[1:]), steps)])


def logit(total: np.ndarray, steps: int) -> np.ndarray:
  """Returns X after half of an even number of steps from probability 1/2.

  Args:
    total: r = m^2 l > 0.
    steps: m.
  """
  level = np.asarray(total, np.float64) / steps**2
  logits = np.zeros(level.shape)
  for _ in range(steps // 2):
    logits = _farthest(logits, level)
  return logits


def limit_logit(position: np.ndarray | float) -> np.ndarray:
  """Returns x with position = int_0^x sqrt(tanh(u / 2) / u) du / 2; odd.

  A mechanism that answers 1 with log-odds `limit_logit(sqrt(rho) f)`, f of
  sensitivity 1, is rho-zCDP, and no test on a path errs less.

  Args:
    position: any real numbers.
  """
  curve, last, root = _limit()
  distance = np.abs(np.asarray(position, np.float64))
  # With u = w^2 the integrand is sqrt(tanh(w^2 / 2)): 1 from w = 7 on.
  far = np.square(root + np.maximum(distance - last, 0))
  return np.sign(position) * np.where(distance < last, curve(
      np.minimum(distance, last)), far)


@functools.cache
def _limit() -> tuple[interpolate.CubicHermiteSpline, float, float]:
  """Returns x as a function of the position up to x = 49, and its end points.
  """
  w = np.linspace(0, 7, 7001)
  speed = np.sqrt(np.tanh(w**2 / 2))
  places = integrate.cumulative_simpson(speed, x=w, initial=0.0)
  # At w = 0 both factors vanish; the limit of 2 w / speed is 2 sqrt 2.
  slopes = np.full(w.shape, 2 * math.sqrt(2))
  slopes[1:] = 2 * w[1:] / speed[1:]
  curve = interpolate.CubicHermiteSpline(places, w**2, slopes)
  return curve, float(places[-1]), 7.0


def _farthest(start: np.ndarray, level: np.ndarray) -> np.ndarray:
  """Returns the largest logit that one step allows, by bisection, from above.
  """
  low = start
  high = start + 4 * level + 2 + 2 * np.sqrt(level * (start + 4 * level + 12))
  for _ in range(45):
    middle = (low + high) / 2
    inside = _allowed(start, middle, level)
    low, high = np.where(inside, middle, low), np.where(inside, high, middle)
  return high


def _allowed(x: np.ndarray, y: np.ndarray, level: np.ndarray) -> np.ndarray:
  """Checks D_q <= q level for some orders q; y is the farther logit."""
  inside = _first(x, y) <= level
  middle = (x + y) / 2
  binding = np.sqrt(middle * np.tanh(middle / 2) / level)
  for multiple in _ORDERS:
    order = 1 + multiple * binding + 1e-3
    most = (order - 1) * order * level
    inside &= log_moment(order, x, y) <= most
  return inside


def _first(x: np.ndarray, y: np.ndarray) -> np.ndarray:
  """Returns the Kullback-Leibler divergence of two logits."""
  return (special.expit(x) * (special.log_expit(x) - special.log_expit(y))
          + special.expit(-x) * (special.log_expit(-x) - special.log_expit(-y)))


def log_moment(order: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
  """Returns (q - 1) D_q of two distributions on two points, by their logits."""
  return np.logaddexp(
      order * special.log_expit(x) + (1 - order) * special.log_expit(y),
      order * special.log_expit(-x) + (1 - order) * special.log_expit(-y))
