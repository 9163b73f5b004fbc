"""All statistics that can be released, and queries from names and values."""

from typing import Any

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.release import classifiers
from dpjax.release import counts
from dpjax.release import curves
from dpjax.release import densities
from dpjax.release import modes
from dpjax.release import moments
from dpjax.release import normal_means
from dpjax.release import proportions
from dpjax.release import quantiles
from dpjax.release import supports
from dpjax.release.query import AnyPlan
from dpjax.release.query import PARAMETERS
from dpjax.release.query import Query
from dpjax.release.query import Statistic

STATISTICS: dict[str, Statistic] = {
    statistic.name: statistic
    for module in (counts, proportions, modes, moments, quantiles, supports,
                 normal_means, curves, densities, classifiers)
    for statistic in module.STATISTICS}

# Names of statistics in other libraries, and the equivalent here.
_KNOWN_AS = {
    'median': 'quantiles with quantiles=0.5',
    'percentile': 'quantiles', 'percentiles': 'quantiles',
    'min': 'quantiles with quantiles=0.01',
    'max': 'quantiles with quantiles=0.99, or support_max',
    'average': 'mean', 'std': 'variance', 'standard_deviation': 'variance',
    'most_common': 'mode', 'cdf': 'ecdf', 'fraction': 'proportion',
    'rate': 'proportion'}


def query_of(statistic: str, *, adjacency: Adjacency | str,
             **values: Any) -> Query:
  """Returns a query whose numbers are exact, from a call or a command line.

  Args:
    statistic: name of the statistic.
    adjacency: which data sets are neighbours.
    **values: other parameters; a float means its shortest decimal, None means
      the default.

  Raises:
    ValueError: for an unknown parameter, or a value that is not allowed.
  """
  given = {'statistic': statistic, 'adjacency': adjacency, **values}
  exact: dict[str, Any] = {}
  for name, value in given.items():
    if name not in PARAMETERS:
      raise ValueError(f'there is no parameter {name!r}'
                       f'{errors.did_you_mean(name, PARAMETERS)}')
    if value is not None:
      exact[name] = PARAMETERS[name].exact(name, value)
  return Query(**exact)


def plan(query: Query) -> AnyPlan:
  """Returns the plan that answers a query.

  Raises:
    ValueError: if the statistic is unknown, or a parameter is missing, not one
      of the statistic, or out of range.

  Examples:
    >>> from fractions import Fraction
    >>> from dpjax.privacy.adjacency import Adjacency
    >>> from dpjax.release import query, registry
    >>> asked = query.Query(statistic='count', epsilon=Fraction(1, 2),
    ...                     adjacency=Adjacency.ADD_OR_REMOVE_ONE)
    >>> plan = registry.plan(asked)
    >>> plan.cost
    Cost(epsilon=Fraction(1, 2), rho=None, choices=())
  """
  if query.statistic in _KNOWN_AS:
    raise ValueError(f'there is no statistic {query.statistic!r}: ask for '
                     f'{_KNOWN_AS[query.statistic]}')
  errors.check_choice('statistic', query.statistic, STATISTICS)
  statistic = STATISTICS[query.statistic]
  given = {name for name, parameter in PARAMETERS.items()
           if not parameter.common and getattr(query, name) not in (None, ())}
  if missing := [name for name in statistic.needs if name not in given]:
    raise ValueError(f'{query.statistic} needs {", ".join(missing)}')
  own = (*statistic.needs, *statistic.takes)
  for name in sorted(given - {*own}):
    raise ValueError(f'{query.statistic} takes no {name}; its parameters are '
                     f'{", ".join(own) or "the common ones only"}')
  return statistic.plan(query)


def gaps(query: Query) -> bool:
  """Returns whether the file may have missing numbers."""
  # Some statistics need no rule: a range leaves out records without a number.
  return query.missing is not None or 'missing' not in STATISTICS[
      query.statistic].takes
