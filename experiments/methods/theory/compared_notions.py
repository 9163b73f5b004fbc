"""Notions of privacy and conversions that are only compared with others.

`dpjax.privacy.notions` has those that mechanisms guarantee.
"""

import dataclasses
import math

from dpjax import errors
from dpjax.privacy.notions import ApproxDP
from dpjax.privacy.notions import PureDP
from dpjax.privacy.notions import ZCDP


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChiSquarePrivacy:
  """Neighbours' distributions have chi-square divergence of at most `level`.

  Attributes:
    level: bound on the divergence, >= 0.
  """
  level: float

  def __post_init__(self) -> None:
    errors.check_non_negative('level', self.level)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConditionalTesting:
  """Total variation at most `level` given any event of probability >= `mass`.

  The bound concerns neighbours' distributions and all post-processing: both the
  conditioning event and the tested event may be those of a post-processed
  output. Without this, post-processing would not preserve the guarantee.
  Source: Barber and Duchi (2014, Definition 8 and Theorem 1).

  Attributes:
    level: bound on the conditional total variation distance, >= 0.
    mass: least probability of the conditioning event, in [0, 1].
  """
  level: float
  mass: float = 0.0

  def __post_init__(self) -> None:
    errors.check_non_negative('level', self.level)
    if not 0 <= self.mass <= 1:
      raise ValueError(f'mass must lie in [0, 1], got {self.mass}')


def approx_from_pure(guarantee: PureDP, *, delta: float = 0.0) -> ApproxDP:
  """Returns the tight epsilon that remains when a delta is allowed.

  ln(max(e^epsilon - delta (1 + e^epsilon), 1)), attained by binary randomised
  response (item DEF-03).
  """
  if not 0 <= delta < 1:
    raise ValueError(f'delta must lie in [0, 1), got {delta}')
  epsilon = guarantee.epsilon
  # e^epsilon is factored out of the logarithm, where it could overflow.
  left = 1 - delta * (1 + math.exp(-epsilon))
  return ApproxDP(epsilon=max(epsilon + math.log(left), 0.0) if left > 0 else
                  0.0, delta=delta)


def zcdp_from_response(guarantee: PureDP, num_categories: int) -> ZCDP:
  """Returns the tight zCDP of randomised response among 2 to 6 categories.

  epsilon (e^epsilon - 1) / (e^epsilon + K - 1), the limit at Renyi order 1.
  With more categories the supremum may lie at another order (item ALG-02).
  """
  if not 2 <= errors.check_at_least('num_categories', num_categories, 2) <= 6:
    raise ValueError('num_categories must be an integer from 2 to 6, got '
                     f'{num_categories}')
  growth = math.expm1(guarantee.epsilon)
  return ZCDP(rho=guarantee.epsilon * growth / (growth + num_categories))


def zcdp_of_group(guarantee: ZCDP, *, size: int) -> ZCDP:
  """Returns the zCDP for data sets that differ in `size` records: size^2 rho.

  Exact for Gaussian releases. Source: Lalanne (2023, Fact 2.2.3; item ALG-06).
  """
  return ZCDP(rho=errors.check_at_least('size', size, 1)**2 * guarantee.rho)
