"""Audits a target with every check that applies to it, and reports the verdict.

The order is: first the claim against its accounting event, before anything is
sampled; then a search for the worst neighbours; then deterministic checks; then
tests on sampled releases other than those of the search, which share one
significance level. The verdict `violated` is a proof at that level.
`consistent` means only that these checks, whose power is stated, refuted
nothing. `underpowered` means that no outcome of that many runs could have
refuted the claim, or that the data never changed an output.
"""

from collections.abc import Iterator
import dataclasses
import math
import time
from typing import Any

import jax
import numpy as np

from dpjax import errors
from dpjax.audit import blackbox
from dpjax.audit import bounds
from dpjax.audit import canary
from dpjax.audit import claims
from dpjax.audit import declared
from dpjax.audit import exact
from dpjax.audit import games
from dpjax.audit import partitions
from dpjax.audit import power
from dpjax.audit import replay
from dpjax.audit import search
from dpjax.audit.recording import comparison
from dpjax.audit.report import Check as Check
from dpjax.audit.report import CONSISTENT as CONSISTENT
from dpjax.audit.report import EXACT
from dpjax.audit.report import Report as Report
from dpjax.audit.report import UNDERPOWERED as UNDERPOWERED
from dpjax.audit.report import VERDICTS as VERDICTS
from dpjax.audit.report import VIOLATED as VIOLATED
from dpjax.audit.target import Pair
from dpjax.audit.target import Target
from dpjax.typing import PRNGKey

NUM_RUNS = 2**15
NUM_UNTRACED_RUNS = 2**12
_LOW_BIT_RUNS = 2**11
# Standard errors from which the lowest bits count as leaking.
_LOUD = 8.0
_REPLAY = 'record and replay'
# Found pairs that deterministic checks and checks of densities add.
_FOUND_PAIRS = 32
# Pairs on which draws are replayed.
_REPLAYED_PAIRS = 16
# With a budget of time: the part of it for the search, the numbers of counted
# runs, and the runs that measure the speed.
_SEARCH_PART = 0.3
_LEAST_RUNS, _MOST_RUNS, _TRIAL_RUNS = 2**10, 2**22, 2**12


def audit(key: PRNGKey, target: Target | canary.Game | canary.LossGame, *,
          num_runs: int | None = None, significance: float = 0.05,
          budget_seconds: float | None = None, replayed: bool = True,
          progress: search.Progress | None = None) -> Report:
  """Audits a release mechanism, or a training method by its canary.

  Args:
    key: determines all releases and all randomness of the tests.
    target: the target to audit; a `canary.Game` has its own number of runs.
    num_runs: number of counted releases of each of the two data sets; None
      for 2^15, or 2^12 if JAX cannot trace the release.
    significance: total significance level, shared by all tests, in (0, 1).
    budget_seconds: time that the audit should take; more of it allows a longer
      search and, without `num_runs`, more counted runs. None for the usual
      search and number of runs. With a budget, the same key may give another
      result, because speed decides how much is done.
    replayed: whether to record the random draws of the release and to replay
      them on neighbours, see `replay`.
    progress: called with short lines about the state of the audit.

  Returns:
    The report, with the verdict.

  Examples:
    >>> from dpjax.audit import auditor, wrapping
    >>> from dpjax.privacy.adjacency import Adjacency
    >>> from dpjax.privacy.laplace import LaplaceMechanism
    >>> noisy = LaplaceMechanism(record_norm=1.0, epsilon=1.0,
    ...                          adjacency=Adjacency.ADD_OR_REMOVE_ONE)
    >>> # Reproducible: for research, not for a release.
    >>> auditor.audit(jax.random.key(0), wrapping.of_mechanism(noisy),
    ...               num_runs=2000).verdict
    'consistent'
  """
  errors.check_open_unit('significance', significance)
  if num_runs is not None:
    errors.check_at_least('num_runs', num_runs, 100)
  if isinstance(target, (canary.Game, canary.LossGame)):
    return games.audit(key, target, significance)
  report = Report(target=target.name, claim=target.claim,
                  checks=(_claim_check(target.claim),),
                  significance=significance)
  if report.failed:
    return report
  start = time.monotonic()
  found = search.search(
      jax.random.fold_in(key, 2), target, evolve=target.log_probs is None,
      seconds=_SEARCH_PART * (budget_seconds or 0.0), progress=progress)
  target = target.with_pairs(found.legal(target.pairs))
  report = dataclasses.replace(
      report, tried=found.tried(), influenced=(found.influenced or
                                               bool(found.unlike)),
      checks=(*report.checks, *_shape_checks(target.claim, found),
              *_certain_checks(target, found)))
  if not found.pairs:
    return report
  level = significance
  if replayed and target.release is not None:
    pairs = _replayed_pairs(target, found)
    report = _replayed(jax.random.fold_in(key, 4), target, report, pairs,
                       progress)
    # Replays refute a sound claim with at most this probability.
    level -= min(significance / 2, comparison.SIGNIFICANCE * len(pairs))
  if num_runs is None:
    num_runs = (_usual_runs(target) if budget_seconds is None else
                _affordable_runs(key, target.with_pairs(found.pairs),
                                 start + budget_seconds))
  if progress is not None:
    progress(f'count: {num_runs} runs of each side')
  return _tested(key, target, report, found, num_runs, level)


