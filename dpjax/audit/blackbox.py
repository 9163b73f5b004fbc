"""Black-box audits: learn an event that distinguishes neighbours, and count it.

Pilot runs on every pair of neighbours choose the pair and the event with the
strongest evidence against the claim. Fresh runs count that event, with
Clopper-Pearson bounds. The count is one valid test whatever the pilot does,
because the event is fixed before the runs on which it is counted.
"""

from typing import NamedTuple

import jax
import numpy as np
from scipy import optimize

from dpjax.audit import bounds
from dpjax.audit import curves
from dpjax.audit import partitions
from dpjax.audit.target import Pair
from dpjax.audit.target import Target
from dpjax.privacy import tradeoff
from dpjax.typing import PRNGKey

# The pilot has num_runs / 4 runs per side, at least min(num_runs, 4096).
_PILOT_PART, _LEAST_PILOT = 4, 4096
# `detectable_epsilon` tries true epsilons up to this multiple of the claim.
_LARGEST_FACTOR = 16.0
# Scaled epsilons are cut here, because e^710 overflows float64.
_LARGEST_EPSILON = 600.0


class Event(NamedTuple):
  """A set of outputs, and the side of the pair on which it is likelier.

  Attributes:
    partition: partition of the outputs into cells.
    flagged: [num_cells] bool: cells that are in the set.
    swapped: True if the set is likelier on `pair.neighbour` than on
      `pair.data`.
    score: excess of the pilot's counts over the claim, in standard errors.
  """
  partition: partitions.Partition
  flagged: np.ndarray
  swapped: bool
  score: float

  def count(self, outputs: np.ndarray) -> int:
    """Returns how many of the outputs [n, d] are in the set."""
    return int(self.flagged[self.partition.cells(outputs)].sum())


class BlackBox(NamedTuple):
  """Counts of the chosen event on fresh runs, and bounds from them.

  Attributes:
    pair: the chosen neighbours.
    event: the counted event.
    true_positives: how many of `num_runs` releases of the likelier side are in
      the event.
    false_positives: the same count for the other side.
    num_runs: number of releases of each side.
    excess: lower bound on the event's excess over the claimed privacy curve; a
      positive one refutes the claim.
    epsilon_lower: lower bound on epsilon at the delta of the claim (AUD-04).
    scores: [2, num_runs] scores of the counted runs, likelier side first.
  """
  pair: Pair
  event: Event
  true_positives: int
  false_positives: int
  num_runs: int
  excess: float
  epsilon_lower: float
  scores: np.ndarray


