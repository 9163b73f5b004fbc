"""Printed utility bounds of private quantiles, and corrected ones.

Each function returns a bound on a probability, at most 1. Logarithms are used
inside, since some factors overflow that exponentials bring down again. With
`printed` the bound is the printed statement; otherwise the constants come from
its proof. The density of records lies between `density_min` and `density_max`
on [0, 1]. The error is the first argument, so that `histogram_bounds.smallest`
can solve for it. Everything runs on the host.

Source: Lalanne (2023, sections 6.1, 6.2 and 6.3.3) (item QF-02, QF-04, QF-09,
QF-11..QF-15, QF-23, QF-29; errata QE-08, QE-09, QE-18, QE-19, QE-23).
"""

from collections.abc import Sequence
import functools
import math

import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.stats.quantile_methods import quantile_levels
from dpjax.stats.quantile_methods import rates


def probability(log_bound: float) -> float:
  """Returns the bound exp(log_bound), at most 1."""
  return math.exp(min(0.0, log_bound))


def applies(error: float, *, num_examples: int, probs: Sequence[float],
            density_min: float) -> bool:
  """Checks whether the hypotheses of Theorems 6.2.3 to 6.2.5 hold.

  They ask for quantile levels farther than 2 / n from 0 and 1, and for an error
  below twice their least distance from 0 and 1, divided by the density.

  Args:
    error: error of the quantiles.
    num_examples: n, the number of records.
    probs: quantile levels [m].
    density_min: lower bound of the density.
  """
  levels = quantile_levels.check_levels(probs)
  # Least distance of a level from 0 and 1.
  margin = float(np.min(np.minimum(levels, 1 - levels)))
  return margin > 2 / num_examples and density_min > 0 and (
      0 < error < 2 * margin / density_min)


def empirical_quantile(error: float, *, num_examples: int, prob: float,
                       density_min: float, printed: bool = False) -> float:
  """Bounds P(some X_(np + k) is off by `error`) for small |k|, by Lemma 6.1.1.

  The ranks are those with |k| < n error density_min / 2. Order statistics
  increase, so that the two outer ones decide, each on one side; the printed
  bound counts both sides of both.
  """
  return probability(math.log(2 if printed else 1) + log_sides(
      error, num_examples=num_examples, prob=prob, density_min=density_min))


def log_sides(error: float, *, num_examples: int, prob: float,
              density_min: float) -> float:
  """Returns the log of the sum of both one-sided Chernoff bounds."""
  errors.check_open_unit('prob', prob)
  errors.check_positive('density_min', density_min)
  exponent = (error * density_min)**2 * num_examples / 8
  return float(np.logaddexp(-exponent / prob, -exponent / (1 - prob)))


def single_rank_error(level: float, *, min_gap: float, epsilon: float,
                      length: float = 1.0) -> float:
  """Returns the rank error of QExp at failure probability `level` (Fact 6.1.2).

  Args:
    level: failure probability.
    min_gap: least distance between neighbouring records, and between them and
      the bounds.
    epsilon: privacy budget; the density falls by a factor e^(-epsilon / 2) with
      each rank.
    length: length of the domain; printed for 1.
  """
  errors.check_open_unit('level', level)
  errors.check_positive('min_gap', min_gap)
  errors.check_positive('epsilon', epsilon)
  return 2 * math.log(length / (min_gap * level)) / epsilon


def recursive_rank_error(level: float, *, num_orders: int, min_gap: float,
                         epsilon: float, adjacency: Adjacency,
                         printed: bool = False, length: float = 1.0) -> float:
  """Returns the rank error of RecExp with its printed budget (Fact 6.1.3).

  Printed for `length` 1 under addition and deletion; a replacement is one of
  each. Corrected: the number of levels is an integer, and each level adds up to
  one rank where a cut is closer to a record than `min_gap`, and up to one more
  by rounding its target.
  """
  depth = math.log2(num_orders) + 1
  per_node = depth * single_rank_error(
      level / num_orders, min_gap=min_gap, length=length,
      epsilon=_spent(epsilon, adjacency))
  if printed:
    return depth * per_node
  levels = rates.depth(num_orders)
  return levels * (per_node + 2 * (num_orders > 1))


def _spent(epsilon: float, adjacency: Adjacency) -> float:
  """Returns the epsilon that the printed RecExp spends on adding or removing.
  """
  replacing = check_adjacency(adjacency) is Adjacency.REPLACE_ONE
  return epsilon / 2 if replacing else epsilon


def uniform_gaps(gap: float, *, num_examples: int) -> float:
  """Returns P(all n + 1 gaps of uniform records > gap), exactly (Fact 6.2.2).
  """
  return max(0.0, 1 - (num_examples + 1) * gap)**num_examples


def gaps(gap: float, *, num_examples: int, density_max: float,
         printed: bool = False) -> float:
  """Returns a lower bound of P(all gaps > gap), by Lemma 6.2.1.

  Printed for n^2 gap < 1 / (4 density_max) (QE-23). Corrected by the coupling
  of its proof: a gap is at least a gap of uniform records, divided by
  density_max.
  """
  if not printed:
    return uniform_gaps(density_max * gap, num_examples=num_examples)
  # The printed bound is void where its condition fails.
  scaled = 4 * density_max * gap * num_examples**2
  return math.exp(-scaled) if scaled < 1 else 0.0


