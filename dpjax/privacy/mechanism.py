"""The interface that every private mechanism of dpjax implements."""

from typing import Protocol, runtime_checkable

from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import PRNGKey, PyTree


@runtime_checkable
class Mechanism(Protocol):
  """Private mechanism: a frozen value with these members.

  Attributes:
    adjacency: neighbouring relation of the guarantee.
    event: complete privacy cost of one release.
  """

  @property
  def adjacency(self) -> Adjacency:
    """Neighbouring relation of the guarantee."""
    ...

  @property
  def event(self) -> accounting.DpEvent:
    """Privacy cost of one release."""
    ...

  def release(self, key: PRNGKey, data: PyTree) -> PyTree:
    """Draws one release; pure, jittable, the only method that draws noise.

    Args:
      key: secret key, fresh for this release (see `keys`).
      data: exact values before noise; PRIVATE.
    """

  def risk(self, num_values: int) -> float | None:
    """Returns the expected squared error of `num_values` released numbers.

    None if it is unknown or depends on the data.
    """


def epsilon(mechanism: Mechanism, *, delta: float,
            accountant: str = 'pld') -> float:
  """Returns the epsilon of one release of `mechanism` at this delta.

  Args:
    mechanism: the mechanism; its event and adjacency are used.
    delta: in [1e-12, 1).
    accountant: 'pld' or 'rdp', see `accounting`.
  """
  return accounting.epsilon(mechanism.event, delta=delta,
                            adjacency=mechanism.adjacency,
                            accountant=accountant)


def compose(*mechanisms: Mechanism) -> accounting.DpEvent:
  """Returns the event of releasing all of `mechanisms` on the same data.

  Raises:
    ValueError: if the mechanisms have different adjacencies.
  """
  if len({mechanism.adjacency for mechanism in mechanisms}) > 1:
    names = ', '.join(m.adjacency.value for m in mechanisms)
    raise ValueError(f'cannot compose claims of several adjacencies: {names}')
  return accounting.composed_event([m.event for m in mechanisms])
