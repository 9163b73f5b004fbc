"""Two hypotheses: the least errors that privacy leaves, exact on a path.

Data sets X and X' that differ in d records are joined by a path of d
neighbours, and only what neighbours may differ in is known of a mechanism. On
such a path

* a test of X against X' errs with a mean of e(d) at least (`path_error`), and
* an estimate of two numbers a distance D apart, either as likely, has an
  expected square of D^2 s(d) / 4 at least (`path_share`).

Laws P and P' of n records are coupled so that they differ in as few as can be,
d ~ Bin(n, t) for the total variation t of one record; e and s are jointly
concave in the two output laws, so their means over d bound what is possible.
Source: thesis 000, Theorems 3.2.1 and 3.2.2; paper 004, Theorem 2 (item LB-1,
LB-3, LB-4, LB-9, LB-12, LB-13); the squares, and their proofs, are ours.

Pure privacy. Vertices of the region of errors (a, b) of tests at distance d are
those of thresholds on the truncated geometric mechanism, (q^(k-1) u, q^(d-k) u)
with q = e^-epsilon, u = q / (1 + q). Squares are integrals of weighted errors,

  inf E (A - theta)^2 = int_0^1 min (t a + (1 - t) b) dt,

and the mechanism attains all of them at once: s(d) is exact. With delta the
vertices move down by the recursion e <- e^-epsilon (e - delta).

zCDP. Divergences are at most d^2 rho. Let v = (2 P / (P + P') - 1)^2. The mean
of the two divergences is that of a convex increasing function of v under (P +
P') / 2, and s is the mean of 1 - v: by Jensen's inequality two laws on two
points are extremal for s as they are, by data processing, for e, and s =
4 e (1 - e). Data sets between the two make e larger (`concentrated`), and s is
2 e at least.
"""

from collections.abc import Callable
import math

import numpy as np
from scipy import stats

from dpjax import errors
from dpjax.privacy import notions
from dpjax.stats.minimax import concentrated
from dpjax.stats.minimax.bounds import Guarantee

# Standard deviations of a binomial law that its means go to, on either side.
_REACH = 12.0


def path_error(distance: np.ndarray | int, guarantee: Guarantee) -> np.ndarray:
  """The least mean of the two errors of a test at Hamming distance d.

  Exact for pure and approximate privacy and for total variation, where some
  mechanism on the path attains it; under zCDP some data sets of the path are
  looked at.

  Args:
    distance: d >= 0, integers.
    guarantee: of the test. Kullback-Leibler privacy has no property of groups
      but that of its total variation.

  Returns:
    In [0, 1/2], of the same shape.
  """
  d = _checked(distance)
  match guarantee:
    case None:
      return np.where(d == 0, 0.5, 0.0)
    case notions.PureDP(epsilon=epsilon):
      return _staircase(d, epsilon, 0.0)
    case notions.ApproxDP(epsilon=epsilon, delta=delta):
      return _staircase(d, epsilon, delta)
    case notions.ZCDP(rho=rho):
      return np.maximum(_concentrated(rho * np.square(d)),
                        concentrated.path_error(d, rho))
    case _:
      return np.maximum(0.0, (1 - d * total_variation(guarantee)) / 2)


def path_share(distance: np.ndarray | int, guarantee: Guarantee) -> np.ndarray:
  """Mean squares at two points D apart, at least, in units of D^2 / 4.

  Twice `path_error` or more; exact for pure privacy, see above.

  Args:
    distance: d >= 0, integers.
    guarantee: of the estimate.

  Returns:
    In [0, 1], of the same shape.
  """
  d = _checked(distance)
  match guarantee:
    case notions.PureDP(epsilon=epsilon) if epsilon > 0:
      return _geometric_share(d, epsilon)
    case notions.ZCDP(rho=rho):
      error = _concentrated(rho * np.square(d))
      return np.maximum(4 * error * (1 - error),
                        2 * path_error(d, guarantee))
    case _:
      return 2 * path_error(d, guarantee)


def product_error(variation: np.ndarray | float, *, num_examples: int,
                  guarantee: Guarantee) -> np.ndarray:
  """Mean error of a test of two laws of n independent records, at least.

  Args:
    variation: t in [0, 1], of one record.
    num_examples: n.
    guarantee: of the test.

  Returns:
    In [0, 1/2], of the shape of `variation`.
  """
  return product_mean(path_error, variation, num_examples=num_examples,
                      guarantee=guarantee)


def product_share(variation: np.ndarray | float, *, num_examples: int,
                  guarantee: Guarantee) -> np.ndarray:
  """`path_share` for two laws of n independent records."""
  return product_mean(path_share, variation, num_examples=num_examples,
                      guarantee=guarantee)


def product_mean(path: Callable[[np.ndarray, Guarantee], np.ndarray],
                 variation: np.ndarray | float, *, num_examples: int,
                 guarantee: Guarantee) -> np.ndarray:
  """Means of a function of the distance d over d ~ Bin(n, t), at most.

  Args:
    path: (distances [m], guarantee) -> at least 0 [m]; what is far out counts
      as 0.
    variation: t in [0, 1].
    num_examples: n.
    guarantee: of the estimate.
  """
  errors.check_at_least('num_examples', num_examples, 1)
  t = _variation(variation)
  reach = _REACH * np.sqrt(num_examples * t * (1 - t)) + 50
  low = np.maximum(0, np.floor(num_examples * t - reach)).astype(int)
  high = np.minimum(num_examples, np.ceil(num_examples * t + reach)).astype(int)
  means = np.zeros(t.shape)
  first = int(low.min(initial=num_examples))
  known = path(np.arange(first, int(high.max(initial=0)) + 1), guarantee)
  for place in np.ndindex(t.shape):
    d = np.arange(low[place], high[place] + 1)
    probs = stats.binom.pmf(d, num_examples, t[place])
    means[place] = probs @ known[d - first]
  return means


