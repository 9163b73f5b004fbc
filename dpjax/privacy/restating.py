"""Events restated so that the accountants of the library mean what ours mean.

The two accountants differ in what they make of a multiplier under replace-one,
know pure guarantees under different relations, and one of them ignores the
count of randomised response. `accounting` applies what stands here.
"""

from collections.abc import Iterator, Mapping, Sequence
import functools
import math

import attrs
import dp_accounting
from dp_accounting import dp_event as dp_events
from dp_accounting import rdp
from dp_accounting.rdp import rdp_privacy_accountant
import numpy as np

from dpjax.privacy import renyi
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.notions import BoundedRange
from dpjax.privacy.notions import PureDP

DpEvent = dp_accounting.DpEvent

_INTEGER_ORDERS = list(range(2, 64)) + [
    72, 80, 96, 128, 192, 256, 384, 512, 768, 1024
]
# Fractional orders of the subsampled Gaussian are upper bounds whose series
# does not converge at large sampling rates, where integers are fine enough.
_FRACTIONAL_ORDERS = [1 + x / 10 for x in range(1, 100) if x % 10]
_MAX_FRACTIONAL_PROB = 0.02


@attrs.frozen(kw_only=True)
class PureDpEvent(DpEvent):
  """A release known by its guarantee alone: epsilon-DP under `adjacency`.

  Accounted by the pair that dominates every pure release, binary randomised
  response. A guarantee under add-or-remove-one is twice the epsilon under
  replace-one; one under replace-one says nothing of the other, and is refused.
  """
  epsilon: float
  adjacency: Adjacency


@attrs.frozen(kw_only=True)
class ConcentratedDpEvent(DpEvent):
  """A release known by its guarantee alone: rho-zCDP under `adjacency`.

  For the 'rdp' accountant: no pair of laws dominates all such releases. Under
  replace-one a guarantee under add-or-remove-one is 4 rho, that of a group of
  two; one under replace-one says nothing of the other, and is refused.
  """
  rho: float
  adjacency: Adjacency


@attrs.frozen(kw_only=True)
class BoundedRangeDpEvent(DpEvent):
  """A release whose log-ratio varies by at most `width` over outputs.

  The exponential mechanism of guarantee `width`. Under replace-one a guarantee
  under add-or-remove-one has twice the width; one under replace-one says
  nothing of the other, and is refused. For 'pld' it is a pure guarantee of
  `width`, which it implies.
  """
  width: float
  adjacency: Adjacency


_Known = PureDpEvent | BoundedRangeDpEvent


class RenyiAccountant(rdp.RdpAccountant):
  """Adds up Renyi divergences, also of what is known by its guarantee alone.

  Divergences of pure guarantees and of bounded ranges are tight and rounded up.
  """

  def __init__(self, orders: Sequence[float],
               relation: dp_accounting.NeighboringRelation,
               adjacency: Adjacency):
    """Starts at nothing; guarantees are covered that are under `adjacency`."""
    super().__init__(orders, relation)
    self._adjacency = adjacency

  def _maybe_compose(self, event, count, do_compose):
    if not isinstance(event, _Known) or event.adjacency is not self._adjacency:
      return super()._maybe_compose(event, count, do_compose)
    if do_compose:
      self._rdp = self._rdp + count * _divergences(
          event, tuple(float(order) for order in self._orders))
    return None


@functools.lru_cache(maxsize=4096)
def _divergences(event: _Known, orders: tuple[float, ...]) -> np.ndarray:
  """Renyi divergences of one guarantee at these orders, rounded up."""
  if isinstance(event, PureDpEvent):
    size = event.epsilon
    known = [renyi.renyi_from_pure(PureDP(epsilon=size), order=order)
             for order in orders]
  else:
    size = event.width
    known = [renyi.bounded_range(BoundedRange(width=size), order=order)
             for order in orders]
  # What floats lose: a relative part, and the last digits of what cancels.
  return np.array([
      guarantee.divergence * (1 + 1e-9) + 1e-15 * (1 + guarantee.order * size)
      for guarantee in known])


def with_guarantees_restated(event: DpEvent, adjacency: Adjacency) -> DpEvent:
  """Guarantees, pure ones also of Poisson samples, as ones under `adjacency`.

  With r the density without the record, a sample that holds it with
  probability q has 1 - q + q p/r, and p/r lies in [e^-epsilon, e^epsilon].
  """
  replacing = adjacency is Adjacency.REPLACE_ONE
  if isinstance(event, PureDpEvent):
    factor = 2 if replacing and event.adjacency is not adjacency else 1
    if replacing or event.adjacency is adjacency:
      event = PureDpEvent(epsilon=factor * event.epsilon, adjacency=adjacency)
    return event
  if isinstance(event, BoundedRangeDpEvent):
    # The log-ratio over a chain of two neighbours is a sum of two.
    if replacing and event.adjacency is not adjacency:
      event = BoundedRangeDpEvent(width=2 * event.width, adjacency=adjacency)
    return event
  if isinstance(event, ConcentratedDpEvent):
    if replacing and event.adjacency is not adjacency:
      event = ConcentratedDpEvent(rho=4 * event.rho, adjacency=adjacency)
    return event
  if (isinstance(event, dp_events.PoissonSampledDpEvent) and
      isinstance(event.event, PureDpEvent) and
      event.event.adjacency is Adjacency.ADD_OR_REMOVE_ONE):
    prob, inner = event.sampling_probability, event.event.epsilon
    spent = math.log1p(prob * math.expm1(inner))
    if replacing:
      spent -= math.log1p(prob * math.expm1(-inner))
    return PureDpEvent(epsilon=spent, adjacency=adjacency)
  return _map_inner(event, lambda e: with_guarantees_restated(e, adjacency))


