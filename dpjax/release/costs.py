"""What releases cost, as exact fractions, and what several cost together.

A cost distinguishes three kinds of mechanisms, because they compose
differently: pure ones, known by their epsilon; exponential mechanisms, whose
log-ratio varies by at most epsilon over outputs (bounded range, about a quarter
of the cost where many compose); and discrete Gaussian noise, known by its rho
of zCDP.

`epsilon` is for costs that were fixed before the first answer. `charged` is for
a ledger, where each query, and what it costs, may be chosen in view of all
answers before it.
"""

import collections
from collections.abc import Sequence
import dataclasses
import fractions
import functools
import math
import operator

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import notions
from dpjax.privacy.adjacency import Adjacency

Fraction = fractions.Fraction

SIZE_SHARE = Fraction(1, 20)
"""Of a budget, for a number of records that is private and hardly matters."""

# From nearly 1 to a million: small budgets need orders beyond the usual ones.
_ORDERS = tuple(1 + 10**(k / 40) for k in range(-80, 241))

# Of the delta of a ledger: what its main Renyi order leaves to all others.
_OTHERS = Fraction(1, 10)
# Other orders lie above the main one by these factors of (order - 1).
_FACTORS = (2, 4, 8, 16, 32, 64)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cost:
  """What some mechanisms cost together: the sum of the parts that are given.

  Attributes:
    epsilon: of mechanisms known to be epsilon-DP and no more, in all.
    rho: of mechanisms known to be rho-zCDP, in all.
    choices: the epsilon of each exponential mechanism, in increasing order.
  """
  epsilon: Fraction | None = None
  rho: Fraction | None = None
  choices: tuple[Fraction, ...] = ()

  def __post_init__(self):
    object.__setattr__(self, 'choices', tuple(sorted(self.choices)))
    given = [part for part in (self.epsilon, self.rho, *self.choices)
             if part is not None]
    if not given:
      raise ValueError('a cost has an epsilon, a rho or choices')
    if min(given) <= 0:
      raise ValueError(f'a cost must be positive, got {self}')

  def __add__(self, other: 'Cost') -> 'Cost':
    """Returns the cost of the mechanisms of both, on the same data."""
    return Cost(epsilon=_sum(self.epsilon, other.epsilon),
                rho=_sum(self.rho, other.rho),
                choices=self.choices + other.choices)

  @property
  def pure(self) -> Fraction | None:
    """The epsilon of all parts without any delta; None if rho is one."""
    if self.rho is not None:
      return None
    return sum(self.choices, self.epsilon or Fraction(0))

  @property
  def notion(self) -> str:
    """'epsilon-DP', 'rho-zCDP', or 'Renyi-DP' for rho with other parts."""
    if self.rho is None:
      return 'epsilon-DP'
    return 'rho-zCDP' if self == Cost(rho=self.rho) else 'Renyi-DP'

  def event(self, adjacency: Adjacency) -> accounting.DpEvent:
    """The event, for the accountant."""
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
    """The cost of each of `parts` equal releases that make up this one."""
    return self.part(Fraction(1, parts))

  def part(self, share: Fraction) -> 'Cost':
    """The cost of a release that is to take a share of this one."""
    scaled = lambda value: None if value is None else value * share
    return Cost(epsilon=scaled(self.epsilon), rho=scaled(self.rho),
                choices=tuple(map(scaled, self.choices)))

  def to_json(self) -> dict[str, str | list[str]]:
    """{'epsilon': '1/2'}, {'rho': '1/8', 'choices': ['1/4']} and so on."""
    return {name: [str(part) for part in value] if isinstance(value, tuple)
            else str(value) for name, value in vars(self).items()
            if value not in (None, ())}

  @classmethod
  def from_json(cls, value: dict[str, str | list[str]]) -> 'Cost':
    """The inverse of `to_json`."""
    return cls(**{name: Fraction(given) if isinstance(given, str) else
                  tuple(map(Fraction, given)) for name, given in value.items()})


def _sum(one: Fraction | None, other: Fraction | None) -> Fraction | None:
  return other if one is None else one if other is None else one + other


def total(costs: Sequence[Cost]) -> Cost:
  """Returns what one or more releases cost together."""
  return functools.reduce(operator.add, costs)


def exceeds(costs: Sequence[Cost], reserved: Cost) -> bool:
  """Whether costs together have a part that is larger than was reserved."""
  drawn = total(costs)
  return ((drawn.epsilon or 0) > (reserved.epsilon or 0) or
          (drawn.rho or 0) > (reserved.rho or 0) or
          bool(collections.Counter(drawn.choices) -
               collections.Counter(reserved.choices)))


def _above(value: Fraction) -> float:
  """The least float64 that is not below `value`."""
  nearest = float(value)
  return nearest if nearest >= value else math.nextafter(nearest, math.inf)


def _below(value: Fraction) -> float:
  """The largest float64 that is not above `value`."""
  nearest = float(value)
  return nearest if nearest <= value else math.nextafter(nearest, 0.0)


