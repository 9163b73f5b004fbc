"""Releases private quantiles of an array in one call, and picks the method.
"""

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
from dpjax.stats.quantile_methods import histogram
from dpjax.stats.quantile_methods import independent
from dpjax.stats.quantile_methods import joint
from dpjax.stats.quantile_methods import knots
from dpjax.stats.quantile_methods import recursive
from dpjax.stats.quantile_methods import smoothing
from dpjax.stats.quantile_methods import trees
from dpjax.stats.quantile_methods import unbounded
from dpjax.stats.quantile_methods.mechanism import QuantileMechanism
from dpjax.typing import PRNGKey

# Largest number of quantile levels for JointExp if no guess of n is public.
_FEW = 20

_Make = Callable[..., QuantileMechanism]


def _coarse(*, num_examples: int | None, **kwargs: Any) -> QuantileMechanism:
  """Returns the coarse histogram; it needs a guess of n to choose its bins."""
  if num_examples is None:
    raise ValueError("method='histogram' needs num_examples, a public guess of "
                     'n, to choose the number of bins')
  return histogram.coarse(num_examples=num_examples, **kwargs)


def _without_size(make: _Make) -> _Make:
  """Returns `make` as a function that ignores the argument `num_examples`."""
  return lambda *, num_examples, **kwargs: make(**kwargs)


# These choose an interval between two records, so `plan` first separates equal
# records by noise. Methods on public grids need no such noise.
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
  """Returns how many quantile levels JointExp answers well: rate n / ln(100 n).

  With more levels, JointExp moves quantiles into the empty space at the ends of
  the range (item QF-06, QB-14). With m levels this costs about rate n / m in
  log-density. It gains the logarithm of a ratio of widths, for which 100 n is a
  guess.

  Args:
    num_examples: n, or a public guess of it.
    epsilon: privacy budget of the release.
    adjacency: which data sets are neighbours.
  """
  errors.check_at_least('num_examples', num_examples, 1)
  # The rate of `rates.joint`, without its dependence on the smallest gap.
  rate = epsilon / 4
  if check_adjacency(adjacency) is Adjacency.ADD_OR_REMOVE_ONE:
    rate *= 2
  return int(rate * num_examples / math.log(100 * num_examples))


def method_of(num_levels: int, *, epsilon: float, adjacency: Adjacency,
              num_examples: int | None) -> str:
  """Returns the method that 'auto' selects, from public numbers alone.

  Args:
    num_levels: number of quantile levels.
    epsilon: privacy budget of the release.
    adjacency: which data sets are neighbours.
    num_examples: n where it is public, a public guess, or None.

  Returns:
    One of `METHODS`.
  """
  if num_levels == 1:
    return 'independent'
  if num_examples is None:
    return 'joint' if num_levels <= _FEW else 'recursive'
  limit = joint_limit(num_examples, epsilon=epsilon, adjacency=adjacency)
  return 'joint' if num_levels <= limit else 'knots'


def plan(probs: Sequence[float], *, epsilon: float, lower: float,
         upper: float, adjacency: Adjacency | str, method: str = 'auto',
         num_examples: int | None = None) -> QuantileMechanism:
  """Returns the mechanism that `quantiles` uses; its `event` is its cost.

  Args:
    probs: quantile levels in (0, 1), increasing.
    epsilon: privacy budget of the release, all levels together.
    lower: public lower bound of the records, or -inf.
    upper: public upper bound of the records, or inf; not both are infinite.
    adjacency: which data sets are neighbours, or its name.
    method: one of `METHODS`.
    num_examples: n where it is public, a public guess of it, or None.

  Returns:
    A mechanism with these parameters; no record is needed to make it.

  Raises:
    ValueError: if a parameter is not allowed or the method lacks one.
  """
  adjacency = Adjacency(adjacency)
  errors.check_choice('method', method, METHODS)
  errors.check_positive('epsilon', epsilon)
  levels = tuple(map(float, probs))
  options: dict[str, Any] = dict(probs=levels, epsilon=epsilon,
                                 adjacency=adjacency)
  if method == 'auto' and math.isinf(upper - lower):
    method = 'unbounded'
  if method == 'unbounded':
    return _unbounded(lower, upper, options)
  errors.check_range(lower, upper)
  options |= dict(lower=lower, upper=upper)
  if method == 'auto':
    method = method_of(len(levels), epsilon=epsilon, adjacency=adjacency,
                       num_examples=num_examples)
  if method in _ON_GRIDS:
    return _ON_GRIDS[method](num_examples=num_examples, **options)
  # Noise of half-width noise_share times the range separates equal records.
  noise_share = 1e-5 if num_examples is None else min(1e-3, 1 / num_examples)
  separated = functools.partial(
      smoothing.Smoothed, sigma=noise_share * (upper - lower) / math.sqrt(3))
  if method == 'knots':
    return knots.KnotQuantiles(
        make=_separately(joint.JointQuantiles, separated),
        knots=5 if num_examples is None else knots.num_knots(
            len(levels), epsilon=epsilon, num_examples=num_examples),
        **options)
  return separated(inner=_ON_RECORDS[method](**options))


