"""Two hypotheses: the least errors that privacy allows, exact on a path.

Data sets X and X' that differ in d records are joined by a path of d
neighbours, and privacy constrains neighbours only. On such a path

* a test of X against X' has a mean error of at least e(d) (`path_error`), and
* an estimate of two equally likely numbers a distance D apart has a mean
  squared error of at least D^2 s(d) / 4 (`path_risk`).

Distributions P and P' of n records are coupled so that they differ in as few
records as possible, d ~ Bin(n, t) for the total variation t of one record. e
and s are jointly concave in the two output distributions, so their means over d
are lower bounds. Source: Lalanne (2023, Theorems 3.2.1 and 3.2.2); Barber and
Duchi (2014, Theorem 2) (item LB-1, LB-3, LB-4, LB-9, LB-12, LB-13). Tests on a
path under pure and approximate privacy are those of Awan and Slavkovic (2018),
and the mechanism is that of Ghosh, Roughgarden and Sundararajan (2009); the
squared errors and their proofs are our own.

Pure privacy. Vertices of the region of errors (a, b) of tests at distance d are
those of thresholds on the truncated geometric mechanism, (q^(k-1) u, q^(d-k) u)
with q = e^-epsilon, u = q / (1 + q). Squared errors are integrals of weighted
errors,

  inf E (A - theta)^2 = int_0^1 min (t a + (1 - t) b) dt,

and the mechanism attains all of them at once: s(d) is exact. With delta the
vertices follow the recursion e <- e^-epsilon (e - delta).

zCDP. Divergences are at most d^2 rho. Let v = (2 P / (P + P') - 1)^2. The mean
of the two divergences is that of a convex increasing function of v under (P +
P') / 2, and s is the mean of 1 - v. So by Jensen's inequality two distributions
on two points are extremal for s, as they are for e by data processing, and s =
4 e (1 - e). Data sets between the two make e larger (`concentrated`), and s is
at least 2 e.
"""

from collections.abc import Callable
import math

import numpy as np
from scipy import stats

from dpjax import errors
from dpjax.privacy import notions
from dpjax.theory.minimax import concentrated
from dpjax.theory.minimax.bounds import Guarantee

# Binomial means are cut off this many standard deviations from the mean.
_REACH = 12.0


def path_error(distance: np.ndarray | int, guarantee: Guarantee) -> np.ndarray:
  """Returns the least mean of the two errors of a test at Hamming distance d.

  Exact for pure and approximate privacy and for total variation, where a
  mechanism on the path attains it; a lower bound under zCDP, from some data
  sets of the path.

  Args:
    distance: d >= 0, integers.
    guarantee: guarantee of the test. Kullback-Leibler privacy has no group
      property except by its total variation.

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


def path_risk(distance: np.ndarray | int, guarantee: Guarantee) -> np.ndarray:
  """Bounds the mean squared error at two points D apart, in units of D^2 / 4.

  At least twice `path_error`; exact for pure privacy (see the module).

  Args:
    distance: d >= 0, integers.
    guarantee: guarantee of the estimate.

  Returns:
    In [0, 1], of the same shape.
  """
  d = _checked(distance)
  match guarantee:
    case notions.PureDP(epsilon=epsilon) if epsilon > 0:
      return _geometric_risk(d, epsilon)
    case notions.ZCDP(rho=rho):
      error = _concentrated(rho * np.square(d))
      return np.maximum(4 * error * (1 - error),
                        2 * path_error(d, guarantee))
    case _:
      return 2 * path_error(d, guarantee)


def product_error(variation: np.ndarray | float, *, num_examples: int,
                  guarantee: Guarantee) -> np.ndarray:
  """Bounds the mean error of a test of two distributions of n records.

  Args:
    variation: t in [0, 1], of one record.
    num_examples: n independent records.
    guarantee: guarantee of the test.

  Returns:
    In [0, 1/2], of the shape of `variation`.
  """
  return product_mean(path_error, variation, num_examples=num_examples,
                      guarantee=guarantee)


def product_risk(variation: np.ndarray | float, *, num_examples: int,
                  guarantee: Guarantee) -> np.ndarray:
  """Returns `path_risk` for two distributions of n independent records."""
  return product_mean(path_risk, variation, num_examples=num_examples,
                      guarantee=guarantee)


def product_mean(path: Callable[[np.ndarray, Guarantee], np.ndarray],
                 variation: np.ndarray | float, *, num_examples: int,
                 guarantee: Guarantee) -> np.ndarray:
  """Returns the mean of a function of the distance d over d ~ Bin(n, t).

  Args:
    path: (distances [m], guarantee) -> at least 0 [m]; values far in the tails
      count as 0, so that the mean is a lower bound.
    variation: t in [0, 1].
    num_examples: n.
    guarantee: guarantee of the estimate.
  """
  errors.check_at_least('num_examples', num_examples, 1)
  t = _variation(variation)
  half_width = _REACH * np.sqrt(num_examples * t * (1 - t)) + 50
  low = np.maximum(0, np.floor(num_examples * t - half_width)).astype(int)
  high = np.minimum(num_examples,
                    np.ceil(num_examples * t + half_width)).astype(int)
  means = np.zeros(t.shape)
  first = int(low.min(initial=num_examples))
  # One call for all distances that any t needs.
  by_distance = path(np.arange(first, int(high.max(initial=0)) + 1), guarantee)
  for place in np.ndindex(t.shape):
    d = np.arange(low[place], high[place] + 1)
    probs = stats.binom.pmf(d, num_examples, t[place])
    means[place] = probs @ by_distance[d - first]
  return means


def error(variation: np.ndarray | float, *, num_examples: int,
          guarantee: Guarantee) -> np.ndarray:
  """Bounds the mean error for any two distributions, by their joint variation.

  Optimally coupled data sets are equal or differ in at most n records. Without
  privacy it is Le Cam's bound, (1 - TV_n) / 2.

  Args:
    variation: TV_n in [0, 1], of all records together.
    num_examples: n.
    guarantee: guarantee of the test.
  """
  t = _variation(variation)
  return (1 - t) / 2 + t * path_error(num_examples, guarantee)


def total_variation(guarantee: Guarantee) -> float:
  """Bounds the total variation of neighbours; 1 for None.

  Sharp: tanh(epsilon / 2), (e^epsilon - 1 + 2 delta) / (e^epsilon + 1), and for
  divergences in both directions tanh(x / 2) with x tanh(x / 2) = level, which
  is below Pinsker's sqrt(level / 2) and the bound of Bretagnolle and Huber.
  """
  match guarantee:
    case None:
      return 1.0
    case notions.TotalVariationPrivacy(level=level):
      return min(1.0, level)
    case notions.KullbackLeiblerPrivacy(level=level):
      return float(1 - 2 * _concentrated(np.asarray(level)))
    case _:
      return float(1 - 2 * path_error(1, guarantee))


def _checked(distance: np.ndarray | int) -> np.ndarray:
  """Checks distances and returns them as float64."""
  d = np.asarray(distance, np.float64)
  if not (d >= 0).all() or (d != np.round(d)).any():
    raise ValueError('distance must be a whole number >= 0')
  return d


def _variation(variation: np.ndarray | float) -> np.ndarray:
  """Checks variations and returns them as float64."""
  t = np.asarray(variation, np.float64)
  if not ((t >= 0) & (t <= 1)).all():
    raise ValueError('variation must lie in [0, 1]')
  return t


def _staircase(d: np.ndarray, epsilon: float, delta: float) -> np.ndarray:
  """Returns the least error of a test, by recursion from the path's middle."""
  steps = np.floor(d / 2)
  start = np.where(d % 2 == 0, 0.5, (1 - delta) / (1 + math.exp(epsilon)))
  return np.maximum(0.0, _steps(start, steps, epsilon, delta))