def with_library_events(event: DpEvent, adjacency: Adjacency,
                        relation: Adjacency, accountant: str) -> DpEvent:
  """Guarantees under `adjacency` as events of the library.

  The discrete Laplace mechanism of sensitivity 1 has just the two losses of
  randomised response.
  """
  if not isinstance(event, (_Known, ConcentratedDpEvent)):
    return _map_inner(event, lambda e: with_library_events(
        e, adjacency, relation, accountant))
  if event.adjacency is not adjacency:
    return event  # Which no accountant covers.
  if isinstance(event, ConcentratedDpEvent):
    return (dp_events.ZCDpEvent(event.rho) if accountant == 'rdp' else event)
  if accountant == 'rdp':
    return event  # `RenyiAccountant` knows it.
  epsilon = getattr(event, 'width', None) or event.epsilon
  if relation is Adjacency.REPLACE_ONE:
    odds = math.exp(-epsilon)
    return dp_events.RandomizedResponseDpEvent(2 * odds / (1 + odds), 2)
  return dp_events.DiscreteLaplaceDpEvent(epsilon, 1)


def with_halved_multipliers(event: DpEvent) -> DpEvent:
  """Under replace-one a sum moves by twice a record's norm.

  The PLD accountant doubles the sensitivity of a `GaussianDpEvent` by itself;
  the RDP accountant never looks at the adjacency of additive noise.
  """
  if isinstance(event, (dp_events.GaussianDpEvent, dp_events.LaplaceDpEvent)):
    return type(event)(event.noise_multiplier / 2)
  if isinstance(event, dp_events.DiscreteLaplaceDpEvent):
    return attrs.evolve(event, sensitivity=2 * event.sensitivity)
  return _map_inner(event, with_halved_multipliers)


def with_unrolled_responses(event: DpEvent) -> DpEvent:
  """Writes repeated randomised response out, one event for each use.

  The PLD accountant ignores the count of a `RandomizedResponseDpEvent`.
  """
  if (isinstance(event, dp_events.SelfComposedDpEvent) and
      _has_randomized_response(event)):
    inner = with_unrolled_responses(event.event)
    return dp_accounting.ComposedDpEvent([inner] * event.count)
  return _map_inner(event, with_unrolled_responses)


def _has_randomized_response(event: DpEvent) -> bool:
  return any(isinstance(e, dp_events.RandomizedResponseDpEvent)
             for e in walk(event))


def largest_sampling_prob(event: DpEvent) -> float:
  """Of the Poisson samples in the event that leave records out; or 0."""
  probs = [getattr(e, 'sampling_probability', 0.0) for e in walk(event)]
  return max(p for p in probs if p < 1) if min(probs) < 1 else 0.0


class ReplacingAccountant:
  """Renyi accounting under replace-one of what is known when a record is added.

  The library has Renyi divergences of Poisson samples under add-or-remove-one
  only. With R what a run puts out without the record, and P and Q with either
  of its values, Hoelder's inequality gives (Mironov 2017, Proposition 11)

    D_a(P || Q) <= (a - 1/2) / (a - 1) D_2a(P || R) + D_(2a-1)(R || Q),

  and both divergences on the right are under add-or-remove-one. Where no record
  is left out this is, up to lower orders in a, what twice the sensitivity
  costs; on small samples it can be loose.
  """

  def __init__(self, orders: Sequence[float], spent: Mapping[float, float]):
    """Bounds the divergences under replace-one.

    Args:
      orders: a, above 1.
      spent: Renyi divergences under add-or-remove-one at `orders_of_pairs`.
    """
    self._orders = list(orders)
    self._spent = [
        (order - 0.5) / (order - 1) * spent[2 * order] + spent[2 * order - 1]
        for order in orders]

  def get_epsilon(self, delta: float) -> float:
    """Returns the least epsilon of any order."""
    return rdp_privacy_accountant.compute_epsilon(
        self._orders, self._spent, delta)[0]

  def get_delta(self, epsilon: float) -> float:
    """Returns the least delta of any order."""
    return rdp_privacy_accountant.compute_delta(
        self._orders, self._spent, epsilon)[0]


def renyi_orders(event: DpEvent) -> list[float]:
  """Returns the Renyi orders to choose from for this event."""
  fine = largest_sampling_prob(event) <= _MAX_FRACTIONAL_PROB
  return sorted(_INTEGER_ORDERS + (_FRACTIONAL_ORDERS if fine else []))


def replacing_orders(event: DpEvent) -> tuple[float, ...]:
  """Returns orders for `ReplacingAccountant` to choose from for this event."""
  return tuple((order + 1) / 2 for order in renyi_orders(event))


def orders_of_pairs(orders: Sequence[float]) -> tuple[float, ...]:
  """Returns the orders that `ReplacingAccountant` reads for these orders."""
  return tuple(sorted({value for order in orders
                       for value in (2 * order - 1, 2 * order)}))


def is_poisson_sampled(event: DpEvent) -> bool:
  """Whether any part of the event is on a Poisson sample."""
  return any(isinstance(e, dp_events.PoissonSampledDpEvent)
             for e in walk(event))


def walk(event: DpEvent) -> Iterator[DpEvent]:
  """The event and all events inside it."""
  yield event
  for inner in getattr(event, 'events', None) or [getattr(event, 'event', 0)]:
    if isinstance(inner, DpEvent):
      yield from walk(inner)


def _map_inner(event: DpEvent, function) -> DpEvent:
  """`event` with `function` applied to the events it is composed of."""
  if isinstance(event, dp_events.ComposedDpEvent):
    return dp_accounting.ComposedDpEvent([function(e) for e in event.events])
  if hasattr(event, 'event'):
    return attrs.evolve(event, event=function(event.event))
  return event
