"""Private end theta of a uniform distribution, by a record near the largest.

The exponential mechanism chooses a number t in [0, 1] by the distance of the
count of records up to t from r = n - j. Replacing a record changes a count by
at most 1, so that a rate of epsilon / 2 is epsilon-DP. Log-ratios lie in an
interval of length epsilon, so it is also epsilon^2 / 8-zCDP. The chosen number
is divided by its expected fraction r / n of theta. All numbers above the
largest record have rank n; aiming j records below makes them unlikely.

`printed` chooses uniformly in t (item EXT-UNIF-EXP). Then the range above is
(1 - theta) / theta times as wide as all records, and for theta near
1 / (n epsilon)^2 it is chosen: the largest risk does not vanish. Here t is
uniform in ln t down to a public lowest end; everything below that is one
candidate of weight 1 with the best rank in it.

The risk is a closed form but for one integral. With records theta U, gaps of ln
U are independent: between the ranks c and c + 1 exponential of rate c. With S
the sum of weights the probability of a gap is its weight over S, and 1 / S is
the integral of e^(-lambda S) over lambda > 0, under which everything is a
product over gaps (`_chain`).
"""

import dataclasses
import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike
import numpy as np
from scipy import stats

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import notions
from dpjax.stats.quantile_methods import choice
from dpjax.theory.parametric import estimator
from dpjax.typing import Array, PRNGKey

# Weights of ranks with a log-weight this far below the best are bounded
# instead of summed.
_FARTHEST = 40.0
# Step of the integral in ln lambda.
_STEP = 0.2


class RankParameters(NamedTuple):
  """Public numbers of a choice by rank.

  Attributes:
    rate: rate of the score, epsilon / 2.
    rank: r.
    factor: factor that multiplies the chosen number.
    log_lowest: ln of the lowest end.
  """
  rate: ArrayLike
  rank: ArrayLike
  factor: ArrayLike
  log_lowest: ArrayLike


def _on_host(parameters: RankParameters) -> list[float]:
  """Returns rate, rank, factor and ln of the lowest end as Python floats."""
  return [float(np.asarray(value)) for value in parameters]


def log_weights(ordered: Array, parameters: RankParameters
                ) -> tuple[Array, Array]:
  """Returns ends [n + 3] of intervals of ln t, and log-weights [n + 2].

  Args:
    ordered: [n] sorted records.
    parameters: numbers of the choice; the first interval stands for all t below
      the lowest end.
  """
  lowest = jnp.asarray(parameters.log_lowest)
  logs = jnp.log(jnp.maximum(ordered, jnp.exp(lowest)))
  logs = jnp.clip(logs, lowest, 0.0)
  # The first interval has length 1 in ln t, which gives it weight 1.
  ends = jnp.concatenate([(lowest - 1)[None], lowest[None], logs,
                          jnp.zeros((1,), jnp.float64)])
  counts = jnp.arange(ordered.size + 1, dtype=jnp.float64)
  # The first interval stands for all t below the lowest end: its score is the
  # best of their ranks, which changes by at most 1 as well.
  below = jnp.sum(ordered <= jnp.exp(lowest), dtype=jnp.float64)
  scores = jnp.concatenate([
      jnp.minimum(below - parameters.rank, 0.0)[None],
      -jnp.abs(counts - parameters.rank)])
  return ends, scores * parameters.rate + _log(jnp.diff(ends))


def printed_log_weights(ordered: Array, parameters: RankParameters
                        ) -> tuple[Array, Array]:
  """Returns ends and log-weights of intervals [n + 1] of t itself."""
  ends = jnp.concatenate([jnp.zeros((1,), jnp.float64), ordered,
                          jnp.ones((1,), jnp.float64)])
  counts = jnp.arange(ordered.size + 1, dtype=jnp.float64)
  return ends, _log(jnp.diff(ends)) - jnp.abs(
      counts - parameters.rank) * parameters.rate


def _log(widths: Array) -> Array:
  """Returns ln of widths, -infinity for empty intervals, without warnings."""
  return jnp.where(widths > 0, jnp.log(jnp.where(widths > 0, widths, 1.0)),
                   -jnp.inf)


def _point(key: PRNGKey, ends: Array, weights: Array) -> Array:
  """Draws a point: an interval by its weight, then uniformly inside it."""
  interval_key, point_key = jax.random.split(key)
  place = choice.choose(interval_key, weights)
  fraction = jax.random.uniform(point_key, (), jnp.float64)
  return ends[place] + fraction * (ends[place + 1] - ends[place])


