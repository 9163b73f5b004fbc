"""Training plans: the privacy of a run, fixed before the run starts."""

import dataclasses
import functools
import math
from typing import Any

from dpjax import errors
from dpjax.privacy import accounting
from dpjax.privacy import correlated
from dpjax.privacy import k_norm
from dpjax.privacy import lattice
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.strategies import Strategy
from dpjax.sampling import AllocationSampler
from dpjax.sampling import PoissonSampler
from dpjax.sampling import Sampler


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingPlan:
  """The sampler, the number of steps and the noise multiplier of a run.

  Both the training loop and the accountant (through `event`) read these values
  here, so the run and its accounting cannot disagree.

  Attributes:
    sampler: draws the batches.
    num_steps: number of steps (not epochs), >= 1. Algorithm 8 of Barczewski
      (2025) counts epochs in one line and steps in another (erratum E31).
    noise_multiplier: joint multiplier (sum_k (D_k / s_k)^2)^(-1/2) of the
      blocks of a step, of sensitivity D_k and noise s_k; None: non-private.
    adjacency: which data sets are neighbours; a string becomes the `Adjacency`
      of this value.
    noise_order: None for Gaussian noise; p for K-norm noise of the p-norm,
      whose multiplier is 1 / epsilon of one step before amplification (LDP-03).
    lattice_size: None for floating-point noise; otherwise the number of values
      that a step releases with Gaussian noise on a lattice (`privacy.lattice`).
    strategy: correlates the Gaussian noise of the steps, which needs a sampler
      that bounds in which steps a record takes part; None: independent noise.
    before: event of what was released of the same records before the first
      step, such as moments by which features are normalised; None: nothing.

  Raises:
    ValueError: if a value is out of range, if the sampler does not cover the
      adjacency, or if sampler, noise and strategy do not go together.
  """
  sampler: Sampler
  num_steps: int
  noise_multiplier: float | None
  adjacency: Adjacency
  noise_order: float | None = None
  lattice_size: int | None = None
  strategy: Strategy | None = None
  before: accounting.DpEvent | None = None

  def __post_init__(self) -> None:
    errors.check_at_least('num_steps', self.num_steps, 1)
    object.__setattr__(self, 'adjacency', Adjacency(self.adjacency))
    if self.noise_multiplier is not None:
      self._check_sampler()
    if self.lattice_size is not None:
      errors.check_at_least('lattice_size', self.lattice_size, 1)
      if self.noise_multiplier is None or self.noise_order is not None:
        raise ValueError('noise on a lattice is Gaussian: lattice_size needs a '
                         'noise_multiplier and noise_order = None')
    if self.noise_multiplier is not None:
      errors.check_scale('noise_multiplier', self.noise_multiplier)
    if self.strategy is not None:
      self._check_strategy()

  def _check_sampler(self) -> None:
    """Raises if the sampler's event does not hold for this plan."""
    name = type(self.sampler).__name__
    if self.adjacency not in self.sampler.adjacencies:
      known = ' or '.join(each.value for each in self.sampler.adjacencies)
      raise ValueError(f'the privacy of {name} is known under {known} only, '
                       f'not under {self.adjacency.value}')
    if self.noise_order is not None:
      _ = self.poisson  # The privacy of K-norm noise is known for these alone.

  def _check_strategy(self) -> None:
    """Raises if the strategy's sensitivity does not hold for this plan."""
    if (self.noise_multiplier is None or self.noise_order is not None or
        self.lattice_size is not None):
      raise ValueError('correlated noise is Gaussian: a strategy needs a '
                       'noise_multiplier, noise_order = None and '
                       'lattice_size = None')
    if self.sampler.participation is None:
      raise ValueError(
          f'{type(self.sampler).__name__} does not bound in how many steps a '
          'record takes part, nor how far apart they are, so the sensitivity '
          'of correlated noise is not bounded: take a CyclicSampler')
    _ = self.event  # Raises if the strategy does not fit the sampler.

  @property
  def poisson(self) -> PoissonSampler:
    """The sampler, if it is one of Poisson batches; raises a ValueError if not.
    """
    if not isinstance(self.sampler, PoissonSampler):
      raise ValueError('this needs a plan with a PoissonSampler, got a '
                       f'{type(self.sampler).__name__}')
    return self.sampler

  @property
  def single_run(self) -> bool:
    """Whether the event is that of one run, not of steps of several runs."""
    return (self.strategy is not None or
            not self.sampler.independent_steps)

  @property
  def event(self) -> accounting.DpEvent:
    """The event of `before` and of the whole run, for an accountant."""
    if self.before is None:
      return self.steps_event
    return accounting.composed_event([self.before, self.steps_event])

  @property
  def steps_event(self) -> accounting.DpEvent:
    """The event of all steps, without `before` (dp_accounting)."""
    if self.noise_multiplier is None:
      return accounting.non_private_event()
    if self.strategy is not None:
      steps = self.sampler.participation
      assert steps is not None  # `_check_strategy`
      return correlated.event(
          self.strategy, noise_multiplier=self.noise_multiplier,
          num_steps=self.num_steps, separation=steps.separation,
          prob=steps.prob)
    if self.noise_order is not None:
      return accounting.poisson_event(
          k_norm.event(noise_multiplier=self.noise_multiplier,
                       order=self.noise_order),
          sampling_prob=self.poisson.sampling_prob, num_steps=self.num_steps)
    return self.sampler.event(noise_multiplier=self.noise_multiplier,
                              num_steps=self.num_steps)

  @property
  def noise_variation(self) -> float:
    """Bound on the total variation between the noise drawn and ideal noise.

    It covers all steps together. Floating-point noise has no such bound; for it
    the value is 0.
    """
    if self.lattice_size is None:
      return 0.0
    return lattice.total_variation(num_values=self.lattice_size,
                                   num_steps=self.num_steps)

  def epsilon(self, delta: float, *, accountant: str = 'pld') -> float:
    """Returns the epsilon of `event` at `delta`; infinite if non-private.

    If the event is (epsilon, delta)-DP and the noise drawn is within total
    variation t of the event's noise, then the run is
    (epsilon, delta + (1 + e^epsilon) t)-DP. For noise on a lattice, epsilon is
    therefore computed at delta - (1 + e^epsilon) t.

    Args:
      delta: in [1e-12, 1).
      accountant: 'pld' or 'rdp'.

    Raises:
      ValueError: if delta is too small for the error of the lattice noise.
    """
    epsilon_at = functools.partial(
        accounting.epsilon, self.event, accountant=accountant,
        adjacency=self.adjacency)
    ideal = epsilon_at(delta=delta)
    if self.lattice_size is None or math.isinf(ideal):
      return ideal
    epsilon = epsilon_at(delta=_delta_left(delta, ideal, self.noise_variation))
    # `_delta_left` used e^(ideal + slack): valid only up to that epsilon.
    if epsilon > ideal + _EPSILON_SLACK:
      raise ValueError(_delta_too_small(delta, ideal))
    return epsilon


