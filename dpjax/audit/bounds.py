"""Lower bounds on epsilon from counts of a distinguishing test."""

import numpy as np
from scipy import stats

from dpjax import errors


def rate_upper_bound(count: int, trials: int, *, significance: float) -> float:
  """One-sided Clopper-Pearson upper bound of a probability.

  Exceeds the true probability except with probability `significance`.

  Args:
    count: how often the event was seen, in 0..trials.
    trials: independent trials, at least 1.
    significance: in (0, 1).
  """
  errors.check_at_least('trials', trials, 1)
  errors.check_open_unit('significance', significance)
  return float(_rate_upper_bounds(np.asarray(count), trials, significance))


def _rate_upper_bounds(counts: np.ndarray, trials: int,
                       significance: float) -> np.ndarray:
  wrong = counts[(counts < 0) | (counts > trials)]
  if wrong.size:
    raise ValueError(f'count must lie in [0, {trials}], got {wrong.flat[0]}')
  below = stats.beta.ppf(1 - significance, counts + 1,
                         np.maximum(trials - counts, 1))
  return np.where(counts == trials, 1.0, below)


def epsilon_lower_bound(*, true_positives: int, num_in: int,
                        false_positives: int, num_out: int, delta: float,
                        significance: float = 0.05) -> float:
  """An epsilon that the audited mechanism exceeds, with confidence.

  Every test between neighbours obeys 1 - FNR <= e^epsilon FPR + delta and the
  same with the roles exchanged. Both rates are replaced by upper bounds of
  level significance / 2; the two directions then hold together.

  Args:
    true_positives: runs with the canary that the test flagged.
    num_in: runs with the canary.
    false_positives: runs without the canary that the test flagged.
    num_out: runs without the canary.
    delta: of the claim, in [0, 1).
    significance: probability with which the bound may be wrong. The test's
      threshold must have been fixed on other runs.

  Returns:
    A lower bound >= 0; the claim is refuted if it exceeds the claimed epsilon.
    No outcome of so many runs gives more than `largest_bound`.
  """
  return float(epsilon_lower_bounds(
      true_positives=np.asarray(true_positives), num_in=num_in,
      false_positives=np.asarray(false_positives), num_out=num_out,
      delta=delta, significance=significance))


def epsilon_lower_bounds(*, true_positives: np.ndarray, num_in: int,
                         false_positives: np.ndarray, num_out: int,
                         delta: float,
                         significance: float = 0.05) -> np.ndarray:
  """`epsilon_lower_bound` of many tests of the same runs: counts [k] -> [k].

  Each bound holds with its own confidence, not all of them together: for
  choosing a test, which is then counted on other runs.
  """
  if not 0 <= delta < 1:
    raise ValueError(f'delta must lie in [0, 1), got {delta}')
  errors.check_open_unit('significance', significance)
  errors.check_at_least('trials', num_in, 1)
  errors.check_at_least('trials', num_out, 1)
  level = significance / 2
  miss = _rate_upper_bounds(num_in - true_positives, num_in, level)
  alarm = _rate_upper_bounds(false_positives, num_out, level)
  return np.maximum(0.0, np.maximum(_log_ratios(1 - miss - delta, alarm),
                                    _log_ratios(1 - alarm - delta, miss)))


def largest_bound(*, num_in: int, num_out: int, delta: float,
                  significance: float = 0.05) -> float:
  """The bound that a perfect attack would give with so many runs."""
  return epsilon_lower_bound(
      true_positives=num_in, num_in=num_in, false_positives=0,
      num_out=num_out, delta=delta, significance=significance)


def _log_ratios(gains: np.ndarray, costs: np.ndarray) -> np.ndarray:
  return np.where(gains > 0, np.log(np.maximum(gains, 1e-300) / costs),
                  -np.inf)
