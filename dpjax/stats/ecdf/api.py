"""One function for the distribution of an array, and the rule of methods."""

from collections.abc import Callable
import functools
from typing import Any, NamedTuple
import warnings

import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import numbers
from dpjax.stats.ecdf import dyadic
from dpjax.stats.ecdf import inverse
from dpjax.stats.ecdf import toeplitz
from dpjax.stats.ecdf import trees
from dpjax.stats.ecdf.grids import Grid
from dpjax.stats.ecdf.mechanism import EcdfMechanism
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
  """A released distribution function; all of it is public.

  Attributes:
    thresholds: t_1 < ... < t_N, [N] float64.
    ranks: estimates of #{x <= t_j}, [N] float64.
    total: n; under add-or-remove-one an estimate, what the curve ends at.
    stddevs: of the noise of the ranks [N] before they are made monotone, which
      lessens it; no sampling error.
    mechanism: what drew it: `event`, `adjacency` and scales.
  """
  thresholds: np.ndarray
  ranks: np.ndarray
  total: float
  stddevs: np.ndarray
  mechanism: EcdfMechanism

  @property
  def cdf(self) -> np.ndarray:
    """F at the thresholds, [N] in [0, 1]; zeros where nothing is left of n."""
    return np.clip(self.ranks / max(self.total, 1.0), 0.0, 1.0)

  def quantiles(self, probs: Any) -> np.ndarray:
    """The first thresholds where F reaches orders [...] in (0, 1); free."""
    probs = np.asarray(probs, np.float64)
    for prob in probs.ravel():
      errors.check_open_unit('probs', prob)
    places = inverse.search(self.ranks, self.total * probs.ravel())
    return self.thresholds[places - 1].reshape(probs.shape)

  def counts(self) -> np.ndarray:
    """Records between thresholds, [N]; of wide bins better than of narrow."""
    return np.diff(self.ranks, prepend=0.0)


def plan(num_thresholds: int, *, epsilon: float | None = None,
         rho: float | None = None, adjacency: Adjacency | str,
         method: str = 'auto', monotone: bool = True) -> EcdfMechanism:
  """The mechanism that `ecdf` uses; its `event` is what it costs.

  'auto' is a tree of counts with least squares under epsilon, and the square
  root of the matrix of prefix sums under rho: the least mean squared error
  there is by closed forms (item EC-49).

  Args:
    num_thresholds: N.
    epsilon: of pure differential privacy, or None.
    rho: of zero-concentrated differential privacy, or None; one of the two.
    adjacency: which data sets are neighbours, or its name.
    method: one of `METHODS`; 'dyadic_paper' has the noise that thesis 003
      prints, more than its guarantee needs.
    monotone: whether the curve is made to increase.
  """
  errors.check_choice('method', method, METHODS)
  if (epsilon is None) == (rho is None):
    raise ValueError('the budget is epsilon or rho, one of them, got '
                     f'{epsilon} and {rho}')
  budget = dict(epsilon=epsilon) if rho is None else dict(rho=rho)
  if method == 'auto':
    method = 'tree' if rho is None else 'square_root'
  if method == 'square_root' and rho is None:
    raise ValueError("method='square_root' has Gaussian noise: its budget is "
                     'rho, not epsilon')
  return _METHODS[method](
      num_thresholds=num_thresholds, adjacency=Adjacency(adjacency),
      monotone=monotone, **budget)


def ecdf(key: PRNGKey, x: Any, grid: Grid, *, epsilon: float | None = None,
         rho: float | None = None, adjacency: Adjacency | str,
         method: str = 'auto', monotone: bool = True,
         missing: str = 'refuse') -> Ecdf:
  """The private distribution function of numbers on a public grid.

  One release of the whole curve, epsilon-DP or rho-zCDP under `adjacency`:
  quantiles, counts of intervals and smoothing of it cost nothing more.

  Floating point: noise is of whole numbers under epsilon, and on a public grid
  under rho, yet drawn from floats; `launch.estimate` is exact.

  Args:
    key: of the release; use it for nothing else.
    x: [n] numbers: an array, a list, a pandas Series.
    grid: public thresholds; values beyond count as the bounds.
    epsilon: as `plan`.
    rho: as `plan`.
    adjacency: which data sets are neighbours, or its name. Under 'replace_one'
      n is public; under 'add_or_remove_one' it is not.
    method: one of `METHODS`.
    monotone: whether the curve is made to increase.
    missing: what NaN counts as: 'refuse', 'lower' or 'upper', the bounds, or
      'omit', under 'add_or_remove_one' alone.

  Raises:
    ValueError: for bad input, before anything is released.

  Examples:
    >>> from dpjax.stats.ecdf import api, grids
    >>> grid = grids.Grid(lower=0, upper=100, num_thresholds=64)
    >>> # Reproducible: for research, not for a release.
    >>> curve = api.ecdf(jax.random.key(0), np.arange(1000) % 100, grid,
    ...                  epsilon=1.0, adjacency='replace_one')
    >>> bool(abs(curve.quantiles([0.5])[0] - 50) < 5)
    True
  """
  adjacency = Adjacency(adjacency)
  made = plan(grid.num_thresholds, epsilon=epsilon, rho=rho,
              adjacency=adjacency, method=method, monotone=monotone)
  values = numbers.parse(x, grid.lower, grid.upper, missing=missing,
                         adjacency=adjacency)
  if values.min() < grid.lower or values.max() > grid.upper:
    warnings.warn('values of x beyond the public bounds count as the bounds; '
                  'that there are some is private', stacklevel=2)
  ranks = made.estimate(key, grid.counts(values))
  return Ecdf(grid.thresholds, ranks,
              float(values.size if made.knows_total else ranks[-1]),
              np.sqrt(made.variances()), made)
