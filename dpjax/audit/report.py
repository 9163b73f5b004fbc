"""The report of an audit: its checks, bounds and verdict."""

import dataclasses
import math
from typing import Any, NamedTuple

import numpy as np

from dpjax.audit import claims

CONSISTENT, VIOLATED, UNDERPOWERED = 'consistent', 'violated', 'underpowered'
VERDICTS = (CONSISTENT, VIOLATED, UNDERPOWERED)

# Names of checks that can refute a claim whose epsilon is above the cap of the
# counting bound: their distributions or privacy losses are exact.
EXACT, LOSSES = 'exact distribution', 'privacy losses'


class Check(NamedTuple):
  """The outcome of one check.

  Attributes:
    name: name of the check.
    failed: whether it refutes the claim.
    detail: the result in words.
    p_value: p-value of a test; None for other checks.
    level: the part of the audit's significance spent on this test; None for a
      deterministic check.
  """
  name: str
  failed: bool
  detail: str
  p_value: float | None = None
  level: float | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Report:
  """The result of an audit.

  Attributes:
    target: name of the target.
    claim: the audited claim.
    checks: all checks, in the order in which they ran.
    significance: upper bound on the probability of `violated` for a true claim.
    epsilon_lower: lower bound on the true epsilon; wrong with probability
      `significance` at most.
    cap: the largest `epsilon_lower` that this number of runs can give.
    detectable: the true epsilon at which this audit has 50 % power.
    details: JSON-ready description of the distinguishing event.
    scores: arrays from which others can recompute the bound.
    beyond_cap: True if the verdict does not rely on the counting bound: other
      tests could have refuted the claim, or the target claims nothing.
    tried: JSON-ready list of the pairs that were tried, see
      `search.Found.tried`.
    influenced: whether any two outputs of neighbours differed.
  """
  target: str
  claim: claims.Claim
  checks: tuple[Check, ...]
  significance: float
  epsilon_lower: float = 0.0
  cap: float = 0.0
  detectable: float = math.inf
  details: dict[str, Any] = dataclasses.field(default_factory=dict)
  scores: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
  beyond_cap: bool = False
  tried: dict[str, Any] = dataclasses.field(default_factory=dict)
  influenced: bool = True

  @property
  def verdict(self) -> str:
    """The verdict, one of `VERDICTS`."""
    if any(check.failed for check in self.checks):
      return VIOLATED
    # Outputs that never depend on the data of any pair are perfectly private,
    # or their leak is elsewhere: such runs could have refuted nothing.
    if not self.influenced:
      return UNDERPOWERED
    certain = self.beyond_cap or any(
        check.name in (EXACT, LOSSES) for check in self.checks)
    if not certain and not self.cap >= self.claim.epsilon:
      return UNDERPOWERED
    return CONSISTENT

  @property
  def failed(self) -> tuple[Check, ...]:
    """The checks that refute the claim."""
    return tuple(check for check in self.checks if check.failed)
