"""Bounds the error of private quantiles sharply, to publish with a release.

The printed theorems pay for the smallest of n gaps, about 1 / n^2. The actual
error depends on the sum of the gaps around the target, weighted as the
mechanism weights them, and for uniform records its distribution is known. One
quantile level: the distribution of the rank error is an integral, exact.
Several levels: Chernoff's inequality bounds the sums of weighted gaps from
below, and an answer farther off is as unlikely as its cost says. Errors in
value add those of order statistics, which have beta distributions.

Assumptions: records are independent, with a density between `density_min` and
`density_max` on an interval of length 1 within the public bounds; the bounds
may be wider. Nothing here looks at records. Everything runs on the host.
"""

from collections.abc import Callable, Sequence
import math
from typing import NamedTuple

import numpy as np
from scipy import special
from scipy import stats

from dpjax import errors
from dpjax.stats.quantile_methods import quantile_levels
from dpjax.stats.quantile_methods import rates

# Step of the trapezoidal rule in log s; its error is e^(-2 pi^2 / step).
_STEP = 0.25
# Shares of the failure probability tried for the mechanism; sampling of the
# records gets the rest.
_SHARES = (0.2, 0.35, 0.5, 0.65, 0.8)


class Population(NamedTuple):
  """Public assumptions about the distribution of records.

  Attributes:
    density_min: least density on the support, an interval of length 1.
    density_max: largest density on it.
    below: distance from the lower public bound to the support.
    above: distance from the support to the upper public bound.
  """
  density_min: float = 1.0
  density_max: float = 1.0
  below: float = 0.0
  above: float = 0.0


def rank_distribution(*, num_examples: int, prob: float, rate: float,
             below: float = 0.0, above: float = 0.0) -> np.ndarray:
  """Returns P(QExp's answer has i records below it) [n + 1], exactly.

  For uniform records. Gaps are E_i / S with E_i exponential and S their sum.
  With weights g_i = e^(-rate |i - n p|), and the space outside the support
  added to every T term alike, the probability of i is E(A_i / T) = integral
  over s > 0 of E(A_i e^(-s T)), for sums A_i and T of weighted E_i. That
  expectation is a product.

  Args:
    num_examples: n, the number of records.
    prob: quantile level p.
    rate: rate of the cost |i - n p|.
    below: width of the public range below the support, in lengths of the
      support.
    above: width of the public range above it, in the same unit.
  """
  errors.check_at_least('num_examples', num_examples, 1)
  errors.check_positive('rate', rate)
  costs = np.abs(np.arange(num_examples + 1.0) - num_examples * prob)
  weights = np.exp(-rate * costs)
  outer = below * weights[0] + above * weights[-1]
  # Weights below e^-60 add nothing to `outer` in float64: treat them alike.
  near = rate * costs < 60
  totals, num_far = weights[near] + outer, np.sum(~near)
  near_probs, far, outside = np.zeros(totals.size), 0.0, 0.0
  for s in _nodes(totals, outer * num_far):
    chance = s * _STEP * math.exp(-np.sum(np.log1p(s * totals))
                                  - num_far * math.log1p(s * outer))
    each = chance / (1 + s * totals)
    near_probs += each
    far += chance / (1 + s * outer)
    outside += np.sum(each) + num_far * chance / (1 + s * outer)
  rank_probs = far * weights
  rank_probs[near] = near_probs * weights[near]
  # Answers outside the support have all records on one side.
  rank_probs[0] += outside * below * weights[0]
  rank_probs[-1] += outside * above * weights[-1]
  return rank_probs


def _nodes(totals: np.ndarray, far: float) -> np.ndarray:
  """Returns the nodes s where the integrand is within e^-40 of its size."""
  # s is about 1 / (sum of weights) where the integrand is largest.
  low = high = -math.log(np.sum(totals) + far)
  while np.sum(np.log1p(math.exp(high) * totals)) < 40 + max(high, 0.0):
    high += 1.0
  return np.exp(np.arange(low - 40.0, high, _STEP))


def single_rank_error(level: float, *, num_examples: int, prob: float,
                      rate: float, population: Population = Population()
                      ) -> float:
  """Returns the least t with P(|#{X < q} - n p| >= t) <= level, for QExp.

  By `rank_distribution`, exact for uniform records; for others the tail is at
  most density_max / density_min times as large. Infinite if no t suffices.
  """
  rank_probs = _rank_probs(num_examples, prob, rate, population)
  return _rank_quantile(level, rank_probs, prob, population)


def _rank_probs(num_examples: int, prob: float, rate: float,
                population: Population) -> np.ndarray:
  """Returns `rank_distribution` as if records of this population were uniform.
  """
  # Stretched to density 1, the space outside the support shrinks with the rest.
  return rank_distribution(
      num_examples=num_examples, prob=prob, rate=rate,
      below=population.below * population.density_min,
      above=population.above * population.density_min)