def _tested(key: PRNGKey, target: Target, report: Report, found: search.Found,
            num_runs: int, significance: float) -> Report:
  """Returns the report with tests on fresh runs, see `audit`."""
  black_key, noise_key = jax.random.split(key)
  # Events are counted on the worst pairs only. The runs of the search, which
  # chose these pairs, are not counted.
  worst = target.with_pairs(found.pairs)
  tests = list(declared.p_values(noise_key, target, num_runs))
  # Half of the significance is for the counts. All tests together have the
  # other half, in equal parts: Bonferroni needs no independence.
  half = significance / (2 if tests else 1)
  counted = blackbox.audit(black_key, worst, num_runs=num_runs,
                           significance=half)
  checks = list(report.checks)
  for name, value in tests:
    level = half / len(tests)
    checks.append(Check(name, value <= level, f'p-value {value:.2g}', value,
                        level))
  checks += _sampled_checks(noise_key, target, found)
  if not target.floating_point:
    checks.append(_low_bits(noise_key, worst))
  checks += [*_influence_check(found), _event_check(counted, half)]
  return dataclasses.replace(
      report, checks=tuple(checks), epsilon_lower=counted.epsilon_lower,
      tried=report.tried | dict(worst=counted.pair.what),
      cap=bounds.largest_bound(num_in=num_runs, num_out=num_runs,
                               delta=target.claim.delta, significance=half,
                               shares=bounds.SHARES),
      detectable=power.detectable_epsilon(worst, counted, significance=half),
      details=_details(counted, half), scores={
          'with_canary': counted.scores[0], 'without_canary': counted.scores[1],
          'edges': counted.event.partition.edges,
          'flagged': counted.event.flagged})


def _usual_runs(target: Target) -> int:
  """Returns the number of counted runs of each side without a budget."""
  return (NUM_RUNS if target.sample is not None or target.traced
          else NUM_UNTRACED_RUNS)


def _affordable_runs(key: PRNGKey, target: Target, end: float) -> int:
  """Returns how many runs can be counted until a time on the monotonic clock.

  The number is fixed before anything is counted: a rule that looks at counts
  would make them invalid.
  """
  seconds = math.inf
  for _ in range(2):  # The first trial includes compiling.
    start = time.monotonic()
    # These runs are of another key than the counted ones.
    blackbox.audit(jax.random.fold_in(key, 3), target, num_runs=_TRIAL_RUNS,
                   significance=0.5)
    seconds = min(seconds, time.monotonic() - start)
  left = max(end - time.monotonic(), 0.0)
  runs = int(_TRIAL_RUNS * left / seconds)
  return min(max(runs, _LEAST_RUNS), _MOST_RUNS)


def _claim_check(claim: claims.Claim) -> Check:
  """Checks that the claimed epsilon is not below that of the event."""
  try:
    spent = claims.check(claim)
  except ValueError as error:
    return Check('claim', True, errors.one_line(error))
  detail = 'no event' if claim.event is None else f'its event costs {spent:.4g}'
  return Check('claim', False, detail)


def _shape_checks(claim: claims.Claim,
                  found: search.Found) -> Iterator[Check]:
  """Yields a failure if shapes of outputs distinguish neighbours."""
  if found.unlike and not math.isinf(claim.epsilon):
    yield Check('shape of the outputs', True,
                f'{found.unlike[0].error}: {found.unlike[0].pair.what}')


def _influence_check(found: search.Found) -> Iterator[Check]:
  """Yields a line that says so if the data never changed an output."""
  if not found.influenced:
    yield Check('influence of the data', False,
                f'none: no outputs of {len(found.candidates)} pairs of '
                'neighbours differed with the same key, so nothing was tested')


