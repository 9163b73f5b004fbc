"""Lower bounds on epsilon from counts of a distinguishing test."""

import math

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
  if not 0 <= count <= trials:
    raise ValueError(f'count must lie in [0, {trials}], got {count}')
  if count == trials:
    return 1.0
  return float(stats.beta.ppf(1 - significance, count + 1, trials - count))


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
  if not 0 <= delta < 1:
    raise ValueError(f'delta must lie in [0, 1), got {delta}')
  level = significance / 2
  miss = rate_upper_bound(num_in - true_positives, num_in, significance=level)
  alarm = rate_upper_bound(false_positives, num_out, significance=level)
  return max(0.0, _log_ratio(1 - miss - delta, alarm),
             _log_ratio(1 - alarm - delta, miss))


def largest_bound(*, num_in: int, num_out: int, delta: float,
                  significance: float = 0.05) -> float:
  """The bound that a perfect attack would give with so many runs."""
  return epsilon_lower_bound(
      true_positives=num_in, num_in=num_in, false_positives=0,
      num_out=num_out, delta=delta, significance=significance)


def _log_ratio(gain: float, cost: float) -> float:
  return math.log(gain / cost) if gain > 0 else -math.inf
