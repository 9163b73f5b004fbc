"""Named lower bounds of a risk, and the best of them.

A risk is the largest expected loss over a class of distributions. A bound that
proves nothing is 0. No bound exceeds the risk of the best constant.
"""

from collections.abc import Iterable
import math
from typing import NamedTuple

from dpjax.privacy import notions

Guarantee = (notions.PureDP | notions.ApproxDP | notions.ZCDP
             | notions.TotalVariationPrivacy | notions.KullbackLeiblerPrivacy
             | None)
"""Privacy guarantee of an estimator under REPLACE_ONE, n public; None: no
guarantee."""


def simplest(guarantee: Guarantee) -> Guarantee:
  """Returns an equal guarantee in its simplest form.

  Pure privacy if delta is 0, None if the guarantee promises nothing.
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
    name: name of the argument that proves it.
  """
  value: float
  name: str


def best(found: Iterable[Bound], *, trivial: float) -> Bound:
  """Returns the largest bound, of value at least 0 and at most `trivial`.

  Args:
    found: valid bounds of one risk; negative ones prove nothing.
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
