"""How fast densities fall with the cost: the privacy of the room, in one place.

Every exponential mechanism here has density proportional to exp(-rate cost).
The rates are the largest with which a release is epsilon-DP. A factor of 2 of
it is that of the normaliser, which depends on the records; no cost here is
monotone, so it cannot be left out. Source: thesis 000, Fact 2.3.9 and chapter 6
(spec QF-00; the sensitivity printed for JointExp under addition and deletion is
too small, erratum QE-02).

Rates are proportional to epsilon. They are floats of the host.
"""

from collections.abc import Sequence
import math

import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
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


def joint(probs: Sequence[float], *, epsilon: float,
          adjacency: Adjacency) -> float:
  """Of sum_j |n (p_j - p_(j-1)) - #bin_j| over the m + 1 bins.

  A replacement moves two bins by 1. A record more moves one bin and all n (p_j
  - p_(j-1)): by 2 (1 - min_j (p_j - p_(j-1))) in all.
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


def scan(prob: float, *, epsilon: float, adjacency: Adjacency) -> float:
  """Of exponential noise on threshold and ranks of a scan that stops once.

  Noise moves up only: a stop stays one if its rank's noise makes up for a rank
  that fell (r each), the others stay none if the threshold's makes up for ranks
  that rose. Replaced records move ranks by 1, all one way: 2 r, r the other
  way. As seen from n p, a record more moves ranks by -p before it and by 1 - p
  from it on: r max(p, 1 - p), and one less by p and p - 1: p r for the others,
  r more for a stop beyond it. Source: Durfee 2023 (spec QB-05).
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
