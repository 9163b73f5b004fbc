"""Privacy curves of claims, and tests of neighbours against a whole curve.

One claimed (epsilon, delta) constrains a test by two inequalities. An
accounting event gives delta at every epsilon, so a test must satisfy all of
them. Most faults that one point of the curve hides show at another point.
"""

from collections.abc import Callable
import functools
import inspect
import math
from typing import Any, NamedTuple

import numpy as np
from scipy import special

from dpjax.privacy import accounting
from dpjax.privacy import divergences
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.notions import ApproxDP
from dpjax.privacy.notions import GaussianPrivacy
from dpjax.privacy.notions import PureDP
from dpjax.privacy.notions import ZCDP

# Every point is a valid claim: fewer points make a weaker, still valid test.
_POINTS = 48
_LEAST_DELTA = 1e-9
# e^710 overflows float64.
_LARGEST_EPSILON = 500.0


class PrivacyCurve(NamedTuple):
  """A claim of (epsilon, delta)-DP for k pairs, in both orders of neighbours.

  Attributes:
    epsilons: [k] float64, increasing; empty if nothing is claimed.
    deltas: [k] float64, the delta at each epsilon.
  """
  epsilons: np.ndarray
  deltas: np.ndarray


NOTHING = PrivacyCurve(np.zeros([0]), np.zeros([0]))
"""The curve of an infinite epsilon, which no test can refute."""


Guarantee = PureDP | ApproxDP | ZCDP | GaussianPrivacy


def of_guarantee(guarantee: Guarantee) -> PrivacyCurve:
  """Returns the curve that a guarantee implies for every mechanism with it.

  That of Gaussian privacy is exact (Dong, Roth and Su 2022, Corollary 2.13).
  That of zCDP is the sharpest known conversion (Canonne, Kamath and Steinke
  2020, Proposition 12); both have points from epsilon 0 to a delta of 1e-9.
  """
  if isinstance(guarantee, PureDP):
    return PrivacyCurve(np.array([guarantee.epsilon]), np.zeros(1))
  if isinstance(guarantee, ApproxDP):
    return PrivacyCurve(np.array([guarantee.epsilon]),
                        np.array([guarantee.delta]))
  # mu-GDP implies mu^2 / 2-zCDP, so this epsilon is large enough for both.
  rho = (guarantee.rho if isinstance(guarantee, ZCDP)
         else guarantee.shift**2 / 2)
  largest = rho + 2 * math.sqrt(rho * math.log(1 / _LEAST_DELTA))
  epsilons = np.linspace(0, min(largest, _LARGEST_EPSILON), _POINTS)
  if not rho:
    return PrivacyCurve(np.zeros(1), np.zeros(1))
  deltas = (_zcdp_deltas(rho, epsilons) if isinstance(guarantee, ZCDP)
            else _gaussian_deltas(guarantee.shift, epsilons))
  return PrivacyCurve(epsilons, deltas)


def _zcdp_deltas(rho: float, epsilons: np.ndarray) -> np.ndarray:
  """Returns deltas [k] of rho-zCDP at epsilons [k]."""
  # Every Renyi order above 1 gives a valid delta.
  orders = 1 + np.geomspace(1e-3, 1e5, 4000)[:, None]
  logs = ((orders - 1) * (orders * rho - epsilons) +
          orders * np.log1p(-1 / orders) - np.log(orders - 1))
  return np.minimum(1.0, np.exp(np.min(logs, axis=0)))


def _gaussian_deltas(shift: float, epsilons: np.ndarray) -> np.ndarray:
  """Returns deltas [k] of N(0, 1) against N(shift, 1) at epsilons [k]."""
  other = np.exp(epsilons + special.log_ndtr(-epsilons / shift - shift / 2))
  return special.ndtr(shift / 2 - epsilons / shift) - other


def at(event: accounting.DpEvent, *, delta: float,
       adjacency: Adjacency) -> float:
  """Returns epsilon at delta by the first accountant that covers the event."""
  return _cached(_at, event, delta, adjacency)[0]


def of_event(event: accounting.DpEvent, *,
             adjacency: Adjacency) -> PrivacyCurve:
  """Returns an accountant's curve, from epsilon 0 to where delta is 1e-9.

  Uses the first accountant that covers the event, which rounds deltas up.
  """
  return _cached(_of_event, event, adjacency)


def _cached(function: Callable[..., Any], event: accounting.DpEvent,
            *arguments: Any) -> Any:
  """Calls a cached function, without its cache if the event has no hash."""
  try:
    hash(event)
  except TypeError:
    function = inspect.unwrap(function)
  return function(event, *arguments)


