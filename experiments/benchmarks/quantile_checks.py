"""Whether what is timed has the law it should have, or answers at all.

The reference is draws of the published algorithm in NumPy, on records where its
FFTs are exact. What has another law by design is only asked to come near.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from experiments.benchmarks import methods
from experiments.benchmarks import quantile_peers as peers
from experiments.benchmarks.program import Spec

ERROR_RATE = 1e-4
"""Of a right method, that a check of its law fails."""

_NEAR = 0.2
_OF_ANOTHER_LAW = ('opendp',)


class Finding(NamedTuple):
  """What a check saw.

  Attributes:
    rank_error: mean of |rank - n p| over n; NaN for what are no increasing
      quantiles.
    least_p_value: of tests against draws of the published algorithm, times
      their number; NaN if there is none. Kolmogorov and Smirnov's for each
      order, and Welch's of the mean rank error, which sees rates best.
    passed: whether both are as they should be.
  """
  rank_error: float
  least_p_value: float
  passed: bool

  @property
  def cells(self) -> tuple[str, ...]:
    """As it is printed."""
    p_value = self.least_p_value
    return (f'{self.rank_error:.1e}',
            '-' if np.isnan(p_value) else f'{p_value:.1e}')


def make_spec(model: str, method: str, *, size: int) -> Spec:
  """What is checked."""
  return Spec(suite='quantiles', model=model, size=size, method=method)


def judge(spec: Spec, audit: Mapping[str, Any]) -> Finding:
  """Compares draws of a program with those of the published algorithm.

  Args:
    spec: of the program.
    audit: 'draws' [R, m] from the one data set of its size.
  """
  draws, (records,) = audit['draws'], peers.data(spec.size)
  num_orders = methods.quantile_model(spec.model)[1]
  if draws.shape[1:] != (num_orders,) or np.any(np.diff(draws) < 0):
    return Finding(np.nan, np.nan, False)
  errors = _rank_errors(draws, records)
  rank_error = float(errors.mean())
  passed = rank_error <= _NEAR
  name, _ = methods.split(spec.method)
  if name in _OF_ANOTHER_LAW or methods.inapplicable(
      'quantiles', 'published', spec.model):
    return Finding(rank_error, np.nan, passed)
  release = peers.published(spec.model, spec.size)
  rng = np.random.default_rng(2)
  wanted = np.stack([release(rng, records) for _ in range(len(draws))])
  least = least_p_value(draws, wanted, errors, _rank_errors(wanted, records))
  return Finding(rank_error, least, passed and least >= ERROR_RATE)


def least_p_value(draws: np.ndarray, wanted: np.ndarray, errors: np.ndarray,
                  wanted_errors: np.ndarray) -> float:
  """Of tests whether draws [R, m], and errors [R], have one law, times m + 1.

  Kolmogorov and Smirnov's of each column, and Welch's of the mean error.
  """
  p_values = [stats.ks_2samp(*pair, method='asymp').pvalue
              for pair in zip(draws.T, wanted.T)]
  p_values.append(stats.ttest_ind(errors, wanted_errors,
                                  equal_var=False).pvalue)
  return float(min(1.0, len(p_values) * min(p_values)))


def _rank_errors(draws: np.ndarray, records: np.ndarray) -> np.ndarray:
  """mean_j |rank_j / n - p_j| [R] of draws [R, m]."""
  ranks = np.searchsorted(np.sort(records), draws)
  return np.mean(np.abs(ranks / len(records)
                        - peers.probs(draws.shape[1])), 1)
