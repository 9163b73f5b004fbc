"""Bounds of Bayes risks by scores, from what one record's release discloses.

For records of score s and a prior of Fisher information J (see `scores`),

  d <= sum_i E <M - theta, s(x_i)> + sqrt(J R),   R = E |M - theta|^2.

Of record i, given the other records and theta, let W(x) be the density of its
law after the release to that before, at x. A term is the mean of E f W over
outputs, f(x) = <M - theta, s(x)>, whose mean is 0 under the law before. With l
a bound of the variance of <v, s>, |v| = 1, or of its variance proxy, each term
is c sqrt(l R) at most, so R >= d^2 / (n c sqrt(l) + sqrt(J))^2, for these c:

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
+ 2 delta sup |f|.

Vectors of E |X|^k <= r^k: a record is 0, or of d independent signs of size r
g^(-1/k) / sqrt d with probability g. Let all be told which are 0; of N others
the bound is convex in N, and holds with its mean n g by Jensen's inequality.
Best g and prior give r^2 (d / (n^2 a))^(1 - 1/k) under Kullback-Leibler
privacy, as truncated means with Gaussian noise have: the factor d is real.

Source: spec LB-16, which has d r^2 / (512 pi^2 n^2 a) for k = inf, as a
conjecture; here it is d r^2 / (2 n^2 a), n^2 a much larger than d.
"""

import math

import numpy as np
from scipy import optimize
from scipy import stats

from dpjax import errors
from dpjax.privacy import notions
from dpjax.stats.minimax.bounds import Guarantee

SCORES = ('any', 'sub_gaussian', 'gaussian')
# Beyond it e^epsilon is no float64; epsilon bounds the information then.
_LARGEST = 600.0
# Of priors: half-widths in units of the largest.
_WIDTHS = np.linspace(0.01, 0.99, 99)
_SHARES = np.geomspace(1e-6, 1, 241)


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


def private(*, dimension: int, num_examples: int, guarantee: Guarantee,
            information: float, prior_information: float,
            scores: str = 'any') -> float:
  """d^2 / (n c sqrt(l) + sqrt(J))^2; 0 where c is infinite.

  Args:
    dimension: d.
    num_examples: n.
    guarantee: of the estimator.
    information: l, the mean over the prior; the largest eigenvalue of Fisher's
      information, or a variance proxy of scores in any direction.
    prior_information: J, the trace; 0 for a prior as wide as the whole space.
    scores: as of `correlation`.
  """
  errors.check_at_least('dimension', dimension, 1)
  errors.check_at_least('num_examples', num_examples, 1)
  pull = correlation(guarantee, scores=scores)
  if not math.isfinite(pull):
    return 0.0
  root = num_examples * pull * math.sqrt(information) + math.sqrt(
      prior_information)
  return (dimension / root)**2 if root else math.inf


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
  pull, lost = _additive(guarantee)
  if not math.isfinite(pull):
    return 0.0
  share = _SHARES[:, None] if math.isfinite(moment) else np.ones((1, 1))
  # Signs with means of v at most have scores of proxies (1 - v^2)^-2 v / atanh
  # v in units of d / r^2 (Kearns and Saul), of size sqrt(d) / (1 - v) at most.
  seen = num_examples * share
  proxy = np.sqrt(_WIDTHS / np.arctanh(_WIDTHS)) / (1 - _WIDTHS**2)
  kept = np.maximum(0, 1 - 4 * seen * lost * _WIDTHS / (1 - _WIDTHS))
  root = seen * pull * proxy + math.sqrt(dimension) * math.pi / _WIDTHS
  found = dimension * (kept / root)**2 * share**(2 - 2 / moment)
  return radius**2 * float(np.max(found))


def _additive(guarantee: Guarantee) -> tuple[float, float]:
  """c, of sub-Gaussian scores, and the delta that adds 2 delta sup |f|."""
  match guarantee:
    case notions.ApproxDP(epsilon=epsilon, delta=delta) if delta:
      return 2 * correlation(notions.PureDP(epsilon=epsilon)), delta
    case notions.TotalVariationPrivacy(level=level):
      return 0.0, level
    case _:
      return correlation(guarantee, scores='sub_gaussian'), 0.0
