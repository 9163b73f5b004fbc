"""Lower bounds by name, and the best of those that hold.

A risk is the largest expected loss over a class of laws. A bound that has
nothing to say is 0; none is ever above the risk of the best constant.
"""

from collections.abc import Iterable
import math
from typing import NamedTuple

from dpjax.privacy import notions

Guarantee = (notions.PureDP | notions.ApproxDP | notions.ZCDP
             | notions.TotalVariationPrivacy | notions.KullbackLeiblerPrivacy
             | None)
"""What an estimator promises; None: nothing. Under REPLACE_ONE, n public."""


def simplest(guarantee: Guarantee) -> Guarantee:
  """The same, as pure privacy where delta is 0, and None where it is nothing.
  """
  match guarantee:
    case notions.ApproxDP(epsilon=epsilon, delta=0):
      return notions.PureDP(epsilon=epsilon)
    case notions.TotalVariationPrivacy(level=level) if level >= 1:
      return None
    case _:
      return guarantee


class Bound(NamedTuple):
  """A lower bound of a risk.

  Attributes:
    value: at least 0.
    name: of the argument.
  """
  value: float
  name: str


def best(found: Iterable[Bound], *, trivial: float) -> Bound:
  """The largest, of value 0 at least and `trivial` at most.

  Args:
    found: bounds of one risk, all valid; those below 0 say nothing.
    trivial: risk of the best constant, which needs no data.

  Raises:
    ValueError: if a bound is not a number.
  """
  values = [*found, Bound(0.0, 'none')]
  for bound in values:
    if math.isnan(bound.value):
      raise ValueError(f'{bound.name} is not a number')
  top = max(values, key=lambda bound: bound.value)
  return Bound(min(top.value, trivial), top.name)
