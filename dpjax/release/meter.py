"""Draws noise for a release and charges each draw before it is made.

A plan says what a release costs; the ledger reserves that cost; the meter is
the only source of noise while the release is made. A draw that would cost more
than is left is refused before it is made, and a release that drew less than it
paid for is refused before it is seen. `check_guarantee` ties the cost to the
guarantee that is printed. So the epsilon that is printed, the entry of the
ledger and the noise that was drawn cannot differ, whatever a statistic says of
itself.
"""

from collections.abc import Iterable, Mapping, Sequence
import fractions

from dpjax.privacy import exact
from dpjax.privacy.adjacency import Adjacency
from dpjax.release import costs
from dpjax.release.costs import Cost
from dpjax.release.noise import Noise


class CostError(RuntimeError):
  """Reports noise that costs more, or less, than was reserved for it.

  It tells of a fault in the code of a statistic, not of the data: which draws
  a statistic makes is decided by public numbers and by noisy ones.
  """


def check_guarantee(guarantee: Mapping[str, object], *costs_: Cost) -> None:
  """Checks that a guarantee, as it will be printed, is that of its costs.

  Args:
    guarantee: 'epsilon', 'adjacency', 'event' and, where there is one, 'delta',
      as the release JSON has them.
    *costs_: of the plan and of the entry of the ledger: each must be this one.

  Raises:
    CostError: if they differ; no noise may be drawn then.
  """
  epsilon = fractions.Fraction(guarantee['epsilon'])
  delta = fractions.Fraction(guarantee.get('delta', 0))
  adjacency = Adjacency(guarantee['adjacency'])
  for cost in costs_:
    spent = costs.epsilon([cost], delta=delta, adjacency=adjacency)
    if (spent > epsilon if delta else spent != epsilon):
      raise CostError(f'epsilon {epsilon} at delta {delta} would be printed '
                      f'for {cost}, which is epsilon {float(spent)}')
    if guarantee['event'] != str(cost.event(adjacency)):
      raise CostError(f'the event of {cost} is not {guarantee["event"]}')
  if len(set(costs_)) > 1:
    raise CostError(f'the plan and the ledger have different costs: {costs_}')


class Meter:
  """The noise of one release, of a reserved cost.

  Attributes:
    reserved: what all draws together may cost, and must.
  """

  def __init__(self, reserved: Cost, below: exact.Draw):
    """Starts a release.

    Args:
      reserved: what the ledger has put down for it.
      below: n -> a uniform integer from 0 to n - 1; the only randomness.
    """
    self.reserved = reserved
    self._below = below
    self._charged: list[Cost] = []

  def charged(self, cost: Cost) -> exact.Draw:
    """Charges a mechanism and returns the randomness it may draw from.

    For mechanisms that compose their draws in a way of their own; the two
    methods below charge what they draw by themselves.

    Args:
      cost: of the whole mechanism, computed from the noise it will draw.

    Raises:
      CostError: if that is more than is left; nothing is drawn then.
    """
    if costs.exceeds([*self._charged, cost], self.reserved):
      raise CostError(
          f'a draw that costs {cost} would exceed the reserved '
          f'{self.reserved}, of which {self._charged} are spent')
    self._charged.append(cost)
    return self._below

  def noisy(self, values: Iterable[int], law: Noise, *, l1_sensitivity: int,
            l2_sensitivity_squared: int) -> list[int]:
    """Adds independent noise to each integer of one vector.

    Args:
      values: exact integers.
      law: distribution of the noise of each.
      l1_sensitivity: most that the vector moves between neighbours, in l1.
      l2_sensitivity_squared: the same in l2, squared.
    """
    below = self.charged(law.cost(
        l1_sensitivity=l1_sensitivity,
        l2_sensitivity_squared=l2_sensitivity_squared))
    return [value + law.draw(below) for value in values]

  def point(self, runs: Sequence[tuple[int, int]], scores: Sequence[int], *,
            rate: exact.Fraction, sensitivity: int) -> int:
    """Draws one integer by the exponential mechanism.

    Args:
      runs: (first, how many) of the candidates, in runs of equal scores.
      scores: of each run; candidates have probability proportional to
        exp(-rate * score).
      rate: > 0.
      sensitivity: most that any score moves between neighbours.
    """
    below = self.charged(Cost(choices=(2 * rate * sensitivity,)))
    start, size = runs[exact.choice([count for _, count in runs], scores, rate,
                                    below)]
    return start + below(size)

  def check_spent(self) -> None:
    """Checks that all that was reserved was drawn.

    Raises:
      CostError: if less was; the release must not be used then.
    """
    if not self._charged or costs.total(self._charged) != self.reserved:
      raise CostError(f'{self.reserved} is reserved, and only '
                      f'{self._charged} was drawn')
