"""Computes the rates of exponential mechanisms, on which privacy rests.

Every exponential mechanism here has density proportional to exp(-rate cost).
The functions return the largest rate with which a release is epsilon-DP. A
factor of 2 is due to the normaliser, which depends on the records; no cost here
is monotone, so the factor cannot be dropped. Source: Lalanne (2023, Fact 2.3.9
and chapter 6) (item QF-00; the sensitivity printed for JointExp under addition
and deletion is too small, erratum QE-02).

Except for zCDP budgets, rates are proportional to epsilon. They are floats of
the host.
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
from dpjax.stats.quantile_methods import quantile_levels


def single(prob: float, *, epsilon: float, adjacency: Adjacency,
           rounded: bool = False) -> float:
  """Returns the rate of |#{X < q} - n p|; with floor(n p) if `rounded`.

  Adding a record changes the first cost by at most max(p, 1 - p), since n p
  grows by p too, and the second by 1. Replacing a record changes both by 1.

  Args:
    prob: quantile level p.
    epsilon: privacy budget of this level.
    adjacency: which data sets are neighbours.
    rounded: whether the target rank is floor(n p) instead of n p.
  """
  errors.check_open_unit('prob', prob)
  errors.check_positive('epsilon', epsilon)
  replacing = check_adjacency(adjacency) is Adjacency.REPLACE_ONE
  sensitivity = 1.0 if rounded or replacing else max(prob, 1 - prob)
  return epsilon / (2 * sensitivity)


def singles(probs: Sequence[float], *, epsilon: float, adjacency: Adjacency,
            rounded: bool = False) -> np.ndarray:
  """Returns the rates [m] of `single` for each level, with `epsilon` for each.
  """
  return np.array([single(prob, epsilon=epsilon, adjacency=adjacency,
                          rounded=rounded) for prob in probs])


def joint(probs: Sequence[float], *, epsilon: float,
          adjacency: Adjacency) -> float:
  """Returns the rate of sum_j |n (p_j - p_(j-1)) - #bin_j| over the m + 1 bins.

  A replacement changes two bins by 1. Adding a record changes one bin and all n
  (p_j - p_(j-1)): by 2 (1 - min_j (p_j - p_(j-1))) in total.
  """
  errors.check_positive('epsilon', epsilon)
  smallest = float(np.min(quantile_levels.gaps(probs)))
  # The sensitivity is 2, or 2 (1 - smallest); the normaliser doubles it.
  if check_adjacency(adjacency) is Adjacency.REPLACE_ONE:
    return epsilon / 4
  return epsilon / (4 * (1 - smallest))


def inverse_sensitivity(*, epsilon: float, adjacency: Adjacency) -> float:
  """Returns the rate of the number of records to replace, of sensitivity 1."""
  errors.check_positive('epsilon', epsilon)
  if check_adjacency(adjacency) is not Adjacency.REPLACE_ONE:
    raise ValueError('inverse sensitivity of quantiles is defined by replaced '
                     'records: adjacency must be REPLACE_ONE')
  return epsilon / 2


def recursive(probs: Sequence[float], *, share: Callable[[float], float],
              adjacency: Adjacency, rounded: bool,
              printed: bool = False) -> np.ndarray:
  """Returns the rates [m] of |rank - n' p'| in the node of each level's tree.

  Here n' counts the records of a node and p' is its level among them. Proof.

  1. The nodes at one depth of the tree have disjoint records. Let M = max(p', 1
     - p'), or 1 where the target is rounded, and L the depth of the tree.
  2. Adding or removing a record changes the cost in one node at each depth, by
     at most M: so 2 M rate may be an L-th part of the budget.
  3. Replacing a record: either both versions are in one node, whose n' stays
     and whose cost changes by at most 1, so 2 rate may be an L-th part; or one
     node loses and another gains a record, so 2 M rate may be half of an L-th
     part. The root only has the first case.
  4. With linear interpolation a rank changes by 0 to 1 too, so the same rates
     hold (item QB-02, QB-03).

  Args:
    probs: quantile levels [m].
    share: function of k: the epsilon of each of k exponential mechanisms that
      together use the budget.
    adjacency: which data sets are neighbours.
    rounded: whether targets are floor(n' p').
    printed: use log2(m) + 1 for L, which is more unless m is a power of 2, and
      under REPLACE_ONE half of the rates of addition and deletion, also at the
      root: epsilon is not used up (erratum QE-21).
  """
  # Each level among the records of its own node.
  relative = quantile_levels.relative(probs)
  sensitivities = (np.ones_like(relative) if rounded
                   else np.maximum(relative, 1 - relative))
  replacing = check_adjacency(adjacency) is Adjacency.REPLACE_ONE
  count = levels(len(relative), printed=printed)
  if printed or not replacing:
    return share(count) / ((4 if replacing else 2) * sensitivities)
  rates = np.minimum(share(2 * count) / (2 * sensitivities), share(count) / 2)
  # The root: a replacement leaves its number of records as it is (step 3).
  rates[(len(relative) + 1) // 2 - 1] = share(count) / 2
  return rates


def levels(num_levels: int, *, printed: bool) -> float:
  """Returns the depth of the tree of m levels, or log2(m) + 1 if `printed`."""
  return math.log2(num_levels) + 1 if printed else depth(num_levels)


def from_rho(rho: float) -> float:
  """Returns the epsilon of an exponential mechanism that is rho-zCDP.

  It solves `notions.zcdp_from_mechanism` for epsilon: at least sqrt(8 rho),
  since the mechanism has bounded range (item QB-11).
  """
  plain = math.sqrt(8 * errors.check_positive('rho', rho))
  # For smaller rho the gain is lost in rounding; larger ones give no privacy.
  if not 1e-6 < rho < 300:
    return plain
  # The zCDP of epsilon is large enough at epsilon = 2 rho + 8 to bracket it.
  excess = lambda epsilon: notions.zcdp_from_mechanism(
      notions.PureDP(epsilon=epsilon), 'exponential').rho - rho
  root = optimize.brentq(excess, plain * (1 - 1e-9), 2 * rho + 8, xtol=1e-12)
  # Rounded down, so that the mechanism costs at most rho.
  return root * (1 - 1e-9)


def counts(*, epsilon: float, adjacency: Adjacency,
           levels: int = 1) -> float:
  """Returns the rate of |z|, where z is the noise of a count of scale 1 / rate.

  Each of `levels` partitions counts every record once. In l1, adding a record
  changes the counts by `levels`, replacing one by 2 `levels`.
  """
  errors.check_positive('epsilon', epsilon)
  errors.check_at_least('levels', levels, 1)
  return epsilon / sum_sensitivity(adjacency, record_norm=levels)


def scan(prob: float, *, epsilon: float, adjacency: Adjacency) -> float:
  """Returns the rate of exponential noise on threshold and ranks of one scan.

  The scan stops once. Noise is one-sided, upwards. Write r for the rate. A
  candidate that stops must keep stopping, so its noise makes up for a rank that
  fell; the others must not stop, so the threshold's noise makes up for ranks
  that rose.

  1. Replaced records move ranks by 1, all in one direction: 2 r if ranks rise
     and r if they fall.
  2. Relative to n p, adding a record moves ranks by -p before it and by 1 - p
     from it on: r max(p, 1 - p). Removing one moves them by p and p - 1: p r
     for the others, and r more for a stop after it.

  Source: Durfee 2023 (item QB-05).
  """
  errors.check_open_unit('prob', prob)
  errors.check_positive('epsilon', epsilon)
  if check_adjacency(adjacency) is Adjacency.REPLACE_ONE:
    return epsilon / 2
  return epsilon / (1 + prob)


def depth(num_levels: int) -> int:
  """Returns the depth of a balanced tree of m levels: ceil(log2(m + 1))."""
  errors.check_at_least('num_levels', num_levels, 1)
  return math.ceil(math.log2(num_levels + 1) - 1e-12)
