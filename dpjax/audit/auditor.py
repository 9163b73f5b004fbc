"""Audits a target: all checks that what is known of it allows, one report.

First the claim against its event, before anything is sampled; then what needs
no chance; then tests on releases, which share one significance. `violated` is
a proof at that level. `consistent` proves nothing but that these checks, which
had the power that is stated, found nothing. `underpowered` says that no outcome
of so many runs could have refuted the claim.
"""

import dataclasses
import math
from typing import Any, NamedTuple

import jax
import numpy as np

from dpjax import errors
from dpjax.audit import blackbox
from dpjax.audit import bounds
from dpjax.audit import canary
from dpjax.audit import claims
from dpjax.audit import empirical
from dpjax.audit import exact
from dpjax.audit import noise
from dpjax.audit import partitions
from dpjax.audit.target import Target
from dpjax.typing import PRNGKey

CONSISTENT, VIOLATED, UNDERPOWERED = 'consistent', 'violated', 'underpowered'
VERDICTS = (CONSISTENT, VIOLATED, UNDERPOWERED)

NUM_RUNS = 2**15
NUM_UNTRACED_RUNS = 2**12
_NOISE_RUNS = 2**14
_NOISE_PAIRS = 2
_LOW_BIT_RUNS = 2**11
_LOUD = 8.0
_LAW, _LOSSES = 'exact law', 'privacy losses'


class Check(NamedTuple):
  """One thing that was looked at.

  Attributes:
    name: of the check.
    failed: whether it refutes the claim.
    detail: what was found, in words.
    p_value: of a test; None without chance.
    level: significance of the test, its share; None without chance.
  """
  name: str
  failed: bool
  detail: str
  p_value: float | None = None
  level: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
  """What an audit found.

  Attributes:
    target: its name.
    claim: as audited.
    checks: in the order in which they were made.
    significance: probability of `violated` for a true claim, at most.
    epsilon_lower: exceeds the true epsilon with probability `significance` at
      most.
    cap: the largest `epsilon_lower` of so many runs.
    detectable: a true epsilon that would have been refuted every other time.
    details: of the counted event, as plain values.
    scores: arrays from which others can recompute the bound.
    beyond_cap: that the verdict does not hang on the cap: other tests could
      have refuted the claim, or it is known that there is none.
  """
  target: str
  claim: claims.Claim
  checks: tuple[Check, ...]
  significance: float
  epsilon_lower: float = 0.0
  cap: float = 0.0
  detectable: float = math.inf
  details: dict[str, Any] = dataclasses.field(default_factory=dict)
  scores: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
  beyond_cap: bool = False

  @property
  def verdict(self) -> str:
    """One of `VERDICTS`."""
    if any(check.failed for check in self.checks):
      return VIOLATED
    # Exact laws and known privacy losses are not bounded by what counts show.
    certain = self.beyond_cap or any(
        check.name in (_LAW, _LOSSES) for check in self.checks)
    if not certain and not self.cap >= self.claim.epsilon:
      return UNDERPOWERED
    return CONSISTENT

  @property
  def failed(self) -> tuple[Check, ...]:
    """The checks that refute the claim."""
    return tuple(check for check in self.checks if check.failed)


