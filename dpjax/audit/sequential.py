"""Sequential audits: bets on outputs, valid at whatever run one stops.

Under a claim of (epsilon, delta)-DP, every function g of the outputs with
values in [0, 1] obeys E g(M(D)) <= e^epsilon E g(M(D')) + delta. So a bet on
g(M(D)) - e^epsilon g(M(D')) - delta loses money on average, and likewise the
bet on 1 - g with both data sets exchanged. A claim of a whole curve allows all
of these bets, at each of its points. A wealth of 1 is spread over the bets; g
and the spread may depend on all earlier runs. If the claim is true, the wealth
is a nonnegative supermartingale, which by Ville's inequality ever reaches
1 / significance with probability `significance` at most. An audit may stop
there, and needs no number of runs in advance.

Sources: betting as in Waudby-Smith and Ramdas (2024); sequential audits by
Gonzalez et al. (2025), with kernels in place of events, and by Kutta et al.
(2026), for trade-off functions. Their tests are not implemented here.
"""

import math
from typing import NamedTuple

import jax
import numpy as np

from dpjax import errors
from dpjax.audit import betting
from dpjax.audit import blackbox
from dpjax.audit import curves
from dpjax.audit.target import Pair
from dpjax.audit.target import Target
from dpjax.typing import PRNGKey

# Part of the wealth that is spread evenly, whatever earlier runs suggest.
_EVEN = 0.1
# Hypotheses of one epsilon, from whose refutation the lower bound follows.
_EPSILONS = np.concatenate([np.linspace(0, 2, 41), np.geomspace(2.1, 20, 35)])
# Points of a curve to bet on; more of them share the wealth.
_POINTS = 12
# Runs of each data set for the first batch, and the growth of batches; after
# each batch the event is learnt again.
_BATCH, _GROWTH = 64, 1.5
# Every so many batches, another pair gets runs on which nothing is bet.
_EXPLORE = 4
# Runs, and released numbers, that are drawn at once where that is cheap.
_BLOCK, _NUMBERS = 2**13, 2**22
# Runs whose wealth is computed at once, to bound memory.
_PART = 512
MAX_RUNS = 20_000
"""Default for the number of runs of each data set at which an audit stops."""


class Test(NamedTuple):
  """State of a sequential test of a claimed privacy curve.

  Attributes:
    bets: the bets.
    log_spread: [b] logarithm of each bet's part of the next runs' wealth.
    log_invested: [h] logarithm of the wealth in bets; the rest is in reserve.
    log_peak: [h] logarithm of the largest total wealth so far.
    num_updates: number of updates so far.
    num_runs: number of runs of each data set.
    stopped_at: number of runs at which the wealth against the claim reached
      1 / significance; None if it has not.
    significance: probability of a false rejection, at most.
  """
  bets: betting.Bets
  log_spread: np.ndarray
  log_invested: np.ndarray
  log_peak: np.ndarray
  num_updates: int
  num_runs: int
  stopped_at: int | None
  significance: float

  @property
  def violated(self) -> bool:
    """Whether the claim is refuted."""
    return self.stopped_at is not None

  @property
  def wealth(self) -> float:
    """Largest wealth so far against the claim; its inverse is a p-value."""
    return float(np.exp(min(self.log_peak[0], 700.0)))

  @property
  def epsilon_lower(self) -> float:
    """Lower bound on epsilon at the delta of the test, valid at any run.

    The hypotheses are tested in the order of epsilon, up to the first that
    stands. The bound is wrong only if the first true one was refuted.
    """
    stands = self.log_peak[1:] < -math.log(self.significance)
    refuted = int(np.argmax(np.append(stands, True)))
    return float(_EPSILONS[refuted - 1]) if refuted else 0.0


