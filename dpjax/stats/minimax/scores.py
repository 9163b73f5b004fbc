"""Bounds of Bayes risks by scores: van Trees' inequality, and its private form.

For a prior of information J the scores s(x_i) of n records satisfy sum_i E <M -
theta, s(x_i)> = E div M, which is d less what the prior takes. Put another
record in the place of x_i: the term becomes 0, and has changed by sqrt(chi^2
E <M - theta, s>^2) at most, chi^2 being that of neighbours. Hence

  E |M - theta|^2 >= d^2 / (n sqrt(chi^2 l) + sqrt(J))^2

for l the mean over the prior of the largest eigenvalue of Fisher's information.
No dimension is lost: what tests of many hypotheses cannot see under zCDP. Holds
for squared errors, summed over coordinates. Source: spec LB-15 (after Cai, Wang
and Zhang 2021 and Kamath, Mouzakis and Singhal 2022, for pure and concentrated
privacy and with constants).
"""

from collections.abc import Callable
import math

import numpy as np

from dpjax import errors
from dpjax.privacy import notions
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


def private(*, dimension: int, num_examples: int, guarantee: Guarantee,
            information: float, prior_information: float) -> float:
  """The bound above; 0 where neighbours have no bounded chi^2.

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


def van_trees(*, dimension: int, num_examples: int, information_trace: float,
              prior_information: float) -> float:
  """d^2 / (n E tr I + J): of any estimator, private or not."""
  errors.check_at_least('num_examples', num_examples, 1)
  return dimension**2 / (num_examples * information_trace + prior_information)


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
