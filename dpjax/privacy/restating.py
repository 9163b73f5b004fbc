"""Rewrites privacy events so that the library's accountants read them right.

The two accountants of `dp_accounting` treat noise multipliers differently under
replace-one, cover pure guarantees under different relations, and one of them
ignores the repetition count of randomised response. `accounting` applies the
functions of this module before it calls them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import functools
import math
from typing import Any, TypeAlias

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

DpEvent: TypeAlias = dp_accounting.DpEvent

_INTEGER_ORDERS = list(range(2, 64)) + [
    72, 80, 96, 128, 192, 256, 384, 512, 768, 1024
]
# For the subsampled Gaussian, the library bounds fractional orders by a series
# that does not converge at large sampling rates; integers suffice there.
_FRACTIONAL_ORDERS = [1 + x / 10 for x in range(1, 100) if x % 10]
_MAX_FRACTIONAL_PROB = 0.02


@attrs.frozen(kw_only=True)
class PureDpEvent(DpEvent):
  """Release of which only the guarantee is known: epsilon-DP.

  Accounted for by binary randomised response, the pair that dominates every
  pure release. A guarantee under add-or-remove-one gives twice the epsilon
  under replace-one. A guarantee under replace-one implies none under
  add-or-remove-one; accountants reject it.

  Attributes:
    epsilon: cost of the release.
    adjacency: neighbouring relation of the guarantee.
  """
  epsilon: float
  adjacency: Adjacency


@attrs.frozen(kw_only=True)
class ConcentratedDpEvent(DpEvent):
  """Release of which only the guarantee is known: rho-zCDP.

  For the 'rdp' accountant only: no pair of distributions dominates all such
  releases. A guarantee under add-or-remove-one gives 4 rho under replace-one,
  as for a group of two. A guarantee under replace-one implies none under
  add-or-remove-one; accountants reject it.

  Attributes:
    rho: cost of the release.
    adjacency: neighbouring relation of the guarantee.
  """
  rho: float
  adjacency: Adjacency


@attrs.frozen(kw_only=True)
class BoundedRangeDpEvent(DpEvent):
  """Release whose log-ratio varies by at most `width` over outputs.

  For example the exponential mechanism of guarantee `width`. A guarantee under
  add-or-remove-one gives twice the width under replace-one. A guarantee under
  replace-one implies none under add-or-remove-one; accountants reject it. 'pld'
  accounts for the implied `width`-DP.

  Attributes:
    width: length of the interval of log-ratios.
    adjacency: neighbouring relation of the guarantee.
  """
  width: float
  adjacency: Adjacency


_Known = PureDpEvent | BoundedRangeDpEvent


class RenyiAccountant(rdp.RdpAccountant):
  """Adds up Renyi divergences, also of pure and bounded-range guarantees.

  The divergences of these guarantees are tight and rounded up.
  """
  _rdp: np.ndarray  # Of the library's class: the sum at each order.

  def __init__(self, orders: Sequence[float],
               relation: dp_accounting.NeighboringRelation,
               adjacency: Adjacency):
    """Starts with no cost; covers guarantees that are under `adjacency`."""
    super().__init__(orders, relation)
    self._adjacency = adjacency

  def _maybe_compose(self, event: DpEvent, count: int,
                     do_compose: bool) -> Any:
    """Composes known guarantees here, and all other events in the library."""
    if not isinstance(event, _Known) or event.adjacency is not self._adjacency:
      return super()._maybe_compose(event, count, do_compose)
    if do_compose:
      self._rdp = self._rdp + count * _divergences(
          event, tuple(float(order) for order in self._orders))
    return None


@functools.lru_cache(maxsize=4096)
def _divergences(event: _Known, orders: tuple[float, ...]) -> np.ndarray:
  """Returns the Renyi divergences of one guarantee, rounded up."""
  if isinstance(event, PureDpEvent):
    size = event.epsilon
    known = [renyi.renyi_from_pure(PureDP(epsilon=size), order=order)
             for order in orders]
  else:
    size = event.width
    known = [renyi.bounded_range(BoundedRange(width=size), order=order)
             for order in orders]
  # Covers float64 errors: a relative one, and an absolute one by cancellation.
  return np.array([
      guarantee.divergence * (1 + 1e-9) + 1e-15 * (1 + guarantee.order * size)
      for guarantee in known])


def with_guarantees_restated(event: DpEvent, adjacency: Adjacency) -> DpEvent:
  """Returns `event` with its guarantees restated under `adjacency`.

  Also restates Poisson samples of pure guarantees. Let p and r be the output
  densities with and without the record. A sample that holds the record with
  probability q has density ratio 1 - q + q p/r, and p/r lies in [e^-epsilon,
  e^epsilon].
  """
  replacing = adjacency is Adjacency.REPLACE_ONE
  if isinstance(event, PureDpEvent):
    # A replacement removes one record and adds another.
    factor = 2 if replacing and event.adjacency is not adjacency else 1
    if replacing or event.adjacency is adjacency:
      event = PureDpEvent(epsilon=factor * event.epsilon, adjacency=adjacency)
    return event
  if isinstance(event, BoundedRangeDpEvent):
    # A replacement is two steps, and the log-ratios of the two steps add.
    if replacing and event.adjacency is not adjacency:
      event = BoundedRangeDpEvent(width=2 * event.width, adjacency=adjacency)
    return event
  if isinstance(event, ConcentratedDpEvent):
    # A group of two: 2^2 rho.
    if replacing and event.adjacency is not adjacency:
      event = ConcentratedDpEvent(rho=4 * event.rho, adjacency=adjacency)
    return event
  if (isinstance(event, dp_events.PoissonSampledDpEvent) and
      isinstance(event.event, PureDpEvent) and
      event.event.adjacency is Adjacency.ADD_OR_REMOVE_ONE):
    prob, inner = event.sampling_probability, event.event.epsilon
    spent = math.log1p(prob * math.expm1(inner))
    # Two values of the record: largest ratio to r over the smallest one.
    if replacing:
      spent -= math.log1p(prob * math.expm1(-inner))
    return PureDpEvent(epsilon=spent, adjacency=adjacency)
  return _map_inner(event, lambda e: with_guarantees_restated(e, adjacency))


def pure_epsilon(event: DpEvent, adjacency: Adjacency) -> float:
  """Returns an epsilon at which the event is epsilon-DP, with delta = 0.

  It is infinite for an event that has no pure guarantee, such as Gaussian
  noise, or none that is known here. Accountants cannot answer this: they bound
  composed events at positive delta only.
  """
  return _pure_epsilon(with_guarantees_restated(event, adjacency), adjacency)


def _pure_epsilon(event: DpEvent, adjacency: Adjacency) -> float:
  """Returns `pure_epsilon` of an event whose guarantees are restated."""
  replacing = adjacency is Adjacency.REPLACE_ONE
  # A replacement moves a sum by up to twice the norm of a record.
  records = 2 if replacing else 1
  if isinstance(event, dp_events.NoOpDpEvent):
    return 0.0
  if isinstance(event, _Known) and event.adjacency is adjacency:
    return event.epsilon if isinstance(event, PureDpEvent) else event.width
  if isinstance(event, dp_events.LaplaceDpEvent):
    return records / event.noise_multiplier
  if isinstance(event, dp_events.DiscreteLaplaceDpEvent):
    return records * event.noise_parameter * event.sensitivity
  if isinstance(event, dp_events.RandomizedResponseDpEvent) and replacing:
    # The answer is uniform with probability p, so true with 1 - p + p / k.
    uniform = event.noise_parameter
    if not uniform:
      return math.inf
    return math.log1p((1 - uniform) * event.num_buckets / uniform)
  if isinstance(event, dp_events.ComposedDpEvent):
    return math.fsum(_pure_epsilon(each, adjacency) for each in event.events)
  if isinstance(event, dp_events.SelfComposedDpEvent):
    spent = _pure_epsilon(event.event, adjacency)
    return event.count * spent if event.count else 0.0
  return math.inf


def with_library_events(event: DpEvent, adjacency: Adjacency,
                        relation: Adjacency, accountant: str) -> DpEvent:
  """Returns `event` with guarantees as equivalent events of the library.

  The discrete Laplace mechanism of sensitivity 1 has exactly the two privacy
  losses of randomised response, so it represents pure DP.

  Args:
    event: its guarantees are replaced if they are under `adjacency`.
    adjacency: neighbouring relation of the claim.
    relation: relation that the library's accountant works under.
    accountant: 'pld' or 'rdp'.
  """
  if not isinstance(event, (_Known, ConcentratedDpEvent)):
    return _map_inner(event, lambda e: with_library_events(
        e, adjacency, relation, accountant))
  if event.adjacency is not adjacency:
    return event  # No accountant covers it, so it is rejected later.
  if isinstance(event, ConcentratedDpEvent):
    return (dp_events.ZCDpEvent(event.rho) if accountant == 'rdp' else event)
  if accountant == 'rdp':
    return event  # `RenyiAccountant` knows it.
  epsilon = getattr(event, 'width', None) or event.epsilon
  if relation is Adjacency.REPLACE_ONE:
    # A binary answer that is wrong with odds e^-epsilon; the event takes the
    # probability of a uniform answer, which is twice that of a wrong one.
    odds = math.exp(-epsilon)
    return dp_events.RandomizedResponseDpEvent(2 * odds / (1 + odds), 2)
  return dp_events.DiscreteLaplaceDpEvent(epsilon, 1)


def with_halved_multipliers(event: DpEvent) -> DpEvent:
  """Returns `event` with halved noise multipliers, for replace-one.

  Under replace-one a sum changes by up to twice a record's norm. The PLD
  accountant doubles the sensitivity of a `GaussianDpEvent` itself; the RDP
  accountant ignores the relation for additive noise.
  """
  if isinstance(event, (dp_events.GaussianDpEvent, dp_events.LaplaceDpEvent)):
    return type(event)(event.noise_multiplier / 2)
  if isinstance(event, dp_events.DiscreteLaplaceDpEvent):
    return attrs.evolve(event, sensitivity=2 * event.sensitivity)
  return _map_inner(event, with_halved_multipliers)


def with_unrolled_responses(event: DpEvent) -> DpEvent:
  """Returns `event` with repeated randomised response as single events.

  The PLD accountant ignores the repetition count of a
  `RandomizedResponseDpEvent`.
  """
  if (isinstance(event, dp_events.SelfComposedDpEvent) and
      _has_randomized_response(event)):
    inner = with_unrolled_responses(event.event)
    return dp_accounting.ComposedDpEvent([inner] * event.count)
  return _map_inner(event, with_unrolled_responses)


def _has_randomized_response(event: DpEvent) -> bool:
  """Returns whether any part of the event is a randomised response."""
  return any(isinstance(e, dp_events.RandomizedResponseDpEvent)
             for e in walk(event))


def largest_sampling_prob(event: DpEvent) -> float:
  """Returns the largest sampling probability below 1 in the event; or 0."""
  probs = [getattr(e, 'sampling_probability', 0.0) for e in walk(event)]
  return max(p for p in probs if p < 1) if min(probs) < 1 else 0.0


class ReplacingAccountant:
  """Renyi accounting under replace-one from that under add-or-remove-one.

  The library has Renyi divergences of Poisson samples under add-or-remove-one
  only. Let R be the output distribution without the record, and P and Q those
  with either of its values. Hoelder's inequality (Mironov 2017, Proposition 11)
  gives

    D_a(P || Q) <= (a - 1/2) / (a - 1) D_2a(P || R) + D_(2a-1)(R || Q),

  and both divergences on the right are under add-or-remove-one. Without
  sampling this equals, up to lower orders in a, the cost of twice the
  sensitivity; for small sampling probabilities it can be loose.
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
    """Returns the least epsilon over all orders."""
    return rdp_privacy_accountant.compute_epsilon(
        self._orders, self._spent, delta)[0]

  def get_delta(self, epsilon: float) -> float:
    """Returns the least delta over all orders."""
    return rdp_privacy_accountant.compute_delta(
        self._orders, self._spent, epsilon)[0]


