"""Bounds on the information in a release about one record, and on its pull.

In bounds by scores (`scores`) one term is E <M, s(x_i)>, of record i given the
other records and theta. Let W(x) be the density of x_i's distribution after the
release relative to that before. Without record i the term is 0, so it is the
mean of E f W over outputs, f(x) = <M - c_i, s(x)>, for any c_i that does not
depend on x_i. Let l bound the variance of <v, s>, |v| = 1, or be its variance
proxy. Then the term is at most c sqrt(l R'), R' = E |M - c_i|^2, with c as
below. For the mean of M given the others R' is at most N (1 + v) / (1 - v),
where N is the mean variance of M given all records and v is `discrimination`.
So p = c^2 (1 + v) / (1 - v). Another bound is the chi^2 of neighbours, by the
Hammersley-Chapman-Robbins inequality with a fresh record in place of x_i.
`pull` is the smaller one.

The proofs, for each notion of privacy, are in docs/theory/disclosure.md. The
term of a record is the score attack of Cai, Wang and Zhang (2021, 2023); see
also the fingerprinting lemma of Kamath, Mouzakis and Singhal (2022). Bounds and
constants are our own (item LB-15, LB-16).
"""

import math

from scipy import optimize
from scipy import stats

from dpjax import errors
from dpjax.privacy import notions
from dpjax.theory.minimax import two_points
from dpjax.theory.minimax.bounds import Guarantee

SCORES = ('any', 'sub_gaussian', 'gaussian')
# Above this e^epsilon nearly overflows; epsilon then bounds the information.
_LARGEST = 600.0


def chi_square(guarantee: Guarantee) -> float:
  """Bounds the chi^2 divergence of neighbours; infinite without a guarantee.

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
  """Bounds v, the mean of ((P - Q) / (P + Q))^2 under (P + Q) / 2.

  P and Q are output distributions of neighbours. Pure privacy: tanh(epsilon /
  2)^2. With delta: that, but 1 on a fraction delta. zCDP and Kullback-Leibler
  privacy: that of two distributions on two points (`two_points`). Total
  variation: at most its level. 1 without a guarantee.
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
  """Bounds the information of a release about one record, in nats.

  Given the other records, whatever the distribution of the record; infinite
  without a guarantee. Sharp for pure privacy, by choosing among subsets of
  values.
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
  """Returns c, how far one record can pull an estimate along its score.

  Args:
    guarantee: guarantee of the estimator.
    scores: 'any' if l bounds variances; 'sub_gaussian' if l is a variance
      proxy; 'gaussian' for Gaussian scores.

  Returns:
    At least 0; infinite if there is no bound.
  """
  errors.check_choice('scores', scores, SCORES)
  match guarantee:
    case notions.ApproxDP(epsilon=epsilon, delta=0):
      return correlation(notions.PureDP(epsilon=epsilon), scores=scores)
    case notions.PureDP(epsilon=epsilon) if scores == 'any':
      return math.sinh(epsilon / 2) if epsilon <= _LARGEST else math.inf
    case notions.PureDP(epsilon=epsilon) if scores == 'gaussian' and epsilon:
      growth = math.expm1(min(epsilon, _LARGEST))
      # The equation for c of Gaussian scores in the module's docstring.
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
  """Returns the smaller of chi^2 and c^2 (1 + v) / (1 - v), p in `scores`."""
  v, c = discrimination(guarantee), correlation(guarantee, scores=scores)
  variance_ratio = (1 + v) / (1 - v) if v < 1 else math.inf
  return min(chi_square(guarantee),
             c**2 * variance_ratio if c < math.inf else math.inf)