@functools.lru_cache(maxsize=64)
def _at(event: accounting.DpEvent, delta: float,
        adjacency: Adjacency) -> tuple[float, str]:
  """Returns epsilon, and the first accountant that covers the event."""
  *others, last = accounting.ACCOUNTANTS
  for accountant in others:
    try:
      return accounting.epsilon(event, delta=delta, adjacency=adjacency,
                                accountant=accountant), accountant
    except ValueError:
      continue
  return accounting.epsilon(event, delta=delta, adjacency=adjacency,
                            accountant=last), last


@functools.lru_cache(maxsize=64)
def _of_event(event: accounting.DpEvent,
              adjacency: Adjacency) -> PrivacyCurve:
  """Computes the curve of `of_event`."""
  largest, accountant = _cached(_at, event, _LEAST_DELTA, adjacency)
  if not math.isfinite(largest):
    return NOTHING
  # One point beyond `largest` covers the rounding of its conversion.
  epsilons = np.append(np.linspace(0, largest, _POINTS), 1.001 * largest + 1e-3)
  epsilons = epsilons[epsilons < _LARGEST_EPSILON]
  return PrivacyCurve(epsilons, accounting.delta_curve(
      event, epsilons=epsilons.tolist(), adjacency=adjacency,
      accountant=accountant))


def epsilon_at(curve: PrivacyCurve, delta: float) -> float:
  """Returns an epsilon that a curve implies at delta, interpolated upwards.

  Raises:
    ValueError: if no point of the curve has so small a delta.
  """
  deltas, epsilons = curve.deltas, curve.epsilons
  if not deltas.size or deltas.min() > delta:
    raise ValueError(f'the guarantee implies no epsilon at delta = {delta:g}')
  place = int(np.argmax(deltas <= delta))
  if not place:
    return float(epsilons[0])
  # delta is convex in epsilon, so a chord lies above it and is safe.
  return float(np.interp(-delta, -deltas[place - 1:place + 1],
                         epsilons[place - 1:place + 1]))


def least_alarm(curve: PrivacyCurve, power: float) -> float:
  """Returns the least false alarm rate of a test of this power under a curve.

  This is the inverse of 1 - f, where f is the trade-off function of the curve:
  the `blow_up` of `one_run.rejects_trade_off`.
  """
  growth = np.exp(curve.epsilons)
  # Both inequalities of each point, solved for the false alarm rate.
  return float(np.max([(power - curve.deltas) / growth,
                       1 - curve.deltas - growth * (1 - power)], initial=0.0))


def excesses(curve: PrivacyCurve, hits: np.ndarray,
             alarms: np.ndarray) -> np.ndarray:
  """Returns each test's largest excess over a curve; positive refutes it.

  The excess is the maximum over epsilon of
  P(S) - e^epsilon Q(S) - delta(epsilon), and of the same for the complement of
  S with P and Q exchanged. It increases in P(S) and decreases in Q(S), so a
  lower bound on P(S) and an upper bound on Q(S) give a lower bound on it.

  Args:
    curve: privacy curve of the claim.
    hits: [n] probabilities P(S) of the flagged event on one data set.
    alarms: [n] probabilities Q(S) on its neighbour.

  Returns:
    [n] excesses; -inf if nothing is claimed.
  """
  hits, alarms = (np.asarray(values, np.float64)[:, None]
                  for values in (hits, alarms))
  growth = np.exp(curve.epsilons)[None]
  # The second term is the complement of the event with both roles exchanged.
  gaps = np.maximum(hits - growth * alarms, (1 - alarms) - growth * (1 - hits))
  return np.max(gaps - curve.deltas[None], axis=1, initial=-np.inf)


def exact_excess(curve: PrivacyCurve, p: np.ndarray,
                 q: np.ndarray) -> tuple[float, float]:
  """Returns the largest excess of two exact distributions over a curve.

  Args:
    curve: privacy curve of the claim.
    p: [m] probabilities of the outcomes on one data set.
    q: [m] probabilities on its neighbour.

  Returns:
    (excess, epsilon at which it is largest), over both orders of p and q.
  """
  worst = (-math.inf, 0.0)
  for epsilon, delta in zip(*curve, strict=True):
    needed = max(divergences.hockey_stick(p, q, epsilon=epsilon),
                 divergences.hockey_stick(q, p, epsilon=epsilon))
    worst = max(worst, (needed - delta, float(epsilon)))
  return worst
