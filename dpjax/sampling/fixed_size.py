"""Batches of a fixed size without replacement, and their privacy event."""

import dataclasses

import jax

from dpjax.privacy import accounting
from dpjax.privacy import sampled_events
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import uniform
from dpjax.sampling.sampler import Sampler
from dpjax.sampling.sampler import Selection
from dpjax.typing import Array, PRNGKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class FixedSizeSampler(Sampler):
  """Draws each batch as a uniform subset of exactly `batch_size` records.

  For REPLACE_ONE only: under add-or-remove-one the number of records differs
  between neighbours, and with it the sampling probability.

  Attributes: see `Sampler`; `batch_size` is an integer.

  Examples:
    >>> from dpjax.sampling import FixedSizeSampler
    >>> sampler = FixedSizeSampler(num_examples=1000, batch_size=50)
    >>> # Reproducible: for research, not for a release.
    >>> draws = [sampler.draw(jax.random.key(seed)) for seed in range(3)]
    >>> [int(draw.num_selected) for draw in draws]
    [50, 50, 50]
  """

  def __post_init__(self) -> None:
    super().__post_init__()
    if self.batch_size != int(self.batch_size):
      raise ValueError('batch_size of batches of fixed size must be a whole '
                       f'number, got {self.batch_size}')

  @property
  def _batch_size(self) -> int:
    """The batch size, which is a whole number."""
    return int(self.batch_size)

  @property
  def expected_batch_size(self) -> float:
    """Public divisor of a batch sum: the batch size."""
    return float(self.batch_size)

  @property
  def usual_batch_size(self) -> int:
    """The batch size, which no batch exceeds."""
    return self._batch_size

  @property
  def adjacencies(self) -> tuple[Adjacency, ...]:
    """REPLACE_ONE."""
    return (Adjacency.REPLACE_ONE,)

  def event(self, *, noise_multiplier: float,
            num_steps: int) -> accounting.DpEvent:
    """Returns the event of `num_steps` Gaussian releases on sampled batches.

    Args: see `Sampler.event`.
    """
    return accounting.repeated_event(sampled_events.fixed_size_event(
        num_examples=self.num_examples, batch_size=self._batch_size,
        noise_multiplier=noise_multiplier), num_steps)

  def batch(self, key: PRNGKey, step: Array | int) -> Selection:
    """Draws the batch of one step; pure and jittable. See `Sampler.batch`."""
    return self.draw(jax.random.fold_in(key, step))

  def draw(self, key: PRNGKey) -> Selection:
    """Draws one batch; pure and jittable.

    Args:
      key: used for this batch only.
    """
    return self.selection(uniform.uniform_subset(key, self.num_examples,
                                                 self._batch_size))
