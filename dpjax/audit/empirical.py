"""Many-run audits: lower bounds on epsilon from one number per run.

A *statistic* is any number that an attacker computes from the output of a run.
With a threshold it becomes a test between two neighbouring data sets. `audit`
takes the statistics of many independent runs on both data sets. It chooses the
threshold and its side on the first half of the runs and counts on the second
half. The bound therefore holds for any statistic and any method. Source:
AUD-01; Steinke, Nasr and Jagielski (2023) call this the many-run audit.
"""

import math
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from dpjax import errors
from dpjax.audit import bounds
from dpjax.typing import Array

# The cap bounds the work; a test is valid with any of the thresholds.
_MAX_CANDIDATES = 2048


class Threshold(NamedTuple):
  """A test: flag a run if `side * statistic > value`.

  Attributes:
    value: threshold on `side * statistic`.
    side: 1 flags large statistics, -1 flags small ones.
  """
  value: float
  side: int

  def count(self, statistics: np.ndarray) -> int:
    """Returns the number of flagged runs."""
    return int(np.sum(self.side * _ordered(statistics) > self.value))


class AuditResult(NamedTuple):
  """The result of a many-run audit.

  Attributes:
    epsilon_lower: lower bound on epsilon; it exceeds the true epsilon with
      probability `significance` at most, and is 0 if the runs show nothing.
    largest: the bound that a perfect attack would give with these runs. If
      `epsilon_lower` is near it, the true epsilon may be much larger.
    area_under_curve: probability that the statistic ranks a random run with
      the canary above one without it; 1/2 by chance.
    threshold: the test.
    true_positives: number of flagged runs with the canary.
    num_in: number of counted runs with the canary.
    false_positives: number of flagged runs without the canary.
    num_out: number of counted runs without the canary.
  """
  epsilon_lower: float
  largest: float
  area_under_curve: float
  threshold: Threshold
  true_positives: int
  num_in: int
  false_positives: int
  num_out: int

  def refutes(self, epsilon: float) -> bool:
    """Returns whether the runs refute a claim of `epsilon`."""
    return self.epsilon_lower > epsilon


def audit(with_canary: np.ndarray, without: np.ndarray, *, delta: float,
          significance: float = 0.05) -> AuditResult:
  """Returns a lower bound on epsilon from one statistic per run (AUD-01).

  The second half of each array is counted. NaN counts as larger than every
  number, because a run that fails can reveal the canary.

  Args:
    with_canary: [r] statistics of runs on the data set with the canary.
    without: [s] statistics of runs on its neighbour.
    delta: delta of the claim, in [0, 1).
    significance: probability with which the bound may be wrong.

  Raises:
    ValueError: if either array has fewer than 2 runs.
  """
  with_canary, without = _ordered(with_canary), _ordered(without)
  errors.check_at_least('runs with the canary', with_canary.size, 2)
  errors.check_at_least('runs without the canary', without.size, 2)
  (pilot_in, in_), (pilot_out, out) = map(_halves, (with_canary, without))
  test = choose_threshold(pilot_in, pilot_out, delta=delta,
                          significance=significance)
  hits, alarms = test.count(in_), test.count(out)
  return AuditResult(
      epsilon_lower=bounds.epsilon_lower_bound(
          true_positives=hits, num_in=in_.size, false_positives=alarms,
          num_out=out.size, delta=delta, significance=significance),
      largest=bounds.largest_bound(
          num_in=in_.size, num_out=out.size, delta=delta,
          significance=significance),
      area_under_curve=area_under_curve(test.side * in_, test.side * out),
      threshold=test, true_positives=hits, num_in=in_.size,
      false_positives=alarms, num_out=out.size)


