"""Exact risks of private truncated means, and the largest over a class.

The estimator is c (mean of pi_T(X_i) + W), where pi_T projects on the ball of
radius T, E W = 0 and E |W|^2 = nu T^2 (nu is `noise_factor`). With a = E
pi_T(X) and b = E (X - pi_T(X)) its mean squared error is

  |(1 - c) a + b|^2 - |c a|^2 / n + c^2 E |pi_T(X)|^2 / n + c^2 nu T^2.

The worst distribution with E |X|^k <= r^k:

1. For given a and b the first two terms are largest on a line, where, whatever
   the sign of (1 - c) a + b, all mass beyond T may have that sign.
2. The mass beyond T has one size y, since b is linear and y^k convex. The mass
   within T has one size s, since E X^2 grows with the moment that is left.
3. So it has three points, y with probability p and +-s, with p y^k + (1 - p)
   s^k = r^k. The mean of the latter two has a closed form; p and y are found by
   search (`worst`).

This is the risk of the class itself, in every dimension, not a bound on it.
"""

import functools
import math
from typing import NamedTuple

import numpy as np
from scipy import optimize

from dpjax import errors
from dpjax.theory.parametric.moment_bounds import check_class

# Grid of the search over both variables: first, and in each later round.
_COARSE, _FINE, _ROUNDS = (17, 41), (13, 13), 4


class FiniteDistribution(NamedTuple):
  """A distribution on a line through 0.

  Attributes:
    places: [A] points.
    probs: [A] their probabilities.
  """
  places: np.ndarray
  probs: np.ndarray

  @property
  def mean(self) -> float:
    """Mean along the line."""
    return float(self.places @ self.probs)


class Worst(NamedTuple):
  """The largest risk over a class.

  Attributes:
    value: the largest risk.
    distribution: a distribution that attains it.
  """
  value: float
  distribution: FiniteDistribution


class Tuned(NamedTuple):
  """Parameters of the best truncated mean.

  Attributes:
    threshold: T.
    shrinkage: c.
    risk: largest risk over the class.
  """
  threshold: float
  shrinkage: float
  risk: float


def two_points(prob: float, *, moment: float, radius: float
               ) -> FiniteDistribution:
  """Returns p^(-1/k) r with probability p, else 0."""
  return FiniteDistribution(np.array([0.0, prob**(-1 / moment) * radius]),
                            np.array([1 - prob, prob]))


def signs(radius: float) -> FiniteDistribution:
  """Returns r or -r with equal probability: the largest possible variance."""
  return FiniteDistribution(np.array([-radius, radius]), np.array([0.5, 0.5]))


def risk(distribution: FiniteDistribution, *, num_examples: int,
         threshold: float, shrinkage: float, noise_factor: float) -> float:
  """Returns the exact mean squared error at a distribution of finite support.
  """
  inside = np.clip(distribution.places, -threshold, threshold)
  return _risk(distribution.mean, float(inside @ distribution.probs), float(
      inside**2 @ distribution.probs), num_examples, threshold, shrinkage,
               noise_factor)


def pareto_risk(tail: float, *, moment: float, radius: float, num_examples: int,
                threshold: float, shrinkage: float, noise_factor: float
                ) -> float:
  """Returns the exact risk for P(X > x) = (x_0 / x)^tail, x >= x_0, tail > k.

  x_0 is such that E X^k = r^k; the integrals have closed forms.
  """
  if not tail > moment:
    raise ValueError(f'tail must exceed the moment {moment}, got {tail}')
  first = radius * (1 - moment / tail)**(1 / moment)
  if threshold <= first:
    return _risk(first * tail / (tail - 1), threshold, threshold**2,
                 num_examples, threshold, shrinkage, noise_factor)
  tail_prob = (first / threshold)**tail

  def truncated(power: int) -> float:
    # int_0^T power x^(power - 1) P(X > x) dx.
    return first**power * (1 + power / (tail - power)) - power * (
        threshold**power * tail_prob) / (tail - power)

  return _risk(first * tail / (tail - 1), truncated(1), truncated(2),
               num_examples, threshold, shrinkage, noise_factor)


def _risk(mean: float, inside: float, square: float, num_examples: int,
          threshold: float, shrinkage: float, noise_factor: float) -> float:
  """Returns the mean squared error from moments of a truncated record."""
  noise = shrinkage**2 * noise_factor * threshold**2 if noise_factor else 0.0
  return float((shrinkage * inside - mean)**2 + shrinkage**2 * (
      square - inside**2) / num_examples + noise)