def _rank_quantile(level: float, rank_probs: np.ndarray, prob: float,
                   population: Population) -> float:
  """Returns the least rank error whose tail probability is at most `level`."""
  errors.check_open_unit('level', level)
  errors.check_positive('density_min', population.density_min)
  # Sum probabilities from the largest cost down, to get tails.
  costs = np.abs(np.arange(rank_probs.size) - (rank_probs.size - 1) * prob)
  order = np.argsort(-costs, kind='stable')
  tails = np.cumsum(rank_probs[order]) * (population.density_max
                                          / population.density_min)
  # The first cost whose tail exceeds `level`; errors above it are allowed.
  first = int(np.searchsorted(tails, level, side='right'))
  if first == len(costs):
    return 0.0
  farther = costs[order[:first]]
  farther = farther[farther > costs[order[first]]]
  return float(farther[-1]) if farther.size else math.inf


def gap_sum(level: float, *, num_examples: int, weights: np.ndarray,
            num_sums: int) -> float:
  """Returns z with P(some of the weighted sums of uniform gaps < z) <= level.

  Args:
    level: failure probability.
    num_examples: n; there are n + 1 gaps of sum 1.
    weights: [k] weights of k different gaps.
    num_sums: number of such sums, over any choice of gaps (union bound).
  """
  errors.check_open_unit('level', level)
  # Gaps are exponential variables over their sum; half of the failure
  # probability bounds that sum, the other half the weighted ones.
  total_bound = special.gammainccinv(num_examples + 1.0, level / 2)
  log_level = math.log(level / (2 * num_sums))
  # Chernoff: P(sum < y) <= exp(s y - sum log(1 + s w)), for any s.
  weights = weights[weights > 1e-9]  # Without the others sums are smaller.
  slopes = np.geomspace(1e-1, 1e4, 80) / np.sum(weights)
  sums = np.array([np.sum(np.log1p(s * weights)) for s in slopes])
  return float(max(0.0, np.max((log_level + sums) / slopes)) / total_bound)


def recursive_rank_error(level: float, *, num_examples: int,
                         probs: Sequence[float], rate: float,
                         population: Population = Population()) -> float:
  """Returns t with P(max_j |#{X < q_j} - n p_j| >= t) <= level, for RecExp.

  For unrounded targets, nodes of at least this rate and L = ceil(log2(m + 1))
  levels. Proof.

  1. A node has K records on one side of its target, or fewer than 2 K in total.
  2. With K records, the weights on that side sum to at least e^-rate z, where z
     is below all sums of K consecutive weighted gaps. So the error of the node
     is below a constant plus an exponential variable, whatever happened before.
  3. A target is off by at most the errors of the cuts that it lies between. So
     the errors of a path add up, to L such constants and a gamma variable of
     shape L.

  Args:
    level: failure probability.
    num_examples: n, the number of records.
    probs: quantile levels [m].
    rate: smallest rate of a node.
    population: assumptions about the records.
  """
  count = len(quantile_levels.check_levels(probs))
  if count == 1:
    return single_rank_error(level, num_examples=num_examples, prob=probs[0],
                             rate=rate, population=population)
  length = 1 + population.below + population.above
  levels = rates.depth(count)

  def at(share: float, width: int) -> float:
    width = max(1, min(width, num_examples))
    gap = gap_sum(level * (1 - share), num_examples=num_examples,
                  weights=np.exp(-rate * np.arange(width)),
                  num_sums=2 * (num_examples + 1)) / population.density_max
    if not gap:
      return math.inf
    each = max(2 * width, 1 + math.log(length / gap) / rate)
    return levels * each + special.gammainccinv(
        levels, share * level / count) / rate

  widths = [math.ceil(times / rate) for times in (0.5, 1, 1.5, 2, 3)]
  return min(at(share, width) for share in (0.5, 0.8, 0.95)
             for width in widths)


