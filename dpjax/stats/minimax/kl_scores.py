"""Bounds of Bayes risks by scores, from what one record's release discloses.

Records of score s and a prior of Fisher information J, as in `scores`:

  d <= sum_i E <M - theta, s(x_i)> + sqrt(J R),   R = E |M - theta|^2.

Of record i, given the other records and theta, let W(x) be the density of its
law after the release to that before, at x. A term is the mean of E f W over
outputs, f(x) = <M - theta, s(x)>, whose mean is 0 under the law before. With l
a bound of the variance of <v, s>, |v| = 1, or of its variance proxy, each term
is c sqrt(l R) at most, so R >= d^2 / (n c sqrt(l) + sqrt(J))^2, for c as below.

Any c_i that x_i has no part in may stand for theta in f, as the mean of M given
the others: R becomes the variance of M given them, which is N (1 + v) / (1 - v)
at most for the mean variance N of M given all records and v of
`scores.discrimination`. So p = c^2 (1 + v) / (1 - v) does for `scores.bound`,
where sampling and privacy add up.

Pure privacy. W(x) / W(x') <= e^epsilon for all x, x' (any two values of a
record are neighbours, not only a value and the mean), and E W = 1: so Var W <=
sinh(epsilon / 2)^2, and by the Cauchy-Schwarz inequality c = sinh(epsilon / 2).
That is half of the root of the chi^2 of neighbours. Of Gaussian scores the best
W is e^epsilon w above a threshold and w below it, and c solves phi(c) - c
Phi(-c) = c / (e^epsilon - 1): 0.4 epsilon for small epsilons, sqrt(2 epsilon)
for large.

Kullback-Leibler privacy (LB-16). The mutual information I of M and x_i, given
the rest, is at most the divergence a of neighbours, by convexity. Let l be a
variance proxy, E exp <v, s> <= exp(l |v|^2 / 2). By the variational formula of
Donsker and Varadhan, for the joint law P of (x_i, M) and the product Q of its
marginals, and any t > 0,

  E_P [t f - t^2 l |M - theta|^2 / 2] <= I + ln E_Q exp(t f - t^2 l |M -
  theta|^2 / 2) <= I,

so E_P f <= I / t + t l R / 2: c = sqrt(2 I). No projection of M, and no bound
of it, is needed. zCDP has I <= rho; epsilon-DP the divergence of bounded range,
epsilon^2 / 8 at most, since the logarithm of W ranges over epsilon.

(epsilon, delta). P and Q are (epsilon, delta)-close, both ways. Cut dP/dQ to
[e^-epsilon, e^epsilon] and give or take the mass that is lost: at most delta
moves away and as much comes. So a term is at most 2 sinh(epsilon / 2) sqrt(l R)
+ 2 delta sup |f|, and d loses the sum of the latter.

Vectors of E |X|^k <= r^k: a record is 0, or of d independent signs of size r
g^(-1/k) / sqrt d with probability g. Let all be told which are 0. Of N others,
with J + 1 / (1 / (N t) + 1 / (N^2 p l)) brought up to the square of a sum of
roots, the bound is convex in N: Jensen's inequality puts n g there. Best g and
prior give r^2 (d / (n^2 a))^(1 - 1/k) under Kullback-Leibler privacy, as
truncated means with Gaussian noise have: the factor d is real.

Source: spec LB-16, which has d r^2 / (512 pi^2 n^2 a) for k = inf, as a
conjecture; here it is d r^2 / (2 n^2 a), n^2 a much larger than d.
"""

import math

import numpy as np
from scipy import optimize
from scipy import stats

from dpjax import errors
from dpjax.privacy import notions
from dpjax.stats.minimax import scores as score_bounds
from dpjax.stats.minimax.bounds import Guarantee

SCORES = ('any', 'sub_gaussian', 'gaussian')
# Beyond it e^epsilon is no float64; epsilon bounds the information then.
_LARGEST = 600.0
# Of priors: half-widths in units of the largest.
_WIDTHS = np.linspace(0.01, 0.99, 99)
_SHARES = np.geomspace(1e-6, 1, 241)
# Means over priors of Fisher's information, in units of d / r^2.
_INFORMATION = np.array([score_bounds.cosine_mean(
    lambda v: 1 / (1 - v * v), centre=0.0, radius=width) for width in _WIDTHS])


def disclosed(guarantee: Guarantee) -> float:
  """Nats that a release tells of one record, the others given, at most.

  Whatever the law of the record; infinite where nothing is promised. Sharp for
  pure privacy, by choosing among subsets of values.
  """
  match guarantee:
    case notions.PureDP(epsilon=epsilon):
      return epsilon if epsilon > _LARGEST else notions.zcdp_from_mechanism(
          guarantee, 'exponential').rho
    case notions.ApproxDP(epsilon=epsilon, delta=0):
      return disclosed(notions.PureDP(epsilon=epsilon))
    case notions.ZCDP(rho=rho):
      return rho
    case notions.KullbackLeiblerPrivacy(level=level):
      return level
    case _:
      return math.inf


