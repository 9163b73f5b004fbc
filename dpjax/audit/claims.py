"""Privacy claims, and their check against the accounting event that ran."""

import dataclasses
import math

from dpjax import errors
from dpjax.audit import curves
from dpjax.privacy import accounting
from dpjax.privacy import restating
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.notions import ApproxDP


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
  """The privacy claim of a release or a run, and the event behind it.

  Attributes:
    epsilon: claimed epsilon; infinity claims nothing.
    delta: claimed delta; 0 for pure DP.
    adjacency: which data sets are neighbours.
    event: accounting event that ran and implies epsilon; None if only epsilon
      and delta are claimed.
    num_examples: public number of records; None if there is none.
    guarantee: guarantee that is claimed as a whole and implies epsilon, for
      example zCDP; None if only epsilon and delta are, or the event's curve.
  """
  epsilon: float
  delta: float
  adjacency: Adjacency
  event: accounting.DpEvent | None = None
  num_examples: int | None = None
  guarantee: curves.Guarantee | None = None

  def __post_init__(self) -> None:
    if not self.epsilon == math.inf:
      errors.check_non_negative('epsilon', self.epsilon)
    if self.delta != 0:
      accounting.check_delta(self.delta)
    if self.num_examples is not None:
      errors.check_at_least('num_examples', self.num_examples, 1)


def of_event(event: accounting.DpEvent, *, delta: float, adjacency: Adjacency,
             num_examples: int | None = None) -> Claim:
  """Returns the claim with the epsilon of an accounting event at `delta`."""
  return Claim(epsilon=_spent(event, delta, adjacency), delta=delta,
               adjacency=adjacency, event=event, num_examples=num_examples)


def of_guarantee(guarantee: curves.Guarantee, *, delta: float,
                 adjacency: Adjacency) -> Claim:
  """Returns the claim of a guarantee, with its epsilon at `delta`.

  Audits compare releases with the whole privacy curve that it implies.

  Raises:
    ValueError: if the guarantee implies no epsilon at `delta`.
  """
  epsilon = curves.epsilon_at(curves.of_guarantee(guarantee), delta)
  return Claim(epsilon=epsilon, delta=delta, adjacency=adjacency,
               guarantee=guarantee)


def check(claim: Claim, *, tolerance: float = 1e-6) -> float:
  """Returns the epsilon of the claim's event; raises if the claim is lower.

  This check (AUD-01) comes before any sampling: it finds a wrong sampling rate,
  step count or adjacency without an attack.

  Args:
    claim: the claim; without an event, its epsilon is returned.
    tolerance: relative rounding error that is accepted.

  Raises:
    ValueError: if the event costs more than the claim says.
  """
  if claim.event is None:
    return claim.epsilon
  spent = _spent(claim.event, claim.delta, claim.adjacency)
  if spent > claim.epsilon * (1 + tolerance):
    raise ValueError(f'the claim epsilon = {claim.epsilon:g} is below the '
                     f'{spent:g} that its event costs')
  return spent


def curve(claim: Claim) -> curves.PrivacyCurve:
  """Returns the privacy curve of the event, the guarantee, or one point."""
  if claim.event is not None:
    return curves.of_event(claim.event, adjacency=claim.adjacency)
  if claim.guarantee is not None:
    return curves.of_guarantee(claim.guarantee)
  if math.isinf(claim.epsilon):
    return curves.NOTHING
  return curves.of_guarantee(ApproxDP(epsilon=claim.epsilon,
                                      delta=claim.delta))


def _spent(event: accounting.DpEvent, delta: float,
           adjacency: Adjacency) -> float:
  """Returns the event's epsilon at delta."""
  if delta == 0:
    return restating.pure_epsilon(event, adjacency)
  return curves.at(event, delta=delta, adjacency=adjacency)