def bias_constant(moment: float) -> float:
  """Returns kappa with sup E (|X| - T)_+ = kappa r^k / T^(k - 1).

  It holds for T >= (1 - 1/k) r, with kappa = (k - 1)^(k - 1) / k^k, attained by
  mass at k T / (k - 1). Barber and Duchi (2014, Lemma 3) have 1 / (k - 1), from
  an integral that misses T P(|X| > T) (erratum E-18).
  """
  if math.isinf(moment):
    return 0.0
  return math.exp((moment - 1) * math.log(moment - 1)
                  - moment * math.log(moment))


def largest_bias(*, threshold: float, moment: float, radius: float) -> float:
  """Returns sup E (|X| - T)_+ over the class, exact for every T > 0."""
  check_class(moment, radius)
  errors.check_positive('threshold', threshold)
  if math.isinf(moment) or moment * threshold <= (moment - 1) * radius:
    return max(radius - threshold, 0.0)
  return bias_constant(moment) * radius * (radius / threshold)**(moment - 1)


def bound(*, num_examples: int, threshold: float, noise_factor: float,
          moment: float, radius: float, printed: bool = False) -> float:
  """Returns r^2 / n + bias^2 + nu T^2, at least the risk for c = 1.

  `printed` uses the bias of Lemma 3, true and looser (item EST-TRUNC). Other
  Args as for `worst`.
  """
  bias = largest_bias(threshold=threshold, moment=moment, radius=radius)
  if printed:
    bias = 0.0 if math.isinf(moment) else radius * (
        radius / threshold)**(moment - 1) / (moment - 1)
  return (radius**2 / errors.check_at_least('num_examples', num_examples, 1)
          + bias**2 + noise_factor * threshold**2)


def best_threshold(*, noise_factor: float, moment: float, radius: float
                   ) -> float:
  """Returns the T that minimises bias^2 + nu T^2.

  T^(2k) = (k - 1) kappa^2 r^(2k) / nu.
  """
  check_class(moment, radius)
  errors.check_positive('noise_factor', noise_factor)
  if math.isinf(moment):
    return radius
  logs = (math.log(moment - 1) + 2 * math.log(bias_constant(moment))
          - math.log(noise_factor))
  return radius * math.exp(logs / (2 * moment))


def worst(*, num_examples: int, threshold: float, shrinkage: float = 1.0,
          noise_factor: float, moment: float, radius: float) -> Worst:
  """Returns the largest risk over the class, and where it is attained.

  Args:
    num_examples: n.
    threshold: T; infinite if there is no noise.
    shrinkage: c.
    noise_factor: nu.
    moment: k.
    radius: r.
  """
  check_class(moment, radius)
  errors.check_at_least('num_examples', num_examples, 1)
  exact_risk = functools.partial(
      risk, num_examples=num_examples, threshold=threshold,
      shrinkage=shrinkage, noise_factor=noise_factor)
  candidates = [_balanced(min(threshold, radius), balance)
                for balance in (0.5, 1.0)]
  if math.isfinite(moment) and math.isfinite(threshold):
    candidates.append(two_points(
        min(1.0, (radius * (1 - 1 / moment) / threshold)**moment),
        moment=moment, radius=radius))
  if threshold < radius or (math.isfinite(moment) and math.isfinite(threshold)):
    candidates.append(_search(num_examples, threshold, shrinkage, moment,
                              radius))
  return max((Worst(exact_risk(distribution), distribution)
              for distribution in candidates), key=lambda one: one.value)


def _balanced(size: float, prob: float) -> FiniteDistribution:
  """Returns -size and size, the latter with this probability."""
  return FiniteDistribution(np.array([-size, size]),
                            np.array([1 - prob, prob]))


