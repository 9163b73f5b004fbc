"""Releases the distribution function of an array, and chooses the method."""

from collections.abc import Callable
import functools
from typing import Any, NamedTuple
import warnings

import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import mechanisms
from dpjax.stats import numbers
from dpjax.stats.ecdf_methods import dyadic
from dpjax.stats.ecdf_methods import inverse
from dpjax.stats.ecdf_methods import toeplitz
from dpjax.stats.ecdf_methods import trees
from dpjax.stats.ecdf_methods.grids import check_grid
from dpjax.stats.ecdf_methods.grids import Grid
from dpjax.stats.ecdf_methods.mechanism import EcdfMechanism
from dpjax.typing import PRNGKey

_Make = Callable[..., EcdfMechanism]
_METHODS: dict[str, _Make] = {
    'tree': trees.TreeEcdf,
    'square_root': toeplitz.SquareRootEcdf,
    'dyadic': dyadic.DyadicEcdf,
    'dyadic_paper': functools.partial(dyadic.DyadicEcdf, accounting='paper'),
}
METHODS = ('auto', *_METHODS)


class Ecdf(NamedTuple):
  """A released distribution function; every field is public.

  Attributes:
    thresholds: t_1 < ... < t_N, [N] float64.
    ranks: estimates of #{x <= t_j}, [N] float64.
    total: n; under add-or-remove-one an estimate, the last rank.
    stddevs: [N] standard deviations of the noise of the ranks, before they are
      made monotone, which reduces it; no sampling error.
    mechanism: the mechanism that was used: `event`, `adjacency` and scales.
  """
  thresholds: np.ndarray
  ranks: np.ndarray
  total: float
  stddevs: np.ndarray
  mechanism: EcdfMechanism

  @property
  def cdf(self) -> np.ndarray:
    """Returns F at the thresholds, [N] in [0, 1]; zeros if n is estimated as 0.
    """
    return np.clip(self.ranks / max(self.total, 1.0), 0.0, 1.0)

  def quantiles(self, probs: Any) -> np.ndarray:
    """Returns the first thresholds where F reaches the quantile levels [...].

    Post-processing, so any number of them is free.

    Args:
      probs: [...] quantile levels in (0, 1).
    """
    probs = np.asarray(probs, np.float64)
    for prob in probs.ravel():
      errors.check_open_unit('probs', prob)
    # Places count thresholds from 1.
    places = inverse.search(self.ranks, self.total * probs.ravel())
    return self.thresholds[places - 1].reshape(probs.shape)

  def counts(self) -> np.ndarray:
    """Returns estimated records between thresholds, [N].

    Counts of wide bins have a smaller relative error than those of narrow ones.
    """
    return np.diff(self.ranks, prepend=0.0)


def plan(num_thresholds: int, *, epsilon: float | None = None,
         rho: float | None = None, adjacency: Adjacency | str,
         method: str = 'auto', monotone: bool = True) -> EcdfMechanism:
  """Returns the mechanism that `ecdf` uses; its `event` is the privacy cost.

  'auto' chooses the smallest mean squared error by closed forms (item EC-49): a
  tree of counts with least squares for epsilon, the square root of the matrix
  of prefix sums for rho.

  Args:
    num_thresholds: N.
    epsilon: budget of pure differential privacy; give this or rho.
    rho: budget of zero-concentrated differential privacy.
    adjacency: which data sets are neighbours, or its name.
    method: one of `METHODS`; 'dyadic_paper' has the noise published by
      Barczewski (2025), more than its guarantee needs.
    monotone: whether the curve is made nondecreasing.
  """
  errors.check_choice('method', method, METHODS)
  mechanisms.check_budget(epsilon, rho)
  budget = dict(epsilon=epsilon) if rho is None else dict(rho=rho)
  if method == 'auto':
    method = 'tree' if rho is None else 'square_root'
  if method == 'square_root' and rho is None:
    raise ValueError("method='square_root' has Gaussian noise: its budget is "
                     'rho, not epsilon; pass rho=')
  return _METHODS[method](
      num_thresholds=num_thresholds, adjacency=Adjacency(adjacency),
      monotone=monotone, **budget)


def ecdf(key: PRNGKey, x: Any, grid: Grid, *, epsilon: float | None = None,
         rho: float | None = None, adjacency: Adjacency | str,
         method: str = 'auto', monotone: bool = True,
         missing: str = 'refuse') -> Ecdf:
  """Releases the private distribution function of numbers on a public grid.

  One release of the whole curve, epsilon-DP or rho-zCDP under `adjacency`:
  quantiles, counts of intervals and smoothing of it cost nothing more.

  Floating point: noise is integer for epsilon, and rounded to a public grid for
  rho, but it is computed with floats; `dpjax estimate` samples exactly.

  Args:
    key: random key of the release; use it for nothing else.
    x: [n] numbers: an array, a list, a pandas Series.
    grid: public thresholds; values outside are clipped to the bounds.
    epsilon: see `plan`.
    rho: see `plan`.
    adjacency: which data sets are neighbours, or its name. n is public under
      'replace_one', private under 'add_or_remove_one'.
    method: one of `METHODS`.
    monotone: whether the curve is made nondecreasing.
    missing: treatment of NaN: 'refuse' raises an error, 'lower' and 'upper'
      replace it by a bound, 'omit' drops the record (only under
      'add_or_remove_one').

  Raises:
    TypeError: if `grid` is no `Grid`.
    ValueError: for bad input, before anything is released.

  Examples:
    >>> from dpjax.stats.ecdf_methods import api, grids
    >>> grid = grids.Grid(lower=0, upper=100, num_thresholds=64)
    >>> # Reproducible: for research, not for a release.
    >>> curve = api.ecdf(jax.random.key(0), np.arange(1000) % 100, grid,
    ...                  epsilon=1.0, adjacency='replace_one')
    >>> bool(abs(curve.quantiles([0.5])[0] - 50) < 5)
    True
  """
  adjacency = Adjacency(adjacency)
  mechanism = plan(check_grid(grid).num_thresholds, epsilon=epsilon, rho=rho,
                   adjacency=adjacency, method=method, monotone=monotone)
  # Everything is checked before the first draw.
  values = numbers.parse(x, grid.lower, grid.upper, missing=missing,
                         adjacency=adjacency)
  if values.min() < grid.lower or values.max() > grid.upper:
    warnings.warn('values of x beyond the public bounds are clipped to them; '
                  'this warning depends on the data: do not publish it',
                  stacklevel=2)
  # Everything below is post-processing, but for a public n.
  ranks = mechanism.estimate(key, grid.counts(values))
  return Ecdf(grid.thresholds, ranks,
              float(values.size if mechanism.knows_total else ranks[-1]),
              np.sqrt(mechanism.variances()), mechanism)
