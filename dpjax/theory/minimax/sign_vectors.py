"""Lower bounds for means of vectors of d signs, by scores.

Vectors of E |X|^k <= r^k: with probability g a record has d independent signs
of size r g^(-1/k) / sqrt d, else it is 0. Let the estimator know which records
are 0. For N others, replace J + 1 / (1 / (N t) + 1 / (N^2 p l)) by the larger
square of a sum of roots: the bound is convex in N, and Jensen's inequality puts
n g there. The best g and prior give r^2 (d / (n^2 a))^(1 - 1/k) under
Kullback-Leibler privacy of level a, as truncated means with Gaussian noise
have. So the factor d is necessary.

Source: item LB-16, which has d r^2 / (512 pi^2 n^2 a) for k = inf, as a
conjecture; here it is d r^2 / (2 n^2 a), for n^2 a much larger than d. The
proof is our own.
"""

import math

import numpy as np

from dpjax import errors
from dpjax.privacy import notions
from dpjax.theory.minimax import disclosure
from dpjax.theory.minimax import scores
from dpjax.theory.minimax.bounds import Guarantee

# Half-widths of priors, in units of the largest; then probabilities g.
_WIDTHS = np.linspace(0.01, 0.99, 99)
_PROBS = np.geomspace(1e-6, 1, 241)
# Means over priors of Fisher's information, in units of d / r^2.
_INFORMATION = np.array([scores.cosine_mean(
    lambda v: 1 / (1 - v * v), centre=0.0, radius=width) for width in _WIDTHS])


def vectors(*, dimension: int, num_examples: int, guarantee: Guarantee,
            moment: float = math.inf, radius: float = 1.0) -> float:
  """Bounds the squared error of the mean of vectors with E |X|^k <= r^k.

  Args:
    dimension: d.
    num_examples: n.
    guarantee: guarantee of the estimator; delta must be small against 1 / n.
    moment: k >= 1; infinite for |X| <= r.
    radius: r.

  Returns:
    At least 0, and below r^2, the error of a constant.
  """
  errors.check_at_least('dimension', dimension, 1)
  errors.check_at_least('num_examples', num_examples, 1)
  errors.check_positive('radius', radius)
  if not moment >= 1:
    raise ValueError(f'moment must be a number >= 1, got {moment}')
  # Bounded records: g = 1 only.
  prob = _PROBS[:, None] if math.isfinite(moment) else np.ones((1, 1))
  # The bound without privacy holds for private estimates, too.
  bounds = [_vectors(dimension, num_examples * prob, *constants)
            for constants in (_additive(guarantee), (math.inf, math.inf, 0.0))]
  return radius**2 * float(np.max(prob**(2 - 2 / moment)
                                  * np.maximum(*bounds)))


def _vectors(dimension: int, seen: np.ndarray, least: float, squares: float,
             lost: float) -> np.ndarray:
  """Returns bounds in units of r^2, for `seen` nonzero records and each prior.

  Signs with means of at most v have scores with variance proxies (1 - v^2)^-2 v
  / atanh v in units of d / r^2 (Kearns and Saul), of size at most sqrt(d) / (1
  - v).
  """
  proxy = _WIDTHS / np.arctanh(_WIDTHS) / (1 - _WIDTHS**2)**2
  prior = dimension * (math.pi / _WIDTHS)**2
  information = _known(seen, dimension * _INFORMATION, proxy, squares)
  # If the number of nonzero records is fixed, convexity is not needed.
  by_pull = prior + information if seen.size == 1 else (
      np.sqrt(prior) + np.sqrt(information))**2
  by_correlation = (seen * least * np.sqrt(proxy) + np.sqrt(prior))**2
  factor = np.maximum(0, 1 - 4 * seen * lost * _WIDTHS / (1 - _WIDTHS))
  return dimension * factor**2 / np.minimum(by_pull, by_correlation)


def _known(num_examples: np.ndarray, information_trace: np.ndarray,
           information: np.ndarray, squares: float) -> np.ndarray:
  """Returns 1 / (1 / (n t) + 1 / (n^2 p l)); p may be 0 or infinite."""
  with np.errstate(divide='ignore'):
    return num_examples / (1 / np.float64(information_trace) + 1 / (
        num_examples * np.float64(squares) * information))


def _additive(guarantee: Guarantee) -> tuple[float, float, float]:
  """Returns c and p for sub-Gaussian scores, and the additive delta.

  delta adds 2 delta sup |f| to each term.
  """
  match guarantee:
    case notions.ApproxDP(epsilon=epsilon, delta=delta) if delta:
      c = 2 * disclosure.correlation(notions.PureDP(epsilon=epsilon))
      v = disclosure.discrimination(guarantee)
      return c, c**2 * (1 + v) / (1 - v), delta
    case notions.TotalVariationPrivacy(level=level):
      return 0.0, 0.0, level
    case _:
      return (disclosure.correlation(guarantee, scores='sub_gaussian'),
              disclosure.pull(guarantee, scores='sub_gaussian'), 0.0)
