"""Bounds of Bayes risks by scores: van Trees' inequality, and its private form.

theta in R^d has a prior of information J, records have scores s(x_i) of
information I(theta), trace t and largest eigenvalue l in the mean. An estimate
has the mean m(x) given the records and, about it, the variance N. With a =
sum_i E <m, s(x_i)> and b = E <m - theta, grad log prior>, a + b = d, and

* E |m - theta|^2 >= a^2 / (n t) + b^2 / J, by projection on both scores;
* N >= a^2 / (n^2 p l) for the p of `pull`. Put a fresh record in the place of
  x_i, and the i-th term becomes 0; it changes, by Hammersley, Chapman and
  Robbins, by at most sqrt(chi^2 s' C s), C being the covariance after the
  change, of which x_i knows nothing: p = chi^2 of neighbours will do. Under
  pure privacy compare with the mean of the laws over x_i: of densities to that,
  of mean 1 and within e^epsilon of each other, the variance is sinh(epsilon /
  2)^2 at most, a quarter of chi^2; the variance about the new mean is N and
  half of a mean square between neighbours, N (1 + chi^2 / 2) at most.

So sampling and privacy add up, and the least over a is a bound of the risk:

  E |M - theta|^2 >= d^2 / (J + 1 / (1 / (n t) + 1 / (n^2 p l))).

No dimension is lost, as it is by tests under zCDP. `private` is the bound of
spec LB-15, without the term of sampling and with (sqrt J + ...)^2. The sum is
ours; for zeros and ones (`proportion`) so is the constant, which zCDP attains.
"""

from collections.abc import Callable
import math

import numpy as np
from scipy import optimize

from dpjax import errors
from dpjax.privacy import notions
from dpjax.stats.minimax import two_points
from dpjax.stats.minimax.bounds import Guarantee

_NODES = 400


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


def pull(guarantee: Guarantee) -> float:
  """p: how far one record can pull an estimate, in squares; see above."""
  square = chi_square(guarantee)
  if isinstance(guarantee, notions.PureDP):
    return min(square, square / 4 * (1 + square / 2))
  return square


def private(*, dimension: int, num_examples: int, guarantee: Guarantee,
            information: float, prior_information: float) -> float:
  """d^2 / (n sqrt(chi^2 l) + sqrt J)^2; 0 where chi^2 has no bound.

  Args:
    dimension: d.
    num_examples: n.
    guarantee: of the estimator.
    information: l.
    prior_information: J, the trace; 0 for a prior as wide as the whole space.
  """
  errors.check_at_least('num_examples', num_examples, 1)
  square = chi_square(guarantee)
  if not math.isfinite(square):
    return 0.0
  root = num_examples * math.sqrt(square * information) + math.sqrt(
      prior_information)
  return (dimension / root)**2 if root else math.inf


def bound(*, dimension: int, num_examples: int, guarantee: Guarantee,
          information: float, information_trace: float,
          prior_information: float) -> float:
  """The bound above; van Trees' inequality where p has no bound.

  Args:
    dimension: d.
    num_examples: n.
    guarantee: of the estimator; None for any estimator.
    information: l.
    information_trace: t.
    prior_information: J; 0 for a prior as wide as the whole space.
  """
  errors.check_at_least('num_examples', num_examples, 1)
  noise = num_examples**2 * pull(guarantee) * information
  return joined(dimension, num_examples * information_trace, noise,
                prior_information)


def joined(dimension: int, sampling: float, noise: float,
           prior_information: float) -> float:
  """d^2 / (J + 1 / (1 / sampling + 1 / noise)); no noise where it is inf."""
  if not noise:
    return dimension**2 / prior_information if prior_information else math.inf
  known = 1 / (1 / sampling + 1 / noise)
  return dimension**2 / (prior_information + known)


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


def proportion(*, num_examples: int, guarantee: Guarantee) -> float:
  """The bound for n zeros and ones, the best of cosine priors around 1/2.

  The term of record i is that of its being 1 less that of its being 0, D, and
  D^2 <= 2 v / (1 - v) (V_1 + V_0) for variances of the estimate: by the
  inequality of Cauchy and Schwarz in (P + Q) / 2, about the middle. Hence N >=
  a^2 (1 - v) / (2 v n^2) times the least of theta, 1 - theta. Under zCDP that
  tends to 1 / (2 n^2 rho) as rho tends to 0: together with 1 / (4 n) the risk
  of Gaussian noise.
  """
  errors.check_at_least('num_examples', num_examples, 1)
  v = discrimination(guarantee)

  def negative(radius):
    known = cosine_mean(lambda p: 1 / (p * (1 - p)), centre=0.5, radius=radius)
    rare = cosine_mean(lambda p: 1 / np.minimum(p, 1 - p), centre=0.5,
                       radius=radius)
    noise = (num_examples**2 * 2 * v / (1 - v) * rare if v < 1 else math.inf)
    return -joined(1, num_examples * known, noise,
                   cosine_information(dimension=1, radius=radius))
  found = optimize.minimize_scalar(negative, bounds=(1e-3, 0.5),
                                   method='bounded', options=dict(xatol=1e-4))
  return -float(found.fun)


def cosine_information(*, dimension: int, radius: float) -> float:
  """J of the prior with density prod cos(pi u_j / 2 R)^2 / R on |u_j| <= R."""
  errors.check_positive('radius', radius)
  return dimension * (math.pi / radius)**2


def cosine_mean(function: Callable[[np.ndarray], np.ndarray], *, centre: float,
                radius: float) -> float:
  """The mean of a function of one coordinate under that prior."""
  # The trapezoid rule on a period: exact to rounding for smooth functions.
  u = (np.arange(_NODES) + 0.5) / _NODES * 2 - 1
  return float(np.mean(function(centre + radius * u)
                       * 2 * np.cos(math.pi * u / 2)**2))
