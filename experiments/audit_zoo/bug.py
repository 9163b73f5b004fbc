"""One bug of the zoo: a faulty release, its fixed twin and the claim of both.

A file of `bugs` writes the mistake anew in a few lines, after the source that
it names. Nothing is copied from the software that had it.
"""

from collections.abc import Callable
import dataclasses
import math

from dpjax.audit import claims
from dpjax.audit import spaces
from dpjax.audit.target import Pair
from dpjax.audit.target import Target
from dpjax.typing import PRNGKey, PyTree

FAULTY, FIXED = TWINS = ('faulty', 'fixed')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bug:
  """A mistake that was made in public, with its repair.

  Attributes:
    name: name of the bug, that of its file.
    title: one whole sentence that says what is wrong.
    source: where it was found: author, year and section, or software and
      number of the thread, with an address.
    claim: the privacy claim, false for `faulty` and true for `fixed`.
    true_epsilon: epsilon of the faulty release at the claim's delta on the
      worst pair; infinity if no epsilon holds; None if it is unknown.
    faulty: the release (key, data) with the mistake.
    fixed: the release without it.
    space: all legal data sets, without a hint at a pair that shows the fault;
      None if the auditor gets only the worst pair.
    worst: a pair that shows the fault, for auditors that do not search.
    floating_point: True if the claim covers the low-order bits of the output.
    double_precision: whether the release is run with 64-bit types.
  """
  name: str
  title: str
  source: str
  claim: claims.Claim
  true_epsilon: float | None
  faulty: Callable[[PRNGKey, PyTree], PyTree]
  fixed: Callable[[PRNGKey, PyTree], PyTree]
  space: spaces.Space | None
  worst: Pair
  floating_point: bool = False
  double_precision: bool = False

  def __post_init__(self) -> None:
    for field in ('name', 'title', 'source'):
      if not getattr(self, field).strip():
        raise ValueError(f'{self.name or "a bug"} has no {field}')
    if self.true_epsilon is not None and not (
        self.claim.epsilon < self.true_epsilon <= math.inf):
      raise ValueError(
          f'{self.name}: true_epsilon = {self.true_epsilon:g} does not exceed '
          f'the claimed {self.claim.epsilon:g}')
    if self.space is not None and self.space.adjacency is not (
        self.claim.adjacency):
      raise ValueError(f'{self.name}: space and claim have different '
                       'adjacencies')

  def release(self, twin: str) -> Callable[[PRNGKey, PyTree], PyTree]:
    """Returns the release of a twin, one of `TWINS`."""
    return {FAULTY: self.faulty, FIXED: self.fixed}[twin]

  def target(self, fixed: bool) -> Target:
    """Returns the audit target, which an auditor has to search by itself."""
    twin = FIXED if fixed else FAULTY
    pairs = (self.worst,) if self.space is None else ()
    return Target(name=f'{self.name} ({twin})', release=self.release(twin),
                  claim=self.claim, pairs=pairs, space=self.space,
                  floating_point=self.floating_point,
                  double_precision=self.double_precision)

  def given_pair(self, fixed: bool) -> Target:
    """Returns the target with the worst pair alone, without a space."""
    return dataclasses.replace(self.target(fixed), pairs=(self.worst,),
                               space=None)
