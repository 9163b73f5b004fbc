"""Random allocation: each record takes part once in each epoch.

It is also called balls and bins. With Gaussian noise it costs at most about as
much as Poisson batches of the same expected size (Feldman and Shenfeld 2026);
`losses.random_allocation` computes its privacy losses.
"""

import dataclasses

import jax

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import sampled_events
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import uniform
from dpjax.sampling.sampler import Sampler
from dpjax.sampling.sampler import Selection
from dpjax.typing import Array, PRNGKey


@dataclasses.dataclass(frozen=True, kw_only=True)
class AllocationSampler(Sampler):
  """Puts each record into one uniform step of each epoch.

  An epoch is n / batch_size steps, which must be an integer. Records choose
  their steps independently of each other and anew in each epoch, so batch sizes
  vary. No number of batches is a shuffled pass over the data.

  For ADD_OR_REMOVE_ONE only; no tight bound is known for replacements.

  Choosing k of T steps uniformly, instead of one step in each of k epochs, is
  not known to cost less: a uniform choice of k steps is a uniform choice in
  each part of a random partition of the T steps into k parts, and the known
  bound is the one given the partition (Feldman and Shenfeld 2025).

  Attributes: see `Sampler`.

  Examples:
    >>> from dpjax.sampling import AllocationSampler
    >>> sampler = AllocationSampler(num_examples=1000, batch_size=250)
    >>> # Reproducible: for research, not for a release.
    >>> key = jax.random.key(0)
    >>> sizes = [int(sampler.batch(key, t).num_selected) for t in range(4)]
    >>> sampler.steps_per_epoch, sum(sizes)
    (4, 1000)
  """

  def __post_init__(self) -> None:
    super().__post_init__()
    steps = self.num_examples / self.batch_size
    if abs(steps - round(steps)) > 1e-9 * steps or round(steps) >= 2**31:
      raise ValueError(
          f'random allocation needs a whole number of steps in an epoch: '
          f'num_examples / batch_size = {steps:g}; take batch_size = '
          f'num_examples / {max(round(steps), 1)}')

  @property
  def steps_per_epoch(self) -> int:
    """Number of steps of which a record takes part in one."""
    return round(self.num_examples / self.batch_size)

  @property
  def expected_batch_size(self) -> float:
    """Public divisor of a batch sum."""
    return self.num_examples / self.steps_per_epoch

  @property
  def usual_batch_size(self) -> int:
    """The expected batch size plus six standard deviations."""
    expected = self.expected_batch_size
    stddev = (expected * (1 - 1 / self.steps_per_epoch))**0.5
    return int(expected + 6 * stddev) + 1

  @property
  def adjacencies(self) -> tuple[Adjacency, ...]:
    """ADD_OR_REMOVE_ONE."""
    return (Adjacency.ADD_OR_REMOVE_ONE,)

  @property
  def independent_steps(self) -> bool:
    """False: the batches of an epoch depend on each other."""
    return False

  def event(self, *, noise_multiplier: float,
            num_steps: int) -> accounting.DpEvent:
    """Returns the event of the first `num_steps` Gaussian releases of a run.

    A part of an epoch costs at most a whole one, of which it is a part.

    Args: see `Sampler.event`.
    """
    errors.check_at_least('num_steps', num_steps, 0)
    return accounting.repeated_event(
        sampled_events.allocation_event(noise_multiplier=noise_multiplier,
                                        num_steps=self.steps_per_epoch),
        -(-num_steps // self.steps_per_epoch))

  def batch(self, key: PRNGKey, step: Array | int) -> Selection:
    """Draws the batch of one step; pure and jittable. See `Sampler.batch`."""
    epoch, place = step // self.steps_per_epoch, step % self.steps_per_epoch
    places = uniform.uniform_integers(jax.random.fold_in(key, epoch),
                                      self.num_examples, self.steps_per_epoch)
    return self.selection(places == place)
