"""Audits of scores that a finished run, or many, left behind.

One array of scores for each side of many runs, `with_canary` and
`without_canary`; or of one run with many canaries, `scores` and `included`.
"""

from collections.abc import Callable, Mapping
import math

import numpy as np

from dpjax import errors
from dpjax.audit import bounds
from dpjax.audit import claims
from dpjax.audit import empirical
from dpjax.audit import one_run
from dpjax.audit.auditor import Check, Report

_GUESSED = 0.1
_SIDES = ('with_canary', 'without_canary')
_COINS = ('scores', 'included')


def _many_runs(with_canary, without_canary, *, delta, significance):
  found = empirical.audit(with_canary, without_canary, delta=delta,
                          significance=significance)
  return found.epsilon_lower, found.largest


def _many_runs_gaussian(with_canary, without_canary, *, delta, significance):
  found = empirical.audit(with_canary, without_canary, delta=delta,
                          significance=significance)
  counts = dict(num_in=found.num_in, num_out=found.num_out,
                significance=significance)
  lower, most = (
      bounds.shift_to_epsilon(bounds.gaussian_shift_lower_bound(
          true_positives=true, false_positives=false, **counts), delta=delta)
      for true, false in ((found.true_positives, found.false_positives),
                          (found.num_in, 0)))
  return lower, most


def _one_run(scores, included, *, delta, significance):
  lower = one_run.grid_lower_bound(scores, included, delta=delta,
                                   significance=significance)
  return lower, one_run.grid_largest_bound(
      num_canaries=len(scores), delta=delta, significance=significance)


def _one_run_gaussian(scores, included, *, delta, significance):
  size = len(scores)
  guesses = max(1, round(_GUESSED * size))
  lower, most = (
      bounds.shift_to_epsilon(one_run.gaussian_shift_lower_bound(
          num_canaries=size, num_guesses=guesses, num_correct=correct,
          significance=significance), delta=delta)
      for correct in (one_run.count_guesses(scores, included, guesses),
                      guesses))
  return lower, most


def _anytime(scores, included, *, delta, significance):
  if delta:
    raise ValueError('the anytime bound is for delta 0')
  # Canaries come in their order: a guess uses no score that comes later.
  guesses = np.asarray(scores) > 0
  lower, most = (one_run.anytime_lower_bound(right, significance=significance)
                 for right in (guesses == np.asarray(included, bool),
                               np.ones(len(scores), bool)))
  return lower, most


ESTIMATORS: Mapping[str, tuple[tuple[str, str], Callable]] = {
    'many_runs': (_SIDES, _many_runs),
    'many_runs_gaussian': (_SIDES, _many_runs_gaussian),
    'one_run': (_COINS, _one_run),
    'one_run_gaussian': (_COINS, _one_run_gaussian),
    'anytime': (_COINS, _anytime),
}
"""name -> (names of the two arrays, (arrays, delta, significance) -> bounds).

AUD-04 on halves, AUD-05, AUD-06 over a fixed grid, AUD-07 with a tenth of the
canaries guessed, AUD-08 with the sign of the score as the guess. The Gaussian
ones hold for Gaussian trade-offs only.
"""


def audit(arrays: Mapping[str, np.ndarray], claim: claims.Claim, *,
          estimator: str | None = None, significance: float = 0.05,
          name: str = 'scores') -> Report:
  """A lower bound on epsilon from scores, held against a claim.

  Args:
    arrays: by name, see above.
    claim: of which epsilon and delta count.
    estimator: of `ESTIMATORS`; None for the first that the arrays are for.
    significance: probability that the bound is too large, at most.
    name: for the report.
  """
  fitting = [known for known, (names, _) in ESTIMATORS.items()
             if set(names) <= set(arrays)]
  if not fitting:
    raise ValueError(f'scores must be {" and ".join(_SIDES)}, or '
                     f'{" and ".join(_COINS)}; got {", ".join(arrays)}')
  estimator = errors.check_choice('estimator', estimator or fitting[0],
                                  fitting)
  names, bound = ESTIMATORS[estimator]
  lower, most = bound(*(np.asarray(arrays[key]).ravel() for key in names),
                      delta=claim.delta, significance=significance)
  check = Check('bound', lower > claim.epsilon,
                f'epsilon is at least {lower:.4g}, claimed '
                f'{claim.epsilon:.4g}', None, significance)
  return Report(
      target=name, claim=claim, checks=(check,), significance=significance,
      epsilon_lower=lower, cap=most, detectable=math.nan,
      details=dict(estimator=estimator), scores={
          key: np.asarray(arrays[key]) for key in names})
