"""DP-SGD as Bassily et al. 2014 noise it, with the epsilon it really has.

Thesis 003, Algorithm 6: noise of standard deviation 16 L sqrt(T ln(2/delta)
ln(2.5 T/(delta n))) / (n epsilon), a Lipschitz loss, parameters projected on a
convex set. The formula is for *one* sampled record per step, for about n steps
or more and epsilon of about 1 or less; Theorem 3.2.3 states none of this and
the algorithm is printed for batches (item DP-15, erratum E22). Here the noise
on the sum is multiplied by the expected batch size, and a plan whose epsilon by
the accountant exceeds the target is refused.
"""

import math

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax import tree
from dpjax.grads.bounder import WeightConstraint
from dpjax.lipschitz.network import Network
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import PoissonSampler
from dpjax.train.plan import TrainingPlan
from dpjax.typing import Params

_ROUNDING_MARGIN = 1 + 1e-5


def printed_noise_multiplier(*, num_examples: int, num_steps: int,
                             epsilon: float, delta: float) -> float:
  """sigma / L of Algorithm 6 as printed; no guarantee by itself.

  Raises:
    ValueError: where the formula has no value: its second logarithm is negative
      for num_steps < delta num_examples / 2.5.
  """
  errors.check_at_least('num_examples', num_examples, 1)
  errors.check_at_least('num_steps', num_steps, 1)
  errors.check_positive('epsilon', epsilon)
  errors.check_open_unit('delta', delta)
  steps_log = math.log(2.5 * num_steps / (delta * num_examples))
  if steps_log <= 0:
    raise ValueError(f'num_steps must exceed delta * num_examples / 2.5 = '
                     f'{delta * num_examples / 2.5:g}, got {num_steps}')
  return (16 * math.sqrt(num_steps * math.log(2 / delta) * steps_log) /
          (num_examples * epsilon))


def bassily_plan(*, num_examples: int, batch_size: float, num_steps: int,
                 epsilon: float, delta: float, adjacency: Adjacency,
                 max_batch_size: int | None = None) -> TrainingPlan:
  """A plan with the printed multiplier times the expected batch size.

  `plan.epsilon(delta)` is what is delivered, usually far below the target.

  Args:
    num_examples: public number of training records.
    batch_size: expected batch size.
    num_steps: number of steps that will run.
    epsilon: target, positive.
    delta: target, in [1e-12, 1).
    adjacency: which data sets are neighbours.
    max_batch_size: see `PoissonSampler`; no effect on privacy.

  Raises:
    ValueError: if the delivered epsilon exceeds the target.
  """
  sampler = PoissonSampler(num_examples=num_examples, batch_size=batch_size,
                           max_batch_size=max_batch_size)
  printed = printed_noise_multiplier(num_examples=num_examples, delta=delta,
                                     num_steps=num_steps, epsilon=epsilon)
  plan = TrainingPlan(
      sampler=sampler, num_steps=num_steps, adjacency=adjacency,
      noise_multiplier=printed * sampler.expected_batch_size)
  delivered = plan.epsilon(delta)
  if delivered > epsilon:
    raise ValueError(
        f'the noise of Bassily et al. gives epsilon {delivered:.4g} at delta = '
        f'{delta:g}, more than the target {epsilon:g}: use more steps')
  return plan


def project_parameters(network: Network, *,
                       radius: float) -> WeightConstraint:
  """All parameters as one vector, projected on the l2 ball of `radius`.

  The Euclidean projection of Algorithm 6; convex, so that the utility theorem
  applies to a model of one layer. Certifies `radius` for the spectral norm of
  every layer, which no matrix inside the ball exceeds.

  Args:
    network: whose layers' norms to certify; matrices only.
    radius: public.
  """
  errors.check_scale('radius', radius)

  def constrain(params: Params):
    norm = tree.global_norm(params)
    scale = jnp.minimum(1.0, radius / jnp.maximum(norm, radius))
    certificate = jax.tree.map(
        jnp.float32, network.fill(radius * _ROUNDING_MARGIN))
    return tree.scale(scale, params), certificate

  return WeightConstraint(constrain)
