"""A training run's privacy, decided before it starts."""

import dataclasses
import functools
import math

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import k_norm
from dpjax.privacy import lattice
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.adjacency import check_adjacency
from dpjax.sampling import PoissonSampler


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingPlan:
  """How a run samples, for how long, and with how much noise.

  The loop draws batches from this sampler, noises with this multiplier and
  runs this many steps; `event` describes just that. There is no second place
  where any of it could be said differently.

  Attributes:
    sampler: draws the batches.
    num_steps: fixed before the run; steps, where Algorithm 8 of thesis 003
      counts epochs in one line and steps in another (E31).
    noise_multiplier: joint multiplier over all noised blocks of a step, or
      None for a non-private run.
    adjacency: which data sets are neighbours.
    noise_order: None for Gaussian noise; p for K-norm noise, whose multiplier
      is 1 / the epsilon of a step before amplification (LDP-03).
    lattice_size: None for noise of floats; or how many values a step releases
      with Gaussian noise on a lattice (`privacy.lattice`).
  """
  sampler: PoissonSampler
  num_steps: int
  noise_multiplier: float | None
  adjacency: Adjacency
  noise_order: float | None = None
  lattice_size: int | None = None

  def __post_init__(self):
    errors.check_at_least('num_steps', self.num_steps, 1)
    check_adjacency(self.adjacency)
    if self.lattice_size is not None:
      errors.check_at_least('lattice_size', self.lattice_size, 1)
      if self.noise_multiplier is None or self.noise_order is not None:
        raise ValueError('noise on a lattice is Gaussian')
    if self.noise_multiplier is not None:
      errors.check_scale('noise_multiplier', self.noise_multiplier)

  @property
  def event(self) -> accounting.DpEvent:
    """What the whole run costs."""
    if self.noise_multiplier is None:
      return accounting.non_private_event()
    if self.noise_order is not None:
      return accounting.poisson_event(
          k_norm.event(noise_multiplier=self.noise_multiplier,
                       order=self.noise_order),
          sampling_prob=self.sampler.sampling_prob, num_steps=self.num_steps)
    return self.sampler.event(noise_multiplier=self.noise_multiplier,
                              num_steps=self.num_steps)

  @property
  def noise_variation(self) -> float:
    """Total variation of the noise of the run from that of the event.

    0 also for noise of floats, where it is not known.
    """
    if self.lattice_size is None:
      return 0.0
    return lattice.total_variation(num_values=self.lattice_size,
                                   num_steps=self.num_steps)

  def epsilon(self, delta: float, *, accountant: str = 'pld') -> float:
    """The epsilon of the whole run at `delta`; infinite if non-private.

    A run whose noise is within t of that of the event is (epsilon, delta + (1 +
    e^epsilon) t)-DP if the event is (epsilon, delta)-DP.
    """
    spent = functools.partial(accounting.epsilon, self.event,
                              accountant=accountant, adjacency=self.adjacency)
    found = spent(delta=delta)
    if self.lattice_size is None or math.isinf(found):
      return found
    paid = spent(delta=_delta_left(delta, found, self.noise_variation))
    if paid > found + _ROOM:
      raise ValueError(_no_room(delta, found))
    return paid


# By which the epsilon at what is left of delta may exceed that at delta.
_ROOM = 0.01


def _delta_left(delta: float, epsilon: float, variation: float) -> float:
  """What noise this far from that of an event leaves of delta.

  Raises:
    ValueError: nothing that an accountant could work with.
  """
  left = delta - (1 + math.exp(min(epsilon + _ROOM, 700))) * variation
  if not left >= accounting.MIN_DELTA:
    raise ValueError(_no_room(delta, epsilon))
  return left


def _no_room(delta: float, epsilon: float) -> str:
  return (f'delta = {delta:g} has no room for what noise on a lattice differs '
          f'from Gaussian noise at epsilon {epsilon:.4g}: use a larger delta, '
          'or noise of floats (gaussian)')


@functools.lru_cache(maxsize=1024)
def private_plan(*, num_examples: int, batch_size: float, num_steps: int,
                 epsilon: float, delta: float, adjacency: Adjacency,
                 accountant: str = 'pld', max_batch_size: int | None = None,
                 noise_order: float | None = None,
                 lattice_size: int | None = None) -> TrainingPlan:
  """The plan of least noise that is (epsilon, delta)-DP.

  Remembered: seeds and methods of a sweep ask for the same ones.

  Args:
    num_examples: public number of training records.
    batch_size: expected batch size.
    num_steps: number of steps that will run.
    epsilon: target, positive.
    delta: target, in [1e-12, 1).
    adjacency: which data sets are neighbours.
    accountant: 'pld' or 'rdp'.
    max_batch_size: see `PoissonSampler`; no effect on privacy.
    noise_order: see `TrainingPlan`.
    lattice_size: see `TrainingPlan`.

  Examples:
    >>> from dpjax.privacy.adjacency import Adjacency
    >>> from dpjax.train import plan
    >>> run = plan.private_plan(num_examples=1000, batch_size=100, num_steps=50,
    ...                         epsilon=1.0, delta=1e-5,
    ...                         adjacency=Adjacency.ADD_OR_REMOVE_ONE)
    >>> round(run.noise_multiplier, 2), round(run.epsilon(1e-5), 3)
    (2.93, 1.0)
  """
  sampler = PoissonSampler(num_examples=num_examples, batch_size=batch_size,
                           max_batch_size=max_batch_size)
  calibrate = (accounting.calibrate_noise_multiplier if noise_order is None
               else functools.partial(k_norm.calibrate_noise_multiplier,
                                      order=noise_order))
  target_delta = delta
  if lattice_size is not None:
    target_delta = _delta_left(delta, epsilon, lattice.total_variation(
        num_values=lattice_size, num_steps=num_steps))
  multiplier = calibrate(
      target_epsilon=epsilon, target_delta=target_delta, num_steps=num_steps,
      sampling_prob=sampler.sampling_prob, adjacency=adjacency,
      accountant=accountant)
  return TrainingPlan(sampler=sampler, num_steps=num_steps,
                      noise_multiplier=multiplier, adjacency=adjacency,
                      noise_order=noise_order, lattice_size=lattice_size)


def non_private_plan(*, num_examples: int, batch_size: float, num_steps: int,
                     adjacency: Adjacency,
                     max_batch_size: int | None = None) -> TrainingPlan:
  """The same sampling without noise: the baseline, epsilon infinite."""
  sampler = PoissonSampler(num_examples=num_examples, batch_size=batch_size,
                           max_batch_size=max_batch_size)
  return TrainingPlan(sampler=sampler, num_steps=num_steps,
                      noise_multiplier=None, adjacency=adjacency)


def heuristic_rho(*, sampling_prob: float, noise_multiplier: float,
                  num_steps: int) -> float:
  """q^2 T / (2 z^2): runs of one value behave alike; NOT a guarantee.

  A rule of thumb for tuning at a smaller batch and less noise: each step as a
  Gaussian release of shift q, once z >= 2 or so. What it says of privacy is too
  little, by half of the true epsilon at z = 1. Source: Sander, Stock and
  Sablayrolles 2023 (thesis 000, Section 2.3.4; item OPT-07).

  Args:
    sampling_prob: q.
    noise_multiplier: z.
    num_steps: T.
  """
  errors.check_probability('sampling_prob', sampling_prob)
  errors.check_positive('noise_multiplier', noise_multiplier)
  errors.check_at_least('num_steps', num_steps, 1)
  return num_steps * (sampling_prob / noise_multiplier)**2 / 2
