"""One function for quantiles of an array, and the rule that picks a method."""

from collections.abc import Callable, Sequence
import functools
import math
from typing import Any
import warnings

import numpy as np

from dpjax import errors
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.stats import numbers
from dpjax.stats.quantiles import histogram
from dpjax.stats.quantiles import independent
from dpjax.stats.quantiles import joint
from dpjax.stats.quantiles import knots
from dpjax.stats.quantiles import recursive
from dpjax.stats.quantiles import smoothing
from dpjax.stats.quantiles import trees
from dpjax.stats.quantiles import unbounded
from dpjax.stats.quantiles.mechanism import QuantileMechanism
from dpjax.typing import PRNGKey

# Orders that a joint draw answers well where nothing is known of n.
_FEW = 20

_Make = Callable[..., QuantileMechanism]


def _coarse(*, num_examples: int | None, **kwargs: Any) -> QuantileMechanism:
  if num_examples is None:
    raise ValueError("method='histogram' needs num_examples, a public guess of "
                     'n, for the number of its bins')
  return histogram.coarse(num_examples=num_examples, **kwargs)


def _without_size(make: _Make) -> _Make:
  return lambda *, num_examples, **kwargs: make(**kwargs)


# Records are separated by noise first; grids need none.
_ON_RECORDS: dict[str, _Make] = {
    'independent': functools.partial(independent.IndependentQuantiles,
                                     cost='interpolated'),
    'recursive': recursive.RecursiveQuantiles,
    'joint': joint.JointQuantiles,
    'inverse': joint.InverseQuantiles,
}
_ON_GRIDS: dict[str, _Make] = {
    'histogram': _coarse,
    'tree': _without_size(trees.TreeQuantiles),
}
METHODS = ('auto', *_ON_RECORDS, 'knots', *_ON_GRIDS, 'unbounded')


def joint_limit(num_examples: int, *, epsilon: float,
                adjacency: Adjacency) -> int:
  """How many orders a joint draw answers well: rate n / ln(100 n).

  Beyond, it moves quantiles into the empty space at the ends of the range (item
  QF-06, QB-14): what that costs falls with m as rate n / m, and what it gains
  is the logarithm of a ratio of widths, for which 100 n is a guess.
  """
  errors.check_at_least('num_examples', num_examples, 1)
  rate = epsilon / 4
  if check_adjacency(adjacency) is Adjacency.ADD_OR_REMOVE_ONE:
    rate *= 2
  return int(rate * num_examples / math.log(100 * num_examples))


def method_of(num_orders: int, *, epsilon: float, adjacency: Adjacency,
              num_examples: int | None) -> str:
  """What 'auto' stands for, by public numbers alone; see `quantiles`."""
  if num_orders == 1:
    return 'independent'
  if num_examples is None:
    return 'joint' if num_orders <= _FEW else 'recursive'
  limit = joint_limit(num_examples, epsilon=epsilon, adjacency=adjacency)
  return 'joint' if num_orders <= limit else 'knots'


def plan(probs: Sequence[float], *, epsilon: float, lower: float,
         upper: float, adjacency: Adjacency | str, method: str = 'auto',
         num_examples: int | None = None) -> QuantileMechanism:
  """The mechanism that `quantiles` uses; its `event` is what it costs.

  Args:
    probs: orders, increasing.
    epsilon: of the release.
    lower: public bound, or -inf.
    upper: public bound, or inf.
    adjacency: which data sets are neighbours.
    method: one of `METHODS`.
    num_examples: n where it is public, or a public guess.
  """
  adjacency = Adjacency(adjacency)
  errors.check_choice('method', method, METHODS)
  errors.check_positive('epsilon', epsilon)
  asked = dict(probs=tuple(map(float, probs)), epsilon=epsilon,
               adjacency=adjacency)
  if method == 'auto' and math.isinf(upper - lower):
    method = 'unbounded'
  if method == 'unbounded':
    return _unbounded(lower, upper, asked)
  errors.check_range(lower, upper)
  asked |= dict(lower=lower, upper=upper)
  if method == 'auto':
    method = method_of(len(asked['probs']), epsilon=epsilon,
                       adjacency=adjacency, num_examples=num_examples)
  if method in _ON_GRIDS:
    return _ON_GRIDS[method](num_examples=num_examples, **asked)
  share = 1e-5 if num_examples is None else min(1e-3, 1 / num_examples)
  separated = functools.partial(
      smoothing.Smoothed, sigma=share * (upper - lower) / math.sqrt(3))
  if method == 'knots':
    return knots.KnotQuantiles(
        make=_separately(joint.JointQuantiles, separated),
        knots=5 if num_examples is None else knots.num_knots(
            len(asked['probs']), epsilon=epsilon, num_examples=num_examples),
        **asked)
  return separated(inner=_ON_RECORDS[method](**asked))


