"""One function for the density of an array, and the rule of methods."""

import dataclasses
from typing import Any
import warnings

import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import numbers
from dpjax.stats.density import adaptive
from dpjax.stats.density import bases
from dpjax.stats.density import stages
from dpjax.stats.density import weighted
from dpjax.stats.density.estimate import DensityEstimate
from dpjax.stats.density.mechanism import DensityMechanism
from dpjax.typing import PRNGKey

BOUNDARIES = tuple(bases.BOUNDARIES)
METHODS = ('auto', 'histogram', 'two_stages', 'sums')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Density(DensityEstimate):
  """A released density; all of it is public.

  Attributes:
    mechanism: what drew it: `event`, `adjacency`, bins and noise.
  """
  mechanism: DensityMechanism


def plan(num_records: int, *, epsilon: float | None = None,
         rho: float | None = None, adjacency: Adjacency | str,
         boundary: str = 'interval', method: str = 'auto') -> DensityMechanism:
  """The mechanism that `density` uses; its `event` is what it costs.

  'auto' is 'histogram', one noisy histogram, and under rho on a circle 'sums',
  noisy sums of waves. 'two_stages' spends a quarter of epsilon on the number of
  bins: on a circle, for smooth densities and n epsilon above 10^4, where it has
  down to a third of the error, and at most a tenth more on rough ones.

  Args:
    num_records: n, or a public guess of it under ADD_OR_REMOVE_ONE.
    epsilon: of pure differential privacy, or None.
    rho: of zero-concentrated differential privacy, or None; one of the two.
    adjacency: which data sets are neighbours, or its name.
    boundary: 'interval' or 'circle'.
    method: one of `METHODS`.
  """
  errors.check_choice('method', method, METHODS)
  errors.check_choice('boundary', boundary, BOUNDARIES)
  if (epsilon is None) == (rho is None):
    raise ValueError('the budget is epsilon or rho, one of them, got '
                     f'{epsilon} and {rho}')
  circle, adjacency = boundary == 'circle', Adjacency(adjacency)
  if method == 'auto':
    method = 'sums' if circle and rho is not None else 'histogram'
  if method == 'histogram':
    return adaptive.adaptive(num_records, epsilon=epsilon, rho=rho,
                             boundary=boundary, adjacency=adjacency)
  if not circle:
    raise ValueError(f'method={method!r} is of a circle: the boundary is '
                     f'{boundary!r}')
  if method == 'sums':
    if rho is None:
      raise ValueError("method='sums' has Gaussian noise: its budget is rho, "
                       'not epsilon')
    return weighted.adaptive(num_records=num_records, rho=rho,
                             adjacency=adjacency)
  return stages.TwoStages(num_records=num_records, epsilon=epsilon, rho=rho,
                          adjacency=adjacency)


def density(key: PRNGKey, x: Any, *, lower: float, upper: float,
            epsilon: float | None = None, rho: float | None = None,
            adjacency: Adjacency | str, boundary: str = 'interval',
            method: str = 'auto', expected_records: int | None = None,
            missing: str = 'refuse') -> Density:
  """The private density of numbers between public bounds.

  A noisy histogram, of bins that n and the budget choose, and coefficients of
  it that are shrunk by their own size: no smoothness has to be known. The
  estimate integrates to 1 and may be negative; `proper` is the nearest density,
  `sample` draws synthetic records, and both are free.

  Floating point: noise is of whole numbers under epsilon, and on a public grid
  under rho, yet drawn from floats; `launch.estimate` is exact.

  Args:
    key: of the release; use it for nothing else.
    x: [n] numbers: an array, a list, a pandas Series.
    lower: public; values below count as it.
    upper: public; values above count as it.
    epsilon: of pure differential privacy, or None.
    rho: of zero-concentrated differential privacy, or None; one of the two.
    adjacency: which data sets are neighbours, or its name. Under 'replace_one'
      n is public; under 'add_or_remove_one' it is not.
    boundary: 'interval', or 'circle' where both bounds are one point, as
      midnight of a day.
    method: one of `METHODS`, see `plan`.
    expected_records: a public guess of n, which the number of bins follows;
      needed, and taken, under 'add_or_remove_one' alone.
    missing: what NaN counts as: 'refuse', 'lower' or 'upper', the bounds, or
      'omit', under 'add_or_remove_one' alone.

  Raises:
    ValueError: for bad input, before anything is released.

  Examples:
    >>> from dpjax.stats.density import api
    >>> # Reproducible: for research, not for a release.
    >>> curve = api.density(jax.random.key(0), np.arange(1000) % 100, lower=0,
    ...                     upper=100, epsilon=1.0, adjacency='replace_one')
    >>> bool(np.abs(curve(np.array([20.0, 50.0, 80.0])) - 0.01).max() < 0.002)
    True
  """
  adjacency = Adjacency(adjacency)
  errors.check_range(lower, upper)
  if (expected_records is None) != (adjacency is Adjacency.REPLACE_ONE):
    raise ValueError('expected_records must be given under add_or_remove_one, '
                     'where n is private, and only there')
  values = numbers.parse(x, lower, upper, missing=missing, adjacency=adjacency)
  made = plan(values.size if expected_records is None else expected_records,
              epsilon=epsilon, rho=rho, boundary=boundary, method=method,
              adjacency=adjacency)
  unit = (values - lower) / (upper - lower)
  if unit.min() < 0 or unit.max() > 1:
    warnings.warn('values of x beyond the public bounds count as the bounds; '
                  'that there are some is private', stacklevel=2)
  found = made.estimate(key, unit)
  return Density(kind=found.kind, coefficients=np.asarray(found.coefficients),
                 lower=lower, upper=upper, mechanism=made)
