"""A black box: releases of neighbours told apart by an event that was learnt.

A pilot of runs on every pair chooses the pair and the event whose counts speak
loudest against the claim; fresh runs count it, with Clopper-Pearson limits of
one level. Whatever the pilot does, the count is one test, fixed before the
runs that it is counted on.
"""

from typing import NamedTuple

import jax
import numpy as np
from scipy import optimize

from dpjax.audit import bounds
from dpjax.audit import curves
from dpjax.audit import partitions
from dpjax.audit.target import Pair, Target
from dpjax.privacy import tradeoff
from dpjax.typing import PRNGKey

_PILOT_SHARE, _LEAST_PILOT = 4, 4096
_LARGEST_FACTOR = 16.0
_LARGEST_EPSILON = 600.0


class Event(NamedTuple):
  """A set of outputs, and which side of a pair makes it likelier.

  Attributes:
    partition: of outputs.
    flagged: [num_cells] bool.
    swapped: whether the neighbour makes it likelier.
    score: standard errors by which the pilot exceeds the claim.
  """
  partition: partitions.Partition
  flagged: np.ndarray
  swapped: bool
  score: float

  def count(self, outputs: np.ndarray) -> int:
    """How many outputs [n, d] are in the set."""
    return int(self.flagged[self.partition.cells(outputs)].sum())


