"""Bounds on output distributions of data sets that differ in d records.

Two data sets at Hamming distance d are joined by a path of d neighbours. Tests
are bounded by how much the probability of an event at one end can exceed e^t
times that at the other (`excess`), Fano's lemma by the divergence of the ends
(`divergence`). Adjacency: REPLACE_ONE. Source: Lalanne (2023, Facts 3.3.5 and
3.3.11, Lemma 3.3.9) (item DEF-GROUP); sharper here, and exact for pure privacy.

Proof. Take an event A, with probabilities S and p at the ends of the path.

1. A number j of the steps bound the complement of A, S_0 <= 1 - e^-epsilon (1 -
   delta) + e^-epsilon S_1. The others bound A itself, S_1 <= e^epsilon S_2 +
   delta, with one step in between where both hold.
2. So S - e^t p is bounded for each j. The least bound, at 2 j + 1 = d - t /
   epsilon, rounded, is attained by the truncated geometric mechanism if delta
   is 0: a test of it that says A up to a threshold meets every step with
   equality.
3. That mechanism attains the bound for all t at once. So it distinguishes the
   ends better than any other (Blackwell), and its divergence is the largest:

  sum_y (d - 2 y) epsilon P(y) = epsilon (d - 2 q (1 - q^d) / (1 - q^2)),

with q = e^-epsilon and P(Y >= y) = q^y / (1 + q) for y from 1 to d. For d = 1
that is epsilon tanh(epsilon / 2); Lalanne (2023) has epsilon d.
"""

import numpy as np
from scipy import special

from dpjax.privacy import notions
from dpjax.theory.minimax import two_points
from dpjax.theory.minimax.bounds import Guarantee


def excess(log_weight: np.ndarray | float, distance: np.ndarray | int,
           guarantee: Guarantee) -> np.ndarray:
  """Bounds P(A) - e^t P'(A) over events, for data at Hamming distance d.

  This is the delta of group privacy at epsilon = t. Exact on a path for pure
  and approximate privacy and total variation, an upper bound for the others.

  Args:
    log_weight: t, of any sign.
    distance: d >= 0, whole numbers; broadcast against t.
    guarantee: guarantee of the release.

  Returns:
    In [0, 1].
  """
  t, d = np.broadcast_arrays(np.asarray(log_weight, np.float64),
                             _checked(distance))
  # For t < 0: P(A) - e^t P'(A) = 1 - e^t + e^t (P'(A^c) - e^-t P(A^c)).
  above = _above(np.abs(t), d, guarantee)
  with np.errstate(over='ignore'):
    below = -np.expm1(np.minimum(t, 0)) + np.exp(np.minimum(t, 0)) * above
  return np.clip(np.where(t >= 0, above, below), 0.0, 1.0)


def _checked(distance: np.ndarray | int) -> np.ndarray:
  """Checks distances and returns them as float64."""
  d = np.asarray(distance, np.float64)
  if not (d >= 0).all() or (d != np.round(d)).any():
    raise ValueError('distance must be a whole number >= 0')
  return d


def _above(t: np.ndarray, d: np.ndarray, guarantee: Guarantee) -> np.ndarray:
  """Returns the bound on P(A) - e^t P'(A) for t >= 0."""
  match guarantee:
    case None:
      return np.where(d > 0, 1.0, 0.0)
    case notions.PureDP(epsilon=epsilon) if epsilon > 0:
      return _of_path(t, d, epsilon, 0.0)
    case notions.ApproxDP(epsilon=epsilon, delta=delta) if epsilon > 0:
      return _of_path(t, d, epsilon, delta)
    case notions.ZCDP(rho=rho):
      # The total variation bounds the excess at every t >= 0.
      distinct, places = np.unique(d, return_inverse=True)
      whole = 1 - 2 * two_points.path_error(distinct, guarantee)
      return np.minimum(whole[places].reshape(d.shape),
                        _concentrated(t, rho * np.square(d)))
    case _:
      return np.minimum(1.0, d * two_points.total_variation(guarantee))


def _of_path(t: np.ndarray, d: np.ndarray, epsilon: float, delta: float
             ) -> np.ndarray:
  """Returns the smaller of the bounds at the two whole j next to the best j.

  At d = 0 the bound is 0.
  """
  if delta:
    # After `most` steps that bound A the bound is negative; a larger t then
    # changes nothing.
    most = np.floor(np.log1p((1 - delta) / delta * np.tanh(epsilon / 2))
                    / epsilon)
    t = np.minimum(t, epsilon * np.maximum(
        d - 2 * np.maximum(0, d - 1 - most), 0))
  best = np.floor((d - 1 - t / epsilon) / 2)
  bounds = [_of_steps(t, d, np.clip(best + more, 0, np.maximum(d - 1, 0)),
                      epsilon, delta) for more in (0, 1)]
  return np.where(d > 0, np.minimum.reduce(bounds), 0.0)


