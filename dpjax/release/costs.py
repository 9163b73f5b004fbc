"""Privacy costs of releases as exact fractions, and their composition.

A cost has three kinds of parts, because they compose differently: pure
mechanisms, given by their epsilon; exponential mechanisms, whose log-ratio of
probabilities varies by at most epsilon over the outputs (bounded range, which
costs about a quarter where many compose); and discrete Gaussian noise, given by
its rho of zCDP.

`epsilon` is for costs that were fixed before the first answer. `charged` is for
a ledger, where each query and its cost may be chosen after seeing all earlier
answers.
"""

import collections
from collections.abc import Callable, Mapping, Sequence
import dataclasses
import fractions
import functools
import math
import operator
from typing import Any

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency

Fraction = fractions.Fraction

SIZE_SHARE = Fraction(1, 20)
"""Share of the budget for a noisy number of records that only guides choices.
"""

# Renyi orders from 1.01 to 10^6: small budgets need larger ones than usual.
_ORDERS = tuple(1 + 10**(k / 40) for k in range(-80, 241))

# Share of a ledger's delta for all Renyi orders but the main one, together.
_OTHERS = Fraction(1, 10)
# The other orders exceed 1 by these multiples of (main order - 1).
_FACTORS = (2, 4, 8, 16, 32, 64)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
  """The privacy cost of one or several mechanisms: the sum of its parts.

  Attributes:
    epsilon: sum of the epsilons of mechanisms known only to be epsilon-DP.
    rho: sum of the rhos of mechanisms known only to be rho-zCDP.
    choices: epsilon of each exponential mechanism, in increasing order.
  """
  epsilon: Fraction | None = None
  rho: Fraction | None = None
  choices: tuple[Fraction, ...] = ()

  def __post_init__(self) -> None:
    # Sorted: costs are equal, and print alike, in whatever order they add up.
    object.__setattr__(self, 'choices', tuple(sorted(self.choices)))
    parts = [part for part in (self.epsilon, self.rho, *self.choices)
             if part is not None]
    if not parts:
      raise ValueError('a cost needs an epsilon, a rho or choices')
    if min(parts) <= 0:
      raise ValueError(f'a cost must be positive, got {self}')

  def __add__(self, other: 'Cost') -> 'Cost':
    """Returns the cost of the mechanisms of both, on the same data."""
    return Cost(epsilon=_sum(self.epsilon, other.epsilon),
                rho=_sum(self.rho, other.rho),
                choices=self.choices + other.choices)

  @property
  def pure(self) -> Fraction | None:
    """Returns the epsilon of all parts at delta 0; None if there is a rho."""
    if self.rho is not None:
      return None
    # Over the outputs, a log-ratio of two distributions takes both signs. If
    # its range has length epsilon, it is at most epsilon.
    return sum(self.choices, self.epsilon or Fraction(0))

  @property
  def notion(self) -> str:
    """Returns 'epsilon-DP', 'rho-zCDP', or 'Renyi-DP' for a mixture."""
    if self.rho is None:
      return 'epsilon-DP'
    return 'rho-zCDP' if self == Cost(rho=self.rho) else 'Renyi-DP'

  def event(self, adjacency: Adjacency) -> accounting.DpEvent:
    """Returns the cost as an event for the accountant, rounded up."""
    events = []
    if self.epsilon is not None:
      events.append(accounting.pure_event(epsilon=_above(self.epsilon),
                                          adjacency=adjacency))
    if self.rho is not None:
      events.append(accounting.concentrated_event(rho=_above(self.rho),
                                                  adjacency=adjacency))
    for width, count in sorted(collections.Counter(self.choices).items()):
      event = accounting.bounded_range_event(width=_above(width),
                                             adjacency=adjacency)
      events.append(event if count == 1 else
                    accounting.repeated_event(event, count))
    return events[0] if len(events) == 1 else accounting.composed_event(events)

  def divided(self, parts: int) -> 'Cost':
    """Returns the cost of each of `parts` equal releases that sum to this."""
    return self.part(Fraction(1, parts))

  def part(self, share: Fraction) -> 'Cost':
    """Returns the cost of a release that takes a share of this cost."""
    def scaled(value: Fraction | None) -> Fraction | None:
      return None if value is None else value * share

    return Cost(epsilon=scaled(self.epsilon), rho=scaled(self.rho),
                choices=tuple(choice * share for choice in self.choices))

  def to_json(self) -> dict[str, str | list[str]]:
    """Returns JSON: {'epsilon': '1/2'}, {'rho': '1/8', 'choices': ['1/4']} etc.
    """
    return {name: [str(part) for part in value] if isinstance(value, tuple)
            else str(value) for name, value in vars(self).items()
            if value not in (None, ())}

  @classmethod
  def from_json(cls, value: Mapping[str, Any]) -> 'Cost':
    """Returns the cost that `to_json` has written."""
    # A name that is not a part of a cost raises TypeError: a damaged ledger.
    parts: dict[str, Any] = {
        name: Fraction(given) if isinstance(given, str) else
        tuple(map(Fraction, given)) for name, given in value.items()}
    return cls(**parts)


