"""Audits by a threshold on one number per run: lower bounds from outcomes.

Whatever an attacker computes from the output of a run, a *statistic*, is a
test between two neighbouring data sets once a threshold is set. `audit` takes
the statistics of many independent runs on both, sets threshold and side on
the first half of the runs, and counts on the other half: the bound holds for
any statistic and any method, and asks nothing of how they were made. Source:
audit AUD-01; Steinke, Nasr and Jagielski 2023 call this the many-run audit.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from dpjax import errors
from dpjax.audit import bounds
from dpjax.typing import Array

_MAX_CANDIDATES = 2048


class Threshold(NamedTuple):
  """A test: flag a run if `side * statistic > value`.

  Attributes:
    value: of the threshold.
    side: 1 flags large statistics, -1 small ones.
  """
  value: float
  side: int

  def count(self, statistics: np.ndarray) -> int:
    """How many runs are flagged."""
    return int(np.sum(self.side * _ordered(statistics) > self.value))


class AuditResult(NamedTuple):
  """What runs say about a claim.

  Attributes:
    epsilon_lower: exceeds the true epsilon with probability `significance`
      at most; 0 when nothing is shown.
    largest: the bound that a perfect attack would give with so many runs;
      values near it say nothing about how much larger epsilon is.
    area_under_curve: probability that the test orders a run with the canary
      and one without it rightly, 1/2 by chance.
    threshold: the test.
    true_positives: flagged runs with the canary.
    num_in: evaluated runs with the canary.
    false_positives: flagged runs without it.
    num_out: evaluated runs without it.
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
    """Whether a claim of `epsilon` is refuted."""
    return self.epsilon_lower > epsilon


def audit(with_canary: np.ndarray, without: np.ndarray, *, delta: float,
          significance: float = 0.05) -> AuditResult:
  """A lower bound on epsilon from one statistic of independent runs (AUD-01).

  The first half of each array chooses threshold and side, the second half is
  counted with Clopper-Pearson limits, in both roles of the data sets. NaN
  counts as larger than every number: a run that breaks tells much.

  Args:
    with_canary: [r] statistics of runs on the data set with the canary.
    without: [s] statistics of runs on its neighbour.
    delta: of the claim, in [0, 1).
    significance: probability with which the bound may be wrong.

  Raises:
    ValueError: for fewer than 2 runs of a kind.
  """
  with_canary, without = _ordered(with_canary), _ordered(without)
  errors.check_at_least('runs with the canary', with_canary.size, 2)
  errors.check_at_least('runs without the canary', without.size, 2)
  (pilot_in, in_), (pilot_out, out) = map(_halves, (with_canary, without))
  test = choose_threshold(pilot_in, pilot_out, delta=delta,
                          significance=significance)
  counts = dict(true_positives=test.count(in_), num_in=in_.size,
                false_positives=test.count(out), num_out=out.size)
  sizes = dict(num_in=in_.size, num_out=out.size)
  return AuditResult(
      epsilon_lower=bounds.epsilon_lower_bound(
          **counts, delta=delta, significance=significance),
      largest=bounds.largest_bound(
          **sizes, delta=delta, significance=significance),
      area_under_curve=area_under_curve(test.side * in_, test.side * out),
      threshold=test, **counts)


def choose_threshold(with_canary: np.ndarray, without: np.ndarray, *,
                     delta: float, significance: float = 0.05) -> Threshold:
  """The test of the largest lower bound on these runs.

  Its own bound on these runs is optimistic: evaluate it on others.
  """
  with_canary = np.sort(_ordered(with_canary))
  without = np.sort(_ordered(without))
  values = np.unique(np.concatenate([with_canary, without]))
  values = values[np.isfinite(values)]
  # Between neighbours, where a gap is split evenly, and above the largest.
  values = np.append((values[1:] + values[:-1]) / 2, values[-1:] + 1)
  if values.size > _MAX_CANDIDATES:
    # Evenly spaced ranks, and every rank of both ends, where tests are sharp.
    spaced = np.linspace(0, values.size - 1, _MAX_CANDIDATES // 2)
    ends = np.arange(_MAX_CANDIDATES // 4)
    kept = np.concatenate([spaced.round().astype(int), ends, -1 - ends])
    values = values[np.unique(kept % values.size)]
  best, chosen = -math.inf, Threshold(math.inf, 1)
  for side in (1, -1):
    found = bounds.epsilon_lower_bounds(
        true_positives=_flagged(with_canary, values, side),
        num_in=with_canary.size,
        false_positives=_flagged(without, values, side),
        num_out=without.size, delta=delta, significance=significance)
    if found.size and found.max() > best:
      best = found.max()
      chosen = Threshold(float(side * values[found.argmax()]), side)
  return chosen


def area_under_curve(with_canary: np.ndarray, without: np.ndarray) -> float:
  """Probability that a run with the canary has the larger statistic.

  Ties count one half. A value on the wrong side of 1/2 is left there: the
  side of a test is chosen on other runs.
  """
  ranks = stats.rankdata(
      np.concatenate([_ordered(with_canary), _ordered(without)]))
  size, other = len(with_canary), len(without)
  wins = ranks[:size].sum() - size * (size + 1) / 2
  return float(wins / (size * other))


def trade_off(with_canary: np.ndarray,
              without: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Errors of a threshold on the statistic, at every threshold there is.

  To be drawn beside a curve of `privacy.tradeoff`. The side is the better one
  on these very runs, and sampling error is not taken off: a point below a
  claimed curve refutes nothing, `audit` does.

  Args:
    with_canary: [r] statistics of runs on the data set with the canary.
    without: [s] statistics of runs on its neighbour.

  Returns:
    Shares of false alarms, falling from 1 to 0, and shares of misses, rising
    from 0 to 1, [k] each; k - 1 values are distinct.
  """
  present, absent = np.sort(_ordered(with_canary)), np.sort(_ordered(without))
  if area_under_curve(present, absent) < 0.5:
    present, absent = -present[::-1], -absent[::-1]
  cuts = np.unique(np.concatenate([present, absent]))
  alarms = _flagged(absent, cuts, 1) / absent.size
  hits = _flagged(present, cuts, 1) / present.size
  return np.append(1.0, alarms), np.append(0.0, 1 - hits)


def subsampled_log_ratio(log_ratios: np.ndarray | Array, *,
                         sampling_prob: float) -> np.ndarray | Array:
  """Log-likelihood ratios of steps in which the canary may have been.

  For a step whose density is f with the canary in the batch and g without,
  the neighbouring runs have densities (1 - q) g + q f and g: the best
  statistic of a run is the sum over its steps of ln(1 - q + q e^llr),
  llr = ln(f/g) (AUD-01).

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
  if isinstance(log_ratios, jax.Array):
    return jnp.logaddexp(jnp.asarray(absent, log_ratios.dtype),
                         present + log_ratios)
  return np.logaddexp(absent, present + np.asarray(log_ratios, np.float64))


def _ordered(statistics: np.ndarray) -> np.ndarray:
  values = np.asarray(statistics, np.float64).ravel()
  return np.where(np.isnan(values), np.inf, values)


def _halves(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  middle = values.size // 2
  return values[:middle], values[middle:]


def _flagged(statistics: np.ndarray, values: np.ndarray,
             side: int) -> np.ndarray:
  """How many of the sorted statistics lie beyond each value, on one side."""
  if side < 0:
    return np.searchsorted(statistics, values, side='left')
  return statistics.size - np.searchsorted(statistics, values, side='right')
