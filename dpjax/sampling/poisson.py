"""Poisson sampling, and its privacy event.

The sampler owns the sampling probability: it draws batches, computes the public
divisor of the batch mean and states the privacy event with this one number. The
probability is a public constant, not computed from a private number of records
(erratum E25). Empty batches are kept: drawing again until a batch has a record
would change the probability (erratum E5). A shuffled, fixed-size or truncated
batch cannot be expressed here, so it cannot be accounted for as a Poisson
sample by mistake.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.sampling import sparse
from dpjax.sampling.sampler import Sampler
from dpjax.sampling.sampler import Selection
from dpjax.typing import Array, PRNGKey

MOST_ON_DEVICE = 2**22
"""Batches of a private loop from more records are drawn on the host.

On the device a draw takes about 40 bytes of memory for each record, on the host
for each record of the batch.
"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class PoissonSampler(Sampler):
  """Includes each record in each batch independently with a public probability.

  Attributes: see `Sampler`. If `max_batch_size` is `None`, the expected batch
  size plus six standard deviations is computed at once.

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

  def __post_init__(self) -> None:
    super().__post_init__()
    if self._threshold == 0:
      raise ValueError(f'batch_size {self.batch_size} is too small for '
                       f'{self.num_examples} examples')

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
  def usual_batch_size(self) -> int:
    """The expected batch size plus six standard deviations."""
    expected = self.expected_batch_size
    # Of the binomial batch size. Larger batches take another part.
    stddev = (expected * (1 - self.sampling_prob))**0.5
    return int(expected + 6 * stddev) + 1

  @property
  def takes_all(self) -> bool:
    """Whether each batch is all records, in their order and in one part."""
    return (self._threshold == 2**32 and self.part_size == self.num_examples)

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

  @property
  def on_host(self) -> bool:
    """Whether `host_batch` draws the batches of a private loop.

    It depends on the number of records alone, so all ways to read records see
    the same batches.
    """
    return self.num_examples > MOST_ON_DEVICE

  def host_batch(self, key: PRNGKey, step: int) -> np.ndarray:
    """Draws the batch of one step on the host, see `Sampler` and `sparse`."""
    secret = np.asarray(jax.random.key_data(key)).astype('<u4').tobytes()
    return sparse.draw(self.num_examples, self._threshold,
                       sparse.Words(secret, step))

  def batch(self, key: PRNGKey, step: Array | int) -> Selection:
    """Draws the batch of one step; pure and jittable.

    Args:
      key: of all batches of a run; secret, and used for nothing else.
      step: number of the step, from 0.
    """
    return self.draw(jax.random.fold_in(key, step))

  def draw(self, key: PRNGKey) -> Selection:
    """Draws one batch; pure and jittable.

    Args:
      key: used for this batch only.
    """
    # At probability 1 the threshold 2^32 does not fit a 32-bit word.
    chosen = jnp.ones([self.num_examples], jnp.bool_)
    if self._threshold < 2**32:
      words = additive.random_words(key, (self.num_examples,))
      chosen = words < jnp.uint32(self._threshold)
    return self.selection(chosen)