def _sum(one: Fraction | None, other: Fraction | None) -> Fraction | None:
  return other if one is None else one if other is None else one + other


def total(costs: Sequence[Cost]) -> Cost:
  """Returns what one or more releases cost together."""
  return functools.reduce(operator.add, costs)


def exceeds(costs: Sequence[Cost], reserved: Cost) -> bool:
  """Returns whether any part of the summed costs is more than was reserved."""
  # Each kind of part has its own limit: one does not pay for another.
  summed = total(costs)
  return ((summed.epsilon or 0) > (reserved.epsilon or 0) or
          (summed.rho or 0) > (reserved.rho or 0) or
          bool(collections.Counter(summed.choices) -
               collections.Counter(reserved.choices)))


def _above(value: Fraction) -> float:
  """Returns the least float64 that is at least `value`."""
  nearest = float(value)
  return nearest if nearest >= value else math.nextafter(nearest, math.inf)


def _below(value: Fraction) -> float:
  """Returns the largest float64 that is at most `value`."""
  nearest = float(value)
  return nearest if nearest <= value else math.nextafter(nearest, 0.0)


def epsilon(costs: Sequence[Cost], *, delta: Fraction,
            adjacency: Adjacency) -> Fraction | float:
  """Returns the epsilon of releases whose costs were fixed in advance.

  At delta 0 this is the exact sum of the epsilons, infinite if a cost has a
  rho. At `delta` > 0 it is the smaller of that sum and of the conversion of
  summed Renyi divergences at the best order, rounded up. Mechanisms may depend
  on earlier answers; their costs may not.

  Examples:
    >>> from fractions import Fraction
    >>> from dpjax.privacy.adjacency import Adjacency
    >>> from dpjax.release import costs
    >>> delta, ours = Fraction(1, 10**6), Adjacency.REPLACE_ONE
    >>> fifth = Fraction(1, 5)
    >>> [round(float(costs.epsilon([part] * 50, delta=delta, adjacency=ours)),
    ...        2) for part in (costs.Cost(epsilon=fifth),
    ...                        costs.Cost(choices=(fifth,)))]
    [7.25, 3.48]
  """
  if not costs:
    return Fraction(0)
  together = total(costs)
  pure = math.inf if together.pure is None else together.pure
  if not delta:
    return pure
  return min(pure, _at_orders(costs, _ORDERS, delta, adjacency))


def charged(costs: Sequence[Cost], *, budget: Fraction, delta: Fraction,
            adjacency: Adjacency) -> Fraction | float:
  """Returns the epsilon that a ledger of `budget` and `delta` charges.

  Statement. An analyst asks queries one after the other, and chooses each query
  and its cost after seeing all earlier answers. If a query is answered only if
  `charged` of all costs so far, its own included, is at most `budget`, then all
  answers together are (budget, delta)-DP.

  Assumptions and proof are in docs/theory/ledger.md.

  Args:
    costs: costs of all releases, in order.
    budget: epsilon of the ledger.
    delta: delta of the ledger; 0 for pure releases only.
    adjacency: adjacency of all costs.
  """
  # A single cost was chosen before any answer: step 1 of the proof.
  if len(costs) < 2 or not delta:
    return epsilon(costs, delta=delta, adjacency=adjacency)
  pure = total(costs).pure
  # Each order has only its share of delta. At the best order with all of delta
  # an analyst could steer lucky answers to one order, unlucky ones to another.
  return min(math.inf if pure is None else pure, *(
      _at_orders(costs, (order,), share * delta, adjacency)
      for order, share in _shares(budget, delta)))


