"""Did each record join each step by a coin of its own? (AUD-03)"""

from collections.abc import Iterator

import numpy as np
from scipy import stats

from dpjax import errors


def sampling_p_values(joined: np.ndarray, *,
                      sampling_prob: float) -> Iterator[tuple[str, float]]:
  """(what is tested, p-value) of Poisson sampling, for large [t, n].

  Rate; sizes of batches, whose variance is n q (1 - q) and not 0 as of
  shuffled ones; how often each record is used, which a fixed partition makes
  constant; and whether one step, or one record, tells of the next.

  Args:
    joined: [t, n] bool, which records were in the batch of which step.
    sampling_prob: q, claimed.
  """
  errors.check_probability('sampling_prob', sampling_prob)
  joined = np.asarray(joined, bool)
  steps, size = joined.shape
  yield 'rate', _binomial(joined.sum(), joined.size, sampling_prob)
  if sampling_prob == 1:
    return
  yield 'batch sizes', _dispersion(joined.sum(1), size, sampling_prob)
  yield 'uses of records', _dispersion(joined.sum(0), steps, sampling_prob)
  for name, both in (
      ('steps that follow', joined[:steps // 2 * 2].reshape(-1, 2, size)),
      ('records in a row', joined.T[:size // 2 * 2].reshape(-1, 2, steps))):
    yield name, _binomial(both.all(1).sum(), both[:, 0].size, sampling_prob**2)


def _binomial(count: int, trials: int, prob: float) -> float:
  return float(stats.binomtest(int(count), int(trials), prob).pvalue)


def _dispersion(counts: np.ndarray, trials: int, prob: float) -> float:
  """Two-sided, of the spread of binomial counts around their known mean.

  Normal, with the exact variance of a square; for hundreds of counts.
  """
  variance = trials * prob * (1 - prob)
  fourth = variance * (1 + 3 * (trials - 2) * prob * (1 - prob))
  spread = np.sqrt((fourth - variance**2) / counts.size)
  excess = np.mean(np.square(counts - trials * prob)) - variance
  return float(2 * stats.norm.sf(abs(excess) / spread))