# How much epsilon may grow when the lattice error is taken out of delta.
_EPSILON_SLACK = 0.01


def _delta_left(delta: float, epsilon: float, variation: float) -> float:
  """Returns delta minus the part that the lattice noise's error uses up.

  Raises:
    ValueError: if less than `accounting.MIN_DELTA` is left.
  """
  # exp overflows float64 above 709.
  left = delta - (1 + math.exp(min(epsilon + _EPSILON_SLACK, 700))) * variation
  if not left >= accounting.MIN_DELTA:
    raise ValueError(_delta_too_small(delta, epsilon))
  return left


def _delta_too_small(delta: float, epsilon: float) -> str:
  return (f'delta = {delta:g} is too small to cover the difference between '
          f'noise on a lattice and Gaussian noise at epsilon {epsilon:.4g}: '
          'use a larger delta, or floating-point noise (gaussian)')


def private_plan(*, num_examples: int, batch_size: float, num_steps: int,
                 epsilon: float, delta: float, adjacency: Adjacency | str,
                 accountant: str = 'pld', max_batch_size: int | None = None,
                 noise_order: float | None = None,
                 lattice_size: int | None = None,
                 sampler: Sampler | None = None,
                 strategy: Strategy | None = None,
                 before: accounting.DpEvent | None = None) -> TrainingPlan:
  """Returns the (epsilon, delta)-DP plan with the least noise.

  Plans are cached, because the runs of a sweep share them.

  Args:
    num_examples: public number of training records.
    batch_size: expected batch size, in records.
    num_steps: number of steps that will run.
    epsilon: target of the whole run and of `before` together, positive.
    delta: target of the same, in [1e-12, 1).
    adjacency: which data sets are neighbours, an `Adjacency` or its value:
      'add_or_remove_one' or 'replace_one'.
    accountant: 'pld' or 'rdp'.
    max_batch_size: see `PoissonSampler`; no effect on privacy.
    noise_order: see `TrainingPlan`.
    lattice_size: see `TrainingPlan`.
    sampler: draws the batches; None for a `PoissonSampler`.
    strategy: see `TrainingPlan`.
    before: see `TrainingPlan`.

  Returns:
    A plan with `plan.epsilon(delta) <= epsilon`.

  Raises:
    ValueError: if a value is out of range, or if `before` costs all of epsilon.

  Examples:
    >>> from dpjax.privacy.adjacency import Adjacency
    >>> from dpjax.train import plan
    >>> run = plan.private_plan(num_examples=1000, batch_size=100, num_steps=50,
    ...                         epsilon=1.0, delta=1e-5,
    ...                         adjacency=Adjacency.ADD_OR_REMOVE_ONE)
    >>> round(run.noise_multiplier, 2), round(run.epsilon(1e-5), 3)
    (2.93, 1.0)
  """
  adjacency = Adjacency(adjacency)
  sampler = the_sampler(sampler, num_examples=num_examples,
                        batch_size=batch_size, max_batch_size=max_batch_size)
  any_noise = TrainingPlan(
      sampler=sampler, num_steps=num_steps, noise_multiplier=1.0,
      adjacency=adjacency, noise_order=noise_order, lattice_size=lattice_size,
      strategy=strategy)
  target: dict[str, Any] = dict(
      target_epsilon=epsilon, target_delta=delta, accountant=accountant)
  alone = _cached(any_noise, **target)
  if before is None:
    return alone
  _check_before(before, epsilon, delta, adjacency)
  # Events are no keys of a cache, because some hold lists.
  return _with_noise(dataclasses.replace(alone, before=before), **target)


