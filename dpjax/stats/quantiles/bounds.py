"""What is printed of the utility of quantiles, and what is true of it.

Bounds on probabilities, at most 1, by their logarithms: factors overflow that
exponentials bring down. `printed` is the statement as it stands, else its proof
gives the constants. Densities lie between `density_min` and `density_max` on
[0, 1]; the error comes first, for `histogram_bounds.smallest` to solve for.
Numbers of the host. Source: thesis 000, sections 6.1, 6.2 and 6.3.3 (item
QF-02, QF-04, QF-09, QF-11..QF-15, QF-23, QF-29; errata QE-08, QE-09, QE-18,
QE-19, QE-23).
"""

from collections.abc import Sequence
import functools
import math

import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.stats.quantiles import orders
from dpjax.stats.quantiles import rates


def probability(log_bound: float) -> float:
  """The bound of this logarithm, at most 1."""
  return math.exp(min(0.0, log_bound))


def applies(error: float, *, num_examples: int, probs: Sequence[float],
            density_min: float) -> bool:
  """Whether the hypotheses of Theorems 6.2.3 to 6.2.5 hold.

  Orders farther than 2 / n from 0 and 1, and an error below twice their least
  distance over the density.
  """
  known = orders.check_orders(probs)
  least = float(np.min(np.minimum(known, 1 - known)))
  return least > 2 / num_examples and density_min > 0 and (
      0 < error < 2 * least / density_min)


def empirical_quantile(error: float, *, num_examples: int, prob: float,
                       density_min: float, printed: bool = False) -> float:
  """Lemma 6.1.1: X_(np + k) misses for some |k| < n error density_min / 2.

  Order statistics increase, so that the two outer ones decide, each on one
  side; the printed bound counts both sides of both.
  """
  return probability(math.log(2 if printed else 1) + log_sides(
      error, num_examples=num_examples, prob=prob, density_min=density_min))


def log_sides(error: float, *, num_examples: int, prob: float,
              density_min: float) -> float:
  """Logarithm of what Chernoff's inequality gives for both sides together."""
  errors.check_open_unit('prob', prob)
  errors.check_positive('density_min', density_min)
  exponent = (error * density_min)**2 * num_examples / 8
  return float(np.logaddexp(-exponent / prob, -exponent / (1 - prob)))


def single_rank_error(level: float, *, min_gap: float, epsilon: float,
                      length: float = 1.0) -> float:
  """Fact 6.1.2: ranks that QExp is off with probability at most `level`.

  Args:
    level: of the failure.
    min_gap: between neighbouring records, and between them and the bounds.
    epsilon: of the release; the density falls by epsilon / 2 with each rank.
    length: of the domain; printed for 1.
  """
  errors.check_open_unit('level', level)
  errors.check_positive('min_gap', min_gap)
  errors.check_positive('epsilon', epsilon)
  return 2 * math.log(length / (min_gap * level)) / epsilon


