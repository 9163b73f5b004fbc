"""Lower bounds of Bayes risks by scores: van Trees' inequality, made private.

theta in R^d has a prior of information J. Records have scores s(x_i) of
information I(theta), whose mean has trace t and largest eigenvalue l. An
estimate has mean m(x) given the records and variance N about it. With a = sum_i
E <m, s(x_i)> and b = E <m - theta, grad log prior>, a + b = d, and

* E |m - theta|^2 >= a^2 / (n t) + b^2 / J, by projection on both scores;
* N >= a^2 / (n^2 p l) for the p of `disclosure.pull`: without record i the i-th
  term is 0, and the information disclosed about a record bounds the change.

So sampling and privacy add up, and the least over a bounds the risk:

  E |M - theta|^2 >= d^2 / (J + 1 / (1 / (n t) + 1 / (n^2 p l))).

If only c of `disclosure.correlation` is known instead of p, the same holds with
d^2 / (n c sqrt l + sqrt J)^2. No factor of the dimension is lost, as it is by
tests under zCDP. Item LB-15 is the latter with sqrt(chi^2) for c (`private`).
The method is the score attack of Cai, Wang and Zhang (2021, 2023), after the
fingerprinting of Bun, Ullman and Vadhan (2014), Dwork et al. (2015) and Kamath
et al. (2019). They have such rates up to logarithms, under (epsilon,
delta)-DP; the sum of both terms and the constants are our own. For zeros and
ones (`proportion`) zCDP attains the constant.
"""

from collections.abc import Callable
import math

import numpy as np
from scipy import optimize

from dpjax import errors
from dpjax.theory.minimax import disclosure
from dpjax.theory.minimax.bounds import Guarantee

# Quadrature nodes for means over cosine priors.
_NODES = 400


def private(*, dimension: int, num_examples: int, guarantee: Guarantee,
            information: float, prior_information: float) -> float:
  """Returns d^2 / (n sqrt(chi^2 l) + sqrt J)^2; 0 if chi^2 has no bound.

  Args:
    dimension: d.
    num_examples: n.
    guarantee: guarantee of the estimator.
    information: l.
    prior_information: J, a trace; 0 for an infinitely wide prior.
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
  """Returns the larger bound of the module; van Trees' for infinite p and c.

  Args:
    dimension: d.
    num_examples: n.
    guarantee: guarantee of the estimator; None for any estimator.
    information: l, a mean over the prior: the largest eigenvalue of Fisher's
      information, or a variance proxy of scores in any direction.
    prior_information: J; 0 for an infinitely wide prior.
    information_trace: t; infinite to leave sampling out.
    scores: 'any', or the kind of scores (`disclosure.SCORES`).
  """
  errors.check_at_least('dimension', dimension, 1)
  errors.check_at_least('num_examples', num_examples, 1)
  # n^2 p l: the information that privacy leaves.
  noise = num_examples**2 * information * disclosure.pull(
      guarantee, scores=scores)
  sum_bound = joined(dimension, num_examples * information_trace, noise,
                     prior_information)
  c = disclosure.correlation(guarantee, scores=scores)
  root = num_examples * c * math.sqrt(information) + math.sqrt(
      prior_information)
  return max(sum_bound, (dimension / root)**2 if root else math.inf)


def joined(dimension: int, sampling: float, noise: float,
           prior_information: float) -> float:
  """Returns d^2 / (J + 1 / (1 / sampling + 1 / noise)); noise may be inf."""
  if not noise:
    return dimension**2 / prior_information if prior_information else math.inf
  information = 1 / (1 / sampling + 1 / noise)
  return dimension**2 / (prior_information + information)


def proportion(*, num_examples: int, guarantee: Guarantee) -> float:
  """Returns the bound for n zeros and ones, by the best cosine prior.

  Priors are centred at 1/2. The term of record i is D, the mean estimate if it
  is 1 minus that if it is 0. By Cauchy-Schwarz in (P + Q) / 2, about the
  middle, D^2 <= 2 v / (1 - v) (V_1 + V_0) for variances of the estimate. Hence
  N >= a^2 (1 - v) / (2 v n^2) times the least of theta, 1 - theta. Under zCDP
  that tends to 1 / (2 n^2 rho) as rho tends to 0: together with 1 / (4 n) this
  is the risk of Gaussian noise.
  """
  errors.check_at_least('num_examples', num_examples, 1)
  v = disclosure.discrimination(guarantee)

  def negative(radius: float) -> float:
    known = cosine_mean(lambda p: 1 / (p * (1 - p)), centre=0.5, radius=radius)
    rare = cosine_mean(lambda p: 1 / np.minimum(p, 1 - p), centre=0.5,
                       radius=radius)
    noise = (num_examples**2 * 2 * v / (1 - v) * rare if v < 1 else math.inf)
    return -joined(1, num_examples * known, noise,
                   cosine_information(dimension=1, radius=radius))
  minimum = optimize.minimize_scalar(negative, bounds=(1e-3, 0.5),
                                     method='bounded', options=dict(xatol=1e-4))
  return -float(minimum.fun)


def cosine_information(*, dimension: int, radius: float) -> float:
  """Returns J of the prior prod cos(pi u_j / 2 R)^2 / R on |u_j| <= R."""
  errors.check_positive('radius', radius)
  return dimension * (math.pi / radius)**2


def cosine_mean(function: Callable[[np.ndarray], np.ndarray], *, centre: float,
                radius: float) -> float:
  """Returns the mean of a function of one coordinate under that prior."""
  # The trapezoid rule on a period: exact to rounding for smooth functions.
  u = (np.arange(_NODES) + 0.5) / _NODES * 2 - 1
  return float(np.mean(function(centre + radius * u)
                       * 2 * np.cos(math.pi * u / 2)**2))
