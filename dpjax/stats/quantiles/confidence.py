"""How far quantiles are off, sharply: bounds that can be stated with a release.

The theorems of the thesis pay for the smallest of n gaps, about 1 / n^2. What
decides is the sum of the gaps around the target, weighted as the mechanism
weights them: of uniform records its law is known. For one order the law of the
rank error is an integral, exact. For more, sums of weighted gaps are bounded
below by Chernoff's inequality, and the answer farther off is as unlikely as its
cost says. Errors in value add order statistics, whose laws are beta laws.

Records are independent, of a density between `density_min` and `density_max`,
on an interval of length 1 within the public bounds; those may be wider. Nothing
here looks at records. Numbers of the host.
"""

from collections.abc import Callable, Sequence
import math
from typing import NamedTuple

import numpy as np
from scipy import special
from scipy import stats

from dpjax import errors
from dpjax.stats.quantiles import orders
from dpjax.stats.quantiles import rates

# Of a trapezoidal rule in log s, whose error is e^(-2 pi^2 / step).
_STEP = 0.25
# Shares of the failure that the mechanism gets; the rest, what data do.
_SHARES = (0.2, 0.35, 0.5, 0.65, 0.8)


class Population(NamedTuple):
  """What is known of the law of records.

  Attributes:
    density_min: on its support, an interval of length 1.
    density_max: on it.
    below: what the public bounds add to the support below it.
    above: likewise.
  """
  density_min: float = 1.0
  density_max: float = 1.0
  below: float = 0.0
  above: float = 0.0


def rank_law(*, num_examples: int, prob: float, rate: float,
             below: float = 0.0, above: float = 0.0) -> np.ndarray:
  """P(QExp has i records below it) [n + 1], of uniform records; exact.

  Gaps are E_i / S, E_i exponential and S their sum. With weights g_i = e^(-rate
  |i - n p|), and what lies beyond the records added to all alike, the chance of
  i is E(A_i / T) = integral over s > 0 of E(A_i e^(-s T)), for sums A_i and T
  of weighted E_i; the expectation is a product.

  Args:
    num_examples: n.
    prob: order.
    rate: of the cost |i - n p|.
    below: what the bounds add below the support, in lengths of it.
    above: likewise.
  """
  errors.check_at_least('num_examples', num_examples, 1)
  errors.check_positive('rate', rate)
  costs = np.abs(np.arange(num_examples + 1.0) - num_examples * prob)
  weights = np.exp(-rate * costs)
  outer = below * weights[0] + above * weights[-1]
  # Weights below e^-60 add nothing to their sum with `outer`.
  near = rate * costs < 60
  totals, num_far = weights[near] + outer, np.sum(~near)
  shares, far, ends = np.zeros(totals.size), 0.0, 0.0
  for s in _nodes(totals, outer * num_far):
    chance = s * _STEP * math.exp(-np.sum(np.log1p(s * totals))
                                  - num_far * math.log1p(s * outer))
    each = chance / (1 + s * totals)
    shares += each
    far += chance / (1 + s * outer)
    ends += np.sum(each) + num_far * chance / (1 + s * outer)
  found = far * weights
  found[near] = shares * weights[near]
  found[0] += ends * below * weights[0]
  found[-1] += ends * above * weights[-1]
  return found


def _nodes(totals: np.ndarray, far: float) -> np.ndarray:
  """Where the integrand is not negligible, e^40 times smaller beyond."""
  low = high = -math.log(np.sum(totals) + far)
  while np.sum(np.log1p(math.exp(high) * totals)) < 40 + max(high, 0.0):
    high += 1.0
  return np.exp(np.arange(low - 40.0, high, _STEP))


def single_rank_error(level: float, *, num_examples: int, prob: float,
                      rate: float, population: Population = Population()
                      ) -> float:
  """The least t with P(|#{X < q} - n p| >= t) <= level, for QExp.

  The law of `rank_law`, exact for uniform records; for others the tail is at
  most density_max / density_min times as large. Infinite where none is.
  """
  law = _law(num_examples, prob, rate, population)
  return _rank_quantile(level, law, prob, population)


def _law(num_examples: int, prob: float, rate: float,
         population: Population) -> np.ndarray:
  return rank_law(num_examples=num_examples, prob=prob, rate=rate,
                  below=population.below * population.density_min,
                  above=population.above * population.density_min)


def _rank_quantile(level: float, law: np.ndarray, prob: float,
                   population: Population) -> float:
  errors.check_open_unit('level', level)
  errors.check_positive('density_min', population.density_min)
  costs = np.abs(np.arange(law.size) - (law.size - 1) * prob)
  order = np.argsort(-costs, kind='stable')
  tails = np.cumsum(law[order]) * (population.density_max
                                   / population.density_min)
  # The first place that must not be reached; its tail holds all equal costs.
  first = int(np.searchsorted(tails, level, side='right'))
  if first == len(costs):
    return 0.0
  farther = costs[order[:first]]
  farther = farther[farther > costs[order[first]]]
  return float(farther[-1]) if farther.size else math.inf


def gap_sum(level: float, *, num_examples: int, weights: np.ndarray,
            num_sums: int) -> float:
  """z with P(one of so many sums of weighted uniform gaps < z) <= level.

  Args:
    level: of the failure.
    num_examples: n; there are n + 1 gaps of sum 1.
    weights: [k] of k different gaps.
    num_sums: how many such sums, whatever the gaps.
  """
  errors.check_open_unit('level', level)
  most = special.gammainccinv(num_examples + 1.0, level / 2)
  log_level = math.log(level / (2 * num_sums))
  # Chernoff: P(sum < y) <= exp(s y - sum log(1 + s w)), for any s.
  weights = weights[weights > 1e-9]  # Without the others sums are smaller.
  slopes = np.geomspace(1e-1, 1e4, 80) / np.sum(weights)
  sums = np.array([np.sum(np.log1p(s * weights)) for s in slopes])
  return float(max(0.0, np.max((log_level + sums) / slopes)) / most)


