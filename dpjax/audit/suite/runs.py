"""Audits of finished training runs by their canaries.

First the claim is compared with its event, before anything is scored (AUD-01).
Then the final model scores every canary, included or not, in evaluation mode
(AUD-10), and the auditor guesses the coins (AUD-06, AUD-07). Scores, fractions
of guesses and delta are fixed beforehand and share the significance (AUD-12).
The canaries of a run are trained into one model, so their scores depend on each
other: all p-values are those of `one_run_tight` that allow for that. The bound
and the test of the whole curve reject if a count of correct guesses is too
large. They judge the same counts, so together they need no more significance
than one of them.

A mechanism may reveal coins with probability delta, so a smaller m delta shows
more. A run that satisfies its event satisfies it at every delta, so the audit
uses a smaller delta and the event's epsilon there.
"""

from collections.abc import Callable, Mapping
import dataclasses
import math
from typing import Any

import jax
import numpy as np

from dpjax.audit import attacks
from dpjax.audit import claims
from dpjax.audit import curves
from dpjax.audit import one_run
from dpjax.audit import one_run_tight
from dpjax.audit.auditor import Check
from dpjax.audit.auditor import Report
from dpjax.audit.suite.run_folders import FinishedRun
from dpjax.privacy import accounting
from dpjax.runs import run_sampling
from dpjax.train.plan import TrainingPlan
from dpjax.typing import Array, Batch, Params

SCORES = ('log_odds', 'calibrated')
"""Names of the scores.

'log_odds': log-odds of a canary's label, which rank canaries as the loss does.
'calibrated': how much training lowered that loss, from the initial parameters,
which follow from the public seed.
"""

# m delta is at most this fraction of the significance, if delta is not given.
_DELTA_FRACTION = 1e-3
# Canaries that are scored at once, to bound memory.
_PART = 500
# A summary's epsilon may be below that of its event by rounding, and above it
# by the accountant's discretisation.
_TOLERANCE = 1e-6
_ABOVE = 1e-3


def audit(run: FinishedRun, *, name: str, delta: float | None = None,
          significance: float = 0.05) -> Report:
  """Guesses the coins of a run and tests its claim.

  Args:
    run: a finished run from `run_folders.load`.
    name: name of the target in the report.
    delta: delta at which the event is audited; None for the smaller one of the
      summary's and significance / (1000 m).
    significance: upper bound on the probability of `violated` for a true claim,
      shared by all tests.
  """
  config, plan = run.config, run.plan
  size = config.num_canaries
  claimed_delta = _delta(run)
  if delta is None:
    delta = min(claimed_delta, max(significance * _DELTA_FRACTION / size,
                                   accounting.MIN_DELTA))
  claim_check = _claim_check(run)
  private = config.method != 'sgd'
  claim = claims.Claim(
      epsilon=_spent(run, delta), delta=delta, adjacency=plan.adjacency,
      event=plan.event if private else None, num_examples=config.num_slots)
  details = dict(_details(run), threshold_rule='scores and fractions of '
                 'guesses fixed beforehand, Bonferroni correction')
  report = Report(target=name, claim=claim, checks=(claim_check,),
                  details=details, significance=significance,
                  detectable=math.nan)
  if claim_check.failed:
    return dataclasses.replace(report, claim=dataclasses.replace(
        claim, epsilon=_claimed(run.summary), delta=claimed_delta))
  scores = score(run)
  included = np.asarray(run.canaries.included)
  curve = _curve(plan) if private else curves.NOTHING
  level = significance / len(SCORES)
  bounds = {key: one_run.grid_bound(scores[key], included, delta=delta,
                                    significance=level) for key in SCORES}
  checks = _checks(bounds, curve, scores, included, claim.epsilon, level)
  return dataclasses.replace(
      report, checks=(claim_check, *checks),
      epsilon_lower=max(bound.epsilon_lower for bound in bounds.values()),
      cap=one_run.grid_largest_bound(num_canaries=size, delta=delta,
                                     significance=level),
      # If perfect guesses do not refute the curve, no guesses can.
      beyond_cap=not private or refutes_curve(
          curve, np.where(included, 1.0, 0.0), included,
          significance=level)[0],
      details=dict(details, level=level, bounds={
          key: bound._asdict() for key, bound in bounds.items()}),
      scores=dict(scores, included=included))


def score(run: FinishedRun) -> dict[str, np.ndarray]:
  """Returns all `SCORES` of the canaries, [m], high if one looks included."""
  final, initial = (np.asarray(log_odds(
      run.predict, params, run.canaries.records))
      for params in (run.params, run.initial))
  # ln(1 + e^-z) is the cross-entropy at log-odds z.
  return {'log_odds': final,
          'calibrated': np.logaddexp(0, -initial) - np.logaddexp(0, -final)}


def log_odds(apply: Callable[..., Array], params: Params,
             records: Batch) -> Array:
  """Returns the log-odds [m] float32 of each record, evaluated separately."""
  one = lambda record: attacks.log_odds(apply(params, record.x[None])[0],
                                        record.y)
  return jax.jit(lambda batch: jax.lax.map(one, batch, batch_size=_PART))(
      records)


