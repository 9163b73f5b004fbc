"""Compares samplers and strategies of noise for one training run."""

import math
from typing import Any, NamedTuple

import numpy as np

from dpjax.privacy import correlated
from dpjax.privacy.adjacency import Adjacency
from dpjax.privacy.strategies import Strategy
from dpjax.privacy.tree_strategy import TreeStrategy
from dpjax.sampling import AllocationSampler
from dpjax.sampling import CyclicSampler
from dpjax.sampling import FixedSizeSampler
from dpjax.sampling import PoissonSampler
from dpjax.sampling import Sampler
from dpjax.train.plan import private_plan
from dpjax.train.plan import TrainingPlan


class Choice(NamedTuple):
  """A plan that meets the target, and its noise.

  The noise is that of one coordinate of the mean gradient, in units of the clip
  norm. What a batch happens to contain adds to it in each step.

  Attributes:
    plan: sampler, strategy and noise multiplier.
    noise: 'independent', or the name of the strategy.
    step_noise: root mean square over the steps.
    prefix_noise: root mean square over all sums of the first steps; the
      parameters of gradient descent hold it times the learning rate.
  """
  plan: TrainingPlan
  noise: str
  step_noise: float
  prefix_noise: float


def compare(*, num_examples: int, batch_size: float, num_steps: int,
            epsilon: float, delta: float, adjacency: Adjacency | str,
            optimised: bool = False
            ) -> tuple[list[Choice], dict[str, str]]:
  """Calibrates all samplers and strategies that fit a run.

  Args:
    num_examples: public number of records.
    batch_size: expected batch size.
    num_steps: number of steps.
    epsilon: target of the whole run, positive.
    delta: target of the whole run, in [1e-12, 1).
    adjacency: which data sets are neighbours.
    optimised: whether to try optimised strategies too, which needs
      `pip install dpjax[matrix]` and more time.

  Returns:
    (choices, that of the least noise of prefix sums first; name -> why it was
    left out).

  Raises:
    ValueError: if an argument is out of range.
    ImportError: if `optimised` needs a library that is not installed.

  Examples:
    >>> from dpjax.train import comparison
    >>> choices, left_out = comparison.compare(
    ...     num_examples=40, batch_size=20, num_steps=4, epsilon=2.0,
    ...     delta=1e-5, adjacency='add_or_remove_one')
    >>> {c.noise for c in choices if c.plan.strategy is None}
    {'independent'}
    >>> list(left_out)
    ['fixed size']
  """
  adjacency = Adjacency(adjacency)
  sizes: dict[str, Any] = dict(num_examples=num_examples, batch_size=batch_size)
  target: dict[str, Any] = dict(epsilon=epsilon, delta=delta,
                                num_steps=num_steps, adjacency=adjacency)
  # The first plan checks the arguments, so that errors below are of one choice.
  choices = [_choice('independent', private_plan(**sizes, **target))]
  left_out = {}
  for name, make in (('fixed size', FixedSizeSampler),
                     ('random allocation', AllocationSampler)):
    try:
      choices.append(_choice('independent', private_plan(
          **sizes, **target, sampler=make(**sizes))))
    except ValueError as error:
      left_out[name] = str(error)
  for sampler in _cyclic_samplers(num_examples, batch_size, num_steps):
    for name, strategy in _strategies(sampler, num_steps, optimised).items():
      choices.append(_choice(name, private_plan(
          **sizes, **target, sampler=sampler, strategy=strategy)))
  return sorted(choices, key=lambda choice: choice.prefix_noise), left_out


def _cyclic_samplers(num_examples: int, batch_size: float,
                     num_steps: int) -> list[CyclicSampler]:
  """Returns cyclic samplers of 2, 4, 8, ... groups, and of as many as fit."""
  most = min(math.floor(num_examples / batch_size * (1 + 1e-9)), num_steps)
  counts = sorted({2**power for power in range(1, most.bit_length())
                   if 2**power <= most} | ({most} if most > 1 else set()))
  return [CyclicSampler(num_examples=num_examples, batch_size=batch_size,
                        num_groups=count) for count in counts]


def _strategies(sampler: CyclicSampler, num_steps: int,
                optimised: bool) -> dict[str, Strategy]:
  """Returns strategies for a sampler, by name."""
  bands = min(sampler.num_groups, num_steps)
  found: dict[str, Strategy] = {'square_root': correlated.square_root(bands)}
  if optimised:
    found['optimal_banded'] = correlated.optimal_banded(bands, num_steps)
  if sampler.participation.prob == 1:
    found['inverse_square_root'] = correlated.inverse_square_root(
        bands, num_steps)
    found['tree'] = TreeStrategy(num_steps)
    if optimised:
      found['optimal_buffered'] = correlated.optimal_buffered(num_steps, bands)
  return found


def _choice(noise: str, plan: TrainingPlan) -> Choice:
  """Returns a plan with the noise of its mean gradients."""
  steps, strategy = plan.num_steps, plan.strategy
  assert plan.noise_multiplier is not None
  scale = plan.noise_multiplier / plan.sampler.expected_batch_size
  if strategy is None:
    strategy = correlated.square_root(1)
  rms = lambda values: scale * float(np.sqrt(np.mean(np.square(values))))
  return Choice(plan, noise, rms(strategy.deviations(steps)),
                rms(strategy.prefix_deviations(steps)))


def name_of(sampler: Sampler) -> str:
  """Returns the name of a sampler in tables."""
  if isinstance(sampler, CyclicSampler):
    return f'cyclic, {sampler.num_groups} groups'
  return {PoissonSampler: 'Poisson', FixedSizeSampler: 'fixed size',
          AllocationSampler: 'random allocation'}[type(sampler)]
