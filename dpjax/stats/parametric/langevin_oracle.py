"""What one record costs of noisy descent in batches, exact for a quadratic.

Likelihoods x theta - lambda theta^2 / 2 of one parameter, all records at 0 and,
in the neighbour, one at D: the iterates of the two are N(0, V) and N(S, V),
where S moves by eta c D / m when a batch holds the record c times,

  S <- (1 - eta lambda) S + eta c D / m,    V <- (1 - eta lambda)^2 V + v.

The last iterate of the neighbour is a mixture over S. The projection is left
out: the box is far away. High orders see what has a probability of 10^-1000:
probabilities are logarithms. Float64 on the host. Source: item ORC-4, which
refutes Fact 4.2.4 of thesis 000 for small batches (erratum E-15).
"""

import dataclasses
import math

import numpy as np
from scipy import special, stats

from dpjax import errors

# Points of S in a standard deviation of an iterate; merging keeps the mean.
_PER_STDDEV = 50
_REACH = 15.0
_STEP = 0.1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Mixture:
  """The neighbour's iterate in units of its noise; the other one is N(0, 1).

  Attributes:
    means: [m], S / sqrt(V), not negative.
    logs: [m], of their probabilities.
  """
  means: np.ndarray
  logs: np.ndarray

  def renyi(self, order: float) -> float:
    """D_q of the mixture from N(0, 1).

    The integral of exp(q l(x)) under N(0, 1) for the convex function l(x) = ln
    sum_i p_i e^(s_i x - s_i^2 / 2); all of it lies below q max s_i + 15.
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
    """The least delta of both orders: the loss rises with x."""
    errors.check_non_negative('epsilon', epsilon)
    return max(self._excess(epsilon), self._excess(-epsilon), 0.0)

  def _excess(self, epsilon: float) -> float:
    """P(l > e) - e^e Q(l > e); at -e the other order, as mass that is left."""
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
    weights = self.logs - self.means**2 / 2
    found = np.empty(len(points))
    for start in range(0, len(points), 2000):
      block = points[start:start + 2000, None]
      found[start:start + 2000] = special.logsumexp(
          weights + block * self.means, axis=1)
    return found


def last_iterate(*, num_examples: int, batch_size: int, replacement: bool,
                 strong_convexity: float, learning_rate: float,
                 step_stddev: float, start_stddev: float, num_steps: int,
                 distance: float) -> Mixture:
  """The law after K steps.

  Args:
    num_examples: n.
    batch_size: m, at most n.
    replacement: m draws from all records, Bin(m, 1/n) of which are of the
      record; else it is in a batch of m with probability m / n.
    strong_convexity: lambda.
    learning_rate: eta, below 1 / lambda.
    step_stddev: deviation of the noise of a step.
    start_stddev: of the first iterate.
    num_steps: K.
    distance: D > 0.
  """
  errors.check_at_least('num_steps', num_steps, 1)
  errors.check_positive('distance', distance)
  if not 1 <= batch_size <= num_examples:
    raise ValueError(f'batch_size must be from 1 to {num_examples}, got '
                     f'{batch_size}')
  kept = 1 - learning_rate * strong_convexity
  counts, weights = _counts(num_examples, batch_size, replacement)
  shifts = learning_rate * counts * distance / batch_size
  variance = start_stddev**2
  for _ in range(num_steps):
    variance = kept**2 * variance + step_stddev**2
  spacing = math.sqrt(variance) / _PER_STDDEV
  means, logs = np.zeros(1), np.zeros(1)
  for _ in range(num_steps):
    moved = kept * means[:, None] + shifts
    means, logs = _merged(moved, logs[:, None] + weights, spacing)
  return Mixture(means=means / math.sqrt(variance), logs=logs)


def _counts(num_examples, batch_size, replacement):
  """(how often a batch may hold the record, logarithms of probabilities)."""
  if replacement:
    counts = np.arange(batch_size + 1)
    return counts.astype(np.float64), stats.binom.logpmf(
        counts, batch_size, 1 / num_examples)
  if batch_size == num_examples:
    return np.ones(1), np.zeros(1)
  share = batch_size / num_examples
  return np.array([0.0, 1.0]), np.log([1 - share, share])


def _merged(means, logs, spacing):
  """On the grid, each mass split between its neighbours: means stay."""
  places = means.ravel() / spacing
  below = np.floor(places)
  share = places - below
  with np.errstate(divide='ignore'):
    logs = np.concatenate([logs.ravel() + np.log1p(-share),
                           logs.ravel() + np.log(share)])
  cells = np.concatenate([below, below + 1]).astype(int)
  top = np.full(cells.max() + 1, -np.inf)
  np.maximum.at(top, cells, logs)
  seen = np.flatnonzero(np.isfinite(top))
  scale = np.where(np.isfinite(top), top, 0.0)
  sums = np.bincount(cells, np.exp(logs - scale[cells]), len(top))
  return seen * spacing, top[seen] + np.log(sums[seen])
