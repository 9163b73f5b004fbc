"""Consistency of JointExp: its theorem as printed, and as its proof gives it.

This is the only theorem on JointExp. It needs a density that is positive and
continuous around the quantiles. Conventions are those of `bounds`. Source:
Lalanne (2023, section 6.2.5, Lemmas 6.2.13 and 6.2.14 and Theorem 6.2.15) (item
QF-20, erratum QE-12).
"""

from collections.abc import Sequence
import math

import numpy as np
from scipy import special

from dpjax.stats.quantile_methods import quantile_levels
from experiments.methods.statistics import quantile_bounds as bounds


def order_statistic(error: float, *, num_examples: int, prob: float,
                    density_min: float) -> float:
  """Bounds P(X_(ceil(n p)) is off by more than `error`) by Lemma 6.2.13.

  Returns 1 where n < 2 / (error density_min), where the lemma does not apply.
  """
  if num_examples * error * density_min < 2:
    return 1.0
  return bounds.probability(bounds.log_sides(
      error, num_examples=num_examples, prob=prob, density_min=density_min))


def crowded(length: float, *, num_examples: int, density_max: float) -> float:
  """Bounds P(an interval has at least twice its expected records).

  This is one half of Lemma 6.2.14.
  """
  return math.exp(-num_examples * length * density_max / 3)


def deserted(length: float, *, num_examples: int, density_min: float) -> float:
  """Bounds P(an interval has at most half its expected records).

  This is the other half of Lemma 6.2.14.
  """
  return math.exp(-num_examples * length * density_min / 8)


def joint(error: float, *, num_examples: int, probs: Sequence[float],
          rate: float, density_min: float, density_max: float,
          printed: bool = False, length: float = 1.0) -> float:
  """Bounds P(JointExp misses a quantile by more than `error`).

  This is Theorem 6.2.15. Its proof, and the corrections to it:

  1. If all answers lie within an inner radius of the quantiles, the cost, a sum
     over bins, is at most 8 m n radius density_max.
  2. If one is off by more than `error`, the cost is at least n (error - radius)
     density_min, since the bins on both its sides have wrong counts.
  3. Printed: half of the second, 8 (m + 1) instead of 8 m, one fixed radius,
     and a factor m! although both volumes compared are of increasing vectors.
     Corrected: the same proof with the best radius.

  Args:
    error: allowed error of a quantile.
    num_examples: n, the number of records.
    probs: quantile levels [m].
    rate: rate of the cost, `rates.joint`; printed for epsilon / 4.
    density_min: least density within `error` of the quantiles.
    density_max: largest density within `error` of the quantiles.
    printed: use the printed constants.
    length: length of the domain, b - a.
  """
  levels = quantile_levels.check_levels(probs)
  if not error > 0:
    return 1.0
  narrow = error * density_min / (
      16 * (len(levels) + 1) * density_max + 2 * density_min)
  # The printed radius, or a grid from a quarter of it up to the error.
  radii = [narrow] if printed else np.geomspace(narrow / 4, error * 0.99, 60)

  def at(radius: float) -> float:
    inner = 8 * num_examples * radius * density_max * len(levels)
    outer = num_examples * (error - radius) * density_min
    private = len(levels) * math.log(length / (2 * radius)) + (
        special.gammaln(len(levels) + 1)
        - rate * num_examples * error * density_min / 4
        if printed else rate * (inner - outer))
    # Order statistics near their quantiles, and bins with usual counts.
    quantiles = sum(order_statistic(
        radius, num_examples=num_examples, prob=prob, density_min=density_min)
                    for prob in levels)
    counts = (crowded(2 * radius, num_examples=num_examples,
                      density_max=density_max)
              + 2 * deserted(error - radius, num_examples=num_examples,
                             density_min=density_min))
    return min(1.0, bounds.probability(private) + quantiles
               + len(levels) * counts)

  return min(map(at, radii))
