"""How many records an error takes: enough for an estimator, too few for any.

With n records one may use m of them: what m records allow n do, so the minimax
risk falls with n whatever the curves of bounds do. One n that an upper bound
meets the target at is enough for all larger ones; one n that a lower bound is
above the target at is too few, and so are all smaller ones.
"""

from collections.abc import Callable
import math

from dpjax import errors
from dpjax.stats.minimax.bounds import Guarantee
from dpjax.stats.parametric.study import Study

LARGEST = 8**9
"""Numbers of records beyond are not looked at."""

_PRECISION = 1e-3


def enough(study: Study, *, target_risk: float, guarantee: Guarantee,
           **parameters: float) -> int | None:
  """A number of records with which an estimator meets the target.

  The least, up to one in a thousand, if its bound falls with n; 0 if the best
  constant will do; None if `LARGEST` are not enough.

  Args:
    study: of the model.
    target_risk: > 0, in units of the loss.
    guarantee: of the estimator.
    **parameters: of the model.
  """
  errors.check_positive('target_risk', target_risk)
  if study.trivial(**parameters) <= target_risk:
    return 0
  found = _first(lambda n: study.best_upper(
      num_examples=n, guarantee=guarantee, **parameters).value, target_risk)
  return None if found > LARGEST else found


def too_few(study: Study, *, target_risk: float, guarantee: Guarantee,
            **parameters: float) -> int:
  """A number of records with which no estimator meets the target.

  The largest that the best lower bound tells of, up to one in a thousand;
  `LARGEST` at most. Arguments as for `enough`.
  """
  errors.check_positive('target_risk', target_risk)
  if study.trivial(**parameters) <= target_risk:
    return 0
  return _first(lambda n: study.best_lower(
      num_examples=n, guarantee=guarantee, **parameters).value, target_risk,
                below=True)


def _first(risk: Callable[[int], float], target: float, *,
           below: bool = False) -> int:
  """Where a risk meets the target: the n found, or with `below` that before.

  Between powers of 8, by straight lines in logarithms, near which rates are;
  every other step halves, in case they are not.
  """
  def excess(n):
    value = risk(n)
    return math.log(value / target) if value > 0 else -1.0

  low, high, before = 0, 1, math.inf
  after = excess(high)
  while after > 0:
    low, before, high = high, after, 8 * high
    if high > LARGEST:
      return low if below else high
    after = excess(high)
  halving = False
  while high - low > max(1, math.floor(_PRECISION * low)):
    share = .5 if halving else min(max(before / (before - after), .02), .98)
    middle = round(low * (high / low)**share)
    middle = max(low + 1, min(high - 1, middle))
    now = excess(middle)
    low, before, high, after = ((middle, now, high, after) if now > 0 else
                                (low, before, middle, now))
    halving = not halving
  return low if below else high
