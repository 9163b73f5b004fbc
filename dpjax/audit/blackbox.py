"""Black-box audits: learn an event that distinguishes neighbours, and count it.

Pilot runs on every pair of neighbours choose the pair and the event with the
strongest evidence against the claim. Fresh runs count that event, with
Clopper-Pearson bounds. The count is one valid test whatever the pilot does,
because the event is fixed before the runs on which it is counted.
"""

from typing import NamedTuple

import jax
import numpy as np

from dpjax.audit import bounds
from dpjax.audit import curves
from dpjax.audit import events
from dpjax.audit import partitions
from dpjax.audit.target import Pair
from dpjax.audit.target import Target
from dpjax.typing import PRNGKey

# The pilot has num_runs / 4 runs per side, at least min(num_runs, 4096).
_PILOT_PART, _LEAST_PILOT = 4, 4096
# Of more pairs than this, small pilots choose those that get whole ones.
_MANY_PAIRS, _KEPT_PAIRS = 8, 4
# So many pairs train a network, while no pair shows a clear event.
_NETWORKS = 6


Event = events.Event


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
  event, pair = _chosen(pilot_key, target, events.Count(
      target.curve, target.claim.delta, num_runs, significance))
  outputs = both(key, target, pair, num_runs)
  likely, other = outputs[::-1] if event.swapped else outputs
  hits, alarms = event.count(likely), event.count(other)
  miss_rate, alarm_rate = bounds.error_upper_bounds(
      true_positives=hits, num_in=num_runs, false_positives=alarms,
      num_out=num_runs, significance=significance,
      miss_share=event.miss_share)
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
          significance=significance, miss_share=event.miss_share),
      scores=np.stack([event.partition.score(y) for y in (likely, other)]))


def _chosen(key: PRNGKey, target: Target,
            count: events.Count) -> tuple[Event, Pair]:
  """Returns the best event of all pairs by their pilots, and its pair."""
  size = pilot_runs(count.num_runs)
  first_key, key, last_key = jax.random.split(key, 3)
  pairs = list(target.pairs)
  if len(pairs) > _MANY_PAIRS:
    small = max(size // 4, min(size, _LEAST_PILOT // 2))
    ranked = [_pilot(jax.random.fold_in(first_key, number), target, pair, count,
                     small, network=False)[0].value
              for number, pair in enumerate(pairs)]
    pairs = [pairs[place] for place in np.argsort(ranked)[::-1][:_KEPT_PAIRS]]
  best = None
  for number, pair in enumerate(pairs):
    found = _pilot(jax.random.fold_in(key, number), target, pair, count, size,
                   network=number < _NETWORKS and not (
                       best and events.is_clear(best[0])))
    if best is None or found[0].value > best[0].value:
      best = (*found, pair)
  assert best is not None
  event, learnt, pair = best
  # The pair's pilot was used to choose it, so its event looks better than it
  # is. Another pilot chooses again, among partitions learnt from the first.
  again = both(last_key, target, pair, max(
      count.num_runs // 2, min(count.num_runs, _LEAST_PILOT)))
  return events.choose_again(
      count, learnt, again, low_bits=target.floating_point,
      known=[event.partition]), pair


def _pilot(key: PRNGKey, target: Target, pair: Pair, count: events.Count,
           size: int, *, network: bool
           ) -> tuple[Event, tuple[np.ndarray, np.ndarray]]:
  """Returns the event chosen by pilot runs of a pair, and their outputs."""
  outputs = both(key, target, pair, size)
  return events.choose(count, *outputs, low_bits=target.floating_point,
                       network=network), outputs


def pilot_runs(num_runs: int) -> int:
  """Returns the number of pilot runs of each side, from that of counted runs.
  """
  return max(num_runs // _PILOT_PART, min(num_runs, _LEAST_PILOT))


def both(key: PRNGKey, target: Target, pair: Pair,
         num_runs: int) -> tuple[np.ndarray, np.ndarray]:
  """Draws releases [num_runs, d] of both sides of a pair."""
  one, other = jax.random.split(key)
  return (target.draw(one, pair.data, num_runs),
          target.draw(other, pair.neighbour, num_runs))


def choose(curve: curves.PrivacyCurve, present: np.ndarray,
           absent: np.ndarray, *, low_bits: bool) -> Event:
  """Chooses an event against a claimed curve, see `events.choose`."""
  return events.choose(events.Count(curve, num_runs=_PILOT_PART * len(present)),
                       present, absent, low_bits=low_bits)


def loudest(curve: curves.PrivacyCurve, present: np.ndarray,
            absent: np.ndarray, cuts: list[partitions.Partition]) -> Event:
  """Returns the best event of given partitions, see `events.loudest`."""
  return events.loudest(
      events.Count(curve, num_runs=_PILOT_PART * len(present)), present, absent,
      cuts)