def error(variation: np.ndarray | float, *, num_examples: int,
          guarantee: Guarantee) -> np.ndarray:
  """The same of any two laws of n records, by their joint variation.

  Optimally coupled data sets are equal or differ in n records at most; Le Cam's
  bound, (1 - TV_n) / 2, is that without privacy.

  Args:
    variation: TV_n in [0, 1], of all records together.
    num_examples: n.
    guarantee: of the test.
  """
  t = _variation(variation)
  return (1 - t) / 2 + t * path_error(num_examples, guarantee)


def total_variation(guarantee: Guarantee) -> float:
  """What neighbours may differ in at most; 1 for None.

  Sharp: tanh(epsilon / 2), (e^epsilon - 1 + 2 delta) / (e^epsilon + 1), and of
  divergences in both directions tanh(x / 2), x tanh(x / 2) = level, which is
  below Pinsker's sqrt(level / 2) and Bretagnolle's and Huber's bound.
  """
  match guarantee:
    case None:
      return 1.0
    case notions.TotalVariationPrivacy(level=level):
      return min(1.0, level)
    case notions.KullbackLeiblerPrivacy(level=level):
      return float(1 - 2 * _concentrated(np.float64(level)))
    case _:
      return float(1 - 2 * path_error(1, guarantee))


def _checked(distance: np.ndarray | int) -> np.ndarray:
  d = np.asarray(distance, np.float64)
  if not (d >= 0).all() or (d != np.round(d)).any():
    raise ValueError('distance must be whole and not negative')
  return d


def _variation(variation: np.ndarray | float) -> np.ndarray:
  t = np.asarray(variation, np.float64)
  if not ((t >= 0) & (t <= 1)).all():
    raise ValueError('variation must lie in [0, 1]')
  return t


def _staircase(d: np.ndarray, epsilon: float, delta: float) -> np.ndarray:
  """Half of the path's tests are one test at its middle, or its middle pair."""
  steps = np.floor(d / 2)
  start = np.where(d % 2 == 0, 0.5, (1 - delta) / (1 + math.exp(epsilon)))
  return np.maximum(0.0, _steps(start, steps, epsilon, delta))


def _steps(start: np.ndarray, steps: np.ndarray, epsilon: float,
           delta: float) -> np.ndarray:
  """e <- e^-epsilon (e - delta), so often; below 0 it stays there."""
  kept = np.exp(-epsilon * steps)
  if not delta:
    return start * kept
  if not epsilon:
    return start - delta * steps
  lost = delta * math.exp(-epsilon) * (1 - kept) / -math.expm1(-epsilon)
  return start * kept - lost


def _geometric_share(d: np.ndarray, epsilon: float) -> np.ndarray:
  """4 sum_y P_0 P_d / (P_0 + P_d) / 2 of the truncated geometric mechanism.

  At y the two laws have w q^y and w q^(d - y), w = (1 - q) / (1 + q) inside and
  1 / (1 + q) at both ends: a sum of hyperbolic secants around the middle.
  """
  q = math.exp(-epsilon)
  far = int(d.max(initial=0))
  # sum over |j| <= m, of whole or of half numbers, by prefix sums.
  whole = 1 / np.cosh(np.minimum(epsilon * np.arange(far // 2 + 1), 700))
  half = 1 / np.cosh(np.minimum(epsilon * (np.arange(far // 2 + 1) + 0.5), 700))
  even = np.concatenate([[0.0], 2 * np.cumsum(whole) - whole[0]])
  odd = np.concatenate([[0.0], 2 * np.cumsum(half)])
  inside = np.where(d % 2 == 0, even[(d // 2).astype(int)],
                    odd[((d - 1) // 2).astype(int)] * (d > 0))
  ends = 1 / np.cosh(np.minimum(epsilon * d / 2, 700))
  share = np.exp(-epsilon * d / 2) / (1 + q) * (
      (1 - q) * inside + 2 * ends)
  return np.where(d == 0, 1.0, share)


def _concentrated(level: np.ndarray) -> np.ndarray:
  """The e with D_1(Ber(e) || Ber(1 - e)) = level: x tanh(x / 2), x its logit.

  Of all orders the first binds most two laws on two points.
  """
  found, places = np.unique(level, return_inverse=True)
  # x tanh(x / 2) is between x - 1 and x, and x^2 / 2 at most.
  low, high = np.maximum(found, np.sqrt(2 * found)), found + 1
  for _ in range(64):
    middle = (low + high) / 2
    inside = middle * np.tanh(middle / 2) <= found
    low, high = np.where(inside, middle, low), np.where(inside, high, middle)
  return (1 / (1 + np.exp(np.minimum(high, 700.0))))[places].reshape(
      np.shape(level))