def _of_steps(t: np.ndarray, d: np.ndarray, j: np.ndarray, epsilon: float,
              delta: float) -> np.ndarray:
  """Returns the bound on S - e^t p of step 2 of the proof, for a given j.

  Of the d steps of the path, j bound the complement of A, the next uses both
  inequalities, and the d - 1 - j others bound A.

  Args:
    t: log-weights >= 0.
    d: Hamming distances.
    j: numbers of steps that bound the complement of A, at most d - 1.
    epsilon: epsilon of one step.
    delta: delta of one step.
  """
  rest = d - 1 - j
  shrunk, growth = np.exp(-epsilon * j), np.exp(epsilon)
  # ln of the weight after the first j steps, and before the middle one.
  first = t + epsilon * j
  middle = np.exp(np.minimum(first - epsilon * rest, 700.0))
  odd = special.expit(epsilon) + (delta - middle * (1 - delta)) / (1 + growth)
  most = np.maximum(odd, np.maximum(delta, 1 - middle * (1 - delta)))
  if delta:
    shrink = -np.expm1(-epsilon)
    most = most + delta * np.exp(np.minimum(first, 700.0) - epsilon) * (
        -np.expm1(-epsilon * rest)) / shrink
    return ((1 - np.exp(-epsilon) * (1 - delta)) * (1 - shrunk) / shrink
            + shrunk * most)
  return 1 - shrunk + shrunk * most


def _concentrated(t: np.ndarray, level: np.ndarray) -> np.ndarray:
  """Returns the bound from Renyi divergences q `level` at the best order q.

  Canonne, Kamath and Steinke 2020: e^((q - 1)(q level - t)) (1 - 1/q)^q / (q -
  1), here at 2 q = 1 + t / level, where the first factor is least.
  """
  some = np.where(level > 0, level, 1.0)
  order = np.maximum((1 + t / some) / 2, 1.0 + 1e-9)
  logs = ((order - 1) * (order * some - t) - np.log(order - 1)
          + order * np.log1p(-1 / order))
  bounds = np.where(t > some, np.exp(np.minimum(logs, 0.0)), 1.0)
  return np.where(level > 0, bounds, 0.0)


def divergence(distance: np.ndarray | int, guarantee: Guarantee) -> np.ndarray:
  """Bounds the Kullback-Leibler divergence at Hamming distance d.

  Exact for pure privacy; rho d^2 under zCDP, attained by Gaussian releases.

  Args:
    distance: d >= 0, Hamming distance of two data sets.
    guarantee: pure or zCDP; others bound no divergence at d > 1.
  """
  d = _checked(distance)
  match guarantee:
    case notions.PureDP():
      return mean_divergence(1.0, num_examples=d, guarantee=guarantee)
    case notions.ZCDP(rho=rho):
      return rho * np.square(d)
    case _:
      return np.where(d > 0, np.inf, 0.0)


def mean_divergence(moves: np.ndarray | float, *,
                    num_examples: np.ndarray | int, guarantee: Guarantee
                    ) -> np.ndarray:
  """Returns the mean of `divergence` over d ~ Bin(n, t), in closed form.

  Args:
    moves: t, probability that a record differs between the data sets.
    num_examples: n, records of each; whole numbers.
    guarantee: pure or zCDP guarantee of the release.
  """
  t = np.asarray(moves, np.float64)
  n = _checked(num_examples)
  match guarantee:
    case notions.PureDP(epsilon=epsilon):
      return _mean_pure(n, t, epsilon)
    case notions.ZCDP(rho=rho):
      return rho * (n * t * (1 - t) + np.square(n * t))
    case _:
      return np.where(t * n > 0, np.inf, 0.0)


def _mean_pure(n: np.ndarray, t: np.ndarray, epsilon: float) -> np.ndarray:
  """Returns E d - 2 q (1 - q^d) / (1 - q^2), times epsilon."""
  if not epsilon:
    return np.zeros(np.broadcast_shapes(n.shape, t.shape))
  with np.errstate(divide='ignore'):
    gone = -np.expm1(n * np.log1p(np.expm1(-epsilon) * t))
  exact = epsilon * (n * t - gone / np.sinh(epsilon))
  # The difference cancels for small epsilon: use the bound epsilon^2 E d^2 / 2.
  square = epsilon**2 / 2 * (n * t * (1 - t) + np.square(n * t))
  return np.where(epsilon * n < 1e-5, square, np.minimum(exact, square))