def init(curve: curves.PrivacyCurve, significance: float, *,
         delta: float | None = None) -> Test:
  """Returns the test before any run.

  Args:
    curve: claimed privacy curve; at most twelve of its points are used.
    significance: upper bound on the probability that a true claim is ever
      refuted, and on the one that `epsilon_lower` is ever too large.
    delta: delta of `epsilon_lower`; None for the smallest of the curve.
  """
  errors.check_open_unit('significance', significance)
  if delta is None:
    delta = float(curve.deltas.min(initial=1.0))
  # (0, 1)-DP claims nothing, and no bet against it wins.
  points = np.stack(curve) if curve.epsilons.size else np.array([[0.0], [1.0]])
  kept = np.unique(np.linspace(0, points.shape[1] - 1, _POINTS).round()
                   ).astype(int)
  bets = betting.against([points[:, kept], *np.stack(
      [_EPSILONS, np.full_like(_EPSILONS, delta)], 1)[:, :, None]])
  nothing = np.full(bets.starts.size, -np.inf)
  return Test(bets, betting.even(bets), nothing, np.zeros_like(nothing), 0, 0,
              None, significance)


def rebalance(test: Test, hits: np.ndarray, alarms: np.ndarray) -> Test:
  """Returns the test with its wealth spread by what bets won in earlier runs.

  Call it between updates, with the values of the next function g in runs that
  no later update uses. The wealth stays the same.

  Args:
    test: the test.
    hits: [n] values of g on earlier outputs of the first data set.
    alarms: [n] values of g on earlier outputs of the second one.
  """
  bets, even = test.bets, betting.even(test.bets)
  table, rows = betting.log_gains(bets, hits, alarms)
  won = even + np.bincount(rows, minlength=len(table)) @ table
  posterior = won - betting.grouped(won, bets.starts)[betting.groups(bets)]
  return test._replace(log_spread=np.logaddexp(
      math.log(_EVEN) + even, math.log1p(-_EVEN) + posterior))


def update(test: Test, hits: np.ndarray, alarms: np.ndarray) -> Test:
  """Returns the test after n runs of each of the two data sets.

  Before the k-th update, the part 1 / k - 1 / (k + 1) of the first wealth moves
  from the reserve into bets, so that early losses do not ruin later bets.

  Args:
    test: the test before these runs.
    hits: [n] values in [0, 1], or booleans, of a function of the outputs of the
      first data set. The function must not depend on these runs.
    alarms: [n] values of the same function for the second data set.

  Raises:
    ValueError: if there are not as many hits as alarms, or one is no number in
      [0, 1].
  """
  count = test.num_updates + 1
  reserve = -math.log(count + 1)
  invested = np.logaddexp(test.log_invested, -math.log(count * (count + 1)))
  logs = test.log_spread + invested[betting.groups(test.bets)]
  peak, stopped_at, runs = test.log_peak, test.stopped_at, test.num_runs
  table, rows = betting.log_gains(test.bets, hits, alarms)
  for start in range(0, rows.size, _PART):
    logs = logs + np.cumsum(table[rows[start:start + _PART]], axis=0)
    totals = np.logaddexp(betting.grouped(logs, test.bets.starts), reserve)
    reached = totals[:, 0] >= -math.log(test.significance)
    if stopped_at is None and reached.any():
      stopped_at = runs + int(np.argmax(reached)) + 1
    peak, logs = np.maximum(peak, totals.max(0)), logs[-1]
    runs = test.num_runs + min(start + _PART, rows.size)
  return test._replace(
      log_invested=betting.grouped(logs, test.bets.starts), log_peak=peak,
      num_updates=count, num_runs=runs, stopped_at=stopped_at)


class Sequential(NamedTuple):
  """Result of a sequential audit.

  Attributes:
    violated: whether the claim is refuted.
    num_runs: number of runs of each data set that were bet on until then.
    num_drawn: number of all runs, on both data sets of all pairs, with those
      that only served to learn events.
    wealth: largest wealth reached; the claim falls at 1 / significance.
    epsilon_lower: lower bound on epsilon at the delta of the claim.
    pair: the neighbours that were bet on last.
    event: the event that was bet on last.
  """
  violated: bool
  num_runs: int
  num_drawn: int
  wealth: float
  epsilon_lower: float
  pair: Pair
  event: blackbox.Event