def epsilon(costs: Sequence[Cost], *, delta: Fraction,
            adjacency: Adjacency) -> Fraction | float:
  """Returns the epsilon of releases whose costs were fixed in advance.

  The sum of epsilons, exactly, or at `delta` > 0 what the sum of Renyi
  divergences implies at the best order, rounded up, if that is less. The
  mechanisms may depend on earlier answers, their costs may not. Infinite for
  zCDP at delta 0.

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

  Statement. An analyst asks queries one after the other, and chooses each, with
  its cost, in view of all answers so far. If a query is answered only where
  `charged` of all costs, its own included, is at most `budget`, then all
  answers together are (budget, delta)-DP.

  Assumptions. A cost holds for its mechanism given all earlier answers.
  `budget`, `delta`, and so orders a_j and shares w_j of delta, of sum 1, are
  fixed before the first answer.

  Proof. Let L be the privacy loss of all answers, on either of two
  neighbouring data sets, and H = E max(0, 1 - e^(budget - L)). What is to be
  shown, (budget, delta)-DP, is H <= delta:
    1. The first cost is chosen before any answer. If it is the only one,
       `epsilon` is a guarantee of a known mechanism. If the terms below charge
       more than `budget` for it, they do so for every longer list, because they
       grow with each cost: nothing else is ever answered, and H <= delta.
    2. Otherwise a term below is at most `budget` at the end of each course of
       answers. Where it is the sum of pure epsilons, L <= budget and the course
       adds nothing to H.
    3. Let the term of order a_j be at most `budget` at the end of some
       courses. Since it grows with each cost, it is so at each step of them.
       An analyst who stops just before it would be larger sees the same in
       these courses, so that what they add to H is at most H of that analyst.
    4. That analyst's Renyi divergences of order a_j sum to at most a constant
       R in every course, which converts to (budget, w_j delta). Such a sum is
       a filter (Feldman and Zrnic 2021; Lecuyer 2021): e^((a_j - 1) (L - sum))
       is a supermartingale, so that all answers together have divergence R at
       most, and H <= w_j delta.
    5. The sum over j is delta.

  To take the best order at all of delta instead would be wrong: the analyst
  may steer lucky answers to one order and unlucky ones to another, and each
  may use up delta (`costs_test.py` has an example). Nor is exact accounting of
  all that was asked a filter ("Privacy filters are captured by residues", arXiv
  2602.15815, 2026). The main order is that at which many small queries, or
  Gaussian noise of any size, use up the budget; it has 9/10 of delta. The
  others are for few large pure queries.

  Sums of pure epsilons are a filter by themselves (Rogers et al. 2016).

  Args:
    costs: of all releases, in order.
    budget: epsilon of the ledger.
    delta: of the ledger.
    adjacency: of all costs.
  """
  if len(costs) < 2 or not delta:
    return epsilon(costs, delta=delta, adjacency=adjacency)
  pure = total(costs).pure
  return min(math.inf if pure is None else pure, *(
      _at_orders(costs, (order,), share * delta, adjacency)
      for order, share in _shares(budget, delta)))


@functools.lru_cache(maxsize=64)
def _shares(budget: Fraction, delta: Fraction
            ) -> tuple[tuple[float, Fraction], ...]:
  """Orders of a ledger, and the share of delta of each; public."""
  logs = math.log(delta)

  def admitted_rho(order):
    overhead = math.log1p(-1 / order) - (logs + math.log(order)) / (order - 1)
    return (float(budget) - overhead) / order

  main = max(_ORDERS, key=admitted_rho)
  each = _OTHERS / len(_FACTORS)
  if each * delta < Fraction(accounting.MIN_DELTA):
    return (main, Fraction(1)),
  return ((main, 1 - _OTHERS), *(
      (1 + factor * (main - 1), each) for factor in _FACTORS))


def _at_orders(costs: Sequence[Cost], orders: tuple[float, ...],
               delta: Fraction, adjacency: Adjacency) -> Fraction | float:
  """The epsilon of the sums of Renyi divergences of these orders."""
  # Each epsilon by itself: two pure mechanisms cost less than one of their sum.
  events = [cost.event(adjacency) for cost in costs]
  found = accounting.epsilon(
      accounting.composed_event(events), delta=_below(delta),
      adjacency=adjacency, accountant='rdp', orders=orders)
  return Fraction(found) * (1 + Fraction(1, 2**40)) if math.isfinite(
      found) else found


def concentrated(*, epsilon: Fraction, delta: Fraction,
                 adjacency: Adjacency) -> Cost:
  """The largest rho, nearly, that is (epsilon, delta)-DP by the accountant."""
  low = notions.zcdp_from_approx_target(notions.ApproxDP(
      epsilon=float(epsilon), delta=float(delta))).rho / 2
  return _largest(lambda rho: Cost(rho=rho), low, epsilon, delta, adjacency)


def choices(*, epsilon: Fraction, delta: Fraction | None, count: int,
            adjacency: Adjacency, beside: Cost | None = None) -> Cost:
  """Returns equal exponential mechanisms that meet a target, nearly.

  Args:
    epsilon: of all together, and of `beside`.
    delta: None for the sum of epsilons.
    count: how many.
    adjacency: of the costs.
    beside: what else the release costs, less than the target.

  Returns:
    The cost of the `count` mechanisms alone.
  """
  if delta is None:
    left = epsilon - (beside.pure if beside else 0)
    return Cost(choices=(left / count,) * count)

  def cost(width):
    chosen = Cost(choices=(width,) * count)
    return chosen if beside is None else chosen + beside

  largest = _largest(cost, float(epsilon) / (2 * count), epsilon, delta,
                     adjacency)
  return Cost(choices=largest.choices)


def _largest(cost, low: float, epsilon_: Fraction, delta: Fraction,
             adjacency: Adjacency) -> Cost:
  """The cost of the largest number, nearly, that meets a target."""
  errors.check_positive('epsilon', float(epsilon_))
  accounting.check_delta(float(delta))

  def fits(value):
    return epsilon([cost(Fraction(value))], delta=delta,
                   adjacency=adjacency) <= epsilon_

  while not fits(low):
    low /= 2
  high = 2 * low
  while fits(high):
    low, high = high, 2 * high
  for _ in range(24):
    middle = (low + high) / 2
    low, high = (middle, high) if fits(middle) else (low, middle)
  return cost(Fraction(low))