@functools.lru_cache(maxsize=1024)
def _cached(plan: TrainingPlan, **target: Any) -> TrainingPlan:
  """Returns `_with_noise`; for plans without `before`."""
  return _with_noise(plan, **target)


def _with_noise(plan: TrainingPlan, *, target_epsilon: float,
                target_delta: float, accountant: str) -> TrainingPlan:
  """Returns a plan with the least noise that meets a target."""
  # Part of delta pays for the difference of lattice noise from Gaussian noise.
  if plan.lattice_size is not None:
    target_delta = _delta_left(target_delta, target_epsilon,
                               plan.noise_variation)
  return dataclasses.replace(plan, noise_multiplier=_calibrated(
      plan, target_epsilon=target_epsilon, target_delta=target_delta,
      accountant=accountant))


def _check_before(before: accounting.DpEvent, epsilon: float, delta: float,
                  adjacency: Adjacency) -> None:
  """Raises if nothing of a budget is left for training."""
  spent = accounting.epsilon(before, delta=delta, adjacency=adjacency)
  if not spent < epsilon:
    raise ValueError(f'what was released before costs epsilon {spent:.4g}, and '
                     f'nothing of epsilon = {epsilon:g} is left for training')


def _calibrated(plan: TrainingPlan, *, target_epsilon: float,
                target_delta: float, accountant: str) -> float:
  """Returns the least noise multiplier of a plan that meets a target."""
  target: dict[str, Any] = dict(
      target_epsilon=target_epsilon, target_delta=target_delta,
      adjacency=plan.adjacency)
  sampler = plan.sampler
  if plan.before is not None:
    # The plan has the noise of training alone, which is a first guess.
    assert plan.noise_multiplier is not None
    return accounting.calibrate_event(
        lambda noise: dataclasses.replace(plan, noise_multiplier=noise).event,
        accountant=accountant, guess=plan.noise_multiplier, **target)
  if isinstance(sampler, PoissonSampler) and plan.strategy is None:
    calibrate = (
        _calibrated_gaussian if plan.noise_order is None else
        functools.partial(k_norm.calibrate_noise_multiplier,
                          order=plan.noise_order))
    return calibrate(sampling_prob=sampler.sampling_prob, **target,
                     num_steps=plan.num_steps, accountant=accountant)
  event_of = lambda noise: dataclasses.replace(plan,
                                               noise_multiplier=noise).event
  guess_of = event_of
  if isinstance(sampler, AllocationSampler):
    # Renyi orders of allocations are not known; Poisson batches cost about as
    # much.
    guess_of = lambda noise: accounting.poisson_gaussian_event(
        sampling_prob=1 / sampler.steps_per_epoch, noise_multiplier=noise,
        num_steps=plan.num_steps)
  guess = accounting.calibrate_event(guess_of, accountant='rdp', **target)
  return accounting.calibrate_event(event_of, accountant=accountant,
                                    guess=guess, **target)


