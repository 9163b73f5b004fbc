"""Audits training methods by the privacy losses of a canary."""

import dataclasses
import math

from dpjax.audit import canary
from dpjax.audit import claims
from dpjax.audit import empirical
from dpjax.audit.report import Check
from dpjax.audit.report import LOSSES
from dpjax.audit.report import Report
from dpjax.typing import PRNGKey


def audit(key: PRNGKey, game: canary.Game | canary.LossGame,
                significance: float) -> Report:
  """Audits a training method: sensitivity, noise, privacy curve and counts."""
  if isinstance(game, canary.LossGame):
    played = canary.judge(game.plan, *game.losses(key))
    name = detail = game.name
  else:
    played, name = canary.play(key, game), game.method.name
    detail = (f'{canary.fraction_spent(game):.0%} of the budget spent by the '
              'canary')
  plan, delta = game.plan, 1e-5
  report = Report(
      target=name,
      claim=claims.of_event(plan.event, delta=delta, adjacency=plan.adjacency,
                            num_examples=plan.sampler.num_examples),
      checks=tuple(Check(LOSSES, True, line) for line in played.findings) or (
          Check(LOSSES, False, detail),), significance=significance)
  if played.inside is None or played.outside is None:
    return report
  # This bound is only reported: the findings alone decide the verdict.
  many_runs = empirical.audit(played.inside, played.outside, delta=delta,
                              significance=significance)
  return dataclasses.replace(
      report, epsilon_lower=many_runs.epsilon_lower, cap=many_runs.largest,
      detectable=math.nan,
      scores={'with_canary': played.inside, 'without_canary': played.outside},
      details=dict(
          estimator='privacy losses of whole runs (AUD-09)',
          num_in=many_runs.num_in, num_out=many_runs.num_out,
          true_positives=many_runs.true_positives,
          false_positives=many_runs.false_positives,
          canary='a record that meets the claimed sensitivity',
          threshold_rule='best threshold on the first half of the runs'))
