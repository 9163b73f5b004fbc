"""The whole privacy curve of a claim, and what a test between neighbours says.

A claim of one epsilon and delta holds a test against two lines; an event knows
delta at every epsilon, and a test is held against all of them. Most faults
that one point of the curve hides show at another.
"""

import functools
import math
from typing import NamedTuple

import numpy as np

from dpjax.privacy import accounting
from dpjax.privacy import divergences
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.notions import ApproxDP

_POINTS = 48
_LEAST_DELTA = 1e-9
_LARGEST_EPSILON = 500.0


class PrivacyCurve(NamedTuple):
  """(epsilon, delta)-DP for each of these, both orders of the neighbours.

  Attributes:
    epsilons: [k] float64, increasing, none if nothing is claimed.
    deltas: [k] float64.
  """
  epsilons: np.ndarray
  deltas: np.ndarray


NOTHING = PrivacyCurve(np.zeros([0]), np.zeros([0]))
"""The curve of an infinite epsilon: no test breaks it."""


def of_guarantee(guarantee: ApproxDP) -> PrivacyCurve:
  """The curve of a claim that says one point of it."""
  return PrivacyCurve(np.array([guarantee.epsilon]),
                      np.array([guarantee.delta]))


def at(event: accounting.DpEvent, *, delta: float,
       adjacency: Adjacency) -> float:
  """The epsilon at delta, by the first accountant that covers the event."""
  return _cached(_at, event, delta, adjacency)[0]


def of_event(event: accounting.DpEvent, *,
             adjacency: Adjacency) -> PrivacyCurve:
  """The accountant's curve, from epsilon 0 to where delta is 1e-9.

  By the first accountant that covers the event; from above, as it rounds.

  Args:
    event: what ran.
    adjacency: of the claim.
  """
  return _cached(_of_event, event, adjacency)


def _cached(function, event: accounting.DpEvent, *arguments):
  """Calls again what was called with an event that cannot be a key."""
  try:
    hash(event)
  except TypeError:
    function = function.__wrapped__
  return function(event, *arguments)


@functools.lru_cache(maxsize=64)
def _at(event, delta, adjacency) -> tuple[float, str]:
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
def _of_event(event, adjacency) -> PrivacyCurve:
  most, accountant = _cached(_at, event, _LEAST_DELTA, adjacency)
  if not math.isfinite(most):
    return NOTHING
  epsilons = np.append(np.linspace(0, most, _POINTS), 1.001 * most + 1e-3)
  epsilons = epsilons[epsilons < _LARGEST_EPSILON]
  return PrivacyCurve(epsilons, accounting.delta_curve(
      event, epsilons=epsilons, adjacency=adjacency, accountant=accountant))


def least_alarm(curve: PrivacyCurve, power: float) -> float:
  """The least false alarm rate of a test of this power, if the curve holds.

  The inverse of 1 - f for the trade-off f of the curve; as `one_run` takes it.
  """
  growth = np.exp(curve.epsilons)
  return float(np.max([(power - curve.deltas) / growth,
                       1 - curve.deltas - growth * (1 - power)], initial=0.0))


def excesses(curve: PrivacyCurve, hits: np.ndarray,
             alarms: np.ndarray) -> np.ndarray:
  """By how much each test breaks the curve at most; positive refutes it.

  max over epsilon of P(S) - e^epsilon Q(S) - delta(epsilon), and the same for
  the complement of S with P and Q exchanged. With a lower bound of P(S) and an
  upper bound of Q(S) in their places, it is a lower bound of the excess.

  Args:
    curve: of the claim.
    hits: [n] probabilities P(S) of the flagged event on one data set.
    alarms: [n] probabilities Q(S) on its neighbour.

  Returns:
    [n]; -inf if nothing is claimed.
  """
  hits, alarms = (np.asarray(values, np.float64)[:, None]
                  for values in (hits, alarms))
  growth = np.exp(curve.epsilons)[None]
  found = np.maximum(hits - growth * alarms, (1 - alarms) - growth * (1 - hits))
  return np.max(found - curve.deltas[None], axis=1, initial=-np.inf)


def exact_excess(curve: PrivacyCurve, p: np.ndarray,
                 q: np.ndarray) -> tuple[float, float]:
  """(excess, epsilon where it is largest) of two exact laws, both orders.

  Args:
    curve: of the claim.
    p: [m] probabilities of outcomes on one data set.
    q: [m] probabilities on its neighbour.
  """
  worst = (-math.inf, 0.0)
  for epsilon, delta in zip(*curve, strict=True):
    found = max(divergences.hockey_stick(p, q, epsilon=epsilon),
                divergences.hockey_stick(q, p, epsilon=epsilon))
    worst = max(worst, (found - delta, float(epsilon)))
  return worst
