"""Membership inference: how well an attack performs, and how well it can.

Scores [m] are high for records that look like members; `members` [m] bool marks
the members (NumPy, float64, exact with ties). A record with a score above the
threshold is called a member. Rates and accuracies lie in [0, 1]; a defence is
in points of 100, as in Lalanne (2023, section 1.3; MIA-10).

**Theorem** (MIA-13). An (epsilon, delta)-DP release bounds the expected
balanced accuracy by c = (e^epsilon + delta) / (1 + e^epsilon), in two settings.
The attack sees the release, all records, and anything independent of
membership.

*Fair coins* (ADD_OR_REMOVE_ONE), one for each record, choose the members:
  1. Fix all coins but one: the two possible data sets are neighbours.
  2. The guess is post-processing, so it is right with probability at most c.
  3. Average over the other coins and over all records.
For membership probability q, step 2 bounds balanced accuracy instead.

*Fixed split* (REPLACE_ONE) with S uniform among the n-subsets of m records:
  1. Fix i. Draw S uniformly among sets with i, and j uniformly outside of S.
     Replace i in S by j: this S' is uniform among sets without i.
  2. S and S' are neighbours, and the guess of i is post-processing. Averaging
     over the pairs gives TPR_i <= e^epsilon FPR_i + delta and the three other
     inequalities; for a trade-off f, 1 - TPR_i >= f(FPR_i), by convexity.
  3. All records are members with equal probability. So expected rates are the
     means of TPR_i and FPR_i, and obey the same convex constraints.
  4. Thus balanced accuracy is at most c; for n = m / 2 it is the accuracy.
A guarantee for ADD_OR_REMOVE_ONE enters only through the replacement guarantee
(2 epsilon, (1 + e^epsilon) delta) that it implies.

*Area under the curve* (fixed split). Given a member and a non-member, and all
other members, an attack ranks the two correctly with probability at most c, so
the expected area is at most c. This is below the area under the rates' ceiling.

These are expectations over split and training; one network's rates scatter
around them. A threshold set on the records that it is counted on has seen their
memberships, so its accuracy is optimistic.
"""

from collections.abc import Callable, Sequence
import math
from typing import NamedTuple

import jax
import numpy as np
from scipy import stats

from dpjax import errors
from dpjax.audit import bounds
from dpjax.audit import curves
from dpjax.audit import one_run
from dpjax.privacy import accounting
from dpjax.privacy import tradeoff
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.notions import ApproxDP
from dpjax.typing import PRNGKey

FPR_LEVELS = (0.001, 0.01)
"""False positive rates at which attacks are compared (AUD-10)."""


class Interval(NamedTuple):
  """An estimate with a confidence interval.

  Attributes:
    value: the estimate.
    low: lower end of the interval; NaN if there is none.
    high: upper end of the interval; NaN if there is none.
  """
  value: float
  low: float
  high: float


class Roc(NamedTuple):
  """The ROC curve: all points that thresholds on the scores can give.

  Attributes:
    thresholds: [k] decreasing: each distinct score, then minus infinity.
    fpr: [k] fraction of non-members above each threshold, from 0 to 1.
    tpr: [k] fraction of members above each threshold, from 0 to 1.
  """
  thresholds: np.ndarray
  fpr: np.ndarray
  tpr: np.ndarray


class Rates(NamedTuple):
  """Error rates of one threshold, with Clopper-Pearson intervals.

  The intervals describe other records at one trained network and threshold,
  and treat records as independent given both. That is exact for non-members,
  which the network never saw, and approximate for members. Networks scatter
  more: see `t_interval`. The intervals also hold for a threshold that
  `threshold_at_fpr` chose on these non-members, if no scores tie: its rate then
  has a beta distribution with limits inside those of `fpr`, and the choice
  ignores the members. They do not hold for other choices on these records.

  Attributes:
    threshold: the given threshold.
    tpr: fraction of members above the threshold.
    fpr: fraction of non-members above the threshold.
    accuracy: fraction of records classified correctly; its binomial interval is
      conservative, as members and non-members have different rates.
    balanced_accuracy: mean of both kinds' fractions classified correctly.
    defence: defence (see `defence`) of the balanced accuracy, which is the
      accuracy if there are as many members as non-members.
  """
  threshold: float
  tpr: Interval
  fpr: Interval
  accuracy: Interval
  balanced_accuracy: float
  defence: float