@functools.lru_cache(maxsize=64)
def _shares(budget: Fraction, delta: Fraction
            ) -> tuple[tuple[float, Fraction], ...]:
  """Returns the Renyi orders of a ledger and their shares of delta; public."""
  logs = math.log(delta)

  # rho-zCDP has the divergence rho * order; conversion adds the overhead
  # (Canonne, Kamath and Steinke 2020, Proposition 12).
  def admitted_rho(order: float) -> float:
    overhead = math.log1p(-1 / order) - (logs + math.log(order)) / (order - 1)
    return (float(budget) - overhead) / order

  # At the main order Gaussian noise or many small queries use up the budget.
  # The others serve few large pure queries.
  main = max(_ORDERS, key=admitted_rho)
  share = _OTHERS / len(_FACTORS)
  if share * delta < Fraction(accounting.MIN_DELTA):
    # The accountant takes no delta as small as one of the other shares.
    return (main, Fraction(1)),
  return ((main, 1 - _OTHERS), *(
      (1 + factor * (main - 1), share) for factor in _FACTORS))


def _at_orders(costs: Sequence[Cost], orders: tuple[float, ...],
               delta: Fraction, adjacency: Adjacency) -> Fraction | float:
  """Returns the epsilon of summed Renyi divergences, the best of the orders."""
  # One event per cost: two pure mechanisms cost less than one of their sum.
  events = [cost.event(adjacency) for cost in costs]
  spent = accounting.epsilon(
      accounting.composed_event(events), delta=_below(delta),
      adjacency=adjacency, accountant='rdp', orders=orders)
  # Rounded up, by far more than the accountant's float64 sums lose.
  return Fraction(spent) * (1 + Fraction(1, 2**40)) if math.isfinite(
      spent) else spent


def concentrated(*, epsilon: Fraction, delta: Fraction,
                 adjacency: Adjacency) -> Cost:
  """Returns nearly the largest rho that implies (epsilon, delta)-DP, as a cost.
  """
  low = notions.zcdp_from_approx_target(notions.ApproxDP(
      epsilon=float(epsilon), delta=float(delta))).rho / 2
  return _largest(lambda rho: Cost(rho=rho), low, epsilon, delta, adjacency)


def choices(*, epsilon: Fraction, delta: Fraction | None, count: int,
            adjacency: Adjacency, beside: Cost | None = None) -> Cost:
  """Returns the cost of equal exponential mechanisms that use up a target.

  Args:
    epsilon: target of these mechanisms and of `beside` together.
    delta: target delta; None to add up epsilons, at delta 0.
    count: number of exponential mechanisms.
    adjacency: adjacency of the target.
    beside: cost of the other parts of the release, less than the target.

  Returns:
    The cost of the `count` mechanisms, without `beside`.
  """
  if delta is None:
    taken = Fraction(0) if beside is None else beside.pure
    if taken is None:
      raise ValueError(f'{beside} has no epsilon at delta 0')
    remaining = epsilon - taken
    return Cost(choices=(remaining / count,) * count)

  def cost(width: Fraction) -> Cost:
    chosen = Cost(choices=(width,) * count)
    return chosen if beside is None else chosen + beside

  largest = _largest(cost, float(epsilon) / (2 * count), epsilon, delta,
                     adjacency)
  return Cost(choices=largest.choices)


def _largest(cost: Callable[[Fraction], Cost], low: float, epsilon_: Fraction,
             delta: Fraction, adjacency: Adjacency) -> Cost:
  """Returns `cost` of nearly the largest argument that meets the target.

  It doubles from `low`, then bisects; the result always meets the target.
  """
  errors.check_positive('epsilon', float(epsilon_))
  accounting.check_delta(float(delta))

  def fits(value: float) -> bool:
    return epsilon([cost(Fraction(value))], delta=delta,
                   adjacency=adjacency) <= epsilon_

  while not fits(low):
    low /= 2
  high = 2 * low
  while fits(high):
    low, high = high, 2 * high
  # `low` always fits. 24 halvings leave at most 2^-24 of it unused.
  for _ in range(24):
    middle = (low + high) / 2
    low, high = (middle, high) if fits(middle) else (low, middle)
  return cost(Fraction(low))