def recursive_rank_error(level: float, *, num_orders: int, min_gap: float,
                         epsilon: float, adjacency: Adjacency,
                         printed: bool = False, length: float = 1.0) -> float:
  """Fact 6.1.3: ranks that RecExp is off at most, as printed with its budget.

  Printed for `length` 1 under addition and deletion; a replacement is both.
  Corrected: levels are whole, and each adds up to a rank where a cut is closer
  to a record than `min_gap` and up to one by rounding its target.
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
  """What RecExp, as printed, has to spend under addition and deletion."""
  replacing = check_adjacency(adjacency) is Adjacency.REPLACE_ONE
  return epsilon / 2 if replacing else epsilon


def uniform_gaps(gap: float, *, num_examples: int) -> float:
  """Fact 6.2.2: P(all n + 1 gaps of uniform records > gap), exactly."""
  return max(0.0, 1 - (num_examples + 1) * gap)**num_examples


def gaps(gap: float, *, num_examples: int, density_max: float,
         printed: bool = False) -> float:
  """Lemma 6.2.1: P(all gaps > gap), at least.

  Printed for n^2 gap < 1 / (4 density_max) (QE-23); corrected, by the coupling
  of its proof: gaps of uniform records, over density_max.
  """
  if not printed:
    return uniform_gaps(density_max * gap, num_examples=num_examples)
  scaled = 4 * density_max * gap * num_examples**2
  return math.exp(-scaled) if scaled < 1 else 0.0


def independent(error: float, *, num_examples: int, probs: Sequence[float],
                epsilon: float, density_min: float, density_max: float,
                printed: bool = False) -> float:
  """Theorem 6.2.3, and Corollary 6.2.4 for more orders: IndExp misses by more.

  Printed with sqrt(e), which needs epsilon <= 4 m; corrected: e^(epsilon / 8m)
  (QE-09), and each order with its own concentration.
  """
  known = orders.check_orders(probs)
  share = epsilon / len(known)
  return _utility(
      error, known, num_examples=num_examples, density_min=density_min,
      density_max=density_max, printed=printed, weight=len(known),
      slope=share / 32, offset=0.5 if printed else share / 8)


def recursive(error: float, *, num_examples: int, probs: Sequence[float],
              epsilon: float, adjacency: Adjacency, density_min: float,
              density_max: float, printed: bool = False) -> float:
  """Theorem 6.2.5: RecExp, with the printed budget, misses by more.

  Corrected: by the corrected Fact 6.1.3, whose 2 L ranks enter as sqrt(e) does,
  for any epsilon, and with whole levels L for one of the two logarithms.
  """
  known = orders.check_orders(probs)
  count, spent = len(known), _spent(epsilon, adjacency)
  depth = math.log2(count) + 1
  levels = depth if printed else rates.depth(count)
  slope = spent / (32 * levels * depth)
  # Half a rank for the integer part, and those of the rank error.
  ranks = 0.5 + 2 * levels * (count > 1)
  return _utility(
      error, known, num_examples=num_examples, density_min=density_min,
      density_max=density_max, printed=printed, weight=math.sqrt(count),
      slope=slope, offset=0.5 if printed else 8 * slope * ranks)


def _utility(error: float, probs: np.ndarray, *, num_examples: int,
             density_min: float, density_max: float, printed: bool,
             weight: float, slope: float, offset: float) -> float:
  """The cost of privacy, and the concentration of records."""
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
  """Lemma 6.2.7: P(QExp misses any point of [0, 1] by more), at least.

  IndExp and RecExp miss at least as often as the first order they draw.

  Args:
    error: at most 1/4 where printed, below 1/2 otherwise.
    num_examples: n.
    rate: of the exponential mechanism of that order.
    prob: that order; None for what is printed, (1/2) e^(-n rate). Known, no
      cost is above n max(p, 1 - p), and 1 - 2 error stands for 1/2.
  """
  if prob is None:
    return math.exp(-num_examples * rate) / 2
  return (1 - 2 * error) * math.exp(
      -num_examples * rate * max(prob, 1 - prob))


def dirac_risk(*, num_examples: int, epsilon: float, printed: bool = False,
               amplitude: float | None = None) -> float:
  """Section 6.3.3: E M^2 at most, the median of zeros on [-1, 1] with noise.

  Corrected (QE-08): costs are twice what is printed, and so are probabilities
  of few records on a side.

  Args:
    num_examples: n.
    epsilon: of the release.
    printed: with the constants of the thesis.
    amplitude: of the uniform noise; None for that which balances the bound.
  """
  doubled = 1 if printed else 2
  exponent = num_examples * epsilon * doubled / 16
  if amplitude is None:
    amplitude = math.exp(-exponent / 3)
  return (doubled * math.exp(-num_examples / 32)
          + 4 * math.exp(-exponent) / amplitude + amplitude**2)


def single_mse(*, num_examples: int, prob: float, rate: float,
               density: float) -> float:
  """Mean squared error of QExp, for n rate well above 10 (item QF-29).

  That of the order statistic, and that of a rank with two-sided exponential
  error: p (1 - p) / (n f^2) + 2 / (n rate f)^2, f the density at the quantile.
  """
  return (prob * (1 - prob) / num_examples
          + 2 / (num_examples * rate)**2) / density**2