class Ceiling(NamedTuple):
  """Bounds that no attack exceeds in expectation.

  Attributes:
    accuracy: largest balanced accuracy; in a fixed split also the largest area
      under the curve.
    defence: smallest defence.
  """
  accuracy: float
  defence: float


def defence(accuracy: float) -> float:
  """Returns 200 - 2 A for an accuracy of A percent; a coin has 100 (MIA-10)."""
  return 200.0 * (1 - accuracy)


def roc(scores: np.ndarray, members: np.ndarray) -> Roc:
  """Returns the ROC curve of scores [m] and members [m] bool.

  Raises:
    ValueError: if scores are not finite, members are not bool, or there are no
      members or no non-members.
  """
  inside, outside = _by_kind(scores, members)
  thresholds = np.append(np.unique(np.concatenate([inside, outside]))[::-1],
                         -np.inf)
  # Sizes minus ranks count the scores strictly above each threshold.
  above = (kind.size - np.searchsorted(np.sort(kind), thresholds, 'right')
           for kind in (outside, inside))
  return Roc(thresholds, *(count / kind.size for count, kind in zip(
      above, (outside, inside), strict=True)))


def area(curve: Roc) -> float:
  """Returns how often a member scores above a non-member; ties count 1/2."""
  # Trapezoids: a diagonal step of the curve is a tie, which counts one half.
  steps = np.diff(curve.fpr) * (curve.tpr[1:] + curve.tpr[:-1])
  return float(np.sum(steps) / 2)


def best_threshold(curve: Roc) -> float:
  """Returns the threshold of `best_accuracy`; optimistic on these records."""
  return float(curve.thresholds[np.argmax(curve.tpr - curve.fpr)])


def best_accuracy(curve: Roc) -> float:
  """Returns the largest balanced accuracy; optimistic on these records."""
  return float(0.5 + np.max(curve.tpr - curve.fpr) / 2)


def threshold_at_fpr(curve: Roc, level: float) -> float:
  """Returns the lowest threshold with a false positive rate <= `level`.

  With fewer than 1 / level non-members it is the largest of their scores.
  """
  return float(curve.thresholds[_place_at_fpr(curve, level)])


def rates(scores: np.ndarray, members: np.ndarray, threshold: float, *,
          confidence: float = 0.95) -> Rates:
  """Returns a threshold's error rates on scores [m] and members [m] bool."""
  inside, outside = _by_kind(scores, members)
  hits = int(np.sum(inside > threshold))
  alarms = int(np.sum(outside > threshold))
  balanced = (hits / inside.size + 1 - alarms / outside.size) / 2
  return Rates(
      threshold=float(threshold),
      tpr=proportion(hits, inside.size, confidence=confidence),
      fpr=proportion(alarms, outside.size, confidence=confidence),
      accuracy=proportion(hits + outside.size - alarms,
                          inside.size + outside.size, confidence=confidence),
      balanced_accuracy=balanced, defence=defence(balanced))


def measures(scores: np.ndarray, members: np.ndarray, *, threshold: float,
             levels: Sequence[float] = FPR_LEVELS) -> dict[str, float]:
  """Returns the measures of one attack on one network, by name.

  'auc'; 'attack_accuracy' (balanced) and 'defence' at the threshold;
  'best_attack_accuracy' and 'best_defence' at the best threshold (optimistic);
  and for each level 'tpr_at_<level>', the true positive rate where the false
  positive rate on these records is at most the level.

  Args:
    scores: [m], high for records that look like members.
    members: [m] bool, True for members.
    threshold: chosen beforehand, or on records of a shadow network.
    levels: false positive rates, in (0, 1].
  """
  curve = roc(scores, members)
  fixed = rates(scores, members, threshold)
  best = best_accuracy(curve)
  return {
      'auc': area(curve), 'attack_accuracy': fixed.balanced_accuracy,
      'defence': fixed.defence, 'best_attack_accuracy': best,
      'best_defence': defence(best),
      **{f'tpr_at_{level:g}': float(curve.tpr[_place_at_fpr(curve, level)])
         for level in levels}}


