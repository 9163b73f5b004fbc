"""A privacy claim as a value, checked against the event that ran."""

import dataclasses
import math

from dpjax import errors
from dpjax.audit import curves
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.notions import ApproxDP


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
  """What is said of a release or a run, and what it did.

  Attributes:
    epsilon: claimed; may be infinite, which claims nothing.
    delta: claimed, 0 for a pure claim.
    adjacency: which data sets are neighbours.
    event: what ran, from which epsilon follows; None if all that is said is
      epsilon and delta.
    num_examples: public number of records, where there is one.
  """
  epsilon: float
  delta: float
  adjacency: Adjacency
  event: accounting.DpEvent | None = None
  num_examples: int | None = None

  def __post_init__(self):
    if not self.epsilon == math.inf:
      errors.check_non_negative('epsilon', self.epsilon)
    if self.delta != 0:
      accounting.check_delta(self.delta)
    if self.num_examples is not None:
      errors.check_at_least('num_examples', self.num_examples, 1)


def of_event(event: accounting.DpEvent, *, delta: float, adjacency: Adjacency,
             num_examples: int | None = None) -> Claim:
  """The claim that an event makes by itself."""
  return Claim(epsilon=_spent(event, delta, adjacency), delta=delta,
               adjacency=adjacency, event=event, num_examples=num_examples)


def check(claim: Claim, *, tolerance: float = 1e-6) -> float:
  """The epsilon of the claim's event; refuses a claim below it (AUD-01).

  Done before anything is sampled: a wrong rate, step count or adjacency needs
  no attack to be found.

  Raises:
    ValueError: if the event costs more than is claimed.
  """
  if claim.event is None:
    return claim.epsilon
  spent = _spent(claim.event, claim.delta, claim.adjacency)
  if spent > claim.epsilon * (1 + tolerance):
    raise ValueError(f'the claim epsilon = {claim.epsilon:g} is below the '
                     f'{spent:g} that its event costs')
  return spent


def curve(claim: Claim) -> curves.PrivacyCurve:
  """All that is claimed: the event's curve, or the one point that is said."""
  if claim.event is not None:
    return curves.of_event(claim.event, adjacency=claim.adjacency)
  if math.isinf(claim.epsilon):
    return curves.NOTHING
  return curves.of_guarantee(ApproxDP(epsilon=claim.epsilon,
                                      delta=claim.delta))


def _spent(event: accounting.DpEvent, delta: float,
           adjacency: Adjacency) -> float:
  """The event's epsilon; delta 0 is 1e-12 to an accountant."""
  return curves.at(event, delta=max(delta, accounting.MIN_DELTA),
                   adjacency=adjacency)
