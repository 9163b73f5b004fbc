"""What the release of one record discloses, and how far that can pull.

In bounds by scores (`scores`) a term is E <M, s(x_i)>, of record i given the
other records and theta. Let W(x) be the density of its law after the release to
that before, at x. Without record i the term is 0, so it is the mean of E f W
over outputs, f(x) = <M - c_i, s(x)>, for any c_i that x_i has no part in. With
l a bound of the variance of <v, s>, |v| = 1, or of its variance proxy, it is c
sqrt(l R') at most, R' = E |M - c_i|^2, for c as below. For the mean of M given
the others R' is N (1 + v) / (1 - v) at most, N the mean variance of M given all
records and v of `discrimination`; so p = c^2 (1 + v) / (1 - v), and the chi^2
of neighbours, by Hammersley's, Chapman's and Robbins' inequality with a fresh
record in the place of x_i: the lesser is `pull`.

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
moves away and as much comes. So a term is at most 2 sinh(epsilon / 2)
sqrt(l R) + 2 delta sup |f|, and d loses the sum of the latter.

Source: item LB-15 and LB-16, of which the latter is a conjecture; ours.
"""

import math

from scipy import optimize
from scipy import stats

from dpjax import errors
from dpjax.privacy import notions
from dpjax.stats.minimax import two_points
from dpjax.stats.minimax.bounds import Guarantee

SCORES = ('any', 'sub_gaussian', 'gaussian')
# Beyond it e^epsilon is no float64; epsilon bounds the information then.
_LARGEST = 600.0


def chi_square(guarantee: Guarantee) -> float:
  """Of the laws of neighbours, at most; infinite where nothing is promised.

  4 sinh(epsilon / 2)^2, attained by randomised response, and e^(2 rho) - 1, by
  Gaussian noise.
  """
  match guarantee:
    case notions.PureDP(epsilon=epsilon):
      return 4 * math.sinh(min(epsilon, 600.0) / 2)**2
    case notions.ZCDP(rho=rho):
      return math.expm1(min(2 * rho, 600.0))
    case _:
      return math.inf


def discrimination(guarantee: Guarantee) -> float:
  """v: of neighbours P, Q the mean of ((P - Q) / (P + Q))^2 under (P + Q) / 2.

  At most: tanh(epsilon / 2)^2; that and, on a share of delta, 1; under zCDP and
  Kullback-Leibler privacy that of two laws on two points (`two_points`); at
  most the total variation. 1 where nothing is promised.
  """
  match guarantee:
    case None:
      return 1.0
    case notions.TotalVariationPrivacy(level=level):
      return min(1.0, level)
    case notions.ApproxDP(epsilon=epsilon, delta=delta):
      return delta + (1 - delta) * math.tanh(epsilon / 2)**2
    case _:
      return two_points.total_variation(guarantee)**2


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
  """p, in squares; infinite where there is no bound."""
  v, least = discrimination(guarantee), correlation(guarantee, scores=scores)
  spread = (1 + v) / (1 - v) if v < 1 else math.inf
  return min(chi_square(guarantee),
             least**2 * spread if least < math.inf else math.inf)