def proportion(count: int, trials: int, *,
               confidence: float = 0.95) -> Interval:
  """Returns count / trials with its Clopper-Pearson interval."""
  errors.check_open_unit('confidence', confidence)
  high = bounds.rate_upper_bound(count, trials,
                                 significance=(1 - confidence) / 2)
  # The lower limit of a rate is one minus the upper limit of its complement.
  other = bounds.rate_upper_bound(trials - count, trials,
                                  significance=(1 - confidence) / 2)
  return Interval(count / trials, 1 - other, high)


def t_interval(values: Sequence[float], *,
               confidence: float = 0.95) -> Interval:
  """Returns the mean over networks with Student's t interval.

  The interval treats networks as independent, which networks that serve as each
  other's shadows are not quite. One network has no interval (NaN).
  """
  errors.check_open_unit('confidence', confidence)
  sample = np.asarray(values, np.float64)
  errors.check_at_least('networks', sample.size, 1)
  mean = float(np.mean(sample))
  if sample.size == 1:
    return Interval(mean, math.nan, math.nan)
  half = (stats.t.isf((1 - confidence) / 2, sample.size - 1) *
          np.std(sample, ddof=1) / math.sqrt(sample.size))
  return Interval(mean, float(mean - half), float(mean + half))


def bootstrap(key: PRNGKey, statistic: Callable[[np.ndarray], float],
              num_networks: int, *, num_draws: int = 1000,
              confidence: float = 0.95) -> Interval:
  """Returns a statistic of many networks with a bootstrap interval.

  It resamples whole networks with their records. The percentile interval is too
  narrow for few networks.

  Args:
    key: determines the draws.
    statistic: function of network indices [num_networks], possibly repeated.
    num_networks: number of networks, at least 2.
    num_draws: number of bootstrap draws.
    confidence: confidence of the interval, in (0, 1).
  """
  errors.check_at_least('num_networks', num_networks, 2)
  errors.check_open_unit('confidence', confidence)
  draws = _generator(key).integers(num_networks, size=[num_draws, num_networks])
  low, high = np.quantile([statistic(draw) for draw in draws],
                          [(1 - confidence) / 2, (1 + confidence) / 2])
  return Interval(float(statistic(np.arange(num_networks))), float(low),
                  float(high))


def ceiling(*, epsilon: float, delta: float) -> Ceiling:
  """Returns the ceiling (e^epsilon + delta) / (1 + e^epsilon) (MIA-13).

  Args:
    epsilon: epsilon of the guarantee, infinite for none. The guarantee must be
      under ADD_OR_REMOVE_ONE for fair coins, REPLACE_ONE for a fixed split.
    delta: delta of the guarantee.

  Examples:
    >>> from dpjax.audit import membership
    >>> round(membership.ceiling(epsilon=1.0, delta=1e-5).accuracy, 4)
    0.7311
  """
  if epsilon == math.inf:
    return _ceiling(1.0)
  return _ceiling(tradeoff.best_accuracy(ApproxDP(epsilon=epsilon,
                                                  delta=delta)))


def ceiling_of_event(event: accounting.DpEvent, *,
                     adjacency: Adjacency) -> Ceiling:
  """Returns the ceiling (1 + delta(0)) / 2 of an event's whole privacy curve.

  delta(0) is the largest total variation distance between neighbours. This is
  never above `ceiling`. A Gaussian of shift mu has accuracy Phi(mu / 2).
  """
  # The curve starts at epsilon 0.
  deltas = curves.of_event(event, adjacency=adjacency).deltas
  return _ceiling((1 + min(1.0, float(deltas[0]))) / 2 if deltas.size else 1.0)


def tpr_ceiling(fpr: np.ndarray, *, epsilon: float,
                delta: float) -> np.ndarray:
  """Returns the largest expected true positive rates at FPRs [k].

  They are min(1, e^epsilon FPR + delta, 1 - e^-epsilon (1 - delta - FPR)), for
  the neighbours of `ceiling`.
  """
  return 1 - tradeoff.approx(fpr, ApproxDP(epsilon=epsilon, delta=delta))


