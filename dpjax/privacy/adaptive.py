"""What releases cost that are chosen in view of those before them.

A search that chooses its next trial by the scores so far may choose what the
trial costs, too: how many steps, how large a batch. To compose what happened
to run is not a bound then. What is: at each Renyi order, the dearest of all
releases that could have been chosen, every time (item DP-21, account (a)).
"""

from collections.abc import Sequence

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency

_ORDERS = (*range(2, 33), 36, 40, 48, 56, 64, 96, 128, 256)


Stage = tuple[Sequence[accounting.DpEvent], int]


def adaptive_epsilon(stages: Sequence[Stage], *, delta: float,
                     adjacency: Adjacency) -> float:
  """The epsilon of releases chosen one after the other; an upper bound.

  Guarantee: whatever came before it, a release adds at each order at most the
  divergence of the dearest event of its stage; so (epsilon, delta)-DP holds
  however the choice is made, if it is made from what was released.

  Args:
    stages: (events, count) each, fixed in advance: so many times one of these
      events runs, chosen anew each time.
    delta: see `accounting.epsilon`.
    adjacency: see there.

  Raises:
    ValueError: one line, for a stage without events or an event that the
      accountant does not cover.

  Reference: Feldman and Zrnic 2021, Individual privacy accounting via a Renyi
  filter, of which this is the case of a budget fixed in advance.
  """
  for events, count in stages:
    errors.check_at_least('num_releases', count, 1)
    if not events:
      raise ValueError('a stage must have at least one event')
  return min(_at_order(stages, order, delta, adjacency) for order in _ORDERS)


def _at_order(stages, order: int, delta: float,
              adjacency: Adjacency) -> float:
  def spent(event, at=delta):
    return accounting.epsilon(event, delta=at, adjacency=adjacency,
                              accountant='rdp', orders=(order,))

  # At the smallest delta no epsilon is cut off at 0, which would tie events.
  dearest = [max(events, key=lambda e: spent(e, accounting.MIN_DELTA))
             for events, _ in stages]
  return spent(accounting.composed_event([
      accounting.repeated_event(event, count)
      for event, (_, count) in zip(dearest, stages, strict=True)]))
