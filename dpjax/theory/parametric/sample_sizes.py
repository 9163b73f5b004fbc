"""Numbers of records for a target risk: enough for one, too few for any.

An estimator with n records may use m of them only, so the minimax risk never
rises with n, whatever the curves of bounds do. If an upper bound meets the
target at one n, all larger n are enough. If a lower bound exceeds the target at
one n, that n and all smaller ones are too few for any estimator.
"""

from collections.abc import Callable
import math

from dpjax import errors
from dpjax.theory.minimax.bounds import Guarantee
from dpjax.theory.parametric.study import Study

LARGEST = 8**9
"""Largest number of records that is tried."""

# Relative precision of the returned number of records.
_PRECISION = 1e-3


def enough(study: Study, *, target_risk: float, guarantee: Guarantee,
           **parameters: float) -> int | None:
  """Returns a number of records with which an estimator meets the target.

  If its bound falls with n, it is the least such number up to one in a
  thousand. 0 if the best constant meets the target; None if `LARGEST` records
  are not enough.

  Args:
    study: study of the model.
    target_risk: > 0, in units of the loss.
    guarantee: guarantee of the estimator.
    **parameters: parameters of the model.
  """
  errors.check_positive('target_risk', target_risk)
  if study.trivial(**parameters) <= target_risk:
    return 0
  count = _first(lambda n: study.best_upper(
      num_examples=n, guarantee=guarantee, **parameters).value, target_risk)
  return None if count > LARGEST else count


def too_few(study: Study, *, target_risk: float, guarantee: Guarantee,
            **parameters: float) -> int:
  """Returns a number of records with which no estimator meets the target.

  It is the largest that the best lower bound excludes, up to one in a thousand,
  and at most `LARGEST`. Arguments as for `enough`.
  """
  errors.check_positive('target_risk', target_risk)
  if study.trivial(**parameters) <= target_risk:
    return 0
  return _first(lambda n: study.best_lower(
      num_examples=n, guarantee=guarantee, **parameters).value, target_risk,
                below=True)


def _first(risk: Callable[[int], float], target: float, *,
           below: bool = False) -> int:
  """Returns the n where a risk meets the target; with `below` the n before.

  Between powers of 8 it interpolates linearly in logarithms, which suits rates;
  every other step halves the interval, in case the risk is not a power of n.
  """
  def excess(n: int) -> float:
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
    # Zero of the line through both ends, in logarithms, kept off the ends.
    weight = .5 if halving else min(max(before / (before - after), .02), .98)
    middle = round(low * (high / low)**weight)
    middle = max(low + 1, min(high - 1, middle))
    value = excess(middle)
    low, before, high, after = ((middle, value, high, after) if value > 0 else
                                (low, before, middle, value))
    halving = not halving
  return low if below else high