def independent(error: float, *, num_examples: int, probs: Sequence[float],
                epsilon: float, density_min: float, density_max: float,
                printed: bool = False) -> float:
  """Bounds P(error of IndExp > error) by Theorem 6.2.3 and Corollary 6.2.4.

  The theorem is for one quantile level, the corollary for more. Printed with
  sqrt(e), which needs epsilon <= 4 m; corrected with e^(epsilon / 8m) (QE-09),
  and with a concentration bound for each level by itself.
  """
  levels = quantile_levels.check_levels(probs)
  level_epsilon = epsilon / len(levels)
  return _utility(
      error, levels, num_examples=num_examples, density_min=density_min,
      density_max=density_max, printed=printed, weight=len(levels),
      slope=level_epsilon / 32, offset=0.5 if printed else level_epsilon / 8)


def recursive(error: float, *, num_examples: int, probs: Sequence[float],
              epsilon: float, adjacency: Adjacency, density_min: float,
              density_max: float, printed: bool = False) -> float:
  """Bounds P(error of RecExp with its printed budget > error).

  This is Theorem 6.2.5.

  Corrected by the corrected Fact 6.1.3: its 2 L ranks enter as sqrt(e) does,
  for any epsilon, and the integer number of levels L replaces one of the two
  logarithms.
  """
  known = quantile_levels.check_levels(probs)
  count, spent = len(known), _spent(epsilon, adjacency)
  depth = math.log2(count) + 1
  levels = depth if printed else rates.depth(count)
  slope = spent / (32 * levels * depth)
  # Half a rank for rounding n p, and two for each level (Fact 6.1.3).
  ranks = 0.5 + 2 * levels * (count > 1)
  return _utility(
      error, known, num_examples=num_examples, density_min=density_min,
      density_max=density_max, printed=printed, weight=math.sqrt(count),
      slope=slope, offset=0.5 if printed else 8 * slope * ranks)


def _utility(error: float, probs: np.ndarray, *, num_examples: int,
             density_min: float, density_max: float, printed: bool,
             weight: float, slope: float, offset: float) -> float:
  """Returns the bound: privacy error plus sampling error of the records."""
  errors.check_positive('density_min', density_min)
  if not printed and num_examples * error * density_min < 8:
    return 1.0  # Fewer than the two ranks that the proof needs (QE-19).
  private = (math.log(4 * num_examples * weight * math.sqrt(2 * density_max))
             + offset - slope * num_examples * error * density_min)
  if printed:
    records = (math.log(4 * len(probs))
               - error**2 * density_min**2 * num_examples / 8)
  else:
    records = functools.reduce(np.logaddexp, (log_sides(
        error, num_examples=num_examples, prob=prob, density_min=density_min)
                                              for prob in probs))
  return probability(np.logaddexp(private, records))


def least_failure(error: float, *, num_examples: int, rate: float,
                  prob: float | None = None) -> float:
  """Returns a lower bound of P(QExp is off by `error` from a given point).

  This is Lemma 6.2.7; it holds for all data and every point of [0, 1].
  IndExp and RecExp miss at least as often as the first quantile that they draw.

  Args:
    error: distance; at most 1/4 in the printed lemma, else below 1/2.
    num_examples: n, the number of records.
    rate: rate of the exponential mechanism of that quantile.
    prob: its level; None for the printed bound, (1/2) e^(-n rate). With a
      level, the cost is at most n max(p, 1 - p), and 1 - 2 error replaces 1/2.
  """
  if prob is None:
    return math.exp(-num_examples * rate) / 2
  return (1 - 2 * error) * math.exp(
      -num_examples * rate * max(prob, 1 - prob))


def dirac_risk(*, num_examples: int, epsilon: float, printed: bool = False,
               amplitude: float | None = None) -> float:
  """Bounds E M^2 for the median M of n noisy zeros on [-1, 1] (section 6.3.3).

  Corrected (QE-08): the true costs are twice the printed ones, and so is the
  probability of few records on one side.

  Args:
    num_examples: n, the number of records.
    epsilon: privacy budget of the release.
    printed: use the printed constants.
    amplitude: amplitude of the uniform noise; None for the one that balances
      the bound.
  """
  doubled = 1 if printed else 2
  exponent = num_examples * epsilon * doubled / 16
  if amplitude is None:
    amplitude = math.exp(-exponent / 3)
  return (doubled * math.exp(-num_examples / 32)
          + 4 * math.exp(-exponent) / amplitude + amplitude**2)


def single_mse(*, num_examples: int, prob: float, rate: float,
               density: float) -> float:
  """Returns the mean squared error of QExp, for n rate well above 10 (QF-29).

  It is the sum of the variance of the order statistic and that of a rank with
  two-sided exponential error: p (1 - p) / (n f^2) + 2 / (n rate f)^2, where f
  is the density at the quantile.
  """
  return (prob * (1 - prob) / num_examples
          + 2 / (num_examples * rate)**2) / density**2
