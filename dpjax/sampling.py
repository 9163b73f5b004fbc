"""Poisson batches of static shape, and the event they cost.

The sampler owns the sampling probability: batches are drawn with it, the
public divisor of the mean is computed from it and the event that is accounted
contains it; it is a public constant, not computed from a private number of
records (erratum E25). Empty batches stay: drawing again until a batch has a
record changes the probability (erratum E5). A batch that is shuffled, of fixed
size or truncated cannot be expressed here, so it cannot be accounted as Poisson
by mistake.
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
  """The records of one batch.

  Attributes:
    rows: [k * max_batch_size] int32; the selected record numbers come first,
      the rest is padding (0).
    count: how many records were selected; private, never released.
  """
  rows: Array
  count: Array


@dataclasses.dataclass(frozen=True, kw_only=True)
class PoissonSampler:
  """Each record joins each batch independently with one public probability.

  Attributes:
    num_examples: public number of records n.
    batch_size: expected batch size, at most n.
    max_batch_size: rows computed at once (static shape). A larger batch is
      worked off in several parts of this size, so that no record is ever
      dropped; `None` leaves six standard deviations of room.
    row_multiple: of which the rows computed at once are made a multiple, by
      padding; no effect on which records are drawn.

  Examples:
    >>> from dpjax.sampling import PoissonSampler
    >>> sampler = PoissonSampler(num_examples=1000, batch_size=50)
    >>> round(sampler.expected_batch_size, 4), sampler.part_size
    (50.0, 92)
    >>> # Reproducible: for research, not for a release.
    >>> [int(sampler.draw(jax.random.key(seed)).count) for seed in range(4)]
    [45, 58, 58, 48]
  """
  num_examples: int
  batch_size: float
  max_batch_size: int | None = None
  row_multiple: int = 1

  def __post_init__(self):
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
    return round(self.batch_size / self.num_examples * 2**32)

  @property
  def sampling_prob(self) -> float:
    """Probability of inclusion; exactly what `draw` realises with key bits."""
    return self._threshold / 2**32

  @property
  def expected_batch_size(self) -> float:
    """sampling_prob * num_examples: the public divisor of a batch sum."""
    return self.sampling_prob * self.num_examples

  @property
  def part_size(self) -> int:
    """Rows computed at once."""
    wanted = self.max_batch_size
    if wanted is None:
      expected = self.expected_batch_size
      spread = (expected * (1 - self.sampling_prob))**0.5
      wanted = int(expected + 6 * spread) + 1
    wanted = min(wanted, self.num_examples)
    return wanted + -wanted % self.row_multiple

  def event(self, *, noise_multiplier: float,
            num_steps: int) -> accounting.DpEvent:
    """What `num_steps` Gaussian releases on batches of this sampler cost."""
    return accounting.poisson_gaussian_event(
        sampling_prob=self.sampling_prob, noise_multiplier=noise_multiplier,
        num_steps=num_steps)

  def draw(self, key: PRNGKey) -> Selection:
    """Draws one batch; pure and jittable."""
    size = self.num_examples
    chosen = jnp.ones([size], jnp.bool_)
    if self._threshold < 2**32:
      words = additive.random_words(key, (size,))
      chosen = words < jnp.uint32(self._threshold)
    ranks = jnp.cumsum(chosen.astype(jnp.int32))
    places = -(-size // self.part_size) * self.part_size
    # The record with the j-th chosen flag goes to row j, others nowhere.
    rows = jnp.zeros([places], jnp.int32).at[
        jnp.where(chosen, ranks - 1, places)].set(
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

    def add_part(carry):
      start, total = carry
      rows = jax.lax.dynamic_slice(selection.rows, (start,), (size,))
      part = function(rows, start + offsets < selection.count)
      return start + size, tree.add(total, part)

    shapes = jax.eval_shape(function, selection.rows[:size],
                            jnp.zeros([size], jnp.bool_))
    zeros = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
    return jax.lax.while_loop(lambda carry: carry[0] < selection.count,
                              add_part, (jnp.int32(0), zeros))[1]