class BlackBox(NamedTuple):
  """What the counted event says.

  Attributes:
    pair: that was told apart.
    event: that was counted.
    true_positives: of `num_runs` releases of the likelier side.
    false_positives: of as many of the other.
    num_runs: on each side.
    excess: lower bound of what the event breaks the claim by; positive
      refutes it.
    epsilon_lower: AUD-04 bound at the delta of the claim.
    scores: of the runs that were counted, [2, num_runs].
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
  """Chooses an event by a pilot, and counts it on fresh runs.

  Args:
    key: of all runs.
    target: under audit.
    num_runs: on each side of the pair that is counted.
    significance: probability that `excess` is positive for a true claim, and
      that `epsilon_lower` is too large, at most.
  """
  pilot_key, key = jax.random.split(key)
  pilot = max(num_runs // _PILOT_SHARE, min(num_runs, _LEAST_PILOT))
  chosen = max(
      ((choose(target.curve, *both(k, target, pair, pilot),
               low_bits=target.floating_point), pair)
       for k, pair in zip(jax.random.split(pilot_key, len(target.pairs)),
                          target.pairs, strict=True)),
      key=lambda found: found[0].score)
  event, pair = chosen
  outputs = both(key, target, pair, num_runs)
  likely, other = outputs[::-1] if event.swapped else outputs
  counts = dict(true_positives=event.count(likely), num_in=num_runs,
                false_positives=event.count(other), num_out=num_runs)
  miss, alarm = bounds.error_upper_bounds(**counts, significance=significance)
  return BlackBox(
      pair=pair, event=event, num_runs=num_runs,
      true_positives=counts['true_positives'],
      false_positives=counts['false_positives'],
      excess=float(curves.excesses(target.curve, [1 - miss], [alarm])[0]),
      epsilon_lower=bounds.epsilon_lower_bound(
          **counts, delta=target.claim.delta, significance=significance),
      scores=np.stack([event.partition.score(y) for y in (likely, other)]))


def both(key: PRNGKey, target: Target, pair: Pair,
         num_runs: int) -> tuple[np.ndarray, np.ndarray]:
  """Releases [num_runs, d] of both sides of a pair."""
  one, other = jax.random.split(key)
  return (target.draw(one, pair.data, num_runs),
          target.draw(other, pair.neighbour, num_runs))


def choose(curve: curves.PrivacyCurve, present: np.ndarray,
           absent: np.ndarray, *, low_bits: bool) -> Event:
  """The event of a pilot [n, d] on each side that speaks loudest.

  One half of the pilot makes partitions, the other chooses among them.
  """
  if present.shape[1] != absent.shape[1]:
    raise ValueError('releases of neighbours must have one shape, got '
                     f'{present.shape[1]} numbers and {absent.shape[1]}')
  half = min(len(present), len(absent)) // 2
  return loudest(curve, present[half:], absent[half:], partitions.learn(
      present[:half], absent[:half], low_bits=low_bits))


def loudest(curve: curves.PrivacyCurve, present: np.ndarray,
            absent: np.ndarray, cuts: list[partitions.Partition]) -> Event:
  """The event of these partitions that speaks loudest."""
  best = None
  for partition in cuts:
    counts = [partition.counts(y) for y in (present, absent)]
    for swapped in (False, True):
      likely, other = counts[::-1] if swapped else counts
      score, flagged = _best_set(curve, likely, other)
      if best is None or score > best.score:
        best = Event(partition, flagged, swapped, score)
  return best


def _best_set(curve: curves.PrivacyCurve, likely: np.ndarray,
              other: np.ndarray) -> tuple[float, np.ndarray]:
  """(score, cells): of sets of cells by ratio, and from either end."""
  size = likely.size
  ratio = np.argsort((other + 0.5) / (likely + 0.5), kind='stable')
  best = (-np.inf, np.zeros(size, bool))
  for order in (ratio, np.arange(size), np.arange(size)[::-1]):
    hits, alarms = (np.cumsum(counts[order])[:-1] for counts in
                    (likely, other))
    scores = _standard_scores(curve, hits, likely.sum(), alarms, other.sum())
    place = int(np.argmax(scores))
    if scores[place] > best[0]:
      flagged = np.zeros(size, bool)
      flagged[order[:place + 1]] = True
      best = (float(scores[place]), flagged)
  return best


def _standard_scores(curve: curves.PrivacyCurve, hits, num_in, alarms,
                     num_out) -> np.ndarray:
  """Largest excess over the curve in standard errors, of each test [s].

  Where nothing is in excess the bound on epsilon that it promises decides, so
  that a report on a true claim has one to show: from -1000 up.
  """
  hit = ((hits + 0.5) / (num_in + 1))[:, None]
  alarm = ((alarms + 0.5) / (num_out + 1))[:, None]
  growth = np.exp(curve.epsilons)[None]
  spread = hit * (1 - hit) / num_in, alarm * (1 - alarm) / num_out
  direct = (hit - growth * alarm - curve.deltas[None]) / np.sqrt(
      spread[0] + growth**2 * spread[1])
  reverse = (1 - alarm - growth * (1 - hit) - curve.deltas[None]) / np.sqrt(
      spread[1] + growth**2 * spread[0])
  scores = np.max(np.maximum(direct, reverse), axis=1, initial=-np.inf)
  promise = np.log(np.maximum(hits - 3 * np.sqrt(hits), 1e-3) / num_in) - (
      np.log((alarms + 3 * np.sqrt(alarms) + 5) / num_out))
  return np.where(scores > 0, scores, promise - 1000)


def detectable_epsilon(target: Target, *, num_runs: int,
                       significance: float) -> float:
  """The least true epsilon that such an audit would have refuted half the time.

  Of a release whose privacy curve is the claimed one with all epsilons
  multiplied, told apart by its best event; infinite if none would be.
  """
  curve, alarms = target.curve, np.geomspace(1e-5, 0.999, 200)

  def seen(factor: float) -> bool:
    hits = 1 - tradeoff.from_curve(
        alarms, np.minimum(factor * curve.epsilons, _LARGEST_EPSILON),
        curve.deltas)
    miss, alarm = bounds.error_upper_bounds(
        true_positives=np.round(num_runs * hits), num_in=num_runs,
        false_positives=np.round(num_runs * alarms), num_out=num_runs,
        significance=significance)
    return bool((curves.excesses(curve, 1 - miss, alarm) > 0).any())

  if not (curve.epsilons.any() and seen(_LARGEST_FACTOR)):
    return np.inf
  return target.claim.epsilon * optimize.bisect(
      lambda factor: 0.5 - seen(factor), 1.0, _LARGEST_FACTOR, xtol=1e-3)