def recursive_rank_error(level: float, *, num_examples: int,
                         probs: Sequence[float], rate: float,
                         population: Population = Population()) -> float:
  """t with P(max_j |#{X < q_j} - n p_j| >= t) <= level, for RecExp.

  For unrounded targets, nodes of at least this rate and L = ceil(log2(m + 1))
  levels. A node has K records on one side of its target or less than 2 K in
  all; with K the weights on that side are at least e^-rate z, z below all sums
  of K weighted gaps in a row. Its error is then below a number plus an
  exponential one, whatever happened before. A target is off by no more than
  the cuts that it lies between, so that the levels of a path add up, to L such
  numbers and a gamma variable of shape L.

  Args:
    level: of the failure.
    num_examples: n.
    probs: orders [m].
    rate: the smallest of a node.
    population: of the records.
  """
  count = len(orders.check_orders(probs))
  if count == 1:
    return single_rank_error(level, num_examples=num_examples, prob=probs[0],
                             rate=rate, population=population)
  length = 1 + population.below + population.above
  levels = rates.depth(count)

  def at(share, width):
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
  """t with P(max_j |#{X < q_j} - n p_j| >= t) <= level, for JointExp.

  The cost is at most 2 sum_j |#{X < q_j} - n p_j|, so that the normaliser is
  at least a product over orders of sums of gaps, next to each and apart; it is
  2 t at least if one is off by t, and what lies there has volume 1 / m!.

  Args:
    level: of the failure.
    num_examples: n.
    probs: orders [m].
    rate: of the cost, `rates.joint`.
    population: of the records.
  """
  known = orders.check_orders(probs)
  if known.size == 1:  # QExp, of twice its cost.
    return single_rank_error(level, num_examples=num_examples, prob=probs[0],
                             rate=2 * rate, population=population)
  targets = num_examples * known
  ends = np.concatenate([[-0.5], (targets[1:] + targets[:-1]) / 2,
                         [num_examples + 0.5]])
  ranks = np.arange(num_examples + 1.0)

  def at(share):
    log_volume = len(known) * math.log(
        1 + population.below + population.above) - special.gammaln(
            len(known) + 1)
    for prob, low, high in zip(targets, ends, ends[1:]):
      costs = np.abs(ranks[(ranks > low) & (ranks < high)] - prob)
      gap = gap_sum(level * (1 - share) / len(known), num_sums=1,
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
  """The error of values whose ranks are off by less than these; infinite if
  that reaches the ends.

  With rank error below t an answer lies between the order statistics of ranks
  n p - t, rounded down, plus 1, and n p + t, rounded up: uniform ones have beta
  laws, and others are off by 1 / density_min times as much.

  Args:
    level: that order statistics fail it.
    rank_errors: [m].
    num_examples: n.
    probs: orders [m].
    density_min: of the records.
  """
  known = orders.check_orders(probs)
  errors_ = np.asarray(rank_errors, np.float64)
  if not np.all(np.isfinite(errors_)):
    return math.inf
  low = np.floor(num_examples * known - errors_) + 1
  high = np.ceil(num_examples * known + errors_)
  if np.any(low < 1) or np.any(high > num_examples):
    return math.inf
  errors.check_positive('density_min', density_min)
  each = level / (2 * len(known))
  least = stats.beta.ppf(each, low, num_examples + 1 - low)
  most = stats.beta.isf(each, high, num_examples + 1 - high)
  return float(np.max(np.maximum(most - known, known - least)) / density_min)


def independent_error(level: float, *, num_examples: int,
                      probs: Sequence[float], rates_: Sequence[float],
                      population: Population = Population()) -> float:
  """g with P(max_j |q_j - F^-1(p_j)| > g) <= level, for IndExp and QExp.

  Args:
    level: of the failure.
    num_examples: n.
    probs: orders [m].
    rates_: [m], of the unrounded cost.
    population: of the records.
  """
  laws = [_law(num_examples, prob, rate, population)
          for prob, rate in zip(probs, rates_, strict=True)]
  return _best(level, lambda mine: [
      _rank_quantile(mine / len(probs), law, prob, population)
      for prob, law in zip(probs, laws)],
               num_examples=num_examples, probs=probs, population=population)


def recursive_error(level: float, *, num_examples: int,
                    probs: Sequence[float], rate: float,
                    population: Population = Population()) -> float:
  """The same for RecExp; arguments as of `recursive_rank_error`."""
  return _best(level, lambda mine: [recursive_rank_error(
      mine, num_examples=num_examples, probs=probs, rate=rate,
      population=population)] * len(probs),
               num_examples=num_examples, probs=probs, population=population)


def joint_error(level: float, *, num_examples: int, probs: Sequence[float],
                rate: float, population: Population = Population()) -> float:
  """The same for JointExp; arguments as of `joint_rank_error`."""
  return _best(level, lambda mine: [joint_rank_error(
      mine, num_examples=num_examples, probs=probs, rate=rate,
      population=population)] * len(probs),
               num_examples=num_examples, probs=probs, population=population)


def _best(level: float, rank_errors: Callable[[float], list[float]], *,
          num_examples: int, probs: Sequence[float],
          population: Population) -> float:
  """The least error over how the failure is shared."""
  return min(value_error(
      level * (1 - share), rank_errors(level * share),
      num_examples=num_examples, probs=probs,
      density_min=population.density_min) for share in _SHARES)
