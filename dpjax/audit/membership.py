"""Who was in the training set: how well an attack tells, and may tell at all.

Scores [m] are high for records that look like members, `members` [m] bool says
which are; NumPy, float64, exact with ties. A record is called a member if its
score is above a threshold. Rates and accuracies are shares of 1, a defence is
in points of 100 as in thesis 000, Section 1.3 (MIA-10).

**Why a guarantee bounds accuracy** (MIA-13). Let the attack see the release and
all records, and whatever else is independent of who is a member.

*Fair coins.* Each record is a member by an independent fair coin. Given the
other coins, the two data sets of a coin differ by one record: under
ADD_OR_REMOVE_ONE the guess of it is right with probability at most
(e^epsilon + delta) / (1 + e^epsilon) = c, whatever the others are. So is the
mean over records. A record of share q of being a member has this bound on its
balanced accuracy.

*A fixed split.* The members S are n of m records, all sets of that size alike.
Then no record is independent of the others, and given all of them nothing is
left to guess. But let S be uniform among sets with record i, j uniform outside
of S, and S' be S with j instead of i: S' is uniform among sets without i, and
the two are neighbours under REPLACE_ONE. The guess of i is a function of the
release, so averages over the pair give TPR_i <= e^epsilon FPR_i + delta, and
the three other inequalities alike; with a trade-off f, 1 - TPR_i >= f(FPR_i)
since f is convex. As i is a member with the same probability as any other,
expected rates over all records are plain means of TPR_i and FPR_i, and lie
under the same concave curve: balanced accuracy is at most c, and for n = m / 2
accuracy is balanced. An (epsilon, delta) of ADD_OR_REMOVE_ONE bounds nothing
here but through (2 epsilon, (1 + e^epsilon) delta) of a replacement.

*Order.* In a fixed split a member and a non-member, given both and all others,
are told apart as often as c at most: so the expected area under the curve is
at most c too. This is below the area under the ceiling of rates.

All of this bounds expectations over split and training. The rates of one
network scatter about them, and a threshold that is set on the very records
that it is counted on looks at memberships: such an accuracy is optimistic.
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
  """An estimate with limits of its confidence.

  Attributes:
    value: the estimate.
    low: of the interval, NaN if there is none.
    high: of the interval, NaN if there is none.
  """
  value: float
  low: float
  high: float


class Roc(NamedTuple):
  """What each threshold gives: every curve point that scores can give.

  Attributes:
    thresholds: [k] decreasing, each distinct score and minus infinity.
    fpr: [k] share of non-members above it, from 0 to 1.
    tpr: [k] share of members above it, from 0 to 1.
  """
  thresholds: np.ndarray
  fpr: np.ndarray
  tpr: np.ndarray


class Rates(NamedTuple):
  """How one threshold does; limits are Clopper and Pearson's.

  They are for other records of one trained network and one threshold, and
  take the records as independent given both: exact for non-members, which the
  network never saw, an approximation for members, which made it. Between
  networks there is more: see `t_interval`. Of a threshold that
  `threshold_at_fpr` set on these non-members, limits still hold where no
  scores tie: its rate has a beta law with limits inside of those of `fpr`, and
  it never looks at the members. Of any other choice on these records they do
  not.

  Attributes:
    threshold: that was given.
    tpr: share of members above it.
    fpr: share of non-members above it.
    accuracy: share of all records that are told rightly; the binomial law
      makes its limits conservative, as members and others differ.
    balanced_accuracy: mean of the shares told rightly of either kind.
    defence: of the balanced accuracy, which is the accuracy where there are
      as many members as others.
  """
  threshold: float
  tpr: Interval
  fpr: Interval
  accuracy: Interval
  balanced_accuracy: float
  defence: float


class Ceiling(NamedTuple):
  """What no attack exceeds in expectation.

  Attributes:
    accuracy: balanced, and the area under the curve in a fixed split.
    defence: at least.
  """
  accuracy: float
  defence: float


def defence(accuracy: float) -> float:
  """200 - 2 A for an accuracy of A percent: 100 for a coin (MIA-10)."""
  return 200.0 * (1 - accuracy)


def roc(scores: np.ndarray, members: np.ndarray) -> Roc:
  """The curve of scores [m] and members [m] bool.

  Raises:
    ValueError: for scores that are not finite, members that are not bool, or
      where either kind is missing.
  """
  inside, outside = _by_kind(scores, members)
  thresholds = np.append(np.unique(np.concatenate([inside, outside]))[::-1],
                         -np.inf)
  above = (kind.size - np.searchsorted(np.sort(kind), thresholds, 'right')
           for kind in (outside, inside))
  return Roc(thresholds, *(count / kind.size for count, kind in zip(
      above, (outside, inside), strict=True)))


def area(curve: Roc) -> float:
  """Probability that a member scores higher, ties counting one half."""
  steps = np.diff(curve.fpr) * (curve.tpr[1:] + curve.tpr[:-1])
  return float(np.sum(steps) / 2)


def best_threshold(curve: Roc) -> float:
  """That of the largest balanced accuracy; optimistic on these records."""
  return float(curve.thresholds[np.argmax(curve.tpr - curve.fpr)])


def best_accuracy(curve: Roc) -> float:
  """The largest balanced accuracy: optimistic, its threshold saw who is who."""
  return float(0.5 + np.max(curve.tpr - curve.fpr) / 2)


def threshold_at_fpr(curve: Roc, level: float) -> float:
  """The lowest threshold with a false positive rate of at most `level`.

  With fewer than 1 / level non-members it is the largest of their scores.
  """
  return float(curve.thresholds[_place_at_fpr(curve, level)])


def rates(scores: np.ndarray, members: np.ndarray, threshold: float, *,
          confidence: float = 0.95) -> Rates:
  """How a threshold does on scores [m] and members [m] bool."""
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
  """The figures of one attack on one network, by name.

  'auc'; 'attack_accuracy', balanced, and 'defence' at the threshold;
  'best_attack_accuracy' and 'best_defence' at the best one, optimistic; and
  for each level 'tpr_at_<level>', the true positive rate where the false
  positive rate on these records is at most the level.

  Args:
    scores: [m].
    members: [m] bool.
    threshold: chosen beforehand, or on records of a shadow network.
    levels: false positive rates.
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
  """Of so many in so many, with limits of Clopper and Pearson."""
  errors.check_open_unit('confidence', confidence)
  high = bounds.rate_upper_bound(count, trials,
                                 significance=(1 - confidence) / 2)
  other = bounds.rate_upper_bound(trials - count, trials,
                                  significance=(1 - confidence) / 2)
  return Interval(count / trials, 1 - other, high)


