"""Privacy cost of releases that are chosen adaptively.

A search that chooses its next trial by the scores so far may also choose the
trial's cost: how many steps, how large a batch. Composing only the trials that
happened to run is then not a valid bound. This module uses a valid one: at each
Renyi order, every release is charged the largest divergence of all releases
that could have been chosen. Sources: Feldman and Zrnic (2021); catalogue item
DP-21, account (a), on Barczewski (2025, section 5.3.1).
"""

from collections.abc import Sequence

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency

_ORDERS = (*range(2, 33), 36, 40, 48, 56, 64, 96, 128, 256)


Stage = tuple[Sequence[accounting.DpEvent], int]
"""The events that may be chosen, and how many releases choose one of them."""


def adaptive_epsilon(stages: Sequence[Stage], *, delta: float,
                     adjacency: Adjacency) -> float:
  """Returns an upper bound on the epsilon of adaptively chosen releases.

  Guarantee: whatever was released before, a release adds at each Renyi order at
  most the largest divergence of the events of its stage. So (epsilon, delta)-DP
  holds for every rule of choice that uses released values only.

  Args:
    stages: (events, count) pairs, fixed in advance: in each stage `count`
      releases run, each with one of `events`, chosen anew each time.
    delta: see `accounting.epsilon`.
    adjacency: neighbouring relation of the claim.

  Raises:
    ValueError: one line, for a stage without events or an event that the
      accountant does not cover.

  Reference: Feldman and Zrnic (2021), Individual privacy accounting via a Renyi
  filter; this is the special case of a budget fixed in advance.
  """
  for events, count in stages:
    errors.check_at_least('num_releases', count, 1)
    if not events:
      raise ValueError('a stage must have at least one event')
  return min(_at_order(stages, order, delta, adjacency) for order in _ORDERS)


def _at_order(stages: Sequence[Stage], order: int, delta: float,
              adjacency: Adjacency) -> float:
  """Returns the bound on epsilon from one Renyi order."""
  def spent(event: accounting.DpEvent, at: float = delta) -> float:
    return accounting.epsilon(event, delta=at, adjacency=adjacency,
                              accountant='rdp', orders=(order,))

  # Events are compared at the smallest delta: at larger ones several epsilons
  # may be truncated to 0, which would hide which event costs most.
  dearest = [max(events, key=lambda e: spent(e, accounting.MIN_DELTA))
             for events, _ in stages]
  return spent(accounting.composed_event([
      accounting.repeated_event(event, count)
      for event, (_, count) in zip(dearest, stages, strict=True)]))
