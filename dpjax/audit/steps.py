"""Tests whether batches are Poisson samples of the records (AUD-03)."""

from collections.abc import Iterator

import numpy as np
from scipy import stats

from dpjax import errors


def sampling_p_values(joined: np.ndarray, *,
                      sampling_prob: float) -> Iterator[tuple[str, float]]:
  """Yields (name of the test, p-value) of Poisson sampling, for large t and n.

  Tests the sampling rate; the variance n q (1 - q) of batch sizes, which is 0
  for shuffled batches; the variance of each record's number of uses, which is 0
  for a fixed partition; and independence of consecutive steps and of
  consecutive records.

  Args:
    joined: [t, n] bool, True where a record was in the batch of a step.
    sampling_prob: claimed sampling probability q.
  """
  errors.check_probability('sampling_prob', sampling_prob)
  joined = np.asarray(joined, bool)
  steps, size = joined.shape
  yield 'rate', _binomial(joined.sum(), joined.size, sampling_prob)
  if sampling_prob == 1:
    return
  yield 'batch sizes', _dispersion(joined.sum(1), size, sampling_prob)
  yield 'uses of records', _dispersion(joined.sum(0), steps, sampling_prob)
  # Disjoint pairs (0, 1), (2, 3), ...: each is an independent trial.
  for name, pairs in (
      ('consecutive steps', joined[:steps // 2 * 2].reshape(-1, 2, size)),
      ('consecutive records',
       joined.T[:size // 2 * 2].reshape(-1, 2, steps))):
    yield name, _binomial(pairs.all(1).sum(), pairs[:, 0].size,
                          sampling_prob**2)


def _binomial(count: int, trials: int, prob: float) -> float:
  """Returns the two-sided p-value of a binomial count."""
  return float(stats.binomtest(int(count), int(trials), prob).pvalue)


def _dispersion(counts: np.ndarray, trials: int, prob: float) -> float:
  """Returns the two-sided p-value of the variance of binomial counts.

  It uses the normal approximation to the mean squared deviation from the known
  mean, with the exact variance of a square; valid for hundreds of counts.
  """
  variance = trials * prob * (1 - prob)
  # Fourth central moment of a binomial count.
  fourth = variance * (1 + 3 * (trials - 2) * prob * (1 - prob))
  standard_error = np.sqrt((fourth - variance**2) / counts.size)
  excess = np.mean(np.square(counts - trials * prob)) - variance
  return float(2 * stats.norm.sf(abs(excess) / standard_error))
