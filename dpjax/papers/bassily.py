"""DP-SGD with the noise of Bassily et al. (2014), and its true epsilon.

Barczewski (2025, Algorithm 6): a Lipschitz loss, parameters projected on a
convex set, and noise of standard deviation
16 L sqrt(T ln(2/delta) ln(2.5 T/(delta n))) / (n epsilon).
This formula is for *one* sampled record per step, about n steps or more, and
epsilon of about 1 or less. Theorem 3.2.3 of Barczewski (2025) states none of
these conditions, and Algorithm 6 is printed for batches (item DP-15, erratum
E22). Here the noise on the sum is multiplied by the expected batch size, and a
plan is rejected if its epsilon by the accountant exceeds the target.
"""

import math

import jax
import jax.numpy as jnp

from dpjax import errors
from dpjax import tree
from dpjax.grads.bounder import Method
from dpjax.grads.bounder import WeightConstraint
from dpjax.lipschitz import bounder as lipschitz_bounder
from dpjax.lipschitz.losses import LipschitzLoss
from dpjax.lipschitz.network import Network
from dpjax.models.model import Model
from dpjax.models.model import network_of
from dpjax.privacy.adjacency import Adjacency
from dpjax.sampling import PoissonSampler
from dpjax.train.plan import TrainingPlan
from dpjax.typing import Params, PyTree

# The certified norm exceeds the radius by this factor: float32 rounding.
_ROUNDING_MARGIN = 1 + 1e-5


def printed_noise_multiplier(*, num_examples: int, num_steps: int,
                             epsilon: float, delta: float) -> float:
  """Returns sigma / L of Algorithm 6 as printed; no guarantee by itself.

  Args:
    num_examples: n, public number of training records.
    num_steps: T.
    epsilon: target, positive.
    delta: target, in (0, 1).

  Raises:
    ValueError: if num_steps <= delta num_examples / 2.5, where the second
      logarithm of the formula is not positive.
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
  """Returns a plan with the printed multiplier times the expected batch size.

  The epsilon that holds is `plan.epsilon(delta)`, usually far below the target.

  Args:
    num_examples: public number of training records.
    batch_size: expected batch size, in records.
    num_steps: number of steps that will run.
    epsilon: target, positive.
    delta: target, in [1e-12, 1).
    adjacency: which data sets are neighbours.
    max_batch_size: see `PoissonSampler`; no effect on privacy.

  Raises:
    ValueError: if the accountant's epsilon of the plan exceeds the target.
  """
  sampler = PoissonSampler(num_examples=num_examples, batch_size=batch_size,
                           max_batch_size=max_batch_size)
  printed = printed_noise_multiplier(num_examples=num_examples, delta=delta,
                                     num_steps=num_steps, epsilon=epsilon)
  plan = TrainingPlan(
      sampler=sampler, num_steps=num_steps, adjacency=adjacency,
      noise_multiplier=printed * sampler.expected_batch_size)
  spent = plan.epsilon(delta)
  if spent > epsilon:
    raise ValueError(
        f'the noise of Bassily et al. gives epsilon {spent:.4g} at delta = '
        f'{delta:g}, more than the target {epsilon:g}: use more steps')
  return plan


def project_parameters(network: Network, *,
                       radius: float) -> WeightConstraint:
  """Returns a constraint: project all parameters, one vector, on an l2 ball.

  This is the Euclidean projection of Algorithm 6. The ball is convex, so the
  utility theorem applies to a model of one layer. The certificate bounds the
  spectral norm of every layer by `radius`: a matrix's spectral norm is at most
  its Frobenius norm, which is at most the norm of all parameters.

  Args:
    network: the network whose layer norms are certified; its parameters must
      be matrices.
    radius: radius of the ball, positive and public.
  """
  errors.check_scale('radius', radius)

  def constrain(params: Params) -> tuple[Params, PyTree]:
    norm = tree.global_norm(params)
    # max(norm, radius) avoids 0 / 0 at the origin.
    scale = jnp.minimum(1.0, radius / jnp.maximum(norm, radius))
    certificate = jax.tree.map(
        jnp.float32, network.fill(radius * _ROUNDING_MARGIN))
    return tree.scale(scale, params), certificate

  return WeightConstraint(constrain)


def bassily(model: Model, loss: LipschitzLoss, *, radius: float) -> Method:
  """Returns the DP-SGD of Bassily et al. (2014), for convex models (DP-15).

  The Lipschitz constant of the loss bounds the gradients, and all parameters
  are projected on one ball (Barczewski, 2025, Algorithm 6). Use it with the
  noise of `bassily_plan`.

  Args:
    model: a model of one layer.
    loss: with a known Lipschitz constant.
    radius: radius of the ball, positive and public.

  Raises:
    ValueError: if the model has more than one layer; it is not convex then.
  """
  network = network_of(model)
  # The loss is not convex in the parameters of two layers.
  num_layers = len(jax.tree.leaves(network.fill(1.0)))
  if num_layers != 1:
    raise ValueError(f'bassily trains models of one layer, this one has '
                     f'{num_layers}')
  return Method(
      'bassily', lipschitz_bounder.certified(network, loss, weight_norm=radius),
      project_parameters(network, radius=radius), private=True)