def _steps(start: np.ndarray, steps: np.ndarray, epsilon: float,
           delta: float) -> np.ndarray:
  """Applies e <- e^-epsilon (e - delta) `steps` times, without clipping at 0.
  """
  factor = np.exp(-epsilon * steps)
  if not delta:
    return start * factor
  if not epsilon:
    return start - delta * steps
  lost = delta * math.exp(-epsilon) * (1 - factor) / -math.expm1(-epsilon)
  return start * factor - lost


def _geometric_risk(d: np.ndarray, epsilon: float) -> np.ndarray:
  """Returns 4 sum_y P_0 P_d / (P_0 + P_d) / 2 of the truncated geometric noise.

  At y the two distributions have w q^y and w q^(d - y), with w = (1 - q) / (1 +
  q) inside and 1 / (1 + q) at both ends: a sum of hyperbolic secants around the
  middle.
  """
  q = math.exp(-epsilon)
  far = int(d.max(initial=0))
  # Sums over |j| <= m, of integers or of half-integers, by prefix sums.
  # cosh overflows float64 above 710.
  whole = 1 / np.cosh(np.minimum(epsilon * np.arange(far // 2 + 1), 700))
  half = 1 / np.cosh(np.minimum(epsilon * (np.arange(far // 2 + 1) + 0.5), 700))
  even = np.concatenate([[0.0], 2 * np.cumsum(whole) - whole[0]])
  odd = np.concatenate([[0.0], 2 * np.cumsum(half)])
  inside = np.where(d % 2 == 0, even[(d // 2).astype(int)],
                    odd[((d - 1) // 2).astype(int)] * (d > 0))
  ends = 1 / np.cosh(np.minimum(epsilon * d / 2, 700))
  risk = np.exp(-epsilon * d / 2) / (1 + q) * (
      (1 - q) * inside + 2 * ends)
  return np.where(d == 0, 1.0, risk)


def _concentrated(level: np.ndarray) -> np.ndarray:
  """Returns e with D_1(Ber(e) || Ber(1 - e)) = level, by bisection.

  The divergence is x tanh(x / 2), x the logit of e. For two distributions on
  two points, order 1 is the strongest constraint.
  """
  levels, places = np.unique(level, return_inverse=True)
  # x tanh(x / 2) is between x - 1 and x, and x^2 / 2 at most.
  low, high = np.maximum(levels, np.sqrt(2 * levels)), levels + 1
  for _ in range(64):
    middle = (low + high) / 2
    inside = middle * np.tanh(middle / 2) <= levels
    low, high = np.where(inside, middle, low), np.where(inside, high, middle)
  # The upper end of the bisection: it understates e, which is valid.
  return (1 / (1 + np.exp(np.minimum(high, 700.0))))[places].reshape(
      np.shape(level))
