"""Lower bounds on epsilon from the counts of a distinguishing test."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from dpjax import errors
from dpjax.privacy import accounting

EVEN = 0.5
# Shares of the significance that the miss rate may get; the false alarm rate
# gets the rest. A share must be fixed before the runs are counted.
SHARES = (0.1, 0.25, EVEN, 0.75, 0.9)


def rate_upper_bound(count: int, trials: int, *, significance: float) -> float:
  """Returns the one-sided Clopper-Pearson upper bound of a probability.

  The bound is below the true probability with probability `significance` at
  most.

  Args:
    count: how often the event occurred, in 0..trials.
    trials: number of independent trials, at least 1.
    significance: probability of error, in (0, 1).
  """
  errors.check_at_least('trials', trials, 1)
  errors.check_open_unit('significance', significance)
  return float(_rate_upper_bounds(np.asarray(count), trials, significance))


def _rate_upper_bounds(counts: np.ndarray, trials: int,
                       significance: float) -> np.ndarray:
  """Applies `rate_upper_bound` to an array of counts."""
  wrong = counts[(counts < 0) | (counts > trials)]
  if wrong.size:
    raise ValueError(f'count must lie in [0, {trials}], got {wrong.flat[0]}')
  # The quantile is undefined where every trial counts; the bound is 1 there.
  below = stats.beta.ppf(1 - significance, counts + 1,
                         np.maximum(trials - counts, 1))
  return np.where(counts == trials, 1.0, below)


def epsilon_lower_bound(*, true_positives: int, num_in: int,
                        false_positives: int, num_out: int, delta: float,
                        significance: float = 0.05,
                        miss_share: float = EVEN) -> float:
  """Returns a lower confidence bound on the epsilon of the audited mechanism.

  Under (epsilon, delta)-DP every test between neighbours obeys
  1 - FNR <= e^epsilon FPR + delta, and the same with the roles exchanged. Both
  rates are replaced by upper bounds whose levels add up to the significance, so
  that both inequalities hold together with probability 1 - significance.

  Args:
    true_positives: number of runs with the canary that the test flagged.
    num_in: number of runs with the canary.
    false_positives: number of runs without the canary that the test flagged.
    num_out: number of runs without the canary.
    delta: delta of the claim, in [0, 1).
    significance: probability with which the bound may be wrong. The test's
      threshold must have been fixed on other runs.
    miss_share: part of the significance for the miss rate, in (0, 1); it must
      have been fixed on other runs too.

  Returns:
    A lower bound >= 0; the claim is refuted if it exceeds the claimed epsilon.
    No outcome of this number of runs gives more than `largest_bound`.

  Examples:
    >>> from dpjax.audit import bounds
    >>> lower = bounds.epsilon_lower_bound(
    ...     true_positives=900, num_in=1000, false_positives=20, num_out=1000,
    ...     delta=1e-5)
    >>> round(lower, 2)
    3.35
  """
  return float(epsilon_lower_bounds(
      true_positives=true_positives, num_in=num_in,
      false_positives=false_positives, num_out=num_out, delta=delta,
      significance=significance, miss_share=miss_share))


def epsilon_lower_bounds(*, true_positives: ArrayLike, num_in: int,
                         false_positives: ArrayLike, num_out: int,
                         delta: float, significance: float = 0.05,
                         miss_share: float = EVEN) -> np.ndarray:
  """Applies `epsilon_lower_bound` to k tests of the same runs: [k] -> [k].

  Each bound holds on its own; they need not hold jointly. Use them to choose a
  test, which is then counted on other runs.
  """
  if not 0 <= delta < 1:
    raise ValueError(f'delta must lie in [0, 1), got {delta}')
  miss, alarm = error_upper_bounds(
      true_positives=true_positives, num_in=num_in,
      false_positives=false_positives, num_out=num_out,
      significance=significance, miss_share=miss_share)
  # Both inequalities hold together, so the better one costs nothing more.
  return np.maximum(0.0, np.maximum(_log_ratios(1 - miss - delta, alarm),
                                    _log_ratios(1 - alarm - delta, miss)))


def error_upper_bounds(*, true_positives: ArrayLike, num_in: int,
                       false_positives: ArrayLike, num_out: int,
                       significance: float = 0.05, miss_share: float = EVEN
                       ) -> tuple[np.ndarray, np.ndarray]:
  """Returns upper bounds on the miss and false alarm rates that hold jointly.

  Their levels add up to the significance; see `epsilon_lower_bound` for the
  arguments.

  Returns:
    (miss rates, false alarm rates), of the shape of the counts.
  """
  errors.check_open_unit('significance', significance)
  errors.check_at_least('trials', num_in, 1)
  errors.check_at_least('trials', num_out, 1)
  errors.check_open_unit('miss_share', miss_share)
  # A union bound over the two rates.
  return (_rate_upper_bounds(num_in - np.asarray(true_positives), num_in,
                             miss_share * significance),
          _rate_upper_bounds(np.asarray(false_positives), num_out,
                             (1 - miss_share) * significance))


def gaussian_shift_lower_bound(*, true_positives: int, num_in: int,
                               false_positives: int, num_out: int,
                               significance: float = 0.05) -> float:
  """Returns a lower confidence bound on a Gaussian mechanism's mu (AUD-05).

  If the trade-off is known to be that of N(0, 1) against N(mu, 1), one point of
  it determines mu = -Phi^-1(FPR) - Phi^-1(FNR). Both rates are replaced by
  upper bounds. A test that is no better than a coin flip gives 0; an absolute
  value would make its bound positive. Roles are not exchanged.

  Returns:
    A lower bound >= 0 on mu, the sensitivity over the standard deviation. It
    holds for Gaussian trade-offs only, not for subsampled or composed releases;
    for these use `curves.excesses`.
  """
  miss, alarm = error_upper_bounds(
      true_positives=true_positives, num_in=num_in,
      false_positives=false_positives, num_out=num_out,
      significance=significance)
  # A bound of 1 on a rate gives -inf, and then the lower bound 0.
  return float(max(0.0, stats.norm.isf(alarm) + stats.norm.isf(miss)))


def shift_to_epsilon(shift: float, *, delta: float) -> float:
  """Returns the epsilon of a Gaussian trade-off with this mu at `delta`."""
  errors.check_non_negative('shift', shift)
  # 0 is a lower bound, and hardly less than the epsilon of so small a shift.
  if shift < 1e-6:
    return 0.0
  return accounting.gaussian_epsilon(shift=shift, delta=delta)


def largest_bound(*, num_in: int, num_out: int, delta: float,
                  significance: float = 0.05,
                  shares: Sequence[float] = (EVEN,)) -> float:
  """Returns the bound of a perfect attack, the largest for so many runs.

  `shares` are the values of `miss_share` that the audit may choose from.
  """
  return max(epsilon_lower_bound(
      true_positives=num_in, num_in=num_in, false_positives=0,
      num_out=num_out, delta=delta, significance=significance,
      miss_share=share) for share in shares)


def _log_ratios(gains: np.ndarray, costs: np.ndarray) -> np.ndarray:
  """Returns ln(gains / costs), -inf where gains are not positive."""
  return np.where(gains > 0, np.log(np.maximum(gains, 1e-300) / costs),
                  -np.inf)