def audit(key: PRNGKey, target: Target | canary.Game | canary.LossGame, *,
          num_runs: int | None = None, significance: float = 0.05) -> Report:
  """Audits a release, or a training method by its canary.

  Args:
    key: decides all runs and all that tests draw.
    target: see `Target` and `canary.Game`, which knows its number of runs.
    num_runs: releases of each of the two data sets that are counted; None for
      as many as are quick.
    significance: shared by all tests.

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
  if isinstance(target, (canary.Game, canary.LossGame)):
    return _audit_game(key, target, significance)
  report = Report(target=target.name, claim=target.claim,
                  checks=(_claim_check(target.claim),),
                  significance=significance)
  if report.failed:
    return report
  checks = [*report.checks, *_certain_checks(target)]
  if num_runs is None:
    num_runs = (NUM_RUNS if target.sample is not None or target.traced
                else NUM_UNTRACED_RUNS)
  errors.check_at_least('num_runs', num_runs, 100)
  black_key, noise_key = jax.random.split(key)
  tests = list(_tests(noise_key, target, min(num_runs, _NOISE_RUNS)))
  share = significance / (2 if tests else 1)
  found = blackbox.audit(black_key, target, num_runs=num_runs,
                         significance=share)
  for name, value in tests:
    level = share / len(tests)
    checks.append(Check(name, value <= level, f'p-value {value:.2g}', value,
                        level))
  checks += _sampled_checks(noise_key, target)
  if not target.floating_point:
    checks.append(_low_bits(noise_key, target))
  checks.append(_event_check(found, share))
  return dataclasses.replace(
      report, checks=tuple(checks), epsilon_lower=found.epsilon_lower,
      cap=bounds.largest_bound(num_in=num_runs, num_out=num_runs,
                               delta=target.claim.delta, significance=share),
      detectable=blackbox.detectable_epsilon(target, num_runs=num_runs,
                                             significance=share),
      details=_details(found, share), scores={
          'with_canary': found.scores[0], 'without_canary': found.scores[1],
          'edges': found.event.partition.edges,
          'flagged': found.event.flagged})


def _claim_check(claim: claims.Claim) -> Check:
  try:
    spent = claims.check(claim)
  except ValueError as error:
    return Check('claim', True, errors.one_line(error))
  said = 'no event' if claim.event is None else f'its event costs {spent:.4g}'
  return Check('claim', False, said)


def _certain_checks(target: Target):
  """What is refuted or not without drawing anything."""
  if target.log_probs is not None:
    worst = exact.finite_law(target.curve, target.pairs, target.log_probs)
    yield Check(_LAW, worst.amount > 0,
                f'{_beyond(worst.amount)} at {worst.what}')
  if target.query is not None:
    worst = exact.largest_change(target.query, target.pairs)
    yield Check('sensitivity', worst.amount > 0,
                f'{_beyond(worst.amount)} at {worst.what}')


def _beyond(amount: float) -> str:
  return f'{abs(amount):.3g} {"above" if amount > 0 else "below"} the claim'


def _sampled_checks(key: PRNGKey, target: Target):
  """What a few releases show for certain."""
  pair, declared = target.pairs[0], target.noise
  if declared is not None and declared.spacing:
    outputs = target.draw(key, pair.data, 1000)
    off = ~(np.mod(outputs, declared.spacing) == 0)
    yield Check('grid', bool(off.any()),
                f'{off.mean():.1%} of outputs off the declared grid')
  if target.log_density is not None and target.claim.delta == 0:
    for number, pair in enumerate(target.pairs):
      outputs = target.draw(jax.random.fold_in(key, number), pair.data, 1000)
      worst = exact.density_ratio(target, pair, outputs, target.claim.epsilon)
      yield Check('density ratio', worst.amount > 0,
                  f'{_beyond(worst.amount)} at {worst.what}')


def _tests(key: PRNGKey, target: Target, num_runs: int):
  """(name, p-value) of what a release says of its own law."""
  if target.log_probs is not None:
    for number, pair in enumerate(target.pairs[:_NOISE_PAIRS]):
      draws = target.draw(jax.random.fold_in(key, number), pair.data, num_runs)
      yield 'law of outcomes', exact.outcome_p_value(
          draws, target.log_probs(pair.data))
  if target.noise is None:
    return
  declared = target.noise
  rng = np.random.default_rng(np.asarray(jax.random.key_data(key)))
  for number, pair in enumerate((target.pairs[0], target.pairs[-1])):
    keys = jax.random.split(jax.random.fold_in(key, 10 + number))
    scores = [
        noise.normal_scores(rng, declared, target.draw(k, data, num_runs) -
                            np.asarray(declared.value(data), np.float64
                                       ).reshape(1, -1))
        for k, data in zip(keys, pair[:2], strict=True)]
    for side, (first, second) in enumerate((scores, scores[::-1])):
      for name, value in noise.p_values(first, second):
        yield f'noise: {name} ({number}{"ab"[side]})', value


def _event_check(found: blackbox.BlackBox, level: float) -> Check:
  return Check(
      'told apart', found.excess > 0,
      f'{found.event.partition.name}: {found.true_positives} of '
      f'{found.num_runs} against {found.false_positives}; {found.pair.what}',
      None, level)


def _low_bits(key: PRNGKey, target: Target) -> Check:
  """Said, and not counted: claims are about real numbers, releases are not."""
  pilot = blackbox.both(key, target, target.pairs[0], _LOW_BIT_RUNS)
  event = blackbox.loudest(target.curve, *pilot, partitions.cut(
      *pilot, partitions.lowest_bits(pilot[0].shape[1])))
  return Check('floating point', False, 'lowest bits of the outputs tell the '
               'data sets apart: not counted, as the claim is about real '
               'numbers' if event.score > _LOUD else 'nothing seen')


def _details(found: blackbox.BlackBox, level: float) -> dict[str, Any]:
  event = found.event
  return dict(
      estimator='counts of one event (AUD-04), held against the whole curve',
      canary=found.pair.what, event_of=event.partition.name,
      neighbour_is_likelier=event.swapped, true_positives=found.true_positives,
      false_positives=found.false_positives, num_in=found.num_runs,
      num_out=found.num_runs, level=level, excess=found.excess,
      threshold_rule='cells of largest ratio, learnt on a pilot of other runs')


def _audit_game(key: PRNGKey, game: canary.Game | canary.LossGame,
                significance: float) -> Report:
  """A training method: sensitivity, noise, curve and counts."""
  if isinstance(game, canary.LossGame):
    played, said = canary.judge(game.plan, *game.losses(key)), game.name
  else:
    played, said = canary.play(key, game), (
        f'{canary.share_spent(game):.0%} of the budget spent by the canary')
  plan, delta = game.plan, 1e-5
  report = Report(
      target=getattr(game, 'name', None) or game.method.name,
      claim=claims.of_event(plan.event, delta=delta, adjacency=plan.adjacency,
                            num_examples=plan.sampler.num_examples),
      checks=tuple(Check(_LOSSES, True, line) for line in played.findings) or (
          Check(_LOSSES, False, said),), significance=significance)
  if played.inside is None:
    return report
  found = empirical.audit(played.inside, played.outside, delta=delta,
                          significance=significance)
  return dataclasses.replace(
      report, epsilon_lower=found.epsilon_lower, cap=found.largest,
      detectable=math.nan,
      scores={'with_canary': played.inside, 'without_canary': played.outside},
      details=dict(
          estimator='privacy losses of whole runs (AUD-09)',
          num_in=found.num_in, num_out=found.num_out,
          true_positives=found.true_positives,
          false_positives=found.false_positives,
          canary='a record that meets the claimed sensitivity',
          threshold_rule='best of the first half of the runs'))
