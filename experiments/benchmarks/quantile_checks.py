"""Checks the distribution, or at least the accuracy, of private quantiles.

The reference is draws of the published algorithm in NumPy, on records where its
FFTs are exact. A mechanism with another distribution only has to be accurate.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from experiments.benchmarks import methods
from experiments.benchmarks import quantile_peers as peers
from experiments.benchmarks.program import Spec

ERROR_RATE = 1e-4
"""Probability that the check of a correct method fails."""

_NEAR = 0.2
_OTHER_DISTRIBUTIONS = ('opendp',)


class Finding(NamedTuple):
  """Result of a check.

  Attributes:
    rank_error: mean of |rank - n p| / n; NaN if draws are not increasing or
      have another shape.
    least_p_value: `least_p_value` against draws of the published algorithm; NaN
      if there is none. Welch's test of the mean rank error has most power
      against a wrong rate.
    passed: whether both are within the tolerances.
  """
  rank_error: float
  least_p_value: float
  passed: bool

  @property
  def cells(self) -> tuple[str, ...]:
    """Returns the cells of this finding in the printed table."""
    p_value = self.least_p_value
    return (f'{self.rank_error:.1e}',
            '-' if np.isnan(p_value) else f'{p_value:.1e}')


def make_spec(model: str, method: str, *, size: int) -> Spec:
  """Returns the program to check."""
  return Spec(suite='quantiles', model=model, size=size, method=method)


def judge(spec: Spec, audit: Mapping[str, Any]) -> Finding:
  """Compares draws of a program with those of the published algorithm.

  Args:
    spec: specification of the program.
    audit: 'draws' [R, m] from the data set of its size.
  """
  draws, (records,) = audit['draws'], peers.data(spec.size)
  num_levels = methods.quantile_model(spec.model)[1]
  if draws.shape[1:] != (num_levels,) or np.any(np.diff(draws) < 0):
    return Finding(np.nan, np.nan, False)
  errors = _rank_errors(draws, records)
  rank_error = float(errors.mean())
  passed = rank_error <= _NEAR
  name, _ = methods.split(spec.method)
  if name in _OTHER_DISTRIBUTIONS or methods.inapplicable(
      'quantiles', 'published', spec.model):
    return Finding(rank_error, np.nan, passed)
  release = peers.published(spec.model, spec.size)
  rng = np.random.default_rng(2)
  wanted = np.stack([release(rng, records) for _ in range(len(draws))])
  least = least_p_value(draws, wanted, errors, _rank_errors(wanted, records))
  return Finding(rank_error, least, passed and least >= ERROR_RATE)


def least_p_value(draws: np.ndarray, wanted: np.ndarray, errors: np.ndarray,
                  wanted_errors: np.ndarray) -> float:
  """Returns the least p-value of m + 1 tests, times m + 1 (Bonferroni).

  Kolmogorov-Smirnov tests compare each column of the draws [R, m], and Welch's
  test compares the means of the errors [R].
  """
  p_values = [stats.ks_2samp(*pair, method='asymp').pvalue
              for pair in zip(draws.T, wanted.T)]
  p_values.append(stats.ttest_ind(errors, wanted_errors,
                                  equal_var=False).pvalue)
  return float(min(1.0, len(p_values) * min(p_values)))


def _rank_errors(draws: np.ndarray, records: np.ndarray) -> np.ndarray:
  """Returns mean_j |rank_j / n - p_j|, [R], of draws [R, m]."""
  ranks = np.searchsorted(np.sort(records), draws)
  return np.mean(np.abs(ranks / len(records)
                        - peers.probs(draws.shape[1])), 1)
