"""JointExp finds the quantiles of a law, as printed and as proved.

The only theorem on JointExp; it holds its bound where the density is positive
and continuous around the quantiles. Conventions are those of `bounds`.
Source: thesis 000, section 6.2.5, Lemmas 6.2.13 and 6.2.14 and Theorem 6.2.15
(item QF-20, erratum QE-12).
"""

from collections.abc import Sequence
import math

import numpy as np
from scipy import special

from dpjax.stats.quantiles import bounds
from dpjax.stats.quantiles import orders


def order_statistic(error: float, *, num_examples: int, prob: float,
                    density_min: float) -> float:
  """Lemma 6.2.13: X_(ceil(n p)) is farther from the quantile than `error`.

  Silent where n < 2 / (error density_min).
  """
  if num_examples * error * density_min < 2:
    return 1.0
  return bounds.probability(bounds.log_sides(
      error, num_examples=num_examples, prob=prob, density_min=density_min))


def crowded(length: float, *, num_examples: int, density_max: float) -> float:
  """Lemma 6.2.14: an interval has twice the records that it should, or more."""
  return math.exp(-num_examples * length * density_max / 3)


def deserted(length: float, *, num_examples: int, density_min: float) -> float:
  """Lemma 6.2.14: an interval has half the records that it should, or less."""
  return math.exp(-num_examples * length * density_min / 8)


def joint(error: float, *, num_examples: int, probs: Sequence[float],
          rate: float, density_min: float, density_max: float,
          printed: bool = False, length: float = 1.0) -> float:
  """Theorem 6.2.15: JointExp misses some quantile by more than `error`.

  Within an inner radius of all quantiles the cost, the sum over bins, is at
  most 8 m n radius density_max; beyond `error` of one it is at least n (error -
  radius) density_min, a misplaced quantile costs the bins on both its sides.
  Printed: half of that and 8 (m + 1) instead of 8 m, with one radius, and m!
  although the two volumes compared are both of increasing vectors. Corrected:
  that proof, with the best radius.

  Args:
    error: beyond which a quantile is missed.
    num_examples: n.
    probs: orders [m].
    rate: of the cost, `rates.joint`; printed for epsilon / 4.
    density_min: of the density within `error` of the quantiles.
    density_max: likewise.
    printed: with the constants of the thesis.
    length: of the domain, b - a.
  """
  known = orders.check_orders(probs)
  if not error > 0:
    return 1.0
  least = error * density_min / (
      16 * (len(known) + 1) * density_max + 2 * density_min)
  # The radius of the print, and more of them up to the error itself.
  radii = [least] if printed else np.geomspace(least / 4, error * 0.99, 60)

  def at(radius):
    inner = 8 * num_examples * radius * density_max * len(known)
    outer = num_examples * (error - radius) * density_min
    private = len(known) * math.log(length / (2 * radius)) + (
        special.gammaln(len(known) + 1)
        - rate * num_examples * error * density_min / 4
        if printed else rate * (inner - outer))
    quantiles = sum(order_statistic(
        radius, num_examples=num_examples, prob=prob, density_min=density_min)
                    for prob in known)
    counts = (crowded(2 * radius, num_examples=num_examples,
                      density_max=density_max)
              + 2 * deserted(error - radius, num_examples=num_examples,
                             density_min=density_min))
    return min(1.0, bounds.probability(private) + quantiles
               + len(known) * counts)

  return min(map(at, radii))
