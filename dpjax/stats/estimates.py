"""Releases private means, proportions and ROC curves of arrays.

Each function takes a key and the records, chooses a mechanism from public
numbers, and returns an estimate with its interval. `stats.quantiles`, `ecdf`
and `density` do the same. `dpjax.release` releases these statistics with exact
noise and a ledger.
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
    key: random key from `dpjax.privacy.keys.system_keys`; use it once.
    x: [n] numbers: an array, a list or a column of a data frame.
    epsilon: cost of the release.
    lower: public lower bound; smaller values are clamped to it.
    upper: public upper bound; larger values are clamped to it.
    adjacency: which data sets are neighbours, or its name. The number n is
      public under 'replace_one' and private under 'add_or_remove_one'.
    confidence: level of the interval.
    missing: treatment of NaN: 'refuse' raises an error, 'lower' and 'upper'
      replace it by that bound, 'omit' (add_or_remove_one only) leaves it out.

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
    key: see `mean`.
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

  Guarantee: epsilon-DP or rho-zCDP under `adjacency`. The ranks of both classes
  are released; the area under the curve and calibration follow at no cost.

  Args:
    key: see `mean`.
    scores: [n] numbers; values beyond the grid are clamped to its ends.
    labels: [n] 0 or 1; 1 is the positive class.
    grid: public thresholds.
    epsilon: budget of a pure release; give either epsilon or rho.
    rho: budget of a zero-concentrated release.
    adjacency: which data sets are neighbours, or its name.
    public_labels: whether the labels, and so the size of each class, are
      public.
    positive: whether 'high' or 'low' scores indicate the positive class.

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
