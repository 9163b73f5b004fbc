"""A training run's privacy, decided before it starts."""

import dataclasses
import functools

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import k_norm
from dpjax.privacy.adjacency import Adjacency
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
  """
  sampler: PoissonSampler
  num_steps: int
  noise_multiplier: float | None
  adjacency: Adjacency
  noise_order: float | None = None

  def __post_init__(self):
    errors.check_at_least('num_steps', self.num_steps, 1)
    if self.noise_multiplier is not None:
      errors.check_positive('noise_multiplier', self.noise_multiplier)

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

  def epsilon(self, delta: float, *, accountant: str = 'pld') -> float:
    """The epsilon of the whole run at `delta`; infinite if non-private."""
    return accounting.epsilon(self.event, delta=delta, accountant=accountant,
                              adjacency=self.adjacency)


@functools.lru_cache(maxsize=1024)
def private_plan(*, num_examples: int, batch_size: float, num_steps: int,
                 epsilon: float, delta: float, adjacency: Adjacency,
                 accountant: str = 'pld', max_batch_size: int | None = None,
                 noise_order: float | None = None) -> TrainingPlan:
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
  """
  sampler = PoissonSampler(num_examples=num_examples, batch_size=batch_size,
                           max_batch_size=max_batch_size)
  calibrate = (accounting.calibrate_noise_multiplier if noise_order is None
               else functools.partial(k_norm.calibrate_noise_multiplier,
                                      order=noise_order))
  multiplier = calibrate(
      target_epsilon=epsilon, target_delta=delta, num_steps=num_steps,
      sampling_prob=sampler.sampling_prob, adjacency=adjacency,
      accountant=accountant)
  return TrainingPlan(sampler=sampler, num_steps=num_steps,
                      noise_multiplier=multiplier, adjacency=adjacency,
                      noise_order=noise_order)


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
  Sablayrolles 2023 (thesis 000, Section 2.3.4; spec OPT-07).

  Args:
    sampling_prob: q.
    noise_multiplier: z.
    num_steps: T.
  """
  errors.check_probability('sampling_prob', sampling_prob)
  errors.check_positive('noise_multiplier', noise_multiplier)
  errors.check_at_least('num_steps', num_steps, 1)
  return num_steps * (sampling_prob / noise_multiplier)**2 / 2
