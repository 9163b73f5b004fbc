"""Tests whether the noise of a release has its declared distribution.

If it does, the randomised probability integral transform maps every coordinate
to an independent standard normal number, for any distribution, grid and data.
Standard tests of normal samples then have exact levels.
"""

from collections.abc import Iterator
import itertools

import numpy as np
from numpy.typing import ArrayLike
from scipy import special
from scipy import stats

from dpjax.audit import whitebox
from dpjax.audit.target import Noise

# All pairs among this many coordinates are tested for correlation.
_PAIRS = 8


def normal_scores(rng: np.random.Generator, noise: Noise,
                  residuals: np.ndarray) -> np.ndarray:
  """Transforms residuals to standard normal scores under the declared noise.

  A score is Phi^-1 of a uniform point between the values of the declared
  distribution function at both ends of the interval that rounds to the
  residual.

  Args:
    rng: generator of the uniform points.
    noise: the declared noise.
    residuals: outputs minus their exact values, any shape.
  """
  declared = noise.distribution
  if hasattr(declared.dist, 'pmf'):
    # An integer k has the probability of the interval (k - 1, k].
    low, high = residuals - 1, residuals
  else:
    # Rounding to the grid maps an interval of one spacing to the residual.
    low, high = residuals - noise.spacing / 2, residuals + noise.spacing / 2
  fraction = rng.random(residuals.shape)
  lower_tails = declared.cdf(low), declared.cdf(high)
  lower = lower_tails[0] + fraction * (lower_tails[1] - lower_tails[0])
  # Above the median use survival functions: there the distribution function is
  # close to 1 and loses precision.
  upper_tails = declared.sf(low), declared.sf(high)
  upper = upper_tails[0] + fraction * (upper_tails[1] - upper_tails[0])
  scores = np.where(lower < 0.5, special.ndtri(lower), -special.ndtri(upper))
  # Impossible residuals give infinite scores, which tests cannot average.
  return np.clip(scores, -40, 40)


def p_values(scores: np.ndarray,
             others: np.ndarray) -> Iterator[tuple[str, float]]:
  """Yields (name of the test, p-value), valid if all scores are normal.

  Tests the variance (two-sided), distribution and mean of every coordinate, and
  correlations between coordinates, between consecutive calls and between the
  two data sets.

  Args:
    scores: [n, d] scores of releases of one data set.
    others: [n, d] scores of releases of its neighbour, drawn with other keys.
  """
  size, width = scores.shape
  yield 'variance', _least(
      [whitebox.variance_p_value(column, stddev=1.0) for column in scores.T])
  yield 'distribution', _least([stats.kstest(column, 'norm').pvalue
                                for column in scores.T])
  yield 'mean', _least(2 * stats.norm.sf(
      np.abs(scores.mean(0)) * np.sqrt(size)))
  if width > 1:
    near = zip(range(width - 1), range(1, width), strict=True)
    pairs = {*itertools.combinations(range(min(width, _PAIRS)), 2),
             (0, width - 1), *near}
    yield 'independence of coordinates', _least(
        [correlation(scores[:, i], scores[:, j]) for i, j in sorted(pairs)])
  yield 'independence of calls', _least(
      [correlation(scores[1:, j], scores[:-1, j]) for j in range(width)])
  yield 'independence of keys', _least(
      [correlation(scores[:, j], others[:, j]) for j in range(width)])


def correlation(first: np.ndarray, second: np.ndarray) -> float:
  """Returns the two-sided p-value of no correlation, exact for normals [n]."""
  if first.std() == 0 or second.std() == 0:
    return 0.0
  r = float(np.clip(np.corrcoef(first, second)[0, 1], -1, 1))
  freedom = first.size - 2
  # The floor avoids a division by 0 at |r| = 1, where the p-value is 0.
  statistic = abs(r) * np.sqrt(freedom / max(1 - r**2, 1e-300))
  return float(2 * stats.t.sf(statistic, freedom))


def _least(values: ArrayLike) -> float:
  """Returns the Bonferroni-corrected least p-value; NaN counts as 0."""
  numbers = np.nan_to_num(np.asarray(values, np.float64), nan=0.0)
  return float(min(1.0, numbers.size * numbers.min()))
