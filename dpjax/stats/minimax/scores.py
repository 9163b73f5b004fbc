"""Bounds of Bayes risks by scores: van Trees' inequality, and its private form.

theta in R^d has a prior of information J, records have scores s(x_i) of
information I(theta), trace t and largest eigenvalue l in the mean. An estimate
has the mean m(x) given the records and, about it, the variance N. With a =
sum_i E <m, s(x_i)> and b = E <m - theta, grad log prior>, a + b = d, and

* E |m - theta|^2 >= a^2 / (n t) + b^2 / J, by projection on both scores;
* N >= a^2 / (n^2 p l) for the p of `disclosure.pull`: without record i the
  i-th term is 0, and what a record discloses bounds the change.

So sampling and privacy add up, and the least over a is a bound of the risk:

  E |M - theta|^2 >= d^2 / (J + 1 / (1 / (n t) + 1 / (n^2 p l))).

Where only c of `disclosure.correlation` is known, not p, the same with d^2 / (n
c sqrt l + sqrt J)^2. No dimension is lost, as it is by tests under zCDP. Item
LB-15 is the latter with sqrt(chi^2) for c (`private`). The sum is ours; for
zeros and ones (`proportion`) so is the constant, which zCDP attains.
"""

from collections.abc import Callable
import math

import numpy as np
from scipy import optimize

from dpjax import errors
from dpjax.stats.minimax import disclosure
from dpjax.stats.minimax.bounds import Guarantee

_NODES = 400


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
  square = disclosure.chi_square(guarantee)
  if not math.isfinite(square):
    return 0.0
  root = num_examples * math.sqrt(square * information) + math.sqrt(
      prior_information)
  return (dimension / root)**2 if root else math.inf


def bound(*, dimension: int, num_examples: int, guarantee: Guarantee,
          information: float, prior_information: float,
          information_trace: float = math.inf, scores: str = 'any') -> float:
  """The larger of both; van Trees' inequality where neither p nor c is known.

  Args:
    dimension: d.
    num_examples: n.
    guarantee: of the estimator; None for any estimator.
    information: l, the mean over the prior: the largest eigenvalue of Fisher's
      information, or a variance proxy of scores in any direction.
    prior_information: J; 0 for a prior as wide as the whole space.
    information_trace: t; infinite to leave sampling out.
    scores: 'any', or what the law of scores is (`disclosure.SCORES`).
  """
  errors.check_at_least('dimension', dimension, 1)
  errors.check_at_least('num_examples', num_examples, 1)
  noise = num_examples**2 * information * disclosure.pull(
      guarantee, scores=scores)
  found = joined(dimension, num_examples * information_trace, noise,
                 prior_information)
  least = disclosure.correlation(guarantee, scores=scores)
  root = num_examples * least * math.sqrt(information) + math.sqrt(
      prior_information)
  return max(found, (dimension / root)**2 if root else math.inf)


def joined(dimension: int, sampling: float, noise: float,
           prior_information: float) -> float:
  """d^2 / (J + 1 / (1 / sampling + 1 / noise)); no noise where it is inf."""
  if not noise:
    return dimension**2 / prior_information if prior_information else math.inf
  known = 1 / (1 / sampling + 1 / noise)
  return dimension**2 / (prior_information + known)


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
  v = disclosure.discrimination(guarantee)

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