def _replayed_pairs(target: Target, found: search.Found) -> list[Pair]:
  """Returns the pairs to replay: the worst ones, then the first structured."""
  pairs = [*found.pairs[:_REPLAYED_PAIRS // 4],
           *target.pairs[:_REPLAYED_PAIRS // 2],
           *(one.pair for one in found.candidates)]
  return list({id(pair): pair for pair in pairs}.values())[:_REPLAYED_PAIRS]


def _replayed(key: PRNGKey, target: Target, report: Report, pairs: list[Pair],
              progress: search.Progress | None) -> Report:
  """Returns the report with a comparison of noise and what it hides.

  Doubts of a replay fail nothing, because the counts judge the whole release.
  """
  if progress is not None:
    progress(f'replay of recorded draws on {len(pairs)} pairs')
  result = replay.audit(key, target, pairs=pairs, sampled_runs=0)
  lines = [str(finding) for finding in result.findings]
  if not lines:
    lines = ['no violation' if result.judged else 'not judged exactly: '
             f'{result.suspects[0]}']
  check = Check(_REPLAY, result.violated, '; '.join(lines))
  return dataclasses.replace(report, checks=(*report.checks, check))


def _certain_checks(target: Target, found: search.Found) -> Iterator[Check]:
  """Yields the deterministic checks, which draw no releases."""
  known = set(map(id, target.pairs))
  pairs = (*target.pairs, *(one.pair for one in found.candidates[:_FOUND_PAIRS]
                            if id(one.pair) not in known))
  if target.log_probs is not None:
    worst = exact.finite_distributions(target.curve, pairs, target.log_probs)
    yield Check(EXACT, worst.amount > 0,
                f'{_relative_to_claim(worst.amount)} at {worst.what}')
  if target.query is not None:
    worst = exact.largest_change(target.query, pairs)
    yield Check('sensitivity', worst.amount > 0,
                f'{_relative_to_claim(worst.amount)} at {worst.what}')


def _relative_to_claim(amount: float) -> str:
  """Describes an excess over the claim in words."""
  return f'{abs(amount):.3g} {"above" if amount > 0 else "below"} the claim'


def _sampled_checks(key: PRNGKey, target: Target,
                    found: search.Found) -> Iterator[Check]:
  """Yields checks of a few releases that refute a claim with certainty."""
  # These checks have no p-value, so draws shared with the tests do no harm.
  pair, stated = target.pairs[0], target.noise
  if stated is not None and stated.spacing:
    outputs = target.draw(key, pair.data, 1000)
    # Grids are powers of two, so the remainder is exact.
    off = ~(np.mod(outputs, stated.spacing) == 0)
    yield Check('grid', bool(off.any()),
                f'{off.mean():.1%} of outputs off the declared grid')
  # Only pure DP bounds the ratio of densities at every output.
  if target.log_density is not None and target.claim.delta == 0:
    # A space has hundreds of pairs, of which the worst are compared.
    pairs = (target.pairs if target.space is None else
             [one.pair for one in found.candidates[:_FOUND_PAIRS]])
    for number, pair in enumerate(pairs):
      outputs = target.draw(jax.random.fold_in(key, number), pair.data, 1000)
      worst = exact.density_ratio(target, pair, outputs, target.claim.epsilon)
      yield Check('density ratio', worst.amount > 0,
                  f'{_relative_to_claim(worst.amount)} at {worst.what}')


def _event_check(counted: blackbox.BlackBox, level: float) -> Check:
  """Checks whether the counts of the chosen event refute the claim."""
  return Check(
      'distinguishing event', counted.excess > 0,
      f'{counted.event.partition.name}: {counted.true_positives} of '
      f'{counted.num_runs} against {counted.false_positives}; '
      f'{counted.pair.what}',
      None, level)


def _low_bits(key: PRNGKey, target: Target) -> Check:
  """Reports, without failing, whether lowest bits distinguish the data sets.

  The claim is about real numbers, while releases are floating-point numbers.
  """
  pilot = blackbox.both(key, target, target.pairs[0], _LOW_BIT_RUNS)
  event = blackbox.loudest(target.curve, *pilot, partitions.cut(
      *pilot, partitions.lowest_bits(pilot[0].shape[1])))
  return Check('floating point', False, 'lowest bits of the outputs '
               'distinguish the data sets: not counted, as the claim is about '
               'real numbers' if event.score > _LOUD else 'no leak found')


def _details(counted: blackbox.BlackBox, level: float) -> dict[str, Any]:
  """Describes the counted event for the report, in JSON-ready values."""
  event = counted.event
  return dict(
      estimator='counts of one event (AUD-04), tested against the whole curve',
      canary=counted.pair.what, event_of=event.partition.name,
      neighbour_is_likelier=event.swapped,
      true_positives=counted.true_positives,
      false_positives=counted.false_positives, num_in=counted.num_runs,
      num_out=counted.num_runs, level=level,
      miss_level=level * event.miss_share, excess=counted.excess,
      threshold_rule='cells of largest ratio, learnt on a pilot of other runs')
