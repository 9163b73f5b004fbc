"""A privacy claim as a value, checked against the event that ran."""

import dataclasses

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency


@dataclasses.dataclass(frozen=True, kw_only=True)
class Claim:
  """What is said of a run, and what it did.

  Attributes:
    epsilon: claimed.
    delta: claimed.
    adjacency: which data sets are neighbours.
    event: what ran.
    num_examples: public number of records.
  """
  epsilon: float
  delta: float
  adjacency: Adjacency
  event: accounting.DpEvent
  num_examples: int

  def __post_init__(self):
    errors.check_non_negative('epsilon', self.epsilon)
    accounting.check_delta(self.delta)
    errors.check_at_least('num_examples', self.num_examples, 1)


def check(claim: Claim, *, tolerance: float = 1e-6) -> float:
  """The epsilon of the claim's event; refuses a claim below it.

  Done before anything is sampled: a wrong rate, step count or adjacency needs
  no attack to be found.

  Raises:
    ValueError: if the event costs more than is claimed.
  """
  spent = accounting.epsilon(claim.event, delta=claim.delta,
                             adjacency=claim.adjacency)
  if spent > claim.epsilon * (1 + tolerance):
    raise ValueError(f'the claim epsilon = {claim.epsilon:g} is below the '
                     f'{spent:g} that its event costs')
  return spent