def renyi_orders(event: DpEvent) -> list[float]:
  """Returns the Renyi orders to minimise over for this event."""
  fine = largest_sampling_prob(event) <= _MAX_FRACTIONAL_PROB
  return sorted(_INTEGER_ORDERS + (_FRACTIONAL_ORDERS if fine else []))


def replacing_orders(event: DpEvent) -> tuple[float, ...]:
  """Returns the orders of `ReplacingAccountant` for this event."""
  return tuple((order + 1) / 2 for order in renyi_orders(event))


def orders_of_pairs(orders: Sequence[float]) -> tuple[float, ...]:
  """Returns the orders 2 a - 1 and 2 a that `ReplacingAccountant` reads."""
  return tuple(sorted({value for order in orders
                       for value in (2 * order - 1, 2 * order)}))


def is_poisson_sampled(event: DpEvent) -> bool:
  """Returns whether any part of the event uses a Poisson sample."""
  return any(isinstance(e, dp_events.PoissonSampledDpEvent)
             for e in walk(event))


def walk(event: DpEvent) -> Iterator[DpEvent]:
  """Yields the event and all events inside it."""
  yield event
  for inner in getattr(event, 'events', None) or [getattr(event, 'event', 0)]:
    if isinstance(inner, dp_accounting.DpEvent):
      yield from walk(inner)


def _map_inner(event: DpEvent,
               function: Callable[[DpEvent], DpEvent]) -> DpEvent:
  """Returns `event` with `function` applied to the events inside it."""
  if isinstance(event, dp_events.ComposedDpEvent):
    return dp_accounting.ComposedDpEvent([function(e) for e in event.events])
  if hasattr(event, 'event'):
    return attrs.evolve(event, event=function(event.event))
  return event
