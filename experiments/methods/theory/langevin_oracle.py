"""Exact privacy cost of the last iterate of noisy descent, for a quadratic.

Descent uses batches. Log-likelihoods are x theta - lambda theta^2 / 2 of one
parameter. All records are 0; in the neighbour one is D. The iterates are N(0,
V) and N(S, V), where S moves by eta c D / m when a batch holds the record c
times:

  S <- (1 - eta lambda) S + eta c D / m,    V <- (1 - eta lambda)^2 V + v.

The last iterate of the neighbour is a mixture over S. The projection is left
out: the box is assumed far away. High Renyi orders depend on events of
probability 10^-1000, so probabilities are kept as logarithms. Float64 on the
host. Source: item ORC-4, which refutes Fact 4.2.4 of Lalanne (2023) for small
batches (erratum E-15).
"""

import dataclasses
import math

import numpy as np
from scipy import special
from scipy import stats

from dpjax import errors

# Grid points of S per standard deviation of an iterate; merging onto the grid
# keeps the mean. Then the range and step of the integral over x.
_PER_STDDEV = 50
_REACH = 15.0
_STEP = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mixture:
  """The neighbour's iterate in units of its noise; the other one is N(0, 1).

  Attributes:
    means: [m], S / sqrt(V), not negative.
    logs: [m], log-probabilities of these means.
  """
  means: np.ndarray
  logs: np.ndarray

  def renyi(self, order: float) -> float:
    """Returns the Renyi divergence D_q of the mixture from N(0, 1).

    It integrates exp(q l(x)) under N(0, 1) for the convex function l(x) = ln
    sum_i p_i e^(s_i x - s_i^2 / 2). All of the mass lies below q max s_i + 15.
    """
    if not (math.isfinite(order) and order > 1):
      raise ValueError(f'order must be a number > 1, got {order}')
    far = order * self.means.max() + _REACH
    points = np.linspace(-_REACH, far, math.ceil((far + _REACH) / _STEP) + 1)
    total = special.logsumexp(
        order * self._loss(points) - points**2 / 2) + math.log(
        (points[1] - points[0]) / math.sqrt(2 * math.pi))
    return float(total / (order - 1))

  def delta(self, epsilon: float) -> float:
    """Returns the least delta, the larger one of both directions.

    The privacy loss l rises with x, so each is a difference of two tails.
    """
    errors.check_non_negative('epsilon', epsilon)
    return max(self._excess(epsilon), self._excess(-epsilon), 0.0)

  def _excess(self, epsilon: float) -> float:
    """Returns P(l > e) - e^e Q(l > e); for e < 0 that of the other direction.
    """
    low, high = -_REACH - abs(epsilon), self.means.max() + _REACH
    while self._loss(np.array([high]))[0] < epsilon and high < 1e6:
      high *= 2
    for _ in range(100):
      middle = (low + high) / 2
      below = self._loss(np.array([middle]))[0] <= epsilon
      low, high = (middle, high) if below else (low, middle)
    probs = np.exp(self.logs)
    if epsilon >= 0:
      return float(probs @ special.ndtr(self.means - high)
                   - math.exp(epsilon) * special.ndtr(-high))
    return float(special.ndtr(low) - math.exp(-epsilon) * (
        probs @ special.ndtr(low - self.means)))

  def _loss(self, points: np.ndarray) -> np.ndarray:
    """Returns the privacy loss l at these points."""
    weights = self.logs - self.means**2 / 2
    losses = np.empty(len(points))
    for start in range(0, len(points), 2000):
      block = points[start:start + 2000, None]
      losses[start:start + 2000] = special.logsumexp(
          weights + block * self.means, axis=1)
    return losses


def last_iterate(*, num_examples: int, batch_size: int, replacement: bool,
                 strong_convexity: float, learning_rate: float,
                 step_stddev: float, start_stddev: float, num_steps: int,
                 distance: float) -> Mixture:
  """Returns the distribution of the iterate after K steps.

  Args:
    num_examples: n, the number of records.
    batch_size: m, at most n.
    replacement: True for batches of m draws with replacement, which hold the
      record Bin(m, 1/n) times; False for batches without, which hold it with
      probability m / n.
    strong_convexity: lambda, the curvature of the objective.
    learning_rate: eta, below 1 / lambda.
    step_stddev: standard deviation of the noise of a step.
    start_stddev: standard deviation of the first iterate.
    num_steps: K, the number of steps.
    distance: D > 0, the value of the record that differs.
  """
  errors.check_at_least('num_steps', num_steps, 1)
  errors.check_positive('distance', distance)
  if not 1 <= batch_size <= num_examples:
    raise ValueError(f'batch_size must be from 1 to {num_examples}, got '
                     f'{batch_size}')
  contraction = 1 - learning_rate * strong_convexity
  counts, weights = _counts(num_examples, batch_size, replacement)
  shifts = learning_rate * counts * distance / batch_size
  variance = start_stddev**2
  for _ in range(num_steps):
    variance = contraction**2 * variance + step_stddev**2
  spacing = math.sqrt(variance) / _PER_STDDEV
  means, logs = np.zeros(1), np.zeros(1)
  for _ in range(num_steps):
    shifted = contraction * means[:, None] + shifts
    means, logs = _merged(shifted, logs[:, None] + weights, spacing)
  return Mixture(means=means / math.sqrt(variance), logs=logs)


def _counts(num_examples: int, batch_size: int, replacement: bool
            ) -> tuple[np.ndarray, np.ndarray]:
  """Returns how often a batch may hold the record, and log-probabilities."""
  if replacement:
    counts = np.arange(batch_size + 1)
    return counts.astype(np.float64), stats.binom.logpmf(
        counts, batch_size, 1 / num_examples)
  if batch_size == num_examples:
    return np.ones(1), np.zeros(1)
  prob = batch_size / num_examples
  return np.array([0.0, 1.0]), np.log([1 - prob, prob])


def _merged(means: np.ndarray, logs: np.ndarray, spacing: float
            ) -> tuple[np.ndarray, np.ndarray]:
  """Merges masses onto the grid, split between neighbours to keep the mean."""
  places = means.ravel() / spacing
  below = np.floor(places)
  upper_part = places - below  # Goes to the grid point above.
  with np.errstate(divide='ignore'):
    logs = np.concatenate([logs.ravel() + np.log1p(-upper_part),
                           logs.ravel() + np.log(upper_part)])
  cells = np.concatenate([below, below + 1]).astype(int)
  # Log-sum-exp per cell: first the largest exponent, then the scaled sum.
  top = np.full(cells.max() + 1, -np.inf)
  np.maximum.at(top, cells, logs)
  seen = np.flatnonzero(np.isfinite(top))
  scale = np.where(np.isfinite(top), top, 0.0)
  sums = np.bincount(cells, np.exp(logs - scale[cells]), len(top))
  return seen * spacing, top[seen] + np.log(sums[seen])
