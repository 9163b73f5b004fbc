"""Draws noise for a release and charges each draw before it is made.

A plan states the cost of a release and the ledger reserves it. While the
release is made, the meter is the only source of noise. A draw that costs more
than is left is refused before it is made, and a release that drew less than it
paid for is refused before anybody sees it. `check_guarantee` compares the cost
with the guarantee that is printed. So the printed epsilon, the entry of the
ledger and the noise that was drawn agree, even if the code of a statistic is
wrong.
"""

from collections.abc import Iterable, Mapping, Sequence
import fractions
from typing import Any

from dpjax.privacy import exact
from dpjax.privacy.adjacency import Adjacency
from dpjax.release import costs
from dpjax.release.costs import Cost
from dpjax.release.noise import Noise


class CostError(RuntimeError):
  """Raised if noise costs more, or less, than was reserved for it.

  It reports a bug of a statistic, and reveals nothing about the data: which
  draws a statistic makes depends on public and on noisy numbers alone.
  """


def check_guarantee(guarantee: Mapping[str, Any], *costs_: Cost) -> None:
  """Checks that the guarantee to be printed is that of each cost.

  Args:
    guarantee: 'epsilon', 'adjacency', 'event' and, for approximate DP, 'delta',
      as in the release JSON.
    *costs_: costs of the plan and of the ledger's entry, which must be equal.

  Raises:
    CostError: if they differ; no noise may be drawn then.
  """
  epsilon = fractions.Fraction(guarantee['epsilon'])
  delta = fractions.Fraction(guarantee.get('delta', 0))
  adjacency = Adjacency(guarantee['adjacency'])
  for cost in costs_:
    spent = costs.epsilon([cost], delta=delta, adjacency=adjacency)
    # Pure costs are exact; with a delta, a bisection ends just below epsilon.
    if (spent > epsilon if delta else spent != epsilon):
      raise CostError(f'epsilon {epsilon} at delta {delta} would be printed '
                      f'for {cost}, which is epsilon {float(spent)}')
    if guarantee['event'] != str(cost.event(adjacency)):
      raise CostError(f'the event of {cost} is not {guarantee["event"]}')
  if len(set(costs_)) > 1:
    raise CostError(f'the plan and the ledger have different costs: {costs_}')


class Meter:
  """The noise of one release, drawn at exactly the reserved cost.

  Attributes:
    reserved: cost that all draws together must have.
  """

  def __init__(self, reserved: Cost, below: exact.Draw):
    """Starts a release.

    Args:
      reserved: cost that the ledger has recorded for the release.
      below: maps n to a uniform integer in {0, ..., n - 1}; all randomness
        comes from it.
    """
    self.reserved = reserved
    self._below = below
    self._charged: list[Cost] = []

  def charged(self, cost: Cost) -> exact.Draw:
    """Charges a mechanism and returns the randomness it may draw from.

    For mechanisms that compose several draws themselves; `noisy` and `point`
    charge their own draws.

    Args:
      cost: cost of the whole mechanism, from the noise it will draw.

    Raises:
      CostError: if it exceeds what is left; nothing is drawn then.
    """
    # Charged before it is drawn: a draw that fails has been paid, too.
    if costs.exceeds([*self._charged, cost], self.reserved):
      raise CostError(
          f'a draw that costs {cost} would exceed the reserved '
          f'{self.reserved}, of which {self._charged} are spent')
    self._charged.append(cost)
    return self._below

  def noisy(self, values: Iterable[int], noise: Noise, *, l1_sensitivity: int,
            l2_sensitivity_squared: int) -> list[int]:
    """Adds independent noise to each integer of one vector.

    Args:
      values: exact, private integers.
      noise: distribution of the noise of each integer.
      l1_sensitivity: largest l1 distance of the vectors of neighbouring data
        sets.
      l2_sensitivity_squared: largest squared l2 distance of these vectors.
    """
    # The cost is that of the noise itself, not what the plan claims.
    below = self.charged(noise.cost(
        l1_sensitivity=l1_sensitivity,
        l2_sensitivity_squared=l2_sensitivity_squared))
    return [value + noise.draw(below) for value in values]

  def point(self, runs: Sequence[tuple[int, int]], scores: Sequence[int], *,
            rate: exact.Fraction, sensitivity: int) -> int:
    """Draws one integer by the exponential mechanism.

    Args:
      runs: candidates as (first, count) pairs, in runs of equal scores.
      scores: score of each run, lower is better; candidates are drawn with
        probability proportional to exp(-rate * score).
      rate: factor of the scores, > 0.
      sensitivity: largest change of any score between neighbouring data sets.
    """
    # A neighbour moves each score by at most `sensitivity`, up or down. So
    # log-ratios of probabilities range over 2 rate * sensitivity at most.
    below = self.charged(Cost(choices=(2 * rate * sensitivity,)))
    start, size = runs[exact.choice([count for _, count in runs], scores, rate,
                                    below)]
    # The points of a run have equal scores, so all are equally likely.
    return start + below(size)

  def check_spent(self) -> None:
    """Checks that the draws cost all that was reserved.

    Raises:
      CostError: if they cost less; the release must not be used then.
    """
    # Less was drawn, so some released number may have no noise.
    if not self._charged or costs.total(self._charged) != self.reserved:
      raise CostError(f'{self.reserved} is reserved, and only '
                      f'{self._charged} was drawn')
