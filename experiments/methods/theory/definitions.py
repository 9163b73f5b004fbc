"""Privacy notions as predicates and measurements of two finite distributions.

p and q, [m] probabilities, are the output distributions of a mechanism on two
neighbours. A mechanism has a guarantee if all its neighbouring pairs have it.
Both directions are checked. Source: Barber and Duchi (2014, section 2); Lalanne
(2023, section 2.2) (item DEF-DP to DEF-SEM, errata T-E04, E-02, E-03, E-22).
"""

from collections.abc import Callable
import itertools
import math

import numpy as np
from scipy import optimize

from dpjax import errors
from dpjax.privacy import divergences
from dpjax.privacy import notions
from dpjax.privacy import renyi
from experiments.methods.theory import compared_notions

# Tolerance for rounding of sums of probabilities.
_ROUNDING = 1e-9
_ORDERS = 1 + np.geomspace(1e-4, 1e3, 141)
_DIVERGENCES = {notions.TotalVariationPrivacy: divergences.TOTAL_VARIATION,
                notions.KullbackLeiblerPrivacy: divergences.KULLBACK_LEIBLER,
                compared_notions.ChiSquarePrivacy: divergences.CHI_SQUARE}
_MOST_EVENTS = 16


def level(p: np.ndarray, q: np.ndarray, notion: type, *, at: float = 0.0
          ) -> float:
  """Returns the least level at which two distributions have a guarantee.

  It may be infinite.

  Args:
    p: [m] probabilities.
    q: [m] probabilities of the same outcomes.
    notion: type of the guarantee.
    at: its other number: epsilon for ApproxDP, order for RenyiDP, mass for
      ConditionalTesting.
  """
  if notion in _DIVERGENCES:
    return _both(p, q, lambda a, b: divergences.f_divergence(
        a, b, _DIVERGENCES[notion]))
  if notion is notions.PureDP:
    return max(0.0, _both(p, q, divergences.max_divergence))
  if notion is notions.ApproxDP:
    return _both(p, q, lambda a, b: divergences.hockey_stick(a, b, epsilon=at))
  if notion is renyi.RenyiDP:
    return _both(p, q, lambda a, b: divergences.renyi(a, b, order=at))
  if notion is notions.ZCDP:
    return _both(p, q, _slope)
  if notion is notions.BoundedRange:
    return divergences.max_divergence(p, q) + divergences.max_divergence(q, p)
  if notion is compared_notions.ConditionalTesting:
    return conditional(p, q, mass=at)
  raise ValueError('two finite distributions have no level of '
                   f'{notion.__name__}')


def holds(p: np.ndarray, q: np.ndarray, guarantee: object) -> bool:
  """Checks whether two distributions have a guarantee, up to rounding.

  Args:
    p: [m] probabilities.
    q: [m] probabilities of the same outcomes.
    guarantee: a guarantee of `notions`, or a `RenyiDP`.
  """
  match guarantee:
    case notions.ApproxDP(epsilon=at, delta=most):
      pass
    case renyi.RenyiDP(order=at, divergence=most):
      pass
    case compared_notions.ConditionalTesting(mass=at, level=most):
      pass
    case _:
      at, (most,) = 0.0, vars(guarantee).values()
  return level(p, q, type(guarantee), at=at) <= most + _ROUNDING


def _both(p: np.ndarray, q: np.ndarray,
          divergence: Callable[[np.ndarray, np.ndarray], float]) -> float:
  """Returns the larger divergence of both directions."""
  return max(divergence(p, q), divergence(q, p))


def _slope(p: np.ndarray, q: np.ndarray) -> float:
  """Returns sup over orders a of D_a / a; a = 1 is the limit."""
  first = divergences.f_divergence(p, q, divergences.KULLBACK_LEIBLER)
  if math.isinf(first):
    return first
  ratio = lambda order: divergences.renyi(p, q, order=order) / order
  ratios = [ratio(order) for order in _ORDERS]
  place = int(np.argmax(ratios))
  refined = optimize.minimize_scalar(
      lambda order: -ratio(order), method='bounded',
      bounds=(_ORDERS[max(place - 1, 0)],
              _ORDERS[min(place + 1, len(_ORDERS) - 1)]))
  return max(first, ratios[place], -float(refined.fun))


def extremal(guarantee: notions.PureDP | notions.ApproxDP
             ) -> tuple[np.ndarray, np.ndarray]:
  """Returns the worst two distributions for a guarantee, on four outcomes.

  Every pair with the guarantee is a post-processing of them: with probability
  delta the data are revealed, else randomised response answers (Kairouz, Oh and
  Viswanath 2015).
  """
  delta = getattr(guarantee, 'delta', 0.0)
  truth = 1 / (1 + math.exp(-guarantee.epsilon))
  p = np.array([delta, (1 - delta) * truth, (1 - delta) * (1 - truth), 0.0])
  return p, p[::-1].copy()


def weighted_errors(p: np.ndarray, q: np.ndarray, *, weight: float) -> float:
  """Returns the least P(psi = 1) + weight Q(psi = 0) over tests psi.

  (epsilon, delta)-DP means that it is at least 1 - delta for weight e^epsilon,
  in both directions. Source: Barber and Duchi (2014, Proposition 1) (item
  DEF-TEST).
  """
  return float(np.sum(np.minimum(p, weight * np.asarray(q))))