def t_interval(values: Sequence[float], *,
               confidence: float = 0.95) -> Interval:
  """The mean over networks, with Student's limits: how training scatters.

  Networks that are each other's shadows are not quite independent. No limits
  for one network.
  """
  errors.check_open_unit('confidence', confidence)
  values = np.asarray(values, np.float64)
  errors.check_at_least('networks', values.size, 1)
  mean = float(np.mean(values))
  if values.size == 1:
    return Interval(mean, math.nan, math.nan)
  half = (stats.t.isf((1 - confidence) / 2, values.size - 1) *
          np.std(values, ddof=1) / math.sqrt(values.size))
  return Interval(mean, float(mean - half), float(mean + half))


def bootstrap(key: PRNGKey, statistic: Callable[[np.ndarray], float],
              num_networks: int, *, num_draws: int = 1000,
              confidence: float = 0.95) -> Interval:
  """A statistic of many networks, with limits by drawing networks anew.

  Whole networks are drawn, with their records: percentiles, which for few
  networks are too narrow.

  Args:
    key: of the draws.
    statistic: of indices [num_networks] of networks, repeated or not.
    num_networks: at least 2.
    num_draws: how often.
    confidence: of the interval.
  """
  errors.check_at_least('num_networks', num_networks, 2)
  errors.check_open_unit('confidence', confidence)
  draws = _generator(key).integers(num_networks, size=[num_draws, num_networks])
  low, high = np.quantile([statistic(draw) for draw in draws],
                          [(1 - confidence) / 2, (1 + confidence) / 2])
  return Interval(float(statistic(np.arange(num_networks))), float(low),
                  float(high))