@functools.lru_cache(maxsize=1024)
def _calibrated_gaussian(**target: Any) -> float:
  """Cached `calibrate_noise_multiplier`: models of many sizes share a target.
  """
  return accounting.calibrate_noise_multiplier(**target)


def the_sampler(sampler: Sampler | None, *, num_examples: int,
                batch_size: float, max_batch_size: int | None) -> Sampler:
  """Returns the sampler of a plan: a Poisson sampler, or the one given.

  Raises:
    ValueError: if the given one is for other records or batches.
  """
  if sampler is None:
    return PoissonSampler(num_examples=num_examples, batch_size=batch_size,
                          max_batch_size=max_batch_size)
  own = dict(num_examples=num_examples, batch_size=batch_size)
  if max_batch_size is not None:
    own['max_batch_size'] = max_batch_size
  for name, value in own.items():
    if getattr(sampler, name) != value:
      raise ValueError(f'the sampler has {name} = {getattr(sampler, name)}, '
                       f'the plan has {value}: give both the same')
  return sampler


def non_private_plan(*, num_examples: int, batch_size: float, num_steps: int,
                     adjacency: Adjacency | str,
                     max_batch_size: int | None = None) -> TrainingPlan:
  """Returns a plan that samples as a private one does, without noise.

  It is the non-private baseline; its epsilon is infinite.

  Args: see `private_plan`.
  """
  sampler = PoissonSampler(num_examples=num_examples, batch_size=batch_size,
                           max_batch_size=max_batch_size)
  return TrainingPlan(sampler=sampler, num_steps=num_steps,
                      noise_multiplier=None, adjacency=Adjacency(adjacency))


def heuristic_rho(*, sampling_prob: float, noise_multiplier: float,
                  num_steps: int) -> float:
  """Returns q^2 T / (2 z^2), a rule of thumb for tuning; NOT a guarantee.

  Runs with equal values behave alike, so hyperparameters can be tuned with
  smaller batches and less noise. The rule treats each step as a Gaussian
  mechanism of sensitivity q, which is accurate once z >= 2 or so. As an
  estimate of privacy it is too small: at z = 1 by half of the true epsilon.
  Source: Sander, Stock and Sablayrolles (2023), see Lalanne (2023, section
  2.3.4; item OPT-07).

  Args:
    sampling_prob: q, the probability that a batch contains a given record.
    noise_multiplier: z.
    num_steps: T.
  """
  errors.check_probability('sampling_prob', sampling_prob)
  errors.check_positive('noise_multiplier', noise_multiplier)
  errors.check_at_least('num_steps', num_steps, 1)
  return num_steps * (sampling_prob / noise_multiplier)**2 / 2
