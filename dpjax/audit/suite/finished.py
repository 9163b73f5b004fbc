"""Audits of saved scores, from many finished runs or from one.

Many runs have two arrays of scores, `with_canary` and `without_canary`. One run
with many canaries has the arrays `scores` and `included`, and so have many runs
that each toss a coin whether to include the canary.
"""

from collections.abc import Callable, Mapping
import functools
import math

import numpy as np

from dpjax import errors
from dpjax.audit import bounds
from dpjax.audit import claims
from dpjax.audit import empirical
from dpjax.audit import one_run
from dpjax.audit import one_run_tight
from dpjax.audit.auditor import Check
from dpjax.audit.auditor import Report

# Fractions that the Gaussian estimators guess: of the canaries of one run, and
# of separate runs, whose less confident guesses still show something.
_GUESSED, _GUESSED_SEPARATE = 0.2, 0.5
_SIDES = ('with_canary', 'without_canary')
_COINS = ('scores', 'included')


def _many_runs(with_canary: np.ndarray, without_canary: np.ndarray, *,
               delta: float, significance: float) -> tuple[float, float]:
  """Returns the many-run lower bound on epsilon, and a perfect attack's."""
  result = empirical.audit(with_canary, without_canary, delta=delta,
                           significance=significance)
  return result.epsilon_lower, result.largest


def _many_runs_gaussian(with_canary: np.ndarray, without_canary: np.ndarray, *,
                        delta: float, significance: float
                        ) -> tuple[float, float]:
  """Returns the Gaussian many-run bound, and that of a perfect attack."""
  # Its counts are of the second half, on which no threshold was chosen.
  result = empirical.audit(with_canary, without_canary, delta=delta,
                           significance=significance)
  lower, largest = (
      bounds.shift_to_epsilon(bounds.gaussian_shift_lower_bound(
          true_positives=true, num_in=result.num_in, false_positives=false,
          num_out=result.num_out, significance=significance), delta=delta)
      for true, false in ((result.true_positives, result.false_positives),
                          (result.num_in, 0)))
  return lower, largest


def _one_run(scores: np.ndarray, included: np.ndarray, *, delta: float,
             significance: float, independent: bool = False
             ) -> tuple[float, float]:
  """Returns the one-run bound, and that of perfect guesses."""
  level = dict(delta=delta, significance=significance, independent=independent)
  return (one_run.grid_lower_bound(scores, included, **level),
          one_run.grid_largest_bound(num_canaries=len(scores), **level))


def _one_run_gaussian(scores: np.ndarray, included: np.ndarray, *,
                      delta: float, significance: float,
                      independent: bool = False) -> tuple[float, float]:
  """Returns the Gaussian one-run bound, and that of perfect guesses."""
  size = len(scores)
  guesses = max(1, round(
      (_GUESSED_SEPARATE if independent else _GUESSED) * size))
  lower, largest = (
      bounds.shift_to_epsilon(one_run_tight.gaussian_shift_lower_bound(
          num_canaries=size, num_guesses=guesses, num_correct=correct,
          significance=significance, independent=independent), delta=delta)
      for correct in (one_run.count_guesses(scores, included, guesses),
                      guesses))
  return lower, largest


def _anytime(scores: np.ndarray, included: np.ndarray, *, delta: float,
             significance: float) -> tuple[float, float]:
  """Returns the anytime bound, and that of perfect guesses."""
  if delta:
    raise ValueError(f'the anytime bound needs delta 0, got {delta}')
  # Each guess depends only on the canary's own score, not on later ones.
  guesses = np.asarray(scores) > 0
  lower, largest = (
      one_run.anytime_lower_bound(correct, significance=significance)
      for correct in (guesses == np.asarray(included, bool),
                      np.ones(len(scores), bool)))
  return lower, largest


ESTIMATORS: Mapping[str, tuple[
    tuple[str, str], Callable[..., tuple[float, float]]]] = {
    'many_runs': (_SIDES, _many_runs),
    'many_runs_gaussian': (_SIDES, _many_runs_gaussian),
    'one_run': (_COINS, _one_run),
    'one_run_gaussian': (_COINS, _one_run_gaussian),
    'anytime': (_COINS, _anytime),
    'separate_runs': (_COINS, functools.partial(_one_run, independent=True)),
    'separate_runs_gaussian': (_COINS, functools.partial(
        _one_run_gaussian, independent=True)),
}
"""Maps an estimator's name to the names of its two arrays and its function.

The function takes (arrays, delta, significance) and returns the lower bound and
the largest possible bound. In order: AUD-04 on halves, AUD-05, AUD-06 over a
fixed grid, AUD-07 with a fifth of the canaries guessed, AUD-08 with the sign of
the score as the guess. The last two are valid only if every coin belongs to a
run of its own, which shares no randomness with others, and not for canaries of
one run. The Gaussian estimators hold for Gaussian trade-offs only.
"""


def audit(arrays: Mapping[str, np.ndarray], claim: claims.Claim, *,
          estimator: str | None = None, significance: float = 0.05,
          name: str = 'scores') -> Report:
  """Bounds epsilon from scores and compares the bound with a claim.

  Args:
    arrays: the two arrays by name; see the docstring of the module.
    claim: the claim; only its epsilon and delta are used.
    estimator: name in `ESTIMATORS`; None for the first whose arrays are given.
    significance: upper bound on the probability that the lower bound is above
      the true epsilon.
    name: name of the target in the report.

  Raises:
    ValueError: if arrays that the estimator needs are missing.
  """
  applicable = [key for key, (names, _) in ESTIMATORS.items()
                if set(names) <= set(arrays)]
  if not applicable:
    raise ValueError(f'scores must be {" and ".join(_SIDES)}, or '
                     f'{" and ".join(_COINS)}; got {", ".join(arrays)}')
  estimator = errors.check_choice('estimator', estimator or applicable[0],
                                  applicable)
  names, bound = ESTIMATORS[estimator]
  lower, largest = bound(*(np.asarray(arrays[key]).ravel() for key in names),
                         delta=claim.delta, significance=significance)
  check = Check('bound', lower > claim.epsilon,
                f'epsilon is at least {lower:.4g}, claimed '
                f'{claim.epsilon:.4g}', None, significance)
  return Report(
      target=name, claim=claim, checks=(check,), significance=significance,
      epsilon_lower=lower, cap=largest, detectable=math.nan,
      details=dict(estimator=estimator), scores={
          key: np.asarray(arrays[key]) for key in names})