def _draw(key: PRNGKey, ordered: Array, parameters: RankParameters) -> Array:
  point = jnp.maximum(_point(key, *log_weights(ordered, parameters)),
                      parameters.log_lowest)
  return jnp.minimum(parameters.factor * jnp.exp(point), 1.0)[None]


def _draw_printed(key: PRNGKey, ordered: Array,
                  parameters: RankParameters) -> Array:
  point = _point(key, *printed_log_weights(ordered, parameters))
  return jnp.minimum(parameters.factor * point, 1.0)[None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class RankedSupport(estimator.Estimator):
  """Estimates theta by a record j places below the largest.

  Privacy: epsilon-DP, and (epsilon^2 / 8)-zCDP; `of_zcdp` takes rho.

  Attributes:
    epsilon: privacy budget of one release.
    above: j in [1, n / 2]; None for a j that balances the risk of choosing past
      the largest record against the spread of that rank.
    concentrated: whether the event is the zCDP one.
    printed: uniform in t and j = ceil(6 ln(n epsilon) / epsilon); see the
      module.
  """
  epsilon: float
  above: int | None = None
  concentrated: bool = False
  printed: bool = False

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_positive('epsilon', self.epsilon)
    if self.num_examples < 2:
      raise ValueError('num_examples must be at least 2, got '
                       f'{self.num_examples}')
    if self.above is not None and not (
        1 <= self.above <= self.num_examples // 2):
      raise ValueError('above must be an integer from 1 to num_examples / 2, '
                       f'got {self.above}')

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy cost of one release."""
    if self.concentrated:
      return accounting.concentrated_event(
          rho=notions.zcdp_from_mechanism(
              notions.PureDP(epsilon=self.epsilon), 'exponential').rho,
          adjacency=self.adjacency)
    return accounting.pure_event(epsilon=self.epsilon,
                                 adjacency=self.adjacency)

  @property
  def records_above(self) -> int:
    """Number of records left above the target rank, j."""
    if self.above is not None:
      return self.above
    total = self.num_examples * self.epsilon  # n epsilon.
    # Minimises (n epsilon)^2 times the risk, about
    # j epsilon^2 + (n epsilon)^3 e^(-epsilon j / 2) / 8: the spread of the rank
    # plus the chance of choosing above all records.
    log_odds = 3 * math.log(total) - math.log(16 * self.epsilon)
    rank = (6 * math.log(max(total, 1.0)) if self.printed else
            2 * log_odds) / self.epsilon
    return int(min(max(1, math.ceil(rank)), self.num_examples // 2))

  @property
  def draw(self) -> estimator.Draw:
    """Jittable sampler (key, sorted records, parameters) -> estimate."""
    return _draw_printed if self.printed else _draw

  @property
  def parameters(self) -> RankParameters:
    """Rate, rank, factor and lowest end."""
    n = self.num_examples
    rank = n - self.records_above
    lowest = -math.log(32 * max(n * self.epsilon, 1.0))
    return RankParameters(*map(np.float64, (
        self.epsilon / 2, rank, (n + 1) / (rank + 0.5), lowest)))

  def statistic(self, data: Array) -> Array:
    """Returns sorted records [n], clipped to [0, 1]; NaN counts as 0."""
    return jnp.sort(jnp.clip(jnp.nan_to_num(data.astype(jnp.float64)), 0, 1))

  def risk_bound(self, thetas: np.ndarray) -> np.ndarray:
    """Returns mean squared errors at theta [T], or slightly more.

    Exact up to two things: clipping to [0, 1], which only lowers the error, and
    choices far below the rank, which are bounded. Not for `printed`.

    Raises:
      ValueError: for `printed`.
    """
    if self.printed:
      raise ValueError('the printed estimator has no bound')
    return _bound(np.asarray(thetas, np.float64), self.num_examples,
                  self.parameters)

  def worst_risk(self) -> float:
    """Returns the largest `risk_bound` on a grid of theta, and below the grid.
    """
    lowest = math.exp(_on_host(self.parameters)[3])
    thetas = np.geomspace(16 * lowest, 1, 33) if 16 * lowest < 1 else [1.0]
    return float(np.max(self.risk_bound(np.append(thetas, 16 * lowest / 2))))


def of_zcdp(*, num_examples: int, rho: float) -> RankedSupport:
  """Returns the rho-zCDP version, with epsilon = sqrt(8 rho).

  A slightly larger epsilon would be rho-zCDP too.
  """
  return RankedSupport(num_examples=num_examples, concentrated=True,
                       epsilon=math.sqrt(8 * errors.check_positive('rho', rho)))


def _bound(thetas: np.ndarray, n: int, parameters: RankParameters
           ) -> np.ndarray:
  """Returns `risk_bound` for all theta."""
  rate, rank, factor, log_lowest = _on_host(parameters)
  lowest = math.exp(log_lowest)
  cutoff = 16 * lowest
  tail = math.exp(-rate * (n - rank))
  # For theta below `cutoff`: choices up to the largest record estimate at most
  # factor theta; `past` bounds the choices beyond it.
  past = factor**2 * tail / 2
  risks = np.minimum(1.0, np.square(factor * np.minimum(thetas, cutoff)) + past)
  inside = thetas >= cutoff
  if inside.any():
    far_thetas = np.where(inside, thetas, 1.0)
    risks = np.where(inside, np.minimum.reduce([np.ones(thetas.shape), *(
        _inside(far_thetas, n, parameters, share) for share in (2, 8))]), risks)
  return risks


def _inside(thetas: np.ndarray, n: int, parameters: RankParameters,
            share: int) -> np.ndarray:
  """Returns the integral over lambda, for theta well above the lowest end.

  Unless many records are below that end, ranks from r / share on behave as if
  there were none.
  """
  rate, rank, factor, log_lowest = _on_host(parameters)
  low = int(max(-(-rank // share), rank - _FARTHEST / rate, 1))
  scale = math.log(n * min(rate, 1.0))
  logs = np.arange(scale - 24, math.log(n) + 12 + rate, _STEP)
  lambdas = np.exp(logs)
  sums, through = _chain(lambdas, n, low, rate, rank)
  spread = -np.log(thetas)[:, None]
  last = math.exp(-rate * (n - rank))
  hit = lambdas * last
  kept = np.exp(-hit * spread)
  moments = []
  for power in range(3):
    top = n / (n + hit) * (spread + 1 / (n + hit)) if not power else (
        np.exp(power * spread) * n / (n + hit) - n / (n + hit + power)) / power
    moments.append((kept * (sums[power] + last * through * top) * lambdas
                    ).sum(1) * _STEP)
  # The mean of 1 / S over records.
  mean_inverse = (through * kept * n / (n + hit) * lambdas).sum(1) * _STEP
  square = factor**2 * moments[2] - 2 * factor * moments[1] + moments[0]
  far = math.exp(-rate * (rank - low)) * (1 - log_lowest) * mean_inverse
  rare = stats.binom.sf(low - 1, n, math.exp(log_lowest) / thetas)
  return thetas**2 * (square + far) + factor**2 * rare


@functools.lru_cache(maxsize=8)
def _chain_of(first: float, count: int, n: int, low: int, rate: float,
              rank: float) -> tuple[np.ndarray, np.ndarray]:
  """Computes `_chain` from hashable arguments; cached."""
  lambdas = np.exp(first + _STEP * np.arange(count))
  counts = np.arange(low, n, dtype=np.float64)
  weights = np.exp(-rate * np.abs(counts - rank))
  sums, through = np.zeros((3, count)), np.zeros(count)
  for place, value in enumerate(lambdas):
    rates = counts + value * weights
    before = -np.cumsum(np.log1p(value * weights / counts))
    through[place] = math.exp(before[-1]) if counts.size else 1.0
    # `ahead`: gaps below the chosen one. `above`: gaps between it and the
    # largest record, and last the gap above that record.
    ahead = before - np.log(counts / rates)
    hit = value * math.exp(-rate * (n - rank))
    for power in range(3):
      after = -np.log1p((value * weights + power) / counts)
      above = np.cumsum(after[::-1])[::-1] - after
      above += math.log(n / (n + hit + power))
      own = counts / (rates * (rates + power))
      sums[power, place] = np.sum(weights * own * np.exp(ahead + above))
  return sums, through


def _chain(lambdas: np.ndarray, n: int, low: int, rate: float,
           rank: float) -> tuple[np.ndarray, np.ndarray]:
  """Returns sums over gaps below the largest record, for three powers [3, L].

  Also E e^(-lambda S) of these gaps [L].
  """
  return _chain_of(float(np.log(lambdas[0])), lambdas.size, n, low, rate, rank)
