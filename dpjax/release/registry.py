"""The statistics there are, by name."""

from dpjax import errors
from dpjax.release import classifiers
from dpjax.release import counts
from dpjax.release import curves
from dpjax.release import densities
from dpjax.release import moments
from dpjax.release import normal_means
from dpjax.release import proportions
from dpjax.release import quantiles
from dpjax.release import supports
from dpjax.release.query import Plan, Query, Statistic

STATISTICS: dict[str, Statistic] = {
    statistic.name: statistic
    for room in (counts, proportions, moments, quantiles, supports,
                 normal_means, curves, densities, classifiers)
    for statistic in room.STATISTICS}

_PARAMETERS = ('column', 'lower', 'upper', 'granularity', 'missing',
               'categories', 'bins', 'quantiles', 'value_interval',
               'quantile_method', 'thresholds', 'grid', 'label', 'positive',
               'groups', 'boundary', 'sigma')

# Names that others use, and what they are here.
_KNOWN_AS = {
    'median': 'quantiles with quantiles=0.5',
    'percentile': 'quantiles', 'percentiles': 'quantiles',
    'min': 'quantiles with quantiles=0.01',
    'max': 'quantiles with quantiles=0.99, or support_max',
    'average': 'mean', 'std': 'variance', 'standard_deviation': 'variance',
    'cdf': 'ecdf', 'fraction': 'proportion', 'rate': 'proportion'}


def plan(query: Query) -> Plan:
  """How a query will be answered.

  Raises:
    ValueError: for an unknown statistic, a parameter that it needs and has
      not, or has and does not take, or a value out of range.

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
  given = {name for name in _PARAMETERS if getattr(query, name) not in
           (None, ())}
  for name in statistic.needs:
    if name not in given:
      raise ValueError(f'{query.statistic} needs {name}')
  for name in sorted(given - {*statistic.needs, *statistic.takes}):
    raise ValueError(f'{query.statistic} takes no {name}')
  return statistic.plan(query)


def gaps(query: Query) -> bool:
  """Returns whether a file may have missing numbers.

  It may where `missing` says what they count as, and where no number has to
  stand for them: a count of a range has a place for records without a number.
  """
  return query.missing is not None or 'missing' not in STATISTICS[
      query.statistic].takes
