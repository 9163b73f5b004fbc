"""How fast densities fall with the cost: the privacy of the room, in one place.

Every exponential mechanism here has density proportional to exp(-rate cost).
The rates are the largest with which a release is epsilon-DP. A factor of 2 of
it is that of the normaliser, which depends on the records; no cost here is
monotone, so it cannot be left out. Source: thesis 000, Fact 2.3.9 and chapter 6
(item QF-00; the sensitivity printed for JointExp under addition and deletion is
too small, erratum QE-02).

Rates are proportional to epsilon. They are floats of the host.
"""

from collections.abc import Callable, Sequence
import math

import numpy as np
from scipy import optimize

from dpjax import errors
from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.privacy.adjacency import sum_sensitivity
from dpjax.stats.quantiles import orders


def single(prob: float, *, epsilon: float, adjacency: Adjacency,
           rounded: bool = False) -> float:
  """Of the cost |#{X < q} - n p|, or |#{X < q} - floor(n p)| if `rounded`.

  A record more moves the first by at most max(p, 1 - p), since n p moves too,
  and the second by 1; a replaced one moves both by 1.
  """
  errors.check_open_unit('prob', prob)
  errors.check_positive('epsilon', epsilon)
  replacing = check_adjacency(adjacency) is Adjacency.REPLACE_ONE
  sensitivity = 1.0 if rounded or replacing else max(prob, 1 - prob)
  return epsilon / (2 * sensitivity)


def singles(probs: Sequence[float], *, epsilon: float, adjacency: Adjacency,
            rounded: bool = False) -> np.ndarray:
  """The same of each of orders [m], `epsilon` for each: float64 [m]."""
  return np.array([single(prob, epsilon=epsilon, adjacency=adjacency,
                          rounded=rounded) for prob in probs])


def joint(probs: Sequence[float], *, epsilon: float,
          adjacency: Adjacency) -> float:
  """Of sum_j |n (p_j - p_(j-1)) - #bin_j| over the m + 1 bins.

  A replacement moves two bins by 1. A record more moves one bin and all
  n (p_j - p_(j-1)): by 2 (1 - min_j (p_j - p_(j-1))) in all.
  """
  errors.check_positive('epsilon', epsilon)
  smallest = float(np.min(orders.gaps(probs)))
  if check_adjacency(adjacency) is Adjacency.REPLACE_ONE:
    return epsilon / 4
  return epsilon / (4 * (1 - smallest))


def inverse_sensitivity(*, epsilon: float, adjacency: Adjacency) -> float:
  """Of the number of records to replace; that has sensitivity 1."""
  errors.check_positive('epsilon', epsilon)
  if check_adjacency(adjacency) is not Adjacency.REPLACE_ONE:
    raise ValueError('inverse sensitivity of quantiles counts replaced '
                     'records: adjacency must be REPLACE_ONE')
  return epsilon / 2


def recursive(probs: Sequence[float], *, share: Callable[[float], float],
              adjacency: Adjacency, rounded: bool,
              printed: bool = False) -> np.ndarray:
  """Of the cost |rank - n' p'| in the node of each order [m], a tree of them.

  Nodes of one level have disjoint records. With M = max(p', 1 - p'), or 1 where
  the target is rounded, a record more or less moves the cost in one node of
  each of the L levels, by M: 2 M rate is the L-th part. Of a replacement both
  records are in one node, whose n' stays and whose cost moves by 1, or one node
  loses and another gains a record: 2 rate is the L-th part of the budget and
  2 M rate half of it. The root has both. Linear interpolation of ranks, as they
  move with a record by 0 to 1 too, changes none of this (item QB-02, QB-03).

  Args:
    probs: orders [m].
    share: epsilon of each of so many exponential mechanisms that make up the
      budget.
    adjacency: which data sets are neighbours.
    rounded: whether targets are floor(n' p').
    printed: log2(m) + 1 for L, which is more unless m is a power of 2, and
      under REPLACE_ONE half of the rates of addition and deletion, also at the
      root: epsilon is not spent (erratum QE-21).
  """
  relative = orders.relative(probs)
  moved = (np.ones_like(relative) if rounded
           else np.maximum(relative, 1 - relative))
  replacing = check_adjacency(adjacency) is Adjacency.REPLACE_ONE
  count = levels(len(relative), printed=printed)
  if printed or not replacing:
    return share(count) / ((4 if replacing else 2) * moved)
  found = np.minimum(share(2 * count) / (2 * moved), share(count) / 2)
  found[(len(relative) + 1) // 2 - 1] = share(count) / 2
  return found


def levels(num_orders: int, *, printed: bool) -> float:
  """Of the tree of m orders, or log2(m) + 1."""
  return math.log2(num_orders) + 1 if printed else depth(num_orders)


def from_rho(rho: float) -> float:
  """The epsilon of an exponential mechanism that is rho-zCDP.

  `notions.zcdp_from_mechanism` solved for epsilon: sqrt(8 rho) or more, since
  it is of bounded range (item QB-11).
  """
  plain = math.sqrt(8 * errors.check_positive('rho', rho))
  if not 1e-6 < rho < 300:  # No difference, or no matter.
    return plain
  # At least epsilon - 1 - ln(epsilon): no more than 2 rho + 8.
  excess = lambda epsilon: notions.zcdp_from_mechanism(
      notions.PureDP(epsilon=epsilon), 'exponential').rho - rho
  root = optimize.brentq(excess, plain * (1 - 1e-9), 2 * rho + 8, xtol=1e-12)
  return root * (1 - 1e-9)


def counts(*, epsilon: float, adjacency: Adjacency,
           levels: int = 1) -> float:
  """Of |z|, where z is the noise of a count; 1 / rate is its scale.

  Each of `levels` partitions counts every record once. A record more moves one
  count of each by 1, a replaced one two: by `levels` and 2 `levels` in l1.
  """
  errors.check_positive('epsilon', epsilon)
  errors.check_at_least('levels', levels, 1)
  return epsilon / sum_sensitivity(adjacency, record_norm=levels)


def scan(prob: float, *, epsilon: float, adjacency: Adjacency) -> float:
  """Of exponential noise on threshold and ranks of a scan that stops once.

  Noise moves up only: a stop stays one if its rank's noise makes up for a rank
  that fell (r each), the others stay none if the threshold's makes up for ranks
  that rose. Replaced records move ranks by 1, all one way: 2 r, r the other
  way. As seen from n p, a record more moves ranks by -p before it and by 1 - p
  from it on: r max(p, 1 - p), and one less by p and p - 1: p r for the others,
  r more for a stop beyond it. Source: Durfee 2023 (item QB-05).
  """
  errors.check_open_unit('prob', prob)
  errors.check_positive('epsilon', epsilon)
  if check_adjacency(adjacency) is Adjacency.REPLACE_ONE:
    return epsilon / 2
  return epsilon / (1 + prob)


def depth(num_orders: int) -> int:
  """Levels of a balanced tree of m orders: ceil(log2(m + 1))."""
  errors.check_at_least('num_orders', num_orders, 1)
  return math.ceil(math.log2(num_orders + 1) - 1e-12)