def _separately(make: _Make, separated: _Make) -> _Make:
  """Returns a maker of mechanisms whose records are separated by noise."""
  return lambda **kwargs: separated(inner=make(**kwargs))


def _unbounded(lower: float, upper: float,
               options: dict[str, Any]) -> QuantileMechanism:
  """Returns the scan that starts at the one finite bound."""
  if math.isfinite(lower):
    return unbounded.UnboundedQuantiles(bound=lower, **options)
  if math.isfinite(upper):
    return unbounded.UnboundedQuantiles(bound=upper, downwards=True, **options)
  raise ValueError(f'one of lower and upper must be finite, got {lower} and '
                   f'{upper}')


def quantiles(key: PRNGKey, x: Any, probs: float | Sequence[float], *,
              epsilon: float, lower: float, upper: float,
              adjacency: Adjacency | str, method: str = 'auto',
              num_examples: int | None = None,
              missing: str = 'refuse') -> np.ndarray:
  """Returns private quantiles of numbers; the private form of `np.quantile`.

  One release answers all levels and is epsilon-DP under `adjacency`. 'auto'
  chooses as follows. One level: the exponential mechanism with interpolated
  ranks. A few: JointExp. More than n and epsilon can support (`joint_limit`):
  JointExp for some levels and straight lines between them, which suits
  distributions without atoms or gaps; ask for 'recursive' or 'tree' if there
  may be some. Equal records are first separated by noise of a small part of the
  range. This costs no privacy.

  Floating point: answers are float64, and their last bits are not hardened. The
  command `dpjax estimate` releases from exact arithmetic.

  Args:
    key: random key of the release; use it for nothing else.
    x: [n] numbers: an array, a list or a pandas Series. Private.
    probs: quantile levels in (0, 1), a number or a sequence, in any order; a
      repeated level costs once.
    epsilon: privacy budget of the release, all levels together.
    lower: public lower bound, never computed from the data. Smaller values are
      clipped to it. -inf asks for 'unbounded', from the other bound.
    upper: public upper bound, likewise.
    adjacency: which data sets are neighbours, or its name. Under 'replace_one'
      n is public; under 'add_or_remove_one' it is private.
    method: one of `METHODS`.
    num_examples: under 'add_or_remove_one', a public guess of n that helps
      'auto', 'knots' and 'histogram' to choose; nothing else depends on it.
    missing: what a NaN counts as: 'refuse' raises an error, 'lower' and 'upper'
      replace it by that bound, 'omit' drops it (allowed under
      'add_or_remove_one' only).

  Returns:
    Quantiles, float64, of the shape of `probs`, between the bounds.

  Raises:
    ValueError: for bad input, before anything is released.

  Examples:
    >>> from dpjax.stats.quantile_methods import api as quantiles
    >>> ages = np.arange(1000) % 90
    >>> # Reproducible: for research, not for a release.
    >>> key = jax.random.key(0)
    >>> median = quantiles.quantiles(
    ...     key, ages, 0.5, epsilon=1.0, lower=0, upper=120,
    ...     adjacency='replace_one')
    >>> bool(abs(median - np.quantile(ages, 0.5)) < 3)
    True
  """
  adjacency = Adjacency(adjacency)
  levels = np.asarray(probs, np.float64)
  if levels.ndim > 1:
    raise ValueError('probs must be a number or a one-dimensional sequence, '
                     f'got an array of shape {levels.shape}')
  # Each distinct level is answered once, so that repetitions cost nothing.
  distinct, positions = np.unique(levels, return_inverse=True)
  values = numbers.parse(x, lower, upper, missing=missing,
                         adjacency=adjacency)
  if adjacency is Adjacency.REPLACE_ONE:
    # n is public under this adjacency, so the choice of a method may use it.
    num_examples = values.size
  planned = plan(distinct.tolist(), epsilon=epsilon, lower=lower, upper=upper,
                 adjacency=adjacency, method=method, num_examples=num_examples)
  if values.min() < lower or values.max() > upper:
    warnings.warn('values of x beyond the public bounds are clipped to them; '
                  'do not publish that there are some', stacklevel=2)
  # The noise that separates records may push answers past the bounds.
  answers = np.clip(planned.estimate(key, values), lower, upper)
  return answers[positions.reshape(levels.shape)]