def audit(key: PRNGKey, target: Target, *, num_runs: int,
          significance: float) -> BlackBox:
  """Chooses an event with pilot runs, and counts it on fresh runs.

  Args:
    key: determines all runs.
    target: the target to audit.
    num_runs: number of counted releases of each side of the pair.
    significance: upper bound on the probability that `excess` is positive for
      a true claim or `epsilon_lower` is too large.
  """
  pilot_key, key = jax.random.split(key)
  pilot = max(num_runs // _PILOT_PART, min(num_runs, _LEAST_PILOT))
  event, pair = max(
      ((choose(target.curve, *both(k, target, pair, pilot),
               low_bits=target.floating_point), pair)
       for k, pair in zip(jax.random.split(pilot_key, len(target.pairs)),
                          target.pairs, strict=True)),
      key=lambda candidate: candidate[0].score)
  outputs = both(key, target, pair, num_runs)
  likely, other = outputs[::-1] if event.swapped else outputs
  hits, alarms = event.count(likely), event.count(other)
  miss_rate, alarm_rate = bounds.error_upper_bounds(
      true_positives=hits, num_in=num_runs, false_positives=alarms,
      num_out=num_runs, significance=significance)
  # `excess` and `epsilon_lower` use the same two bounds on rates. While these
  # hold, both are right, so they share one significance.
  return BlackBox(
      pair=pair, event=event, num_runs=num_runs,
      true_positives=hits, false_positives=alarms,
      excess=float(curves.excesses(target.curve, np.atleast_1d(1 - miss_rate),
                                   np.atleast_1d(alarm_rate))[0]),
      epsilon_lower=bounds.epsilon_lower_bound(
          true_positives=hits, num_in=num_runs, false_positives=alarms,
          num_out=num_runs, delta=target.claim.delta,
          significance=significance),
      scores=np.stack([event.partition.score(y) for y in (likely, other)]))


def both(key: PRNGKey, target: Target, pair: Pair,
         num_runs: int) -> tuple[np.ndarray, np.ndarray]:
  """Draws releases [num_runs, d] of both sides of a pair."""
  one, other = jax.random.split(key)
  return (target.draw(one, pair.data, num_runs),
          target.draw(other, pair.neighbour, num_runs))


def choose(curve: curves.PrivacyCurve, present: np.ndarray,
           absent: np.ndarray, *, low_bits: bool) -> Event:
  """Chooses the event with the strongest evidence against a claimed curve.

  One half of the pilot learns partitions, the other half chooses among them.

  Args:
    curve: privacy curve of the claim.
    present: [n, d] pilot releases of one data set.
    absent: [n, d] pilot releases of its neighbour.
    low_bits: whether to look at the lowest bits of the outputs.

  Raises:
    ValueError: if the two data sets release different numbers of values.
  """
  if present.shape[1] != absent.shape[1]:
    raise ValueError('releases of neighbours must have the same shape, got '
                     f'{present.shape[1]} numbers and {absent.shape[1]}')
  half = min(len(present), len(absent)) // 2
  return loudest(curve, present[half:], absent[half:], partitions.learn(
      present[:half], absent[:half], low_bits=low_bits))


def loudest(curve: curves.PrivacyCurve, present: np.ndarray,
            absent: np.ndarray, cuts: list[partitions.Partition]) -> Event:
  """Returns the event with the highest score over all given partitions."""
  events = []
  for partition in cuts:
    counts = [partition.counts(y) for y in (present, absent)]
    for swapped in (False, True):
      likely, other = counts[::-1] if swapped else counts
      score, flagged = _best_set(curve, likely, other)
      events.append(Event(partition, flagged, swapped, score))
  return max(events, key=lambda event: event.score)


def _best_set(curve: curves.PrivacyCurve, likely: np.ndarray,
              other: np.ndarray) -> tuple[float, np.ndarray]:
  """Returns (score, flagged cells) of the best set of cells.

  Tried are sets of the cells with the largest likelihood ratios, and sets of
  all cells below or above a threshold.
  """
  size = likely.size
  # Half a count more in each cell ranks empty cells without dividing by zero.
  ratio = np.argsort((other + 0.5) / (likely + 0.5), kind='stable')
  best = (-np.inf, np.zeros(size, bool))
  for order in (ratio, np.arange(size), np.arange(size)[::-1]):
    # The set of all cells is left out: it has probability 1 on both sides.
    hits, alarms = (np.cumsum(counts[order])[:-1] for counts in
                    (likely, other))
    scores = _standard_scores(curve, hits, likely.sum(), alarms, other.sum())
    place = int(np.argmax(scores))
    if scores[place] > best[0]:
      flagged = np.zeros(size, bool)
      flagged[order[:place + 1]] = True
      best = (float(scores[place]), flagged)
  return best


def _standard_scores(curve: curves.PrivacyCurve, hits: np.ndarray,
                     num_in: int, alarms: np.ndarray,
                     num_out: int) -> np.ndarray:
  """Returns each test's largest excess over the curve in standard errors, [s].

  A test without excess gets the epsilon that its counts suggest, minus 1000.
  So for a true claim the test with the best lower bound on epsilon is chosen.
  """
  # Half a count more keeps both rates off 0 and 1, where variances vanish.
  hit = ((hits + 0.5) / (num_in + 1))[:, None]
  alarm = ((alarms + 0.5) / (num_out + 1))[:, None]
  growth = np.exp(curve.epsilons)[None]
  hit_variance = hit * (1 - hit) / num_in
  alarm_variance = alarm * (1 - alarm) / num_out
  direct = (hit - growth * alarm - curve.deltas[None]) / np.sqrt(
      hit_variance + growth**2 * alarm_variance)
  reverse = (1 - alarm - growth * (1 - hit) - curve.deltas[None]) / np.sqrt(
      alarm_variance + growth**2 * hit_variance)
  scores = np.max(np.maximum(direct, reverse), axis=1, initial=-np.inf)
  # ln(hits / alarms), with both moved three standard errors against the test.
  # The 5 keeps a test without alarms finite, and cautious.
  log_ratio = np.log(np.maximum(hits - 3 * np.sqrt(hits), 1e-3) / num_in) - (
      np.log((alarms + 3 * np.sqrt(alarms) + 5) / num_out))
  return np.where(scores > 0, scores, log_ratio - 1000)


def detectable_epsilon(target: Target, *, num_runs: int,
                       significance: float) -> float:
  """Returns the true epsilon at which `audit` has 50 % power.

  The true privacy curve is assumed to be the claimed one with all epsilons
  multiplied by one factor, and the audit to know the best event. Infinite if
  no factor up to 16 is detected.
  """
  curve, alarms = target.curve, np.geomspace(1e-5, 0.999, 200)

  def detects(factor: float) -> bool:
    epsilons = np.minimum(factor * curve.epsilons, _LARGEST_EPSILON)
    hits = 1 - tradeoff.from_curve(alarms, epsilons.tolist(),
                                   curve.deltas.tolist())
    miss, alarm = bounds.error_upper_bounds(
        true_positives=np.round(num_runs * hits), num_in=num_runs,
        false_positives=np.round(num_runs * alarms), num_out=num_runs,
        significance=significance)
    return bool((curves.excesses(curve, 1 - miss, alarm) > 0).any())

  if not (curve.epsilons.any() and detects(_LARGEST_FACTOR)):
    return np.inf
  return target.claim.epsilon * optimize.bisect(
      lambda factor: 0.5 - detects(factor), 1.0, _LARGEST_FACTOR, xtol=1e-3)