def tpr_ceiling_of_event(fpr: np.ndarray, event: accounting.DpEvent, *,
                         adjacency: Adjacency) -> np.ndarray:
  """Returns `tpr_ceiling` by an event's whole privacy curve, rounded up."""
  curve = curves.of_event(event, adjacency=adjacency)
  return 1 - tradeoff.from_curve(fpr, curve.epsilons.tolist(),
                                 curve.deltas.tolist())


def epsilon_shown(accuracy: float, *, delta: float) -> float:
  """Returns the least epsilon that allows this expected balanced accuracy.

  It is ln((A - delta) / (1 - A)), at least 0. For a measured accuracy it is no
  confidence bound. For one use `epsilon_shown_by_split`, for fair coins
  `one_run.grid_lower_bound`, for one record in each of many runs
  `bounds.epsilon_lower_bound`.
  """
  if not 0 <= accuracy <= 1:
    raise ValueError(f'accuracy must lie in [0, 1], got {accuracy}')
  if accuracy <= (1 + delta) / 2:
    return 0.0
  return math.inf if accuracy == 1 else math.log(
      (accuracy - delta) / (1 - accuracy))


def epsilon_shown_by_split(key: PRNGKey, scores: np.ndarray,
                           members: np.ndarray, *, delta: float,
                           significance: float = 0.05) -> float:
  """Returns a lower bound on REPLACE_ONE epsilon from one trained network.

  It tests the guesses of `paired` on a grid of guess counts (AUD-06, AUD-12).
  The bound is wrong with probability `significance` at most, for members drawn
  without replacement and scores made without knowing them. Records may depend
  on each other through the network, unlike in the intervals of `Rates`.
  """
  return one_run.grid_lower_bound(*paired(key, scores, members), delta=delta,
                                  significance=significance)


def paired(key: PRNGKey, scores: np.ndarray,
           members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Turns a fixed split into fair coins: (differences [n], coins [n] bool).

  Members and non-members are paired at random, in random order within a pair;
  unpaired records stay as they are. As all splits are equally likely, a fair
  coin decides which one of a pair is the member, independent of the pairing and
  of the other pairs. The two data sets of a coin differ by one replacement. So
  the estimators of `one_run` apply under REPLACE_ONE to the score differences,
  first minus second, and the coins, True if the first is the member.
  """
  inside, outside = _by_kind(scores, members)
  generator = _generator(key)
  size = min(inside.size, outside.size)
  coins = generator.random(size) < 0.5
  gaps = (generator.permutation(inside)[:size]
          - generator.permutation(outside)[:size])
  return np.where(coins, gaps, -gaps), coins


def _place_at_fpr(curve: Roc, level: float) -> int:
  """Returns the index of the last point with a rate of at most `level`."""
  errors.check_probability('level', level)
  return int(np.searchsorted(curve.fpr, level, side='right')) - 1


def _by_kind(scores: np.ndarray,
             members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Checks the arrays; returns the scores of members and of non-members."""
  scores, members = np.asarray(scores, np.float64), np.asarray(members)
  if scores.ndim != 1 or scores.shape != members.shape:
    raise ValueError('there must be one membership for each score, got arrays '
                     f'of shapes {scores.shape} and {members.shape}')
  if members.dtype != bool:
    raise ValueError(f'members must be bool, got {members.dtype}')
  if not np.isfinite(scores).all():
    raise ValueError('scores must be finite')
  if members.all() or not members.any():
    raise ValueError('there must be members and non-members')
  return scores[members], scores[~members]


def _ceiling(accuracy: float) -> Ceiling:
  """Returns the `Ceiling` with this accuracy and its defence."""
  return Ceiling(accuracy, defence(accuracy))


def _generator(key: PRNGKey) -> np.random.Generator:
  """Returns a NumPy generator that is seeded by a JAX key."""
  return np.random.default_rng(np.asarray(jax.random.key_data(key)))