def _separately(make: _Make, separated: Callable) -> _Make:
  return lambda **kwargs: separated(inner=make(**kwargs))


def _unbounded(lower: float, upper: float, asked: dict) -> QuantileMechanism:
  if math.isfinite(lower):
    return unbounded.UnboundedQuantiles(bound=lower, **asked)
  if math.isfinite(upper):
    return unbounded.UnboundedQuantiles(bound=upper, downwards=True, **asked)
  raise ValueError(f'one of lower and upper must be finite, got {lower} and '
                   f'{upper}')


def quantiles(key: PRNGKey, x: Any, probs: float | Sequence[float], *,
              epsilon: float, lower: float, upper: float,
              adjacency: Adjacency | str, method: str = 'auto',
              num_examples: int | None = None,
              missing: str = 'refuse') -> np.ndarray:
  """Private quantiles of numbers, as `np.quantile` gives them without privacy.

  One release, of all orders together, that is epsilon-DP under `adjacency`. One
  order and bounds: the exponential mechanism with interpolated ranks. A few:
  JointExp. More than n and epsilon bear (`joint_limit`): JointExp for some, and
  straight lines between them, which is right for laws without atoms or gaps;
  ask for 'recursive' or 'tree' if there may be some. Records that are equal are
  separated by noise of a small part of the range first, which costs nothing.

  Floating point: answers are float64, and their last bits are not hardened; the
  command `launch.estimate` releases from exact arithmetic.

  Args:
    key: of the release; use it for nothing else.
    x: [n] numbers: an array, a list, a pandas Series.
    probs: orders in (0, 1), a number or a sequence, in any order; each costs
      once, however often it is named.
    epsilon: of the release.
    lower: public bound: never the least of the data. Values below count as it.
      -inf asks for 'unbounded', from the other bound.
    upper: public bound, likewise.
    adjacency: which data sets are neighbours, or its name. Under 'replace_one'
      n is public; under 'add_or_remove_one' it is not.
    method: one of `METHODS`.
    num_examples: under 'add_or_remove_one', a public guess of n that helps
      'auto', 'knots' and 'histogram' to choose; nothing else depends on it.
    missing: what NaN counts as: 'refuse', 'lower' or 'upper', the bounds, or
      'omit', under 'add_or_remove_one' alone.

  Returns:
    Quantiles, float64, of the shape of `probs`.

  Raises:
    ValueError: for bad input, before anything is released.

  Examples:
    >>> from dpjax.stats import quantiles
    >>> ages = np.arange(1000) % 90
    >>> # Reproducible: for research, not for a release.
    >>> key = jax.random.key(0)
    >>> found = quantiles.quantiles(
    ...     key, ages, 0.5, epsilon=1.0, lower=0, upper=120,
    ...     adjacency='replace_one')
    >>> bool(abs(found - np.quantile(ages, 0.5)) < 3)
    True
  """
  adjacency = Adjacency(adjacency)
  asked = np.asarray(probs, np.float64)
  if asked.ndim > 1:
    raise ValueError('probs must be a number or a sequence, got an array of '
                     f'shape {asked.shape}')
  distinct, places = np.unique(asked, return_inverse=True)
  values = numbers.parse(x, lower, upper, missing=missing,
                         adjacency=adjacency)
  if adjacency is Adjacency.REPLACE_ONE:
    num_examples = values.size
  made = plan(distinct.tolist(), epsilon=epsilon, lower=lower, upper=upper,
              adjacency=adjacency, method=method, num_examples=num_examples)
  if values.min() < lower or values.max() > upper:
    warnings.warn('values of x beyond the public bounds count as the bounds; '
                  'that there are some is private', stacklevel=2)
  # Answers of separated records may lie a little beyond the bounds.
  found = np.clip(made.estimate(key, values), lower, upper)
  return found[places.reshape(asked.shape)]
