"""Cyclic Poisson sampling: groups of records take turns."""

import dataclasses

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import additive
from dpjax.sampling import uniform
from dpjax.sampling.sampler import Participation
from dpjax.sampling.sampler import Sampler
from dpjax.sampling.sampler import Selection
from dpjax.typing import Array, PRNGKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class CyclicSampler(Sampler):
  """Draws Poisson batches from one of b groups of records, in turns.

  Each record joins a uniform group, independently of all others, for the whole
  run. Step t includes each record of group t mod b with the probability
  q = b * batch_size / n, and no other record. So two steps of a record are at
  least b apart, as correlated noise needs it (Choquette-Choo et al. 2023). If
  batch_size = n / b, then q = 1: the groups take turns as a whole.

  Under both adjacencies: the group of a record does not depend on other
  records, and given its group, a record takes part in every b-th step only,
  which are Poisson samples of probability q.

  The attributes that all samplers have are described in `Sampler`.

  Attributes:
    num_groups: b; a record takes part in one of b consecutive steps at most.

  Examples:
    >>> from dpjax.sampling import CyclicSampler
    >>> sampler = CyclicSampler(num_examples=1000, batch_size=125, num_groups=4)
    >>> sampler.participation
    Participation(separation=4, prob=0.5)
  """
  num_groups: int

  def __post_init__(self) -> None:
    super().__post_init__()
    errors.check_at_least('num_groups', self.num_groups, 1)
    if self.batch_size * self.num_groups > self.num_examples * (1 + 1e-9):
      raise ValueError(
          f'batch_size {self.batch_size:g} exceeds the expected size '
          f'{self.num_examples / self.num_groups:g} of a group: take a smaller '
          'batch_size or num_groups')
    if self._threshold == 0:
      raise ValueError(f'batch_size {self.batch_size} is too small for '
                       f'{self.num_examples} examples')

  @property
  def _threshold(self) -> int:
    """Number of the 2^32 random words that include a record of the group."""
    return min(2**32, round(
        self.num_groups * self.batch_size / self.num_examples * 2**32))

  @property
  def participation(self) -> Participation:
    """The steps in which a record may take part; exact."""
    return Participation(self.num_groups, self._threshold / 2**32)

  @property
  def independent_steps(self) -> bool:
    """False: a record stays in its group."""
    return self.num_groups == 1

  @property
  def expected_batch_size(self) -> float:
    """Public divisor of a batch sum."""
    return self.participation.prob * self.num_examples / self.num_groups

  @property
  def usual_batch_size(self) -> int:
    """The expected batch size plus six standard deviations."""
    expected = self.expected_batch_size
    stddev = (expected * (1 - expected / self.num_examples))**0.5
    return int(expected + 6 * stddev) + 1

  def event(self, *, noise_multiplier: float,
            num_steps: int) -> accounting.DpEvent:
    """Returns the event of the first `num_steps` Gaussian releases of a run.

    A record takes part in every b-th of them at most.

    Args: see `Sampler.event`.
    """
    errors.check_at_least('num_steps', num_steps, 0)
    return accounting.poisson_gaussian_event(
        sampling_prob=self.participation.prob,
        noise_multiplier=noise_multiplier,
        num_steps=-(-num_steps // self.num_groups))

  def batch(self, key: PRNGKey, step: Array | int) -> Selection:
    """Draws the batch of one step; pure and jittable. See `Sampler.batch`."""
    group_key, batch_key = jax.random.split(key)
    chosen = uniform.uniform_integers(
        group_key, self.num_examples, self.num_groups) == step % self.num_groups
    # At probability 1 the threshold 2^32 does not fit a 32-bit word.
    if self._threshold < 2**32:
      words = additive.random_words(jax.random.fold_in(batch_key, step),
                                    (self.num_examples,))
      chosen &= words < jnp.uint32(self._threshold)
    return self.selection(chosen)
