"""Events that distinguish two data sets, chosen for the bound they will give.

One half of a pilot learns partitions of the outputs and an order of their
cells. The other half chooses: every event is judged by the Clopper-Pearson
bound on epsilon that its fresh counts are expected to give, after both of its
rates have been moved against it by the uncertainty of the pilot. Rare events of
great but uncertain ratio therefore lose against common ones.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import special

from dpjax.audit import bounds
from dpjax.audit import curves
from dpjax.audit import partitions

# Standard errors of the pilot by which rates are moved against an event: for
# its bound on epsilon, and for whether it refutes the claim. The second is
# larger, as the best of many events that break nothing is often 2 errors above.
_CAUTION, _REFUTING_CAUTION = 1.5, 2.0
# An event that is expected to exceed the claim by this much in epsilon is
# clear: a larger excess does not make it better, only a larger bound does.
_CLEAR, _WEIGHT = 0.05, 1000.0


class Count(NamedTuple):
  """The count on fresh runs that an event is chosen for.

  Attributes:
    curve: privacy curve of the claim.
    delta: delta of the claim, at which epsilon is bounded.
    num_runs: number of fresh runs of each data set.
    significance: significance level of the count.
  """
  curve: curves.PrivacyCurve
  delta: float = 0.0
  num_runs: int = 2**15
  significance: float = 0.05


class Event(NamedTuple):
  """A set of outputs, and the side of the pair on which it is likelier.

  Attributes:
    partition: partition of the outputs into cells.
    flagged: [num_cells] bool: cells that are in the set.
    swapped: True if the set is likelier on `pair.neighbour` than on
      `pair.data`.
    score: excess of the pilot's counts over the claim, in standard errors.
    value: expected worth of the counts, by which events are compared. For an
      event that is not expected to refute the claim it is the expected bound on
      epsilon minus 1000. For others it is that bound plus 1000 times the
      expected excess over the claim in epsilon, of which 0.05 counts.
    miss_share: part of the significance that the miss rate gets.
  """
  partition: partitions.Partition
  flagged: np.ndarray
  swapped: bool
  score: float
  value: float = 0.0
  miss_share: float = bounds.EVEN

  def count(self, outputs: np.ndarray) -> int:
    """Returns how many of the outputs [n, d] are in the set."""
    return int(self.flagged[self.partition.cells(outputs)].sum())


def choose(count: Count, present: np.ndarray, absent: np.ndarray, *,
           low_bits: bool, network: bool = True) -> Event:
  """Chooses the event whose fresh counts refute the claim most.

  One half of the pilot learns partitions, the other half chooses among them.

  Args:
    count: the count for which the event is chosen.
    present: [n, d] pilot releases of one data set.
    absent: [n, d] pilot releases of its neighbour.
    low_bits: whether to look at the lowest bits of the outputs.
    network: whether to train a network if no other event is clear.

  Raises:
    ValueError: if the two data sets release different numbers of values.
  """
  if present.shape[1] != absent.shape[1]:
    raise ValueError('releases of neighbours must have the same shape, got '
                     f'{present.shape[1]} numbers and {absent.shape[1]}')
  half = min(len(present), len(absent)) // 2
  return choose_again(count, (present[:half], absent[:half]),
                      (present[half:], absent[half:]), low_bits=low_bits,
                      network=network)


def choose_again(count: Count, learnt: tuple[np.ndarray, np.ndarray],
                 judged: tuple[np.ndarray, np.ndarray], *, low_bits: bool,
                 network: bool = False,
                 known: Sequence[partitions.Partition] = ()) -> Event:
  """Applies `choose` to two pilots: one to learn, and one to choose.

  Args:
    count: the count for which the event is chosen.
    learnt: outputs [n, d] of both data sets, from which partitions are learnt.
    judged: other outputs [m, d] of both, by which events are compared.
    low_bits: whether to look at the lowest bits of the outputs.
    network: whether to train a network if no other event is clear.
    known: partitions learnt from other outputs than `judged`.
  """
  best = loudest(count, *judged, [
      *known, *partitions.learn(*learnt, low_bits=low_bits)])
  if network and not is_clear(best):
    best = max([best, *(loudest(count, *judged, [cut])
                        for cut in partitions.learn_network(*learnt))],
               key=lambda event: event.value)
  return best


def is_clear(event: Event) -> bool:
  """Returns whether an event is expected to refute the claim without doubt."""
  return event.value >= _CLEAR * _WEIGHT


def loudest(count: Count, present: np.ndarray, absent: np.ndarray,
            cuts: list[partitions.Partition]) -> Event:
  """Returns the event of the largest value over all given partitions."""
  events = [of_counts(count, cut, cut.counts(present), cut.counts(absent))
            for cut in cuts]
  return max(events, key=lambda event: event.value)


def of_counts(count: Count, partition: partitions.Partition,
              present: np.ndarray, absent: np.ndarray) -> Event:
  """Returns the best event of one partition, from counts [num_cells].

  Tried are sets of the cells with the largest likelihood ratios, and sets of
  all cells below or above a threshold.
  """
  ratio = (partitions.ratio_order(present, absent)
           if partition.order is None else partition.order)
  size, sizes = ratio.size, (int(present.sum()), int(absent.sum()))
  best = (-np.inf, ratio)
  # A set and its complement with both roles exchanged are one test, so sets
  # that are likelier on `absent` need no orders of their own.
  for order in (ratio, np.arange(size), np.arange(size)[::-1]):
    # The set of all cells is left out: it has probability 1 on both sides.
    hits, alarms = (np.cumsum(each[order])[:-1] for each in (present, absent))
    values = expected_values(count, hits, sizes[0], alarms, sizes[1])
    place = int(np.argmax(values))
    if values[place] > best[0]:
      best = (float(values[place]), order[:place + 1])
  flagged = np.zeros(size, bool)
  flagged[best[1]] = True
  # The smaller set says more: of every output but one, its complement.
  swapped = (present + absent)[flagged].sum() > sum(sizes) / 2
  return _finished(count, Event(partition, flagged ^ swapped, bool(swapped),
                                0.0), present, absent)


def _finished(count: Count, event: Event, present: np.ndarray,
              absent: np.ndarray) -> Event:
  """Returns an event with its score and its best share of significance."""
  likely, other = (absent, present) if event.swapped else (present, absent)
  hits, alarms = (each[event.flagged].sum() for each in (likely, other))
  values = [float(expected_values(
      count, hits, likely.sum(), alarms, other.sum(), miss_share=share)[0])
             for share in bounds.SHARES]
  best = int(np.argmax(values))
  # Equal levels unless another split gains: tests without evidence keep them.
  return event._replace(
      value=values[best], miss_share=bounds.SHARES[best],
      score=_standard_score(count.curve, hits, likely.sum(), alarms,
                            other.sum()))


def expected_values(count: Count, hits: np.ndarray, num_in: int,
                     alarms: np.ndarray, num_out: int, *,
                     miss_share: float = bounds.EVEN) -> np.ndarray:
  """Returns the values [s] of tests, see `Event`.

  Args:
    count: the count to expect.
    hits: [s] pilot counts of the tests on the likelier data set.
    num_in: number of pilot runs of it.
    alarms: [s] pilot counts on the other data set.
    num_out: number of pilot runs of it.
    miss_share: part of the significance that the miss rate gets.
  """
  curve, sizes = count.curve, (num_in, num_out)
  counts = (num_in - np.atleast_1d(hits), np.atleast_1d(alarms))
  levels = [count.significance * share for share in (miss_share,
                                                     1 - miss_share)]

  def log_ratios(caution: float, deltas: np.ndarray) -> np.ndarray:
    return _log_ratios(*(
        _expected_upper(each, size, caution, count.num_runs, level)
        for each, size, level in zip(counts, sizes, levels, strict=True)),
                       deltas)

  refuted = np.max(log_ratios(_REFUTING_CAUTION, curve.deltas) -
                   curve.epsilons, axis=1, initial=-np.inf)
  bound = log_ratios(_CAUTION, np.array([count.delta]))[:, 0]
  return bound + _WEIGHT * np.where(refuted > 0, np.minimum(refuted, _CLEAR),
                                    -1.0)


def _log_ratios(miss: np.ndarray, alarm: np.ndarray,
                deltas: np.ndarray) -> np.ndarray:
  """Returns bounds [s, k] on epsilon from error rates [s] and deltas [k]."""
  gains = np.stack([1 - miss, 1 - alarm])[..., None] - deltas
  ratios = gains / np.stack([alarm, miss])[..., None]
  return np.max(np.log(np.maximum(ratios, 1e-300)), axis=0)


def _expected_upper(counts: np.ndarray, size: int, caution: float, runs: int,
                    level: float) -> np.ndarray:
  """Returns upper bounds [s] of rates that fresh runs will probably give."""
  likely = runs * _upper(counts, size, caution)
  return _upper(likely, runs, -special.ndtri(level))


def _upper(counts: np.ndarray, size: int, errors: float) -> np.ndarray:
  """Returns Wilson's upper bounds of rates, near Clopper and Pearson's.

  They move the rates by so many standard errors, and take far less time.
  """
  rate, extra = counts / size, errors**2 / size
  spread = errors * np.sqrt(rate * (1 - rate) / size + extra / (4 * size))
  return (rate + extra / 2 + spread) / (1 + extra)


def _standard_score(curve: curves.PrivacyCurve, hits: float, num_in: int,
                    alarms: float, num_out: int) -> float:
  """Returns a test's largest excess over the curve in standard errors."""
  # Half a count more keeps both rates off 0 and 1, where variances vanish.
  hit, alarm = (hits + 0.5) / (num_in + 1), (alarms + 0.5) / (num_out + 1)
  growth = np.exp(curve.epsilons)
  hit_variance = hit * (1 - hit) / num_in
  alarm_variance = alarm * (1 - alarm) / num_out
  direct = (hit - growth * alarm - curve.deltas) / np.sqrt(
      hit_variance + growth**2 * alarm_variance)
  reverse = (1 - alarm - growth * (1 - hit) - curve.deltas) / np.sqrt(
      alarm_variance + growth**2 * hit_variance)
  return float(np.max(np.maximum(direct, reverse), initial=-np.inf))