def refutes_curve(curve: curves.PrivacyCurve, scores: np.ndarray,
                  included: np.ndarray, *, significance: float
                  ) -> tuple[bool, int, int]:
  """Tests the guesses against a whole privacy curve (AUD-07, but tight).

  Returns:
    Whether they refute it, the number of guesses and the number of correct
    ones: those that refute, or those of the largest fraction.
  """
  counts = one_run.grid_counts(len(scores))
  # Counts are fixed beforehand, so Bonferroni pays for stopping at any.
  for count in counts:
    right = one_run.count_guesses(scores, included, count)
    if one_run_tight.rejects_curve(
        curve, num_canaries=len(scores), num_guesses=count, num_correct=right,
        significance=significance / len(counts)):
      return True, count, right
  return False, count, right


def _checks(bounds: Mapping[str, one_run.GridBound], curve: curves.PrivacyCurve,
            scores: Mapping[str, np.ndarray], included: np.ndarray,
            epsilon: float, level: float) -> list[Check]:
  """Lists the checks of epsilon, and of the whole curve if there is one."""
  checks = [_bound_check(key, bound, epsilon, level)
            for key, bound in bounds.items()]
  if curve.epsilons.size:
    checks += [_curve_check(curve, key, scores[key], included, level)
               for key in SCORES]
  return checks


def _bound_check(key: str, bound: one_run.GridBound, epsilon: float,
                 level: float) -> Check:
  """Compares the bound of one score with the claimed epsilon."""
  return Check(
      f'one run, {key}', bound.epsilon_lower > epsilon,
      f'{bound.num_correct} of {bound.num_guesses} coins: epsilon is at least '
      f'{bound.epsilon_lower:.4g}', None, level)


def _curve_check(curve: curves.PrivacyCurve, key: str, scores: np.ndarray,
                 included: np.ndarray, level: float) -> Check:
  """Compares the guesses of one score with the whole privacy curve."""
  failed, count, right = refutes_curve(curve, scores, included,
                                       significance=level)
  return Check(f'whole curve, {key}', failed, f'{right} of {count} coins', None,
               level)


def _curve(plan: TrainingPlan) -> curves.PrivacyCurve:
  """Returns the event's privacy curve, plus the cost of lattice noise.

  Lattice noise is within total variation `noise_variation` of ideal noise, so
  delta grows by at most (1 + e^epsilon) times that.
  """
  curve = curves.of_event(plan.event, adjacency=plan.adjacency)
  paid = (1 + np.exp(curve.epsilons)) * plan.noise_variation
  return curve._replace(deltas=np.minimum(1.0, curve.deltas + paid))


def _spent(run: FinishedRun, delta: float) -> float:
  """Returns the epsilon of the run's event at delta; infinite without noise."""
  if run.plan.noise_multiplier is None:
    return math.inf
  return run.plan.epsilon(delta, accountant=run.config.accountant)


def _delta(run: FinishedRun) -> float:
  """Returns the resolved delta of a run, which `configuration.check` sets."""
  if run.config.delta is None:
    raise ValueError('the configuration of a finished run must have a delta')
  return run.config.delta


def _claimed(summary: Mapping[str, Any]) -> float:
  """Returns the epsilon of a summary, infinite if it is null (no claim)."""
  return math.inf if summary['epsilon'] is None else summary['epsilon']


def _claim_check(run: FinishedRun) -> Check:
  """Compares the summary's epsilon with the configuration's event (AUD-01).

  Raises:
    ValueError: if the summary describes another event, or claims a much larger
      epsilon.
  """
  summary, plan, config = run.summary, run.plan, run.config
  for name, configured in (('sampling_prob',
                            run_sampling.sampling_prob(plan.sampler)),
                           ('num_steps', plan.num_steps),
                           ('delta', None if config.method == 'sgd' else
                            config.delta)):
    if summary[name] != configured:
      raise ValueError(f'summary and configuration differ: {name} = '
                       f'{summary[name]}, by the configuration {configured}')
  claimed = _claimed(summary)
  delta = _delta(run)
  spent = _spent(run, delta)
  if claimed < spent * (1 - _TOLERANCE):
    return Check('claim', True, f'epsilon {claimed:.4g} at delta '
                 f'{delta:.3g} is below the {spent:.4g} that the event '
                 'costs')
  if claimed > spent * (1 + _ABOVE):
    raise ValueError('summary and configuration differ: epsilon = '
                     f'{claimed:g}, but the event costs {spent:g}')
  measured, planned = summary['joint_noise_multiplier'], plan.noise_multiplier
  # `not >=` also refutes a NaN.
  if (measured is not None and planned is not None
      and not measured >= planned * (1 - _TOLERANCE)):
    return Check('claim', True, f'the noise multiplier was {measured:.5g}, but '
                 f'{planned:.5g} was planned')
  if math.isinf(claimed):
    return Check('claim', False, 'none, the run is not private')
  return Check('claim', False, f'epsilon {claimed:.4g} at delta '
               f'{delta:.3g} is what its event costs')


def _details(run: FinishedRun) -> dict[str, Any]:
  """Describes the audited run for the report, in JSON-ready values."""
  config, included = run.config, run.canaries.included
  return dict(
      estimator='coins of one run (AUD-06); the whole curve (AUD-07)',
      threat_model='final parameters', canary=config.canary_kind,
      num_canaries=config.num_canaries, num_included=int(included.sum()),
      claimed_epsilon=_claimed(run.summary), claimed_delta=config.delta,
      test_accuracy=run.summary['test_accuracy'], config=run.summary['config'])
