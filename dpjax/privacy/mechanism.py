"""The contract of everything private that dpjax releases."""

from typing import Protocol, runtime_checkable

from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import PRNGKey, PyTree


@runtime_checkable
class Mechanism(Protocol):
  """A private release: a frozen value with these members.

  Attributes:
    adjacency: which data sets are neighbours.
    event: what the release costs, complete by itself.
  """

  @property
  def adjacency(self) -> Adjacency:
    """Which data sets are neighbours."""
    ...

  @property
  def event(self) -> accounting.DpEvent:
    """What one release costs."""
    ...

  def release(self, key: PRNGKey, data: PyTree) -> PyTree:
    """Draws the release; pure, jittable, the only place noise is drawn."""

  def risk(self, num_values: int) -> float | None:
    """Expected squared error of `num_values` numbers, where known."""


def epsilon(mechanism: Mechanism, *, delta: float,
            accountant: str = 'pld') -> float:
  """The epsilon of one release of `mechanism`, from its own event."""
  return accounting.epsilon(mechanism.event, delta=delta,
                            adjacency=mechanism.adjacency,
                            accountant=accountant)


def compose(*mechanisms: Mechanism) -> accounting.DpEvent:
  """The event of releasing all of `mechanisms` on the same data.

  Raises:
    ValueError: if they do not share one adjacency.
  """
  if len({mechanism.adjacency for mechanism in mechanisms}) > 1:
    names = ', '.join(m.adjacency.value for m in mechanisms)
    raise ValueError(f'cannot compose claims of several adjacencies: {names}')
  return accounting.composed_event([m.event for m in mechanisms])