def _search(num_examples: int, threshold: float, shrinkage: float,
            moment: float, radius: float) -> FiniteDistribution:
  """Searches over the fraction of the moment used beyond T, and over T / y."""
  box = np.array([[0.0, 1.0], [0.0, 1.0]])
  for side in (_COARSE, *(_FINE,) * _ROUNDS):
    fractions, places = np.meshgrid(*[
        np.linspace(low, high, size) for (low, high), size in zip(
            box, side, strict=True)], indexing='ij')
    value, *columns = _values(fractions, places, num_examples, threshold,
                              shrinkage, moment, radius)
    top = np.unravel_index(np.argmax(value), value.shape)
    centre = np.array([axis[top] for axis in (fractions, places)])[:, None]
    # Zoom in: the new box spans two grid steps around the best point.
    half_widths = 2 * np.diff(box) / (np.array(side)[:, None] - 1)
    box = np.clip(centre + half_widths * np.array([[-1, 1]]), 0.0, 1.0)
  prob, far, near, mean = (column[top] for column in columns)
  left = 1 - prob
  tilt = np.clip(mean / (left * near), -1, 1) if left * near > 0 else 0.0
  return FiniteDistribution(
      np.array([far, near, -near]),
      np.array([prob, left * (1 + tilt) / 2, left * (1 - tilt) / 2]))


def _values(fraction: np.ndarray, place: np.ndarray, num_examples: int,
            threshold: float, shrinkage: float, moment: float, radius: float
            ) -> tuple[np.ndarray, ...]:
  """Returns risks without noise, p, y, s, and (1 - p) times the mean within T.

  Args:
    fraction: fraction of the largest moment possible beyond T at this y.
    place: w in [0, 1], y = T / (1 - w^2).
    num_examples: n.
    threshold: T.
    shrinkage: c.
    moment: k.
    radius: r.
  """
  if math.isinf(moment):
    prob, far = fraction, np.full(fraction.shape, radius)
    near = np.full(fraction.shape, min(threshold, radius))
  else:
    inverse = np.maximum(1 - place**2, 1e-4)  # T / y; y <= 10^4 T.
    odds = (radius / threshold * inverse)**moment
    spent = fraction * np.minimum(1.0, 1 / odds)
    prob, far = np.minimum(1.0, spent * odds), threshold / inverse
    left = np.where(prob < 1, 1 - prob, 1.0)
    near = np.minimum(threshold, radius * ((1 - spent) / left)**(1 / moment))
  b, inner = prob * (far - threshold), (1 - prob) * near
  curvature = shrinkage**2 / num_examples - (1 - shrinkage)**2
  # The worst mean a of a truncated record that the constraints allow.
  a = prob * threshold + inner
  if curvature > 0:
    a = np.clip((1 - shrinkage) * b / curvature, prob * threshold - inner, a)
  value = (-curvature * a**2 + 2 * (1 - shrinkage) * a * b + b**2
           + shrinkage**2 / num_examples * (
               prob * threshold**2 + (1 - prob) * near**2))
  return value, prob, far, near, a - prob * threshold


@functools.lru_cache(maxsize=4096)
def tuned(*, num_examples: int, noise_factor: float, moment: float,
          radius: float) -> Tuned:
  """Returns T and c of least worst risk; they depend on public numbers only.

  Without privacy, shrinkage gains a factor of at most (1 + 1 / sqrt n)^2; where
  noise prevails a smaller T does as much.
  """
  check_class(moment, radius)
  root = math.sqrt(errors.check_at_least('num_examples', num_examples, 1))
  if not noise_factor:
    return Tuned(math.inf, root / (1 + root), radius**2 / (1 + root)**2)

  def numbers(point: np.ndarray) -> tuple[float, float]:
    """Returns T and c from the logarithm of T and the logit of c."""
    logs = np.clip(point, -100, 100)
    return math.exp(logs[0]), 1 / (1 + math.exp(-logs[1]))

  def log_risk(point: np.ndarray) -> float:
    threshold, shrinkage = numbers(point)
    return math.log(worst(
        num_examples=num_examples, threshold=threshold, shrinkage=shrinkage,
        noise_factor=noise_factor, moment=moment, radius=1.0).value)
  start = np.array([math.log(best_threshold(
      noise_factor=noise_factor, moment=moment, radius=1.0)), math.log(root)])
  corners = start + np.array([[0, 0], [-0.2, 0], [0, 1]])
  # A maximum of several risks has kinks that can trap the simplex: start twice.
  best = min((optimize.minimize(
      log_risk, start, method='Nelder-Mead', options=dict(
          xatol=1e-4, fatol=1e-6, maxfev=160, initial_simplex=corners + step))
              for step in ([0.0, 0.0], [-0.15, 0.15])),
             key=lambda one: one.fun)
  threshold, shrinkage = numbers(best.x)
  return Tuned(threshold * radius, shrinkage, math.exp(best.fun) * radius**2)