def joint_rank_error(level: float, *, num_examples: int,
                     probs: Sequence[float], rate: float,
                     population: Population = Population()) -> float:
  """Returns t with P(max_j |#{X < q_j} - n p_j| >= t) <= level, for JointExp.

  Proof.

  1. The cost is at most 2 sum_j |#{X < q_j} - n p_j|. So the normaliser is at
     least a product over levels of weighted sums of gaps, each around its own
     target.
  2. If one quantile is off by t, the cost is at least 2 t. The volume of all
     increasing answers is at most length^m / m!.
  3. The failure probability is at most the ratio of the two.

  Args:
    level: failure probability.
    num_examples: n, the number of records.
    probs: quantile levels [m].
    rate: rate of the cost, `rates.joint`.
    population: assumptions about the records.
  """
  levels = quantile_levels.check_levels(probs)
  if levels.size == 1:  # One level: JointExp is QExp at twice the rate.
    return single_rank_error(level, num_examples=num_examples, prob=probs[0],
                             rate=2 * rate, population=population)
  targets = num_examples * levels
  # Ranks nearest to one target form its own block, so that blocks are disjoint.
  blocks = np.concatenate([[-0.5], (targets[1:] + targets[:-1]) / 2,
                           [num_examples + 0.5]])
  ranks = np.arange(num_examples + 1.0)

  def at(share: float) -> float:
    log_volume = len(levels) * math.log(
        1 + population.below + population.above) - special.gammaln(
            len(levels) + 1)
    for prob, low, high in zip(targets, blocks, blocks[1:]):
      costs = np.abs(ranks[(ranks > low) & (ranks < high)] - prob)
      gap = gap_sum(level * (1 - share) / len(levels), num_sums=1,
                    num_examples=num_examples,
                    weights=np.exp(-2 * rate * costs))
      if not gap:
        return math.inf
      log_volume -= math.log(gap / population.density_max)
    return (log_volume - math.log(share * level)) / (2 * rate)

  return min(map(at, (0.5, 0.8, 0.95)))


def value_error(level: float, rank_errors: Sequence[float], *,
                num_examples: int, probs: Sequence[float],
                density_min: float) -> float:
  """Returns the error in value that follows from these rank errors.

  With rank error below t an answer lies between the order statistics of ranks
  n p - t, rounded down, plus 1, and n p + t, rounded up. Those of uniform
  records have beta distributions; others are off by 1 / density_min times as
  much. Infinite if such a rank is below 1 or above n.

  Args:
    level: failure probability of the order statistics.
    rank_errors: [m] bounds on the rank errors, in records.
    num_examples: n, the number of records.
    probs: quantile levels [m].
    density_min: least density of the records.
  """
  levels = quantile_levels.check_levels(probs)
  rank_bounds = np.asarray(rank_errors, np.float64)
  if not np.all(np.isfinite(rank_bounds)):
    return math.inf
  # Order statistics that enclose an answer with such a rank error.
  low = np.floor(num_examples * levels - rank_bounds) + 1
  high = np.ceil(num_examples * levels + rank_bounds)
  if np.any(low < 1) or np.any(high > num_examples):
    return math.inf
  errors.check_positive('density_min', density_min)
  # A union bound over both sides of all levels.
  each = level / (2 * len(levels))
  least = stats.beta.ppf(each, low, num_examples + 1 - low)
  most = stats.beta.isf(each, high, num_examples + 1 - high)
  return float(np.max(np.maximum(most - levels, levels - least)) / density_min)


def independent_error(level: float, *, num_examples: int,
                      probs: Sequence[float], rates_: Sequence[float],
                      population: Population = Population()) -> float:
  """Returns g with P(max_j |q_j - F^-1(p_j)| > g) <= level, for IndExp.

  One quantile level is QExp.

  Args:
    level: failure probability.
    num_examples: n, the number of records.
    probs: quantile levels [m].
    rates_: [m] rates of the unrounded cost.
    population: assumptions about the records.
  """
  rank_probs = [_rank_probs(num_examples, prob, rate, population)
                for prob, rate in zip(probs, rates_, strict=True)]
  return _best(level, lambda mine: [
      _rank_quantile(mine / len(probs), each, prob, population)
      for prob, each in zip(probs, rank_probs)],
               num_examples=num_examples, probs=probs, population=population)


def recursive_error(level: float, *, num_examples: int,
                    probs: Sequence[float], rate: float,
                    population: Population = Population()) -> float:
  """Returns g with P(max_j |q_j - F^-1(p_j)| > g) <= level, for RecExp.

  For arguments see `recursive_rank_error`.
  """
  return _best(level, lambda mine: [recursive_rank_error(
      mine, num_examples=num_examples, probs=probs, rate=rate,
      population=population)] * len(probs),
               num_examples=num_examples, probs=probs, population=population)


def joint_error(level: float, *, num_examples: int, probs: Sequence[float],
                rate: float, population: Population = Population()) -> float:
  """Returns g with P(max_j |q_j - F^-1(p_j)| > g) <= level, for JointExp.

  For arguments see `joint_rank_error`.
  """
  return _best(level, lambda mine: [joint_rank_error(
      mine, num_examples=num_examples, probs=probs, rate=rate,
      population=population)] * len(probs),
               num_examples=num_examples, probs=probs, population=population)


def _best(level: float, rank_errors: Callable[[float], list[float]], *,
          num_examples: int, probs: Sequence[float],
          population: Population) -> float:
  """Returns the least error over splits of the failure probability."""
  return min(value_error(
      level * (1 - split), rank_errors(level * split),
      num_examples=num_examples, probs=probs,
      density_min=population.density_min) for split in _SHARES)