def correlation(guarantee: Guarantee, *, scores: str = 'any') -> float:
  """c: how far one record can pull an estimate along its score.

  Args:
    guarantee: of the estimator.
    scores: 'any', and l bounds variances; 'sub_gaussian', and l is a variance
      proxy; 'gaussian'.

  Returns:
    At least 0; infinite where there is no bound.
  """
  errors.check_choice('scores', scores, SCORES)
  match guarantee:
    case notions.ApproxDP(epsilon=epsilon, delta=0):
      return correlation(notions.PureDP(epsilon=epsilon), scores=scores)
    case notions.PureDP(epsilon=epsilon) if scores == 'any':
      return math.sinh(epsilon / 2) if epsilon <= _LARGEST else math.inf
    case notions.PureDP(epsilon=epsilon) if scores == 'gaussian' and epsilon:
      growth = math.expm1(min(epsilon, _LARGEST))
      threshold = optimize.brentq(
          lambda c: stats.norm.pdf(c) - c * stats.norm.sf(c) - c / growth,
          0, 40, xtol=1e-300, rtol=1e-14)
      return threshold if epsilon <= _LARGEST else math.sqrt(2 * epsilon)
    case notions.ZCDP(rho=rho) if scores == 'any':
      return math.sqrt(math.expm1(2 * rho)) if rho <= _LARGEST / 2 else math.inf
    case _ if scores == 'any':
      return math.inf
    case _:
      return math.sqrt(2 * disclosed(guarantee))


def pull(guarantee: Guarantee, *, scores: str = 'any') -> float:
  """p = c^2 (1 + v) / (1 - v), in squares; infinite where there is no bound."""
  least = correlation(guarantee, scores=scores)
  return least**2 * _spread(guarantee) if math.isfinite(least) else math.inf


def _spread(guarantee: Guarantee) -> float:
  v = score_bounds.discrimination(guarantee)
  return (1 + v) / (1 - v) if v < 1 else math.inf


def private(*, dimension: int, num_examples: int, guarantee: Guarantee,
            information: float, prior_information: float,
            information_trace: float = math.inf, scores: str = 'any') -> float:
  """The larger of both forms, of privacy alone and with sampling.

  Args:
    dimension: d.
    num_examples: n.
    guarantee: of the estimator.
    information: l, the mean over the prior; the largest eigenvalue of Fisher's
      information, or a variance proxy of scores in any direction.
    prior_information: J, the trace; 0 for a prior as wide as the whole space.
    information_trace: t, of Fisher's information; infinite to leave it out.
    scores: as of `correlation`.
  """
  errors.check_at_least('dimension', dimension, 1)
  errors.check_at_least('num_examples', num_examples, 1)
  least = correlation(guarantee, scores=scores)
  known = _known(num_examples, information_trace, information,
                 pull(guarantee, scores=scores))
  root = min(prior_information + float(known), (
      num_examples * least * math.sqrt(information)
      + math.sqrt(prior_information))**2)
  return dimension**2 / root if root else math.inf


def _known(num_examples: np.ndarray, information_trace: np.ndarray,
           information: np.ndarray, squares: float) -> np.ndarray:
  """1 / (1 / (n t) + 1 / (n^2 p l)); p may be 0 or infinite."""
  with np.errstate(divide='ignore'):
    return num_examples / (1 / np.float64(information_trace) + 1 / (
        num_examples * np.float64(squares) * information))


def vectors(*, dimension: int, num_examples: int, guarantee: Guarantee,
            moment: float = math.inf, radius: float = 1.0) -> float:
  """Squared error of the mean of vectors with E |X|^k <= r^k, at least.

  Args:
    dimension: d.
    num_examples: n.
    guarantee: of the estimator; delta must be small against 1 / n.
    moment: k >= 1; infinite where |X| <= r.
    radius: r.

  Returns:
    At least 0, and below r^2, the error of a constant.
  """
  errors.check_at_least('dimension', dimension, 1)
  errors.check_at_least('num_examples', num_examples, 1)
  errors.check_positive('radius', radius)
  if not moment >= 1:
    raise ValueError(f'moment must be a number >= 1, got {moment}')
  share = _SHARES[:, None] if math.isfinite(moment) else np.ones((1, 1))
  found = [_vectors(dimension, num_examples * share, *of)
           for of in (_additive(guarantee), (math.inf, math.inf, 0.0))]
  return radius**2 * float(np.max(share**(2 - 2 / moment)
                                  * np.maximum(*found)))


def _vectors(dimension: int, seen: np.ndarray, least: float, squares: float,
             lost: float) -> np.ndarray:
  """In units of r^2, of so many records that are not 0, for each prior.

  Signs with means of v at most have scores of proxies (1 - v^2)^-2 v / atanh v
  in units of d / r^2 (Kearns and Saul), of size sqrt(d) / (1 - v) at most.
  """
  proxy = _WIDTHS / np.arctanh(_WIDTHS) / (1 - _WIDTHS**2)**2
  prior = dimension * (math.pi / _WIDTHS)**2
  known = _known(seen, dimension * _INFORMATION, proxy, squares)
  # Of a number of records that is certain nothing need be convex.
  joined = prior + known if seen.size == 1 else (
      np.sqrt(prior) + np.sqrt(known))**2
  alone = (seen * least * np.sqrt(proxy) + np.sqrt(prior))**2
  kept = np.maximum(0, 1 - 4 * seen * lost * _WIDTHS / (1 - _WIDTHS))
  return dimension * kept**2 / np.minimum(joined, alone)


def _additive(guarantee: Guarantee) -> tuple[float, float, float]:
  """c and p, of sub-Gaussian scores, and the delta that adds 2 delta sup |f|.
  """
  match guarantee:
    case notions.ApproxDP(epsilon=epsilon, delta=delta) if delta:
      least = 2 * correlation(notions.PureDP(epsilon=epsilon))
      return least, least**2 * _spread(guarantee), delta
    case notions.TotalVariationPrivacy(level=level):
      return 0.0, 0.0, level
    case _:
      return (correlation(guarantee, scores='sub_gaussian'),
              pull(guarantee, scores='sub_gaussian'), 0.0)
