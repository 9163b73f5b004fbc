"""Audits of finished training runs by their canaries.

The claim is held against its event before anything is scored (AUD-01). Then
the final model scores every canary, present or not, in evaluation mode
(AUD-10), and the coins are guessed (AUD-06, AUD-07). Scores, shares that are
guessed and delta are fixed beforehand and pay for each other (AUD-12).

What m canaries show at delta needs m delta far below the significance. A run
that keeps its event keeps it at every delta, so the claim is audited at a
smaller one: the event's epsilon there.
"""

from collections.abc import Mapping
import dataclasses
import math
from typing import Any

import jax
import numpy as np

from dpjax.audit import attacks
from dpjax.audit import claims
from dpjax.audit import curves
from dpjax.audit import one_run
from dpjax.audit.auditor import Check, Report
from dpjax.privacy import accounting
from dpjax.train.plan import TrainingPlan
from dpjax.typing import Array, Batch, Params
from experiments.audits.run_folders import FinishedRun

SCORES = ('log_odds', 'calibrated')
"""Log odds of a canary's label, which rank as its loss does; and by how much
training lowered that loss, from initial parameters, which the seed tells."""

CURVE_FRACTIONS = (0.1, 0.25, 0.5)
"""Shares of the canaries that are guessed against the whole curve."""

_DELTA_SHARE = 1e-3
_PART = 500
_TOLERANCE = 1e-6
_ABOVE = 1e-3


def audit(run: FinishedRun, *, name: str, delta: float | None = None,
          significance: float = 0.05) -> Report:
  """Guesses the coins of a run, and holds what that shows against its claim.

  Args:
    run: see `run_folders.load`.
    name: for the report.
    delta: at which the event is audited; None for that of the summary, or
      significance / (1000 m) where that is less.
    significance: probability of `violated` for a true claim, at most; shared.
  """
  config, plan = run.config, run.plan
  size = config.num_canaries
  if delta is None:
    delta = min(config.delta, max(significance * _DELTA_SHARE / size,
                                  accounting.MIN_DELTA))
  first = _claim_check(run)
  private = config.method != 'sgd'
  said = claims.Claim(
      epsilon=_spent(run, delta),
      delta=delta, adjacency=plan.adjacency, num_examples=config.num_slots,
      event=plan.event if private else None)
  details = dict(_details(run), threshold_rule='shares that are guessed and '
                 'scores fixed beforehand, Bonferroni')
  report = Report(target=name, claim=said, checks=(first,), details=details,
                  significance=significance, detectable=math.nan)
  if first.failed:
    return dataclasses.replace(report, claim=dataclasses.replace(
        said, epsilon=_claimed(run.summary), delta=config.delta))
  scores = score(run)
  included = np.asarray(run.canaries.included)
  curve = _curve(plan) if private else curves.NOTHING
  level = significance / len(SCORES) / (2 if curve.epsilons.size else 1)
  bounds = {key: one_run.grid_bound(scores[key], included, delta=delta,
                                    significance=level) for key in SCORES}
  checks = _checks(bounds, curve, scores, included, said.epsilon, level)
  return dataclasses.replace(
      report, checks=(first, *checks),
      epsilon_lower=max(found.epsilon_lower for found in bounds.values()),
      cap=one_run.grid_largest_bound(num_canaries=size, delta=delta,
                                     significance=level),
      beyond_cap=not private or refutes_curve(
          curve, np.where(included, 1.0, 0.0), included,
          significance=level)[0],
      details=dict(details, level=level, bounds={
          key: found._asdict() for key, found in bounds.items()}),
      scores=dict(scores, included=included))


def score(run: FinishedRun) -> dict[str, np.ndarray]:
  """`SCORES` of all canaries, [m], high for those that look present."""
  final, initial = (np.asarray(log_odds(
      run.model.apply, params, run.canaries.records))
      for params in (run.params, run.initial))
  return {'log_odds': final,
          'calibrated': np.logaddexp(0, -initial) - np.logaddexp(0, -final)}


def log_odds(apply, params: Params, records: Batch) -> Array:
  """Those of each record alone, [m] float32."""
  one = lambda record: attacks.log_odds(apply(params, record.x[None])[0],
                                        record.y)
  return jax.jit(lambda batch: jax.lax.map(one, batch, batch_size=_PART))(
      records)


