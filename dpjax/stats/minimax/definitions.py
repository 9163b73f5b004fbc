"""Notions of privacy as predicates and measurements of two finite laws.

p and q, [m] probabilities, are what a mechanism makes of two neighbours; what
holds for them holds for the mechanism if it does for all neighbours. Both
orders are looked at. Source: paper 004, section 2; thesis 000, section 2.2
(item DEF-DP to DEF-SEM, errata E-01, E-02, E-03, E-22).
"""

import itertools
import math

import numpy as np
from scipy import optimize

from dpjax import errors
from dpjax.privacy import divergences
from dpjax.privacy import notions
from dpjax.privacy import renyi

# Of sums of probabilities.
_ROUNDING = 1e-9
_ORDERS = 1 + np.geomspace(1e-4, 1e3, 141)
_DIVERGENCES = {notions.TotalVariationPrivacy: divergences.TOTAL_VARIATION,
                notions.KullbackLeiblerPrivacy: divergences.KULLBACK_LEIBLER,
                notions.ChiSquarePrivacy: divergences.CHI_SQUARE}
_MOST_EVENTS = 16


def level(p: np.ndarray, q: np.ndarray, notion: type, *, at: float = 0.0
          ) -> float:
  """The least number with which two laws have a guarantee; may be infinite.

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
  if notion is notions.ConditionalTesting:
    return conditional(p, q, mass=at)
  raise ValueError(f'two finite laws have no level of {notion.__name__}')


def holds(p: np.ndarray, q: np.ndarray, guarantee: object) -> bool:
  """Whether two laws have a guarantee, up to rounding.

  Args:
    p: [m] probabilities.
    q: [m] probabilities of the same outcomes.
    guarantee: of `notions`, or a `RenyiDP`.
  """
  match guarantee:
    case notions.ApproxDP(epsilon=at, delta=most):
      pass
    case renyi.RenyiDP(order=at, divergence=most):
      pass
    case notions.ConditionalTesting(mass=at, level=most):
      pass
    case _:
      at, (most,) = 0.0, vars(guarantee).values()
  return level(p, q, type(guarantee), at=at) <= most + _ROUNDING


def _both(p, q, divergence) -> float:
  return max(divergence(p, q), divergence(q, p))


def _slope(p: np.ndarray, q: np.ndarray) -> float:
  """sup over orders a of D_a / a; a = 1 is the limit."""
  first = divergences.f_divergence(p, q, divergences.KULLBACK_LEIBLER)
  if math.isinf(first):
    return first
  ratio = lambda order: divergences.renyi(p, q, order=order) / order
  found = [ratio(order) for order in _ORDERS]
  place = int(np.argmax(found))
  near = optimize.minimize_scalar(
      lambda order: -ratio(order), method='bounded',
      bounds=(_ORDERS[max(place - 1, 0)],
              _ORDERS[min(place + 1, len(_ORDERS) - 1)]))
  return max(first, found[place], -float(near.fun))


def extremal(guarantee: notions.PureDP | notions.ApproxDP
             ) -> tuple[np.ndarray, np.ndarray]:
  """Two laws on four outcomes that every pair with the guarantee comes from.

  With probability delta the data are told, else randomised response answers
  (Kairouz, Oh and Viswanath 2015).
  """
  delta = getattr(guarantee, 'delta', 0.0)
  truth = 1 / (1 + math.exp(-guarantee.epsilon))
  p = np.array([delta, (1 - delta) * truth, (1 - delta) * (1 - truth), 0.0])
  return p, p[::-1].copy()


def weighted_errors(p: np.ndarray, q: np.ndarray, *, weight: float) -> float:
  """The least P(psi = 1) + weight Q(psi = 0) over tests psi.

  (epsilon, delta)-DP says that it is 1 - delta or more for e^epsilon, both
  ways. Source: paper 004, Proposition 1 (item DEF-TEST).
  """
  return float(np.sum(np.minimum(p, weight * np.asarray(q))))


def printed_errors(guarantee: notions.ApproxDP) -> float:
  """(2 - delta) / (1 + e^epsilon), printed of the sum of errors: FALSE.

  Two inequalities add up to 2 - 2 delta, which is attained (erratum E-02):
  twice `two_points.path_error` at distance 1. Source: paper 004, equation 3.
  """
  return (2 - guarantee.delta) / (1 + math.exp(guarantee.epsilon))


def tilted(p: np.ndarray, q: np.ndarray, weights: np.ndarray) -> float:
  """Total variation of the laws proportional to p w and to q w.

  For probabilities w of an event given the outcome: of the conditional laws.
  For a prior w over data sets and likelihoods p and q of one output, q as if a
  record had been replaced: of the two posteriors. Both are at most tanh(R / 4)
  for log-ratios p / q that range over R, tanh(epsilon / 2) under epsilon-DP;
  e^epsilon - 1 is printed of posteriors (item DEF-SEM).

  Args:
    p: [..., m], at least 0.
    q: the same.
    weights: [..., m], at least 0.
  """
  first, second = p * weights, q * weights
  return np.sum(np.abs(first / first.sum(-1, keepdims=True)
                       - second / second.sum(-1, keepdims=True)), -1) / 2


def conditional(p: np.ndarray, q: np.ndarray, *, mass: float = 0.0) -> float:
  """The largest total variation given an event of any post-processed output.

  The events have a probability of `mass` or more under both laws. tanh(R / 4)
  for mass 0; otherwise a linear program for each ratio of their probabilities.

  Args:
    p: [m] probabilities.
    q: [m] probabilities of the same outcomes.
    mass: in [0, 1].
  """
  if not mass:
    return math.tanh(level(p, q, notions.BoundedRange) / 4)
  p, q = np.asarray(p, np.float64), np.asarray(q, np.float64)

  def least(logarithm):
    ratio = math.exp(logarithm)
    found = optimize.linprog(
        -np.maximum(p - q / ratio, 0), A_eq=np.stack([p, q]),
        b_eq=[1.0, ratio], bounds=(0, 1 / max(mass, mass / ratio)))
    return found.fun if found.status == 0 else 0.0
  with np.errstate(divide='ignore'):
    ratios = np.log(q[p + q > 0]) - np.log(p[p + q > 0])
  far = -math.log(mass)
  ends = np.clip([ratios.min(), ratios.max()], -far, far)
  grid = np.sort(np.append(np.linspace(*ends, 40), 0.0))
  place = int(np.argmin([least(at) for at in grid]))
  near = optimize.minimize_scalar(least, method='bounded', bounds=(
      grid[max(place - 1, 0)], grid[min(place + 1, 40)]))
  return -float(min(near.fun, least(grid[place])))


def conditional_of_events(p: np.ndarray, q: np.ndarray, *, mass: float = 0.0
                          ) -> float:
  """The same over events of the outcomes themselves, one by one.

  Definition 8 of paper 004 as it stands, which is not inherited: laws that are
  (a, d) here may come to more with an independent number beside them.
  """
  size = len(p)
  if size > _MOST_EVENTS:
    raise ValueError(f'there must be {_MOST_EVENTS} outcomes at most, got '
                     f'{size}')
  events = np.array(list(itertools.product((0.0, 1.0), repeat=size)))
  least = np.minimum(events @ p, events @ q)
  kept = events[(least > 0) & (least >= mass - _ROUNDING)]
  return float(np.max(tilted(p, q, kept), initial=0.0))


def less_informative(after: np.ndarray, before: np.ndarray) -> bool:
  """Whether some channel makes `after` of `before`: a linear program.

  Args:
    after: [K, m'] laws of one output for each of K data sets.
    before: [K, m] laws of another.
  """
  after, before = np.asarray(after), np.asarray(before)
  shape = before.shape[1], after.shape[1]
  rows = [np.kron(before, np.eye(shape[1])),
          np.kron(np.eye(shape[0]), np.ones((1, shape[1])))]
  found = optimize.linprog(
      np.zeros(shape[0] * shape[1]), A_eq=np.vstack(rows),
      b_eq=np.append(after.ravel(), np.ones(shape[0])))
  return found.status == 0


def smooth_distance(data: np.ndarray, other: np.ndarray, *, radius: float
                    ) -> np.ndarray:
  """(1 / r) sum_i min(|x_i - x'_i|, r), between 0 and the Hamming distance.

  (rho, epsilon)-smooth privacy bounds log-ratios by epsilon times it, for all
  data sets, neighbours or not. Source: paper 004, Definition 2.

  Args:
    data: [..., n, d].
    other: the same.
    radius: r.
  """
  errors.check_positive('radius', radius)
  apart = np.linalg.norm(np.asarray(data) - np.asarray(other), axis=-1)
  return np.sum(np.minimum(apart, radius), -1) / radius