def choose_threshold(with_canary: np.ndarray, without: np.ndarray, *,
                     delta: float, significance: float = 0.05) -> Threshold:
  """Returns the threshold test with the largest lower bound on these runs.

  Its bound on these very runs is optimistic. Count the test on other runs.
  """
  with_canary = np.sort(_ordered(with_canary))
  without = np.sort(_ordered(without))
  values = np.unique(np.concatenate([with_canary, without]))
  values = values[np.isfinite(values)]
  # Candidate thresholds: midpoints of consecutive values, and one above all.
  values = np.append((values[1:] + values[:-1]) / 2, values[-1:] + 1)
  if values.size > _MAX_CANDIDATES:
    # Evenly spaced ranks, and every rank near both ends, where false alarms
    # are rare and bounds are largest.
    spaced = np.linspace(0, values.size - 1, _MAX_CANDIDATES // 2)
    extremes = np.arange(_MAX_CANDIDATES // 4)
    ranks = np.concatenate([spaced.round().astype(int), extremes,
                            -1 - extremes])
    values = values[np.unique(ranks % values.size)]
  best, chosen = -math.inf, Threshold(math.inf, 1)
  for side in (1, -1):
    lower_bounds = bounds.epsilon_lower_bounds(
        true_positives=_flagged(with_canary, values, side),
        num_in=with_canary.size,
        false_positives=_flagged(without, values, side),
        num_out=without.size, delta=delta, significance=significance)
    if lower_bounds.size and lower_bounds.max() > best:
      best = lower_bounds.max()
      chosen = Threshold(float(side * values[lower_bounds.argmax()]), side)
  return chosen


def area_under_curve(with_canary: np.ndarray, without: np.ndarray) -> float:
  """Returns how often a run with the canary has the larger statistic.

  Ties count one half. A value below 1/2 is returned as it is, because the side
  of a test is chosen on other runs.
  """
  ranks = stats.rankdata(
      np.concatenate([_ordered(with_canary), _ordered(without)]))
  size, other = len(with_canary), len(without)
  # The Mann-Whitney statistic: ranks minus those among the own kind.
  wins = ranks[:size].sum() - size * (size + 1) / 2
  return float(wins / (size * other))


def trade_off(with_canary: np.ndarray,
              without: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns the empirical error rates of every threshold on the statistic.

  Meant for plots beside a curve of `privacy.tradeoff`. The side of the test is
  the better one on these very runs, and sampling error is not subtracted. A
  point below a claimed curve therefore refutes nothing; use `audit` to test.

  Args:
    with_canary: [r] statistics of runs on the data set with the canary.
    without: [s] statistics of runs on its neighbour.

  Returns:
    False alarm rates [k], falling from 1 to 0, and miss rates [k], rising from
    0 to 1, for k - 1 distinct values.
  """
  present, absent = np.sort(_ordered(with_canary)), np.sort(_ordered(without))
  if area_under_curve(present, absent) < 0.5:
    present, absent = -present[::-1], -absent[::-1]
  cuts = np.unique(np.concatenate([present, absent]))
  alarms = _flagged(absent, cuts, 1) / absent.size
  hits = _flagged(present, cuts, 1) / present.size
  return np.append(1.0, alarms), np.append(0.0, 1 - hits)


Values = TypeVar('Values', np.ndarray, Array)


def subsampled_log_ratio(log_ratios: Values, *,
                         sampling_prob: float) -> Values:
  """Returns log-likelihood ratios of steps that sample the canary.

  Let f be the density of a step's output with the canary in the batch, and g
  without. Two neighbouring runs have the densities (1 - q) g + q f and g. The
  optimal statistic of a run is the sum over its steps of ln(1 - q + q e^llr)
  with llr = ln(f/g) (AUD-01).

  Args:
    log_ratios: llr of each step, any shape; a JAX array stays one, so that
      this can be traced.
    sampling_prob: probability q that the canary joins a batch, if present.

  Returns:
    ln(1 - q + q e^llr), of the same shape; to be summed over steps.
  """
  errors.check_probability('sampling_prob', sampling_prob)
  absent = math.log1p(-sampling_prob) if sampling_prob < 1 else -math.inf
  present = math.log(sampling_prob)
  # logaddexp stays finite where e^llr itself would overflow.
  if isinstance(log_ratios, jax.Array):
    return jnp.logaddexp(jnp.asarray(absent, log_ratios.dtype),
                         present + log_ratios)
  return np.logaddexp(absent, present + np.asarray(log_ratios, np.float64))


def _ordered(statistics: np.ndarray) -> np.ndarray:
  """Returns the statistics flattened to float64, with NaN as infinity."""
  values = np.asarray(statistics, np.float64).ravel()
  return np.where(np.isnan(values), np.inf, values)


def _halves(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Splits values into those that choose the test and those it counts."""
  middle = values.size // 2
  return values[:middle], values[middle:]


def _flagged(statistics: np.ndarray, values: np.ndarray,
             side: int) -> np.ndarray:
  """Counts the sorted statistics above (side 1) or below (-1) each value."""
  # The sides of the search exclude ties, as `Threshold` does.
  if side < 0:
    return np.searchsorted(statistics, values, side='left')
  return statistics.size - np.searchsorted(statistics, values, side='right')
