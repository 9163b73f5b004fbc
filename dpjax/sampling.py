"""Poisson sampling into batches of static shape, and its privacy event.

The sampler owns the sampling probability: it draws batches, computes the public
divisor of the batch mean and states the privacy event with this one number. The
probability is a public constant, not computed from a private number of records
(erratum E25). Empty batches are kept: drawing again until a batch has a record
would change the probability (erratum E5). A shuffled, fixed-size or truncated
batch cannot be expressed here, so it cannot be accounted for as a Poisson
sample by mistake.
"""

from collections.abc import Callable
import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax import tree
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.typing import Array, PRNGKey, PyTree


class Selection(NamedTuple):
  """Record numbers that one batch selects.

  Attributes:
    rows: [k * max_batch_size] int32; the selected record numbers come first,
      the rest is padding (0).
    num_selected: number of selected records, an int32 scalar; PRIVATE.
  """
  rows: Array
  num_selected: Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class PoissonSampler:
  """Includes each record in each batch independently with a public probability.

  Attributes:
    num_examples: public number of records n.
    batch_size: expected batch size, at most n.
    max_batch_size: rows computed at once (static shape). A larger batch is
      processed in several parts of this size, so that no record is ever
      dropped. `None` uses the expected batch size plus six standard deviations.
    row_multiple: the number of rows computed at once is padded to a multiple of
      this; no effect on which records are drawn.

  Examples:
    >>> from dpjax.sampling import PoissonSampler
    >>> sampler = PoissonSampler(num_examples=1000, batch_size=50)
    >>> round(sampler.expected_batch_size, 4), sampler.part_size
    (50.0, 92)
    >>> # Reproducible: for research, not for a release.
    >>> draws = [sampler.draw(jax.random.key(seed)) for seed in range(4)]
    >>> [int(draw.num_selected) for draw in draws]
    [45, 58, 58, 48]
  """
  num_examples: int
  batch_size: float
  max_batch_size: int | None = None
  row_multiple: int = 1

  def __post_init__(self) -> None:
    errors.check_at_least('num_examples', self.num_examples, 1)
    errors.check_positive('batch_size', self.batch_size)
    if self.batch_size > self.num_examples:
      raise ValueError(f'batch_size must be at most num_examples = '
                       f'{self.num_examples}, got {self.batch_size}')
    if self._threshold == 0:
      raise ValueError(f'batch_size {self.batch_size} is too small for '
                       f'{self.num_examples} examples')
    if self.max_batch_size is not None:
      errors.check_at_least('max_batch_size', self.max_batch_size, 1)
    errors.check_at_least('row_multiple', self.row_multiple, 1)

  @property
  def _threshold(self) -> int:
    """Number of the 2^32 random words that include a record."""
    return round(self.batch_size / self.num_examples * 2**32)

  @property
  def sampling_prob(self) -> float:
    """Probability of inclusion, exactly the one that `draw` realises."""
    return self._threshold / 2**32

  @property
  def expected_batch_size(self) -> float:
    """Public divisor of a batch sum: sampling_prob * num_examples."""
    return self.sampling_prob * self.num_examples

  @property
  def part_size(self) -> int:
    """Number of rows computed at once."""
    num_rows = self.max_batch_size
    if num_rows is None:
      expected = self.expected_batch_size
      # Of the binomial batch size. Larger batches take another part.
      stddev = (expected * (1 - self.sampling_prob))**0.5
      num_rows = int(expected + 6 * stddev) + 1
    num_rows = min(num_rows, self.num_examples)
    return num_rows + -num_rows % self.row_multiple

  def event(self, *, noise_multiplier: float,
            num_steps: int) -> accounting.DpEvent:
    """Returns the event of `num_steps` Gaussian releases on sampled batches.

    Args:
      noise_multiplier: joint noise multiplier of one step, see
        `accounting.poisson_gaussian_event`.
      num_steps: number of steps, each on its own batch.
    """
    return accounting.poisson_gaussian_event(
        sampling_prob=self.sampling_prob, noise_multiplier=noise_multiplier,
        num_steps=num_steps)

  def draw(self, key: PRNGKey) -> Selection:
    """Draws one batch; pure and jittable.

    Args:
      key: used for this batch only.
    """
    size = self.num_examples
    # At probability 1 the threshold 2^32 does not fit a 32-bit word.
    chosen = jnp.ones([size], jnp.bool_)
    if self._threshold < 2**32:
      words = additive.random_words(key, (size,))
      chosen = words < jnp.uint32(self._threshold)
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
