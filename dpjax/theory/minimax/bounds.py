"""Named lower bounds of a risk, and the best of them.

A risk is the largest expected loss over a class of distributions. A bound that
proves nothing is 0. No bound exceeds the risk of the best constant.
"""

from collections.abc import Iterable
import math
from typing import NamedTuple, TypedDict

from dpjax.privacy import notions

Guarantee = (notions.PureDP | notions.ApproxDP | notions.ZCDP
             | notions.TotalVariationPrivacy | notions.KullbackLeiblerPrivacy
             | None)
"""Privacy guarantee of an estimator under REPLACE_ONE, n public; None: no
guarantee."""


class Setting(TypedDict):
  """The keyword arguments that all bounds of a private estimate take.

  Attributes:
    num_examples: n, public.
    guarantee: privacy guarantee of the estimate.
  """
  num_examples: int
  guarantee: Guarantee


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


def best(candidates: Iterable[Bound], *, trivial: float) -> Bound:
  """Returns the largest bound, of value at least 0 and at most `trivial`.

  Args:
    candidates: valid bounds of one risk; negative ones prove nothing.
    trivial: risk of the best constant, which needs no data.

  Raises:
    ValueError: if a bound is not a number.
  """
  values = [*candidates, Bound(0.0, 'none')]
  for bound in values:
    if math.isnan(bound.value):
      raise ValueError(f'{bound.name} is not a number')
  top = max(values, key=lambda bound: bound.value)
  return Bound(min(top.value, trivial), top.name)