class _Runs(NamedTuple):
  """Runs of one pair: a key for more, those used, and those drawn ahead."""
  key: PRNGKey
  pair: Pair
  used: tuple[np.ndarray, np.ndarray]
  ahead: tuple[np.ndarray, np.ndarray]


def audit(key: PRNGKey, target: Target, *, max_runs: int = MAX_RUNS,
          significance: float, batch: int = _BATCH) -> Sequential:
  """Audits a target in batches of runs, and stops once its claim is refuted.

  Each batch is bet on with the event and the pair that earlier runs suggest.

  Args:
    key: determines all runs.
    target: the target to audit.
    max_runs: number of runs of each data set that are bet on at most.
    significance: upper bound on the probability of `violated` for a true claim.
    batch: number of runs of each data set in the pilot of each pair and in the
      first batch, >= 8. Batches grow by half each.
  """
  errors.check_at_least('batch', batch, 8)
  errors.check_at_least('max_runs', max_runs, 1)
  keys = jax.random.split(key, len(target.pairs))
  empty = (np.zeros([0, 0]), np.zeros([0, 0]))
  pairs = [_more(target, _Runs(k, pair, empty, empty), batch)
           for k, pair in zip(keys, target.pairs, strict=True)]
  test = init(target.curve, significance, delta=target.claim.delta)
  size = float(batch)
  while True:
    event, place = _loudest(target, pairs)
    # The event was learnt on the used runs: these spread the bets, no more.
    test = rebalance(test, *_members(event, pairs[place].used))
    count = min(int(size), max_runs - test.num_runs)
    pairs[place] = _more(target, pairs[place], count)
    one, other = pairs[place].used
    test = update(test, *_members(event, (one[-count:], other[-count:])))
    if test.violated or test.num_runs >= max_runs:
      break
    size *= _GROWTH
    if test.num_updates % _EXPLORE == 0:
      least = min(range(len(pairs)), key=lambda at: len(pairs[at].used[0]))
      pairs[least] = _more(target, pairs[least], batch)
  return Sequential(
      test.violated, test.stopped_at or test.num_runs,
      2 * sum(len(runs.used[0]) for runs in pairs), test.wealth,
      test.epsilon_lower, pairs[place].pair, event)


def _loudest(target: Target,
             pairs: list[_Runs]) -> tuple[blackbox.Event, int]:
  """Returns the event with the strongest evidence, and its pair's number."""
  events = [blackbox.choose(target.curve, *runs.used,
                            low_bits=target.floating_point) for runs in pairs]
  place = max(range(len(events)), key=lambda at: events[at].score)
  return events[place], place


def _members(event: blackbox.Event, outputs: tuple[np.ndarray, np.ndarray]
             ) -> tuple[np.ndarray, np.ndarray]:
  """Returns which outputs are in the event, those of its likelier side first.
  """
  one, other = (event.flagged[event.partition.cells(each)] for each in outputs)
  return (other, one) if event.swapped else (one, other)


def _more(target: Target, runs: _Runs, count: int) -> _Runs:
  """Returns the runs with `count` more of them used on each side."""
  key, ahead = runs.key, runs.ahead
  if len(ahead[0]) < count:
    key, new = jax.random.split(key)
    # A compiled draw costs the same for any number of runs up to a block.
    block = (min(_BLOCK, _NUMBERS // max(1, runs.used[0].shape[1]))
             if target.traced and len(runs.used[0]) else 0)
    drawn = blackbox.both(new, target, runs.pair, max(block, count))
    ahead = _joined(ahead, drawn)
  return _Runs(key, runs.pair,
               _joined(runs.used, (ahead[0][:count], ahead[1][:count])),
               (ahead[0][count:], ahead[1][count:]))


def _joined(one: tuple[np.ndarray, np.ndarray],
            other: tuple[np.ndarray, np.ndarray]
            ) -> tuple[np.ndarray, np.ndarray]:
  """Concatenates the runs of each side."""
  # An empty array has no width yet.
  first, second = (np.concatenate([a, b]) if len(a) else b
                   for a, b in zip(one, other, strict=True))
  return first, second