def refutes_curve(curve: curves.PrivacyCurve, scores: np.ndarray,
                  included: np.ndarray, *, significance: float
                  ) -> tuple[bool, int, int]:
  """Whether right guesses refute all that an event says (AUD-07).

  Returns:
    Whether they do; and the numbers of guesses and right ones that do, or
    those of the largest share.
  """
  counts = one_run.grid_counts(len(scores), CURVE_FRACTIONS)
  for count in counts:
    right = one_run.count_guesses(scores, included, count)
    if one_run.rejects_trade_off(
        lambda power: curves.least_alarm(curve, power),
        num_canaries=len(scores), num_guesses=count, num_correct=right,
        significance=significance / len(counts)):
      return True, count, right
  return False, count, right


def _checks(bounds, curve: curves.PrivacyCurve, scores, included: np.ndarray,
            epsilon: float, level: float) -> list[Check]:
  """Those of epsilon, and of the whole curve where there is one."""
  checks = [_bound_check(key, found, epsilon, level)
            for key, found in bounds.items()]
  if curve.epsilons.size:
    checks += [_curve_check(curve, key, scores[key], included, level)
               for key in SCORES]
  return checks


def _bound_check(key: str, found, epsilon: float, level: float) -> Check:
  return Check(
      f'one run, {key}', found.epsilon_lower > epsilon,
      f'{found.num_correct} of {found.num_guesses} coins: epsilon is at least '
      f'{found.epsilon_lower:.4g}', None, level)


def _curve_check(curve, key: str, scores: np.ndarray, included: np.ndarray,
                 level: float) -> Check:
  failed, count, right = refutes_curve(curve, scores, included,
                                       significance=level)
  return Check(f'whole curve, {key}', failed, f'{right} of {count} coins', None,
               level)


def _curve(plan: TrainingPlan) -> curves.PrivacyCurve:
  """Of the event; noise on a lattice pays for its variation."""
  curve = curves.of_event(plan.event, adjacency=plan.adjacency)
  paid = (1 + np.exp(curve.epsilons)) * plan.noise_variation
  return curve._replace(deltas=np.minimum(1.0, curve.deltas + paid))


def _spent(run: FinishedRun, delta: float) -> float:
  """The epsilon of the event at delta."""
  if run.plan.noise_multiplier is None:
    return math.inf
  return run.plan.epsilon(delta, accountant=run.config.accountant)


def _claimed(summary: Mapping[str, Any]) -> float:
  """The epsilon of a summary; null claims nothing."""
  return math.inf if summary['epsilon'] is None else summary['epsilon']


def _claim_check(run: FinishedRun) -> Check:
  """The summary's epsilon against the event of its configuration (AUD-01).

  Raises:
    ValueError: if the summary tells of another event, or claims far more.
  """
  summary, plan, config = run.summary, run.plan, run.config
  for name, ours in (('sampling_prob', plan.sampler.sampling_prob),
                     ('num_steps', plan.num_steps),
                     ('delta', None if config.method == 'sgd' else
                      config.delta)):
    if summary[name] != ours:
      raise ValueError(f'summary and configuration are not of one run: {name} '
                       f'= {summary[name]}, by the configuration {ours}')
  claimed = _claimed(summary)
  spent = _spent(run, config.delta)
  if claimed < spent * (1 - _TOLERANCE):
    return Check('claim', True, f'epsilon {claimed:.4g} at delta '
                 f'{config.delta:.3g} is below the {spent:.4g} that the event '
                 'costs')
  if claimed > spent * (1 + _ABOVE):
    raise ValueError('summary and configuration are not of one run: epsilon = '
                     f'{claimed:g}, the event costs {spent:g}')
  measured = summary['joint_noise_multiplier']
  if measured is not None and not measured >= plan.noise_multiplier * (
      1 - _TOLERANCE):
    return Check('claim', True, f'noised with {measured:.5g}, planned '
                 f'{plan.noise_multiplier:.5g}')
  if math.isinf(claimed):
    return Check('claim', False, 'none, the run is not private')
  return Check('claim', False, f'epsilon {claimed:.4g} at delta '
               f'{config.delta:.3g} is what its event costs')


def _details(run: FinishedRun) -> dict[str, Any]:
  config, included = run.config, run.canaries.included
  return dict(
      estimator='coins of one run (AUD-06); the whole curve (AUD-07)',
      threat_model='final parameters', canary=config.canary_kind,
      num_canaries=config.num_canaries, num_included=int(included.sum()),
      claimed_epsilon=_claimed(run.summary), claimed_delta=config.delta,
      test_accuracy=run.summary['test_accuracy'], config=run.summary['config'])
