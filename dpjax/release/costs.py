"""What releases cost, as exact fractions, and what several cost together."""

from collections.abc import Sequence
import dataclasses
import fractions
import functools
import math

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency

Fraction = fractions.Fraction

SIZE_SHARE = Fraction(1, 20)
"""Of a budget, for a number of records that is private and hardly matters."""

# From nearly 1 to a million: small budgets need orders beyond the usual ones.
_ORDERS = tuple(1 + 10**(k / 40) for k in range(-80, 241))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
  """A guarantee: epsilon-DP, or rho-zCDP; just one of them is given."""
  epsilon: Fraction | None = None
  rho: Fraction | None = None

  def __post_init__(self):
    if (self.epsilon is None) == (self.rho is None):
      raise ValueError('a cost is either an epsilon or a rho')
    if min(value for value in vars(self).values() if value is not None) <= 0:
      raise ValueError(f'a cost must be positive, got {self}')

  @property
  def notion(self) -> str:
    """'epsilon-DP' or 'rho-zCDP'."""
    return 'rho-zCDP' if self.epsilon is None else 'epsilon-DP'

  def event(self, adjacency: Adjacency) -> accounting.DpEvent:
    """The event, for the accountant."""
    if self.epsilon is None:
      return accounting.concentrated_event(rho=_above(self.rho),
                                           adjacency=adjacency)
    return accounting.pure_event(epsilon=_above(self.epsilon),
                                 adjacency=adjacency)

  def divided(self, parts: int) -> 'Cost':
    """The cost of each of `parts` equal releases that make up this one."""
    return self.part(Fraction(1, parts))

  def part(self, share: Fraction) -> 'Cost':
    """The cost of a release that is to take a share of this one."""
    return Cost(**{name: value * share for name, value in vars(self).items()
                   if value is not None})

  def to_json(self) -> dict[str, str]:
    """{'epsilon': '1/2'} or {'rho': '1/8'}."""
    return {name: str(value) for name, value in vars(self).items()
            if value is not None}

  @classmethod
  def from_json(cls, value: dict[str, str]) -> 'Cost':
    """The inverse of `to_json`."""
    return cls(**{name: Fraction(text) for name, text in value.items()})


def total(costs: Sequence[Cost]) -> Cost:
  """Returns the sum of one or more costs of one notion.

  Raises:
    ValueError: if some are pure and others are not.
  """
  if len({cost.notion for cost in costs}) != 1:
    raise ValueError(f'costs of one notion have a sum, got {list(costs)}')
  return Cost(**{name: sum(getattr(cost, name) for cost in costs)
                 for name in costs[0].to_json()})


def exceeds(costs: Sequence[Cost], reserved: Cost) -> bool:
  """Whether costs together are more than was reserved, or of another kind."""
  if any(cost.notion != reserved.notion for cost in costs):
    return True
  name, = reserved.to_json()
  return getattr(total(costs), name) > getattr(reserved, name)


def _above(value: Fraction) -> float:
  """The least float64 that is not below `value`."""
  nearest = float(value)
  return nearest if nearest >= value else math.nextafter(nearest, math.inf)


def total_rho(costs: Sequence[Cost]) -> Fraction:
  """rho of all releases; pure ones count with their tight zCDP."""
  return sum((cost.rho if cost.epsilon is None else Fraction(
      notions.zcdp_from_pure(notions.PureDP(
          epsilon=_above(cost.epsilon))).rho) * (1 + Fraction(1, 2**50))
              for cost in costs), Fraction(0))


def spent(costs: Sequence[Cost], *, delta: Fraction,
          adjacency: Adjacency) -> Fraction | float:
  """The epsilon of all releases together at `delta`; exact if all are pure.

  The sum of pure epsilons, or the epsilon of the composed zCDP guarantee if
  that is less. Whether one budget covers it may decide on going on: sums of
  epsilon and of rho are both filters, for releases chosen in view of earlier
  ones (Rogers et al. 2016; Whitehouse et al. 2023). Infinite for zCDP at delta
  0.

  Examples:
    >>> from fractions import Fraction
    >>> from dpjax.privacy.adjacency import Adjacency
    >>> from dpjax.release import costs
    >>> many = [costs.Cost(epsilon=Fraction(1, 10))] * 200
    >>> found = [costs.spent(many, delta=delta, adjacency=Adjacency.REPLACE_ONE)
    ...          for delta in (Fraction(0), Fraction(1, 10**6))]
    >>> [round(float(epsilon), 2) for epsilon in found]
    [20.0, 7.76]
  """
  pure = math.inf
  if all(cost.epsilon is not None for cost in costs):
    pure = sum((cost.epsilon for cost in costs), Fraction(0))
  if not delta or not costs:
    return pure
  return min(pure, Fraction(_epsilon(total_rho(costs), delta, adjacency)))


def _epsilon(rho: Fraction, delta: Fraction, adjacency: Adjacency) -> float:
  # A smaller delta is the safe side of rounding it.
  low = float(delta)
  low = low if low <= delta else math.nextafter(low, 0.0)
  return accounting.epsilon(
      Cost(rho=rho).event(adjacency), delta=low, adjacency=adjacency,
      accountant='rdp', orders=_ORDERS)


@functools.lru_cache(maxsize=64)
def concentrated(*, epsilon: Fraction, delta: Fraction,
                 adjacency: Adjacency) -> Cost:
  """The largest rho, nearly, that is (epsilon, delta)-DP by the accountant."""
  errors.check_positive('epsilon', float(epsilon))
  accounting.check_delta(float(delta))
  low = notions.zcdp_from_approx_target(notions.ApproxDP(
      epsilon=float(epsilon), delta=float(delta))).rho / 2

  def fits(rho):
    return _epsilon(Fraction(rho), delta, adjacency) <= epsilon

  while not fits(low):
    low /= 2
  high = 4 * low
  while fits(high):
    low, high = high, 2 * high
  for _ in range(24):
    middle = (low + high) / 2
    low, high = (middle, high) if fits(middle) else (low, middle)
  return Cost(rho=Fraction(low))
