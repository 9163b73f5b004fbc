"""Releases the density of an array, and chooses the method."""

import dataclasses
from typing import Any
import warnings

import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.stats import mechanisms
from dpjax.stats import numbers
from dpjax.stats.density_methods import adaptive
from dpjax.stats.density_methods import bases
from dpjax.stats.density_methods import stages
from dpjax.stats.density_methods import weighted
from dpjax.stats.density_methods.estimate import DensityEstimate
from dpjax.stats.density_methods.mechanism import DensityMechanism
from dpjax.typing import PRNGKey

BOUNDARIES = tuple(bases.BOUNDARIES)
METHODS = ('auto', 'histogram', 'two_stages', 'sums')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Density(DensityEstimate):
  """A released density; every field is public.

  Attributes:
    mechanism: the mechanism that was used: `event`, `adjacency`, bins and
      noise.
  """
  mechanism: DensityMechanism


def plan(num_records: int, *, epsilon: float | None = None,
         rho: float | None = None, adjacency: Adjacency | str,
         boundary: str = 'interval', method: str = 'auto') -> DensityMechanism:
  """Returns the mechanism that `density` uses; its `event` is the privacy cost.

  'auto' is 'histogram', one noisy histogram, except for rho on a circle, where
  it is 'sums', noisy Fourier sums. 'two_stages' spends a quarter of epsilon on
  choosing the number of bins. Use it on a circle, for smooth densities and n
  epsilon above 10^4: there its error is down to a third, and at most a tenth
  larger for rough densities.

  Args:
    num_records: n, or a public guess of it under ADD_OR_REMOVE_ONE.
    epsilon: budget of pure differential privacy; give this or rho.
    rho: budget of zero-concentrated differential privacy.
    adjacency: which data sets are neighbours, or its name.
    boundary: 'interval' or 'circle'.
    method: one of `METHODS`.
  """
  errors.check_choice('method', method, METHODS)
  errors.check_choice('boundary', boundary, BOUNDARIES)
  mechanisms.check_budget(epsilon, rho)
  circle, adjacency = boundary == 'circle', Adjacency(adjacency)
  if method == 'auto':
    method = 'sums' if circle and rho is not None else 'histogram'
  if method == 'histogram':
    return adaptive.adaptive(num_records, epsilon=epsilon, rho=rho,
                             boundary=boundary, adjacency=adjacency)
  if not circle:
    raise ValueError(f"method={method!r} needs boundary='circle', got "
                     f'{boundary!r}')
  if method == 'sums':
    if rho is None:
      raise ValueError("method='sums' has Gaussian noise: its budget is rho, "
                       'not epsilon; pass rho=')
    return weighted.adaptive(num_records=num_records, rho=rho,
                             adjacency=adjacency)
  return stages.TwoStages(num_records=num_records, epsilon=epsilon, rho=rho,
                          adjacency=adjacency)


def density(key: PRNGKey, x: Any, *, lower: float, upper: float,
            epsilon: float | None = None, rho: float | None = None,
            adjacency: Adjacency | str, boundary: str = 'interval',
            method: str = 'auto', expected_records: int | None = None,
            missing: str = 'refuse') -> Density:
  """Releases the private density of numbers between public bounds.

  A noisy histogram, with a number of bins that follows from n and the budget,
  and coefficients that are shrunk by their own size: the smoothness need not be
  known. The estimate integrates to 1 and may be negative. `proper` gives the
  nearest density and `sample` draws synthetic records; both are
  post-processing.

  Floating point: noise is integer for epsilon, and rounded to a public grid for
  rho, but it is computed with floats; `dpjax estimate` samples exactly.

  Args:
    key: random key of the release; use it for nothing else.
    x: [n] numbers: an array, a list, a pandas Series.
    lower: public bound; smaller values are clipped to it.
    upper: public bound; larger values are clipped to it.
    epsilon: budget of pure differential privacy; give this or rho.
    rho: budget of zero-concentrated differential privacy.
    adjacency: which data sets are neighbours, or its name. n is public under
      'replace_one', private under 'add_or_remove_one'.
    boundary: 'interval', or 'circle' if both bounds are the same point, as
      midnight of a day.
    method: one of `METHODS`, see `plan`.
    expected_records: a public guess of n, from which the number of bins
      follows. Required under 'add_or_remove_one', and allowed only there.
    missing: treatment of NaN: 'refuse' raises an error, 'lower' and 'upper'
      replace it by a bound, 'omit' drops the record (only under
      'add_or_remove_one').

  Raises:
    ValueError: for bad input, before anything is released.

  Examples:
    >>> from dpjax.stats.density_methods import api
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
  # Everything that the plan depends on is public: n or a guess, and budgets.
  planned = plan(values.size if expected_records is None else expected_records,
                 epsilon=epsilon, rho=rho, boundary=boundary, method=method,
                 adjacency=adjacency)
  unit = (values - lower) / (upper - lower)
  if unit.min() < 0 or unit.max() > 1:
    warnings.warn('values of x beyond the public bounds are clipped to them; '
                  'this warning depends on the data: do not publish it',
                  stacklevel=2)
  released = planned.estimate(key, unit)
  return Density(
      kind=released.kind, coefficients=np.asarray(released.coefficients),
      lower=lower, upper=upper, mechanism=planned)
