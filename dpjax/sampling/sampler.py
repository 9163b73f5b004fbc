"""What all samplers share: batches of static shape, summed part by part."""

import abc
from collections.abc import Callable
import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dpjax import errors
from dpjax import tree
from dpjax.privacy import accounting
from dpjax.privacy.adjacency import Adjacency
from dpjax.typing import Array, PRNGKey, PyTree


class Selection(NamedTuple):
  """Record numbers that one batch selects.

  Attributes:
    rows: [k * part_size] int32; the selected record numbers come first, the
      rest is padding (0).
    num_selected: number of selected records, an int32 scalar; PRIVATE.
  """
  rows: Array
  num_selected: Array


class Participation(NamedTuple):
  """In which steps of a run a record may take part.

  Attributes:
    separation: least distance of two steps of one record. The first of them is
      one of the first `separation` steps, all others follow at this distance.
    prob: probability with which a record takes part in each of these steps,
      independently.
  """
  separation: int
  prob: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampler(abc.ABC):
  """Draws the batch of each step, and knows what sampling costs.

  Attributes:
    num_examples: public number of records n, below 2^31.
    batch_size: expected batch size, at most n.
    max_batch_size: rows computed at once (static shape). A larger batch is
      processed in several parts of this size, so that no record is ever
      dropped. `None` chooses a number that few batches exceed.
    row_multiple: the number of rows computed at once is padded to a multiple of
      this; no effect on which records are drawn.
  """
  num_examples: int
  batch_size: float
  max_batch_size: int | None = None
  row_multiple: int = 1

  def __post_init__(self) -> None:
    errors.check_at_least('num_examples', self.num_examples, 1)
    if self.num_examples >= 2**31:
      raise ValueError('num_examples must be below 2^31 = 2147483648, because '
                       'record numbers are integers of 32 bits; got '
                       f'{self.num_examples}')
    errors.check_positive('batch_size', self.batch_size)
    if self.batch_size > self.num_examples:
      raise ValueError(f'batch_size must be at most num_examples = '
                       f'{self.num_examples}, got {self.batch_size}')
    if self.max_batch_size is not None:
      errors.check_at_least('max_batch_size', self.max_batch_size, 1)
    errors.check_at_least('row_multiple', self.row_multiple, 1)

  @property
  @abc.abstractmethod
  def expected_batch_size(self) -> float:
    """Public divisor of a batch sum."""

  @property
  @abc.abstractmethod
  def usual_batch_size(self) -> int:
    """Number of records that few batches, or none, exceed."""

  @property
  def adjacencies(self) -> tuple[Adjacency, ...]:
    """The neighbouring relations that `event` covers."""
    return tuple(Adjacency)

  @property
  def participation(self) -> Participation | None:
    """Bound on the steps of a record, for correlated noise; None for none."""
    return None

  @property
  def independent_steps(self) -> bool:
    """Whether batches of different steps are independent.

    If not, the event holds for one run, and not for parts of several runs.
    """
    return True

  @abc.abstractmethod
  def event(self, *, noise_multiplier: float,
            num_steps: int) -> accounting.DpEvent:
    """Returns the event of the first `num_steps` Gaussian releases of a run.

    Args:
      noise_multiplier: joint noise multiplier of one step.
      num_steps: number of steps, each on its own batch.
    """

  @abc.abstractmethod
  def batch(self, key: PRNGKey, step: Array | int) -> Selection:
    """Draws the batch of one step; pure and jittable.

    Args:
      key: of all batches of a run; secret, and used for nothing else.
      step: number of the step, from 0.
    """

  @property
  def takes_all(self) -> bool:
    """Whether each batch is all records, in their order and in one part."""
    return False

  @property
  def on_host(self) -> bool:
    """Whether `host_batch` draws the batches of a private loop."""
    return False

  def host_batch(self, key: PRNGKey, step: int) -> np.ndarray:
    """Draws the batch of one step on the host, without an array of n numbers.

    It is another batch than that of `batch`, with the same distribution. So a
    run must use one of both for all of its steps.

    Args:
      key: of all batches of a run; secret, and used for nothing else.
      step: number of the step, from 0.

    Returns:
      The selected record numbers, int32 in increasing order; PRIVATE.

    Raises:
      ValueError: if this sampler draws its batches on the device only.
    """
    del key, step
    raise ValueError(f'{type(self).__name__} draws no batches on the host; use '
                     'batch')

  @property
  def part_size(self) -> int:
    """Number of rows computed at once."""
    num_rows = (self.usual_batch_size if self.max_batch_size is None else
                self.max_batch_size)
    num_rows = min(num_rows, self.num_examples)
    return num_rows + -num_rows % self.row_multiple

  def selection(self, chosen: Array) -> Selection:
    """Returns the records that a mask chooses, in whole parts.

    Args:
      chosen: [n] bool.
    """
    size = self.num_examples
    ranks = jnp.cumsum(chosen.astype(jnp.int32))  # From 1.
    # Enough rows for a batch of all records, in whole parts.
    num_rows = -(-size // self.part_size) * self.part_size
    # The j-th chosen record goes to row j. Records that were not chosen get the
    # row `num_rows`, outside the array, and mode='drop' discards them.
    rows = jnp.zeros([num_rows], jnp.int32).at[
        jnp.where(chosen, ranks - 1, num_rows)].set(
            jnp.arange(size, dtype=jnp.int32), mode='drop')
    return Selection(rows, ranks[-1])

  def sum_parts(self, function: Callable[[Array, Array], PyTree],
                selection: Selection) -> PyTree:
    """Sums `function(rows, mask)` over the parts of one batch.

    Args:
      function: takes rows [part_size] int32 and mask [part_size] bool, returns
        a pytree of sums over the rows whose mask is set.
      selection: a batch drawn by this sampler.

    Returns:
      The sum over all selected records; zeros for an empty batch.
    """
    size = self.part_size
    offsets = jnp.arange(size, dtype=jnp.int32)

    def add_part(carry: tuple[Array, PyTree]) -> tuple[Array, PyTree]:
      start, total = carry
      rows = jax.lax.dynamic_slice(selection.rows, (start,), (size,))
      part = function(rows, start + offsets < selection.num_selected)
      return start + size, tree.add(total, part)

    shapes = jax.eval_shape(function, selection.rows[:size],
                            jnp.zeros([size], jnp.bool_))
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    # A loop of dynamic length computes only the parts that hold records.
    return jax.lax.while_loop(lambda carry: carry[0] < selection.num_selected,
                              add_part, (jnp.int32(0), zeros))[1]