def printed_errors(guarantee: notions.ApproxDP) -> float:
  """Returns (2 - delta) / (1 + e^epsilon), printed for a sum of errors: FALSE.

  Two inequalities add up to 2 - 2 delta, which is attained (erratum E-02):
  twice `two_points.path_error` at distance 1. Source: Barber and Duchi (2014,
  equation (3)).
  """
  return (2 - guarantee.delta) / (1 + math.exp(guarantee.epsilon))


def tilted(p: np.ndarray, q: np.ndarray, weights: np.ndarray) -> float:
  """Returns the total variation of the normalised p w and q w.

  If w are probabilities of an event given the outcome, these are the
  conditional distributions. If w is a prior over data sets and p, q are
  likelihoods of one output, q with one record replaced, these are the two
  posteriors. Both variations are at most tanh(R / 4) for log-ratios p / q that
  range over R, so tanh(epsilon / 2) under epsilon-DP; e^epsilon - 1 is printed
  for posteriors (item DEF-SEM).

  Args:
    p: [..., m], at least 0.
    q: the same.
    weights: [..., m], at least 0.
  """
  first, second = p * weights, q * weights
  return np.sum(np.abs(first / first.sum(-1, keepdims=True)
                       - second / second.sum(-1, keepdims=True)), -1) / 2


def conditional(p: np.ndarray, q: np.ndarray, *, mass: float = 0.0) -> float:
  """Returns the largest total variation given an event of any post-processing.

  The events have probability at least `mass` under both distributions. tanh(R /
  4) for mass 0; otherwise a linear programme for each ratio of their
  probabilities.

  Args:
    p: [m] probabilities.
    q: [m] probabilities of the same outcomes.
    mass: least probability of the event, in [0, 1].
  """
  if not mass:
    return math.tanh(level(p, q, notions.BoundedRange) / 4)
  p, q = np.asarray(p, np.float64), np.asarray(q, np.float64)

  def least(logarithm: float) -> float:
    # Unknown: the density of the event, given its two probabilities' ratio.
    ratio = math.exp(logarithm)
    solution = optimize.linprog(
        -np.maximum(p - q / ratio, 0), A_eq=np.stack([p, q]),
        b_eq=[1.0, ratio], bounds=(0, 1 / max(mass, mass / ratio)))
    return solution.fun if solution.status == 0 else 0.0
  with np.errstate(divide='ignore'):
    ratios = np.log(q[p + q > 0]) - np.log(p[p + q > 0])
  far = -math.log(mass)
  lowest, highest = np.clip([ratios.min(), ratios.max()], -far, far)
  grid = np.sort(np.append(np.linspace(lowest, highest, 40), 0.0))
  place = int(np.argmin([least(at) for at in grid]))
  refined = optimize.minimize_scalar(least, method='bounded', bounds=(
      grid[max(place - 1, 0)], grid[min(place + 1, 40)]))
  return -float(min(refined.fun, least(grid[place])))


def conditional_of_events(p: np.ndarray, q: np.ndarray, *, mass: float = 0.0
                          ) -> float:
  """Returns the largest variation given an event of the outcomes themselves.

  This is Definition 8 of Barber and Duchi (2014) as it stands. It is not closed
  under post-processing: distributions that are (a, d) here may exceed it if an
  independent number is released too.
  """
  size = len(p)
  if size > _MOST_EVENTS:
    raise ValueError(f'there may be {_MOST_EVENTS} outcomes at most, got '
                     f'{size}')
  events = np.array(list(itertools.product((0.0, 1.0), repeat=size)))
  least = np.minimum(events @ p, events @ q)
  allowed = events[(least > 0) & (least >= mass - _ROUNDING)]
  return float(np.max(tilted(p, q, allowed), initial=0.0))


def less_informative(after: np.ndarray, before: np.ndarray) -> bool:
  """Checks by a linear programme whether a channel turns `before` into `after`.

  Args:
    after: [K, m'] distributions of one output for each of K data sets.
    before: [K, m] distributions of another output.
  """
  after, before = np.asarray(after), np.asarray(before)
  shape = before.shape[1], after.shape[1]
  # Unknown: the channel [m, m'], flattened; its rows must sum to 1.
  rows = [np.kron(before, np.eye(shape[1])),
          np.kron(np.eye(shape[0]), np.ones((1, shape[1])))]
  solution = optimize.linprog(
      np.zeros(shape[0] * shape[1]), A_eq=np.vstack(rows),
      b_eq=np.append(after.ravel(), np.ones(shape[0])))
  return solution.status == 0


def smooth_distance(data: np.ndarray, other: np.ndarray, *, radius: float
                    ) -> np.ndarray:
  """Returns (1 / r) sum_i min(|x_i - x'_i|, r), at most the Hamming distance.

  (rho, epsilon)-smooth privacy bounds log-ratios by epsilon times this, for all
  data sets, neighbours or not. Source: Barber and Duchi (2014, Definition 2).

  Args:
    data: records, [..., n, d].
    other: the same.
    radius: r, the distance at which differences of a record are cut.
  """
  errors.check_positive('radius', radius)
  distances = np.linalg.norm(np.asarray(data) - np.asarray(other), axis=-1)
  return np.sum(np.minimum(distances, radius), -1) / radius