def ceiling(*, epsilon: float, delta: float) -> Ceiling:
  """(e^epsilon + delta) / (1 + e^epsilon), why see above (MIA-13).

  Args:
    epsilon: infinite for no guarantee. Under ADD_OR_REMOVE_ONE where members
      are drawn by fair coins, under REPLACE_ONE in a fixed split.
    delta: of the guarantee.

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
  """By all that is known of a release: (1 + delta(0)) / 2, never larger.

  delta at epsilon 0 is the total variation of neighbours. For a Gaussian of
  shift mu the accuracy is Phi(mu / 2).
  """
  deltas = curves.of_event(event, adjacency=adjacency).deltas
  return _ceiling((1 + min(1.0, float(deltas[0]))) / 2 if deltas.size else 1.0)


def tpr_ceiling(fpr: np.ndarray, *, epsilon: float,
                delta: float) -> np.ndarray:
  """Largest expected true positive rates at false positive rates [k].

  min(1, e^epsilon FPR + delta, 1 - e^-epsilon (1 - delta - FPR)), under the
  neighbours of `ceiling`.
  """
  return 1 - tradeoff.approx(fpr, ApproxDP(epsilon=epsilon, delta=delta))


def tpr_ceiling_of_event(fpr: np.ndarray, event: accounting.DpEvent, *,
                         adjacency: Adjacency) -> np.ndarray:
  """The same by the whole privacy curve of what ran, from above."""
  return 1 - tradeoff.from_curve(fpr, *curves.of_event(event,
                                                       adjacency=adjacency))


def epsilon_shown(accuracy: float, *, delta: float) -> float:
  """The least epsilon that allows this expected balanced accuracy.

  ln((A - delta) / (1 - A)), at least 0. An accuracy that was measured shows
  it with no confidence: see `epsilon_shown_by_split`, for fair coins
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
  """A lower bound on the epsilon of REPLACE_ONE from one trained network.

  By the guesses of `paired`, as many as pays best (AUD-06, AUD-12): wrong with
  probability `significance` at most, for members drawn without replacement
  and scores made without knowing them. Dependence of records through the
  network costs no validity, unlike in limits of `Rates`.
  """
  return one_run.grid_lower_bound(*paired(key, scores, members), delta=delta,
                                  significance=significance)


def paired(key: PRNGKey, scores: np.ndarray,
           members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """A fixed split as fair coins: (differences [n], coins [n] bool).

  Members and others are matched at random, and each pair put in random order;
  what is left over stays as it is. All splits being alike, which of a pair is
  the member is then a fair coin, independent of the other pairs and of who is
  paired with whom; and the data sets of a coin differ by one replacement. So
  estimators of `one_run` hold of differences, first minus second, and coins,
  true if the first is the member, for REPLACE_ONE.
  """
  inside, outside = _by_kind(scores, members)
  generator = _generator(key)
  size = min(inside.size, outside.size)
  coins = generator.random(size) < 0.5
  gaps = (generator.permutation(inside)[:size]
          - generator.permutation(outside)[:size])
  return np.where(coins, gaps, -gaps), coins


def _place_at_fpr(curve: Roc, level: float) -> int:
  errors.check_probability('level', level)
  return int(np.searchsorted(curve.fpr, level, side='right')) - 1


def _by_kind(scores: np.ndarray,
             members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Scores of members and of others, checked."""
  scores, members = np.asarray(scores, np.float64), np.asarray(members)
  if scores.ndim != 1 or scores.shape != members.shape:
    raise ValueError('there must be one membership for each score, got arrays '
                     f'of shapes {scores.shape} and {members.shape}')
  if members.dtype != bool:
    raise ValueError(f'members must be bool, got {members.dtype}')
  if not np.isfinite(scores).all():
    raise ValueError('scores must be finite')
  if members.all() or not members.any():
    raise ValueError('there must be members and others')
  return scores[members], scores[~members]


def _ceiling(accuracy: float) -> Ceiling:
  return Ceiling(accuracy, defence(accuracy))


def _generator(key: PRNGKey) -> np.random.Generator:
  return np.random.default_rng(np.asarray(jax.random.key_data(key)))
