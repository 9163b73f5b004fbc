"""Releases private means, proportions and ROC curves of arrays.

Each takes the key and the records, chooses the mechanism from public numbers,
and returns an estimate with its interval. `quantiles`, `ecdf` and `density`
beside them are of the same kind; `dpjax.release` releases the same statistics
with exact noise and a ledger.
"""

from typing import Any

import numpy as np

from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import numbers
from dpjax.stats import roc_curves
from dpjax.stats.ecdf_methods.grids import check_grid
from dpjax.stats.ecdf_methods.grids import Grid
from dpjax.stats.intervals import Estimate
from dpjax.stats.means import BoundedMean
from dpjax.stats.means import PrivateSizeMean
from dpjax.stats.roc_curves import RocCurve
from dpjax.typing import PRNGKey


def mean(key: PRNGKey, x: Any, *, epsilon: float, lower: float, upper: float,
         adjacency: Adjacency | str, confidence: float = 0.95,
         missing: str = 'refuse') -> Estimate:
  """Returns a private mean and a confidence interval for the population mean.

  Guarantee: epsilon-DP under `adjacency`. Noise is drawn in floating point;
  `dpjax.release` draws exact noise.

  Args:
    key: of the release, from `dpjax.privacy.keys.system_keys`; use it once.
    x: [n] numbers: an array, a list or a column of a data frame.
    epsilon: cost of the release.
    lower: public lower bound; smaller values count as it.
    upper: public upper bound; larger values count as it.
    adjacency: which data sets are neighbours, or its name. The number n is
      public under 'replace_one' and private under 'add_or_remove_one'.
    confidence: level of the interval.
    missing: what NaN counts as: 'refuse', 'lower' or 'upper', the bounds, or
      'omit', under 'add_or_remove_one' alone.

  Raises:
    ValueError: for bad input, before anything is released.

  Examples:
    >>> from dpjax import stats
    >>> # Reproducible: for research, not for a release.
    >>> released = stats.mean(jax.random.key(0), np.arange(1000) % 100,
    ...                       epsilon=1.0, lower=0, upper=100,
    ...                       adjacency='replace_one')
    >>> bool(released.low < 49.5 < released.high)
    True
  """
  adjacency = Adjacency(adjacency)
  values = numbers.parse(x, lower, upper, missing=missing, adjacency=adjacency)
  if adjacency is Adjacency.REPLACE_ONE:
    return BoundedMean(
        num_examples=values.size, lower=lower, upper=upper, epsilon=epsilon,
        confidence=confidence).release(key, values)
  return PrivateSizeMean(lower=lower, upper=upper, epsilon=epsilon,
                         confidence=confidence).release(key, values)


def proportion(key: PRNGKey, x: Any, *, epsilon: float,
               adjacency: Adjacency | str,
               confidence: float = 0.95) -> Estimate:
  """Returns the private proportion of records that are true.

  Guarantee: epsilon-DP under `adjacency`; see `mean`.

  Args:
    key: of the release; use it once.
    x: [n] booleans, or numbers 0 and 1.
    epsilon: cost of the release.
    adjacency: which data sets are neighbours, or its name.
    confidence: level of the interval for the proportion in the population.

  Raises:
    ValueError: for values other than 0 and 1, before anything is released.
  """
  values = np.asarray(x)
  if values.dtype != bool and not np.isin(values, (0, 1)).all():
    raise ValueError('x must be true or false, or 0 or 1, for every record')
  return mean(key, values.astype(np.float64), epsilon=epsilon, lower=0.0,
              upper=1.0, adjacency=adjacency, confidence=confidence)


def roc(key: PRNGKey, scores: Any, labels: Any, grid: Grid, *,
        epsilon: float | None = None, rho: float | None = None,
        adjacency: Adjacency | str, public_labels: bool = False,
        positive: str = 'high') -> RocCurve:
  """Returns the private ROC curve of scores on a public grid.

  One release, epsilon-DP or rho-zCDP under `adjacency`, of the ranks of both
  classes; the area under the curve and calibration follow from it for nothing.

  Args:
    key: of the release; use it once.
    scores: [n] numbers; values beyond the grid count as its ends.
    labels: [n] 0 or 1; 1 is the positive class.
    grid: public thresholds.
    epsilon: budget of a pure release; or else rho.
    rho: budget of a zero-concentrated release.
    adjacency: which data sets are neighbours, or its name.
    public_labels: whether the labels, and so how many there are of each, are
      public.
    positive: which scores speak for the positive class, 'high' or 'low'.

  Raises:
    TypeError: if `grid` is no `Grid`.
    ValueError: for bad input, before anything is released.
  """
  mechanism = roc_curves.make(
      check_grid(grid), epsilon=epsilon, rho=rho,
      adjacency=Adjacency(adjacency), public_labels=public_labels,
      positive=positive)
  counts = roc_curves.counts(grid, np.asarray(scores, np.float64),
                             np.asarray(labels))
  return mechanism.release(key, counts)
